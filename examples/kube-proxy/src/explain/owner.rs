//! Chains of a kube-proxy, in contrast to those of other programs, and of another kube-proxy.

use proxy_core::backend::iptables::is_leftover_chain;
use proxy_core::iptables::Variant;
use proxy_core::nftables::{Family, TableId};
use proxy_core::owned::{self, NFTABLES_TABLE};
use proxy_core::{Config, Family as IpFamily};

use super::answer::{Side, Step};

/// Prefix of the name of a table of iptables-legacy, if nf_tables has a table of that name.
const LEGACY: &str = "legacy-";

/// Returns whether a kube-proxy owns a chain.
///
/// Names alone do not decide: network policies have the table `kube-network-policies` and the
/// chains `KUBE-ROUTER-FORWARD` and `KUBE-NWPLCY-…`. A table of iptables-legacy may have the
/// prefix `legacy-`.
pub(super) fn is_own(table: &TableId, chain: &str) -> bool {
    let is_family = matches!(table.family, Family::Ip | Family::Ip6);
    let table = table.name.as_str();
    is_family && (table == NFTABLES_TABLE || is_own_in_iptables(table, chain))
}

fn is_own_in_iptables(table: &str, chain: &str) -> bool {
    let table = table.strip_prefix(LEGACY).unwrap_or(table);
    owned::is_chain(table, chain)
}

/// Returns a rule on a path through the kernel that another kube-proxy left: in another mode,
/// or in the variant of iptables that this proxy does not use. No sync repairs it.
pub(super) fn leftover<'a>(
    config: &Config,
    family: IpFamily,
    kernel: &'a Side,
) -> Option<&'a Step> {
    let mut steps = kernel.paths.iter().flat_map(|path| &path.steps);
    steps.find(|step| is_leftover(config, family, step))
}

fn is_leftover(config: &Config, family: IpFamily, step: &Step) -> bool {
    let words: Vec<_> = step.place.split(' ').collect();
    let [_hook, _family, table, chain] = words[..] else {
        return false;
    };
    // Rules of nf_tables have handles, and rules of the legacy variant do not.
    let variant = match step.handle {
        Some(_) => Variant::Nft,
        None => Variant::Legacy,
    };
    let table = table.strip_prefix(LEGACY).unwrap_or(table);
    let backend = config.iptables.backend;
    owned::is_chain(table, chain)
        && is_leftover_chain(config.mode, backend, family, variant, (table, chain))
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
            (Family::Ip, "nat", "KUBE-XLB-NPX46M4PTMTKRN6Y", true),
            (Family::Ip, "nat", "KUBE-FIREWALL", true),
            (Family::Ip, "nat", "KUBE-PORTALS-CONTAINER", true),
            (Family::Ip, "nat", "KUBE-SVC-MINE", false),
            (Family::Ip, "nat", "KUBE-MARK-DROP", false),
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
