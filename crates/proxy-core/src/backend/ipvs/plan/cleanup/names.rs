//! Names of the IP sets that may be removed.

use crate::backend::ipvs::plan::names::name_for_v6;
use crate::owned::SETS;

/// Returns whether a kube-proxy wrote a set, in either family. Upstream leaves the IPv6
/// sets behind.
pub(in crate::backend::ipvs) fn is_set(name: &str) -> bool {
    SETS.iter()
        .any(|set| *set == name || name_for_v6(set) == name)
}

#[cfg(test)]
mod tests {
    use vipline_service_model::Family;

    use super::*;
    use crate::backend::ipvs::plan::names::{self, MAX_SET_NAME};

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
        assert!(SETS.iter().all(|set| set.len() <= MAX_SET_NAME));
    }

    #[test]
    fn all_planned_sets_are_in_the_list() {
        for set in names::SETS {
            for family in Family::ALL {
                let name = set.name(family);
                assert!(is_set(name.as_str()), "{name}");
            }
        }
    }
}
