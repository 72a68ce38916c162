//! Every string that becomes a name in the kernel, and every comment there.

use vipline_nftables::{Comment, Name};

/// The table, one per family; the name that upstream uses.
pub const TABLE: &str = "kube-proxy";

// Maps.
pub(super) const BACKENDS: &str = "backends";
pub(super) const SERVICE_IPS: &str = "service-ips";

// Sets.
pub(super) const CLUSTER_IPS: &str = "cluster-ips";
pub(super) const HAIRPIN_CONNECTIONS: &str = "hairpin-connections";
pub(super) const NO_ENDPOINTS: &str = "no-endpoints";
pub(super) const NO_LOCAL_ENDPOINTS: &str = "no-local-endpoints";
pub(super) const SERVICE_CIDRS: &str = "service-cidrs";

// Base chains, named after type and hook.
pub(super) const FILTER_PREROUTING_PRE_DNAT: &str = "filter-prerouting-pre-dnat";
pub(super) const FILTER_OUTPUT_PRE_DNAT: &str = "filter-output-pre-dnat";
pub(super) const FILTER_INPUT: &str = "filter-input";
pub(super) const FILTER_FORWARD: &str = "filter-forward";
pub(super) const FILTER_OUTPUT: &str = "filter-output";
pub(super) const FILTER_POSTROUTING: &str = "filter-postrouting";
pub(super) const NAT_PREROUTING: &str = "nat-prerouting";
pub(super) const NAT_OUTPUT: &str = "nat-output";
pub(super) const NAT_POSTROUTING: &str = "nat-postrouting";

// Chains that others go to.
pub(super) const SERVICES: &str = "services";
pub(super) const MASQUERADING: &str = "masquerading";
pub(super) const CLUSTER_IPS_CHECK: &str = "cluster-ips-check";
pub(super) const SERVICE_ENDPOINTS_CHECK: &str = "service-endpoints-check";

/// How the names of the chains begin that choose among so many slots.
const LB: &str = "lb-";

/// Returns the name of the chain that chooses among `slots` slots: `lb-3`.
pub(super) fn lb(slots: u32) -> Name {
    Name::new(&format!("{LB}{slots}")).expect("a word and a number are short and plain")
}

/// Tells whether a chain of this name chooses among slots.
pub(super) fn is_lb(name: &Name) -> bool {
    let slots = name.as_str().strip_prefix(LB);
    slots.is_some_and(|slots| slots.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns a name of this file.
pub(super) fn name(text: &'static str) -> Name {
    Name::new(text).expect("the names here are short and plain")
}

/// Returns a comment of ours.
pub(super) fn comment(text: &'static str) -> Comment {
    Comment::new(text).expect("our comments are short and plain")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_that_choose_among_slots_are_known_by_their_names() {
        assert_eq!(lb(300).as_str(), "lb-300");
        assert!(is_lb(&lb(1)));
        for other in [SERVICES, "lb-short-1", "lb", "xlb-1"] {
            assert!(!is_lb(&name(other)), "{other}");
        }
    }
}
