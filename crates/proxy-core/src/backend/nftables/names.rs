//! Every string that becomes a name in the kernel, and every comment there.

use std::fmt;

use vipline_nftables::{Comment, Name};

/// The table, one per family; the name that upstream uses.
pub const TABLE: &str = "kube-proxy";

// Maps of endpoints by slot.
pub(super) const BACKENDS: &str = "backends";
pub(super) const SHORT_BACKENDS: &str = "short-backends";
pub(super) const NODEPORT_BACKENDS: &str = "nodeport-backends";
pub(super) const SHORT_NODEPORT_BACKENDS: &str = "short-nodeport-backends";

// Maps that send traffic to the chains for so many slots.
pub(super) const SERVICE_IPS: &str = "service-ips";
pub(super) const SHORT_IPS: &str = "short-ips";
pub(super) const SERVICE_NODEPORTS: &str = "service-nodeports";
pub(super) const SHORT_NODEPORTS: &str = "short-nodeports";

// Sets of addresses and ports of which something is to be known.
pub(super) const CLUSTER_IPS: &str = "cluster-ips";
pub(super) const FIREWALL_IPS: &str = "firewall-ips";
pub(super) const HAIRPIN_CONNECTIONS: &str = "hairpin-connections";
pub(super) const LOCAL_POLICY_IPS: &str = "local-policy-ips";
pub(super) const LOCAL_POLICY_NODEPORTS: &str = "local-policy-nodeports";
pub(super) const MASQUERADE_IPS: &str = "masquerade-ips";
pub(super) const MASQUERADE_NODEPORTS: &str = "masquerade-nodeports";
pub(super) const NODEPORT_IPS: &str = "nodeport-ips";
pub(super) const NO_ENDPOINTS: &str = "no-endpoints";
pub(super) const NO_ENDPOINTS_NODEPORTS: &str = "no-endpoints-nodeports";
pub(super) const NO_LOCAL_ENDPOINTS: &str = "no-local-endpoints";
pub(super) const NO_LOCAL_ENDPOINTS_NODEPORTS: &str = "no-local-endpoints-nodeports";
pub(super) const SERVICE_CIDRS: &str = "service-cidrs";
pub(super) const SOURCE_RANGES: &str = "source-ranges";

// What clients that stay with their endpoints need.
pub(super) const AFFINITY: &str = "affinity";
pub(super) const AFFINITY_ENDPOINTS: &str = "affinity-endpoints";
pub(super) const AFFINITY_IPS: &str = "affinity-ips";
pub(super) const AFFINITY_NODEPORTS: &str = "affinity-nodeports";
pub(super) const AFFINITY_NODEPORT_ENDPOINTS: &str = "affinity-nodeport-endpoints";
pub(super) const AFFINITY_NODEPORT_PORTS: &str = "affinity-nodeport-ports";

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
pub(super) const AFFINITY_LEARNING: &str = "affinity-learning";
pub(super) const CLUSTER_IPS_CHECK: &str = "cluster-ips-check";
pub(super) const FIREWALL_CHECK: &str = "firewall-check";
pub(super) const MASQUERADING: &str = "masquerading";
pub(super) const NODEPORTS: &str = "nodeports";
pub(super) const NODEPORT_ENDPOINTS_CHECK: &str = "nodeport-endpoints-check";
pub(super) const SERVICES: &str = "services";
pub(super) const SERVICE_ENDPOINTS_CHECK: &str = "service-endpoints-check";
pub(super) const SHORT_CIRCUIT: &str = "short-circuit";
pub(super) const SHORT_CIRCUIT_NODEPORTS: &str = "short-circuit-nodeports";

/// How the names of the sets begin that hold the addresses with so many slots.
const SLOTS: &str = "slots-";
/// How the names of the chains begin that choose among so many slots.
const LB: &str = "lb-";
/// How the names of the chains begin that keep clients with their endpoints for
/// so many seconds.
const LEARN: &str = "learn-";
/// How chains end that ask first whether the client was here before.
const STICKY: &str = "-affinity";

/// Returns the name of the set of addresses with so many slots: `slots-3`.
pub(super) fn slots(slots: u32) -> Name {
    numbered(format_args!("{SLOTS}{slots}"))
}

/// Returns the name of a chain that chooses among slots: `lb-short-3-affinity`.
///
/// `way` tells by which map: `""`, `"short-"`, `"nodeport-"`, `"short-nodeport-"`.
pub(super) fn lb(way: &str, slots: u32, sticky: bool) -> Name {
    let end = if sticky { STICKY } else { "" };
    numbered(format_args!("{LB}{way}{slots}{end}"))
}

/// Returns the name of the chain that notes whom a client was sent to, for so
/// many seconds: `learn-10800`, `learn-nodeport-10800`.
pub(super) fn learn(way: &str, seconds: u32) -> Name {
    numbered(format_args!("{LEARN}{way}{seconds}"))
}

/// Tells whether chains of this name exist only when something goes to them.
pub(super) fn is_on_demand(name: &Name) -> bool {
    let name = name.as_str();
    name.starts_with(LB) || name.starts_with(LEARN)
}

fn numbered(text: fmt::Arguments<'_>) -> Name {
    Name::new(&text.to_string()).expect("words and a number are short and plain")
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
    fn chains_that_exist_on_demand_are_known_by_their_names() {
        let [plain, sticky] = [lb("", 300, false), lb("short-nodeport-", 2, true)];
        assert_eq!(plain.as_str(), "lb-300");
        assert_eq!(sticky.as_str(), "lb-short-nodeport-2-affinity");
        assert_eq!(learn("nodeport-", 10_800).as_str(), "learn-nodeport-10800");
        assert!([plain, sticky, learn("", 1)].iter().all(is_on_demand));
        for other in [SERVICES, AFFINITY_LEARNING, SHORT_CIRCUIT] {
            assert!(!is_on_demand(&name(other)), "{other}");
        }
    }
}
