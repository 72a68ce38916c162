//! `-j SECMARK`: security marks.

use std::borrow::Cow;

use crate::extensions::structure::Structure;
use crate::options::field::extension;

extension! {
    /// Sets the security mark: `-j SECMARK --selctx system_u:object_r:http_packet_t:s0`.
    pub struct Secmark<'a> = "-j SECMARK" {
        /// Security context of SELinux; iptables requires one.
        context: Option<Cow<'a, str>> = "--selctx",
    }
}

/// `struct xt_secmark_target_info_v1` is not written: no kernel of the tests has SELinux.
impl Structure for Secmark<'_> {
    const NAME: &'static str = "SECMARK";
}
