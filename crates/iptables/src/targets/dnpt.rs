//! `-j DNPT`: translation of the prefix of destination addresses.

use ipnet::IpNet;

use crate::field::extension;

extension! {
    /// Translates the prefix of destination addresses: `-j DNPT --src-pfx fd00::/64 --dst-pfx
    /// fd01::/64`.
    ///
    /// iptables requires both prefixes, of at most 64 bits.
    pub struct Dnpt = "-j DNPT" {
        /// Prefix of the destination addresses.
        source: Option<IpNet> = "--src-pfx",
        /// New prefix.
        destination: Option<IpNet> = "--dst-pfx",
    }
    complete |it| is_prefix(it.source) && is_prefix(it.destination);
}

pub(super) fn is_prefix(network: Option<IpNet>) -> bool {
    network.is_some_and(|it| it.addr().is_ipv6() && it.prefix_len() <= 64)
}
