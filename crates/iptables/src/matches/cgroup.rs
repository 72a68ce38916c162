//! `-m cgroup`: control group of the sending socket.

use crate::field::{Text, extension};
use crate::negatable::Negatable;

extension! {
    /// Matches the control group of the sending socket: `-m cgroup --path "a/b"`.
    ///
    /// iptables requires exactly one option.
    pub struct Cgroup<'a> = "-m cgroup" {
        /// Path in the hierarchy of version 2.
        path: Option<Negatable<Text<'a>>> = "--path",
        /// Class ID of version 1.
        class_id: Option<Negatable<u32>> = "--cgroup",
    }
    complete |it| it.path.is_some() != it.class_id.is_some();
}
