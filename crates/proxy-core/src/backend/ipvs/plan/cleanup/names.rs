//! Names of all objects of mode ipvs that may be removed.
//!
//! The lists contain what upstream 1.36 removes with `--cleanup`. Objects that upstream
//! creates and leaves behind are marked.

use vipline_service_model::Family;

use crate::Mode;
use crate::backend::ipvs::plan::names::{SETS, Set, name_for_v6};
use crate::cleanup::names::{Names, chain, jump};

/// Chains and jumps in iptables of mode ipvs alone.
pub(in crate::backend::ipvs) const IPTABLES: &[Names] = &[Names {
    modes: &[Mode::Ipvs],
    chains: &[
        chain("nat", "KUBE-NODE-PORT"),
        chain("nat", "KUBE-LOAD-BALANCER"),
        chain("filter", "KUBE-NODE-PORT"),
        chain("filter", "KUBE-SOURCE-RANGES-FIREWALL"),
        chain("filter", "KUBE-IPVS-FILTER"),
        chain("filter", "KUBE-IPVS-OUT-FILTER"),
    ],
    is_of_service: |_| false,
    jumps: &[
        jump(
            "filter",
            "INPUT",
            "KUBE-NODE-PORT",
            "kubernetes health check rules",
        ),
        jump(
            "filter",
            "INPUT",
            "KUBE-PROXY-FIREWALL",
            "kube-proxy firewall rules",
        ),
        jump(
            "filter",
            "FORWARD",
            "KUBE-PROXY-FIREWALL",
            "kube-proxy firewall rules",
        ),
        jump(
            "filter",
            "INPUT",
            "KUBE-IPVS-FILTER",
            "kubernetes ipvs access filter",
        ),
        jump(
            "filter",
            "OUTPUT",
            "KUBE-IPVS-OUT-FILTER",
            "kubernetes ipvs access filter",
        ),
    ],
}];

/// IPv4 sets of older releases, which left them behind.
const OLD_SETS: [&str; 2] = ["KUBE-NODE-PORT-SCTP", "KUBE-NODE-PORT-LOCAL-SCTP"];

/// Returns whether a set belongs to kube-proxy, in either family. Upstream leaves the
/// IPv6 sets behind.
pub(in crate::backend::ipvs) fn is_set(name: &str) -> bool {
    let is_name = |set: &&Set| {
        Family::ALL
            .iter()
            .any(|&family| set.name(family).as_str() == name)
    };
    let is_old = |set: &&str| *set == name || name_for_v6(set) == name;
    SETS.iter().any(is_name) || OLD_SETS.iter().any(is_old)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::ipvs::plan::names::MAX_SET_NAME;

    #[test]
    fn sets_of_both_families_are_known() {
        for name in [
            "KUBE-CLUSTER-IP",
            "KUBE-6-CLUSTER-IP",
            "KUBE-6-LOAD-BALANCER-SOURCE-CID",
            "KUBE-6-NODE-PORT-LOCAL-SCTP-HAS",
            "KUBE-NODE-PORT-SCTP",
        ] {
            assert!(is_set(name), "{name}");
        }
        for name in ["KUBE-CLUSTER", "KUBE-CLUSTER-IPS", "KUBE-6-", "MY-SET"] {
            assert!(!is_set(name), "{name}");
        }
        let old = OLD_SETS.iter().map(|set| set.len());
        let lengths = SETS.iter().map(|set| set.name(Family::V4).as_str().len());
        assert!(old.chain(lengths).all(|length| length <= MAX_SET_NAME));
    }
}
