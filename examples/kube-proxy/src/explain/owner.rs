//! Chains of a kube-proxy, in contrast to those of other programs.

use proxy_core::backend::nftables::TABLE;
use proxy_core::backend::{iptables, ipvs};
use proxy_core::nftables::{Family, TableId};

/// Returns whether a kube-proxy owns a chain.
///
/// Names alone do not decide: network policies have the table `kube-network-policies` and the
/// chains `KUBE-ROUTER-FORWARD` and `KUBE-NWPLCY-…`. A table of iptables-legacy may have the
/// prefix `legacy-`.
pub(super) fn is_own(table: &TableId, chain: &str) -> bool {
    let is_family = matches!(table.family, Family::Ip | Family::Ip6);
    let table = table.name.as_str();
    is_family && (table == TABLE || is_own_in_iptables(table, chain))
}

fn is_own_in_iptables(table: &str, chain: &str) -> bool {
    let table = table.strip_prefix("legacy-").unwrap_or(table);
    iptables::is_own_chain(table, chain) || ipvs::is_own_chain(table, chain)
}

#[cfg(test)]
mod tests {
    use proxy_core::nftables::Name;

    use super::*;

    #[test]
    fn chains_of_a_kube_proxy_are_known_by_table_and_name() {
        for (family, table, chain, expected) in [
            (Family::Ip, "kube-proxy", "services", true),
            (Family::Ip6, "kube-proxy", "services", true),
            (Family::Inet, "kube-proxy", "services", false),
            (Family::Ip, "kube-proxy-copy", "services", false),
            (Family::Inet, "kube-network-policies", "forward", false),
            (Family::Ip, "nat", "KUBE-SERVICES", true),
            (Family::Ip6, "filter", "KUBE-PROXY-FIREWALL", true),
            (Family::Ip, "mangle", "KUBE-SERVICES", false),
            (Family::Ip, "legacy-nat", "KUBE-SERVICES", true),
            (Family::Ip, "nat", "KUBE-SVC-NPX46M4PTMTKRN6Y", true),
            (Family::Ip, "filter", "KUBE-SVC-NPX46M4PTMTKRN6Y", false),
            (Family::Ip, "nat", "KUBE-SVC-MINE", false),
            (Family::Ip, "filter", "KUBE-IPVS-FILTER", true),
            (Family::Ip, "filter", "KUBE-ROUTER-FORWARD", false),
            (Family::Ip, "filter", "KUBE-NWPLCY-X", false),
            (Family::Ip, "filter", "FORWARD", false),
        ] {
            let table = TableId::new(family, Name::new(table).unwrap());
            assert_eq!(is_own(&table, chain), expected, "{table} {chain}");
        }
    }
}
