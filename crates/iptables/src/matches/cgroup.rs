//! `-m cgroup`: control group of the sending socket.

use crate::extensions::structure::{Reader, Structure, Writer, is_not};
use crate::options::field::{Text, extension};
use crate::options::negatable::Negatable;

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

/// Length of a path with its NUL byte.
const XT_CGROUP_PATH_MAX: usize = 512;

/// `struct xt_cgroup_info_v2`.
impl Structure for Cgroup<'_> {
    const NAME: &'static str = "cgroup";
    const REVISION: u32 = 2;

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        out.u8(self.path.is_some().into());
        out.u8(self.class_id.is_some().into());
        out.u8(is_not(&self.path).into());
        out.u8(is_not(&self.class_id).into());
        // The path and the class share their place.
        match (&self.path, self.class_id) {
            (Some(path), None) => out.text(&path.value().0, XT_CGROUP_PATH_MAX)?,
            (None, Some(class)) => out.u32(*class.value()).zeros(XT_CGROUP_PATH_MAX - 4),
            _ => return None,
        };
        out.pointer();
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let [has_path, has_class, not_path, not_class] = reader.array()?.map(|byte: u8| byte != 0);
        let (mut path, mut class_id) = (None, None);
        match (has_path, has_class) {
            (true, false) => {
                let text = Text::from(reader.text(XT_CGROUP_PATH_MAX)?);
                path = Some(Negatable::new(not_path, text));
            }
            (false, true) => class_id = Some(Negatable::new(not_class, reader.u32()?)),
            _ => return None,
        }
        Some(Self { path, class_id })
    }
}
