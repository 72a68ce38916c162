//! `-j SECMARK`: security marks.

use std::borrow::Cow;

use crate::field::extension;

extension! {
    /// Sets the security mark: `-j SECMARK --selctx system_u:object_r:http_packet_t:s0`.
    pub struct Secmark<'a> = "-j SECMARK" {
        /// Security context of SELinux; iptables requires one.
        context: Option<Cow<'a, str>> = "--selctx",
    }
}
