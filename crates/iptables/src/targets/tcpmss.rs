//! `-j TCPMSS`: maximum segment size of TCP.

use crate::field::extension;

extension! {
    /// Changes the maximum segment size: `-p tcp -j TCPMSS --clamp-mss-to-pmtu`.
    ///
    /// iptables requires exactly one option.
    pub struct Tcpmss = "-j TCPMSS" {
        /// Maximum segment size in bytes.
        set: Option<u16> = "--set-mss",
        /// Whether the size follows the MTU of the path.
        clamp_to_pmtu: bool = "--clamp-mss-to-pmtu",
    }
    complete |it| it.set.is_some() != it.clamp_to_pmtu;
}
