//! All names and comments in the kernel.

use std::fmt;

use sha2::{Digest, Sha256};
use vipline_nftables::{Comment, Name};
use vipline_service_model::PortName;

/// Name of the table in each family. Upstream uses the same name.
pub const TABLE: &str = "kube-proxy";

// Maps of slots to endpoints.
pub(super) const BACKENDS: &str = "backends";
pub(super) const SINGLE_BACKENDS: &str = "single-backends";
pub(super) const SHORT_BACKENDS: &str = "short-backends";
pub(super) const NODEPORT_BACKENDS: &str = "nodeport-backends";
pub(super) const SHORT_NODEPORT_BACKENDS: &str = "short-nodeport-backends";

// Maps of addresses to load-balancing chains.
pub(super) const DISPATCH_IPS: &str = "dispatch-ips";
pub(super) const SHORT_IPS: &str = "short-ips";
pub(super) const DISPATCH_NODEPORTS: &str = "dispatch-nodeports";
pub(super) const SHORT_NODEPORTS: &str = "short-nodeports";

// Sets of addresses and ports.
pub(super) const ACTIVE_CLUSTER_IPS: &str = "active-cluster-ips";
pub(super) const EXTERNAL_NETWORKS: &str = "external-networks";
pub(super) const RESTRICTED_IPS: &str = "restricted-ips";
pub(super) const HAIRPIN_ENDPOINTS: &str = "hairpin-endpoints";
pub(super) const LOCAL_POLICY_IPS: &str = "local-policy-ips";
pub(super) const LOCAL_POLICY_NODEPORTS: &str = "local-policy-nodeports";
pub(super) const MASQUERADE_IPS: &str = "masquerade-ips";
pub(super) const NODEPORT_NETWORKS: &str = "nodeport-networks";
pub(super) const NO_ENDPOINTS: &str = "no-endpoints";
pub(super) const NO_ENDPOINTS_NODEPORTS: &str = "no-endpoints-nodeports";
pub(super) const NO_LOCAL_ENDPOINTS: &str = "no-local-endpoints";
pub(super) const NO_LOCAL_ENDPOINTS_NODEPORTS: &str = "no-local-endpoints-nodeports";
pub(super) const SERVICE_CIDRS: &str = "service-cidrs";
pub(super) const SERVICE_NETWORKS: &str = "service-networks";
pub(super) const SOURCE_RANGES: &str = "source-ranges";
pub(super) const STICKY_NODEPORT_PROTOCOLS: &str = "sticky-nodeport-protocols";
pub(super) const STICKY_PROTOCOLS: &str = "sticky-protocols";

// Maps of addresses with session affinity.
pub(super) const POOL_IPS: &str = "pool-ips";
pub(super) const POOL_NODEPORTS: &str = "pool-nodeports";
pub(super) const LEARNER_IPS: &str = "learner-ips";
pub(super) const LEARNER_NODEPORTS: &str = "learner-nodeports";
pub(super) const RECORDED: &str = "recorded";
pub(super) const SHORT_RECORDED: &str = "short-recorded";
pub(super) const NODEPORT_RECORDED: &str = "nodeport-recorded";
pub(super) const SHORT_NODEPORT_RECORDED: &str = "short-nodeport-recorded";

// Verdict maps of session affinity. Their size does not depend on the number of Services.
pub(super) const RECALLS: &str = "recalls";
pub(super) const USUAL_LEARNERS: &str = "usual-learners";
pub(super) const FORGETS: &str = "forgets";
pub(super) const LEARNERS: &str = "learners";
pub(super) const NODEPORT_LEARNERS: &str = "nodeport-learners";

// Base chains, named after type and hook: a subset of upstream's, see `UPSTREAM`.
pub(super) const FILTER_PREROUTING_PRE_DNAT: &str = "filter-prerouting-pre-dnat";
pub(super) const FILTER_OUTPUT_PRE_DNAT: &str = "filter-output-pre-dnat";
pub(super) const FILTER_INPUT: &str = "filter-input";
pub(super) const FILTER_FORWARD: &str = "filter-forward";
pub(super) const FILTER_OUTPUT: &str = "filter-output";
pub(super) const NAT_PREROUTING: &str = "nat-prerouting";
pub(super) const NAT_OUTPUT: &str = "nat-output";
pub(super) const NAT_POSTROUTING: &str = "nat-postrouting";

// Regular chains.
pub(super) const AFFINITY: &str = "affinity";
pub(super) const AFFINITY_LEARNING: &str = "affinity-learning";
pub(super) const CLUSTER_IPS_CHECK: &str = "cluster-ips-check";
pub(super) const EXTERNAL_IPS: &str = "external-ips";
pub(super) const FIREWALL_CHECK: &str = "firewall-check";
pub(super) const LEARNING: &str = "learning";
pub(super) const MARK_FOR_MASQUERADE: &str = "mark-for-masquerade";
pub(super) const MASQUERADING: &str = "masquerading";
pub(super) const NODEPORTS: &str = "nodeports";
pub(super) const NODEPORT_AFFINITY: &str = "nodeport-affinity";
pub(super) const NODEPORT_ENDPOINTS_CHECK: &str = "nodeport-endpoints-check";
pub(super) const NODEPORT_LEARNING: &str = "nodeport-learning";
pub(super) const SERVICES: &str = "services";
pub(super) const SERVICE_ENDPOINTS_CHECK: &str = "service-endpoints-check";
pub(super) const SERVICE_IPS_CHECK: &str = "service-ips-check";
pub(super) const SHORT_AFFINITY: &str = "short-affinity";
pub(super) const SHORT_CIRCUIT: &str = "short-circuit";
pub(super) const SHORT_CIRCUIT_NODEPORTS: &str = "short-circuit-nodeports";
pub(super) const SHORT_NODEPORT_AFFINITY: &str = "short-nodeport-affinity";
pub(super) const TRANSLATED: &str = "translated";

/// Names of upstream's sets and maps. The first layout of this crate used such
/// names for sets of other types.
///
/// No set or map of ours uses these names: upstream's `add set` or `add map` over a set
/// of another type fails, and then no sync of upstream succeeds.
pub(super) const UPSTREAM: [&str; 8] = [
    "cluster-ips",
    "firewall-ips",
    "hairpin-connections",
    "no-endpoint-nodeports",
    "no-endpoint-services",
    "nodeport-ips",
    "service-ips",
    "service-nodeports",
];

/// Returns whether upstream declares a set or map of this name, or deletes it as an
/// affinity set of an endpoint.
pub(super) fn is_upstream(name: &Name) -> bool {
    let name = name.as_str();
    UPSTREAM.contains(&name) || name.starts_with("affinity-")
}

/// Returns whether several Services share the elements of a set.
pub(super) fn is_shared(name: &Name) -> bool {
    let shared = [
        EXTERNAL_NETWORKS,
        FORGETS,
        LEARNERS,
        NODEPORT_LEARNERS,
        RECALLS,
        SERVICE_NETWORKS,
        STICKY_NODEPORT_PROTOCOLS,
        STICKY_PROTOCOLS,
        USUAL_LEARNERS,
    ];
    shared.contains(&name.as_str())
}

/// Prefix of maps of addresses with a given number of slots.
const DIRECT: &str = "backends-";
/// Prefix of load-balancing chains.
const LB: &str = "lb-";
/// Prefix of chains that record the endpoints of clients.
const LEARN: &str = "learn-";
/// Prefix of chains that look up the recorded endpoint of a client.
const RECALL: &str = "recall-";
/// Prefix of chains that delete a client.
const FORGET: &str = "forget-";
/// Prefix of maps of clients to their recorded endpoints.
const CLIENTS: &str = "clients-";
/// Marks a chain for node ports.
const NODEPORT: &str = "nodeport-";
/// Marks a chain that records clients for local endpoints only.
const LOCAL: &str = "local-";
/// Marks a chain that records clients both for all endpoints and for local endpoints.
const BOTH: &str = "both-";

/// Prefixes of the chains that a former layout had for each Service with session affinity:
/// `sticky-2PJ2ZLJC6L4IFV3Z-2`, `learn-2PJ2ZLJC6L4IFV3Z-10800`.
///
/// A start after an upgrade removes them like unused chains: after the elements that lead to
/// them, and in another transaction.
const FORMER_CHAINS: [&str; 1] = ["sticky-"];
/// Prefixes of the sets of the former layout: `clients-2PJ2ZLJC6L4IFV3Z`,
/// `endpoints-2PJ2ZLJC6L4IFV3Z-local`.
const FORMER_SETS: [&str; 1] = ["endpoints-"];

/// Returns the pool of a service port: the number under which its clients are recorded, at
/// all of its addresses.
///
/// It is a part of a SHA-256 hash of the name, so that a restart finds the clients again. Two
/// service ports have the same pool with a probability of one in 134 million; then a client of
/// both loses its affinity when it changes between them. It never reaches an endpoint of the
/// other one, because a recorded endpoint counts only if the address has it.
pub(super) fn pool(port: &PortName) -> u32 {
    let PortName {
        namespace,
        service,
        port,
        protocol,
        ..
    } = port;
    let hash = Sha256::digest(format!("{namespace}/{service}/{protocol}/{port}"));
    let first = hash.first_chunk().expect("a hash has 32 bytes");
    u32::from_be_bytes(*first) & super::affinity::POOL
}

/// The lists of endpoints for which clients of a service port are recorded.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Lists {
    Cluster,
    Local,
    Both,
}

impl Lists {
    const ALL: [Self; 3] = [Self::Cluster, Self::Local, Self::Both];

    /// Returns the mark in the name of a chain.
    fn mark(self) -> &'static str {
        match self {
            Self::Cluster => "",
            Self::Local => LOCAL,
            Self::Both => BOTH,
        }
    }
}

/// How the clients of an address are recorded.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Learner {
    pub(super) lists: Lists,
    /// Time in seconds for which a client without new connections stays recorded.
    pub(super) seconds: u32,
    /// The [shard](super::affinity::SHARDS) of the pool.
    pub(super) shard: u32,
}

/// Returns the name of the map of addresses with `slots` slots: `backends-3`.
///
/// The name of the map for one slot is different because its keys have no slot. An earlier
/// release had a map with slots under the usual name, and a set cannot change its type.
pub(super) fn direct(slots: u32) -> Name {
    match slots {
        1 => name(SINGLE_BACKENDS),
        _ => numbered(format_args!("{DIRECT}{slots}")),
    }
}

/// Returns the name of a load-balancing chain: `lb-short-3`.
///
/// `path` is the infix of the lookup path: `""`, `"short-"`, `"nodeport-"`,
/// `"masquerade-nodeport-"`, `"short-nodeport-"`.
pub(super) fn lb(path: &str, slots: u32) -> Name {
    numbered(format_args!("{LB}{path}{slots}"))
}

/// Returns the name of the map of the clients in a shard: `clients-12`.
pub(super) fn clients(shard: u32) -> Name {
    numbered(format_args!("{CLIENTS}{shard}"))
}

/// Parses the name of a map of clients.
pub(super) fn shard_of_clients(name: &Name) -> Option<u32> {
    name.as_str().strip_prefix(CLIENTS)?.parse().ok()
}

/// Returns the name of the chain that looks up clients in a shard: `recall-12`.
pub(super) fn recall(shard: u32) -> Name {
    numbered(format_args!("{RECALL}{shard}"))
}

/// Returns the name of the chain that deletes a client of a shard: `forget-12`.
pub(super) fn forget(shard: u32) -> Name {
    numbered(format_args!("{FORGET}{shard}"))
}

/// Returns the name of the chain that records the endpoints of clients: `learn-10800-12`,
/// `learn-nodeport-both-10800-12`.
pub(super) fn learn(is_nodeport: bool, learner: Learner) -> Name {
    let nodeport = if is_nodeport { NODEPORT } else { "" };
    let Learner {
        lists,
        seconds,
        shard,
    } = learner;
    let lists = lists.mark();
    numbered(format_args!("{LEARN}{nodeport}{lists}{seconds}-{shard}"))
}

/// The purpose of a chain on demand, by its name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum OnDemand<'a> {
    /// [`lb`].
    Lb { path: &'a str, slots: u32 },
    /// [`recall`].
    Recall(u32),
    /// [`forget`].
    Forget(u32),
    /// [`learn`].
    Learn { is_nodeport: bool, learner: Learner },
}

impl<'a> OnDemand<'a> {
    /// Parses the name of a chain.
    pub(super) fn parse(name: &'a Name) -> Option<Self> {
        let name = name.as_str();
        if let Some(text) = name.strip_prefix(LB) {
            let (path, slots) = path_and_number(text)?;
            return Some(Self::Lb { path, slots });
        }
        if let Some(shard) = name.strip_prefix(RECALL) {
            return Some(Self::Recall(shard.parse().ok()?));
        }
        if let Some(shard) = name.strip_prefix(FORGET) {
            return Some(Self::Forget(shard.parse().ok()?));
        }
        let text = name.strip_prefix(LEARN)?;
        let (is_nodeport, text) = match text.strip_prefix(NODEPORT) {
            Some(text) => (true, text),
            None => (false, text),
        };
        let (mark, shard) = path_and_number(text)?;
        let (mark, seconds) = path_and_number(mark.strip_suffix('-')?)?;
        let lists = Lists::ALL.into_iter().find(|lists| lists.mark() == mark)?;
        let learner = Learner {
            lists,
            seconds,
            shard,
        };
        Some(Self::Learn {
            is_nodeport,
            learner,
        })
    }
}

/// Splits `short-nodeport-3` into `short-nodeport-` and 3.
fn path_and_number(text: &str) -> Option<(&str, u32)> {
    let at = text.rfind('-').map_or(0, |dash| dash + 1);
    let (path, number) = text.split_at(at);
    Some((path, number.parse().ok()?))
}

/// Returns whether chains of this name exist only while service ports use them.
pub(crate) fn is_chain_on_demand(name: &Name) -> bool {
    let name = name.as_str();
    let prefixes = [LB, LEARN, RECALL, FORGET].into_iter().chain(FORMER_CHAINS);
    prefixes.into_iter().any(|prefix| name.starts_with(prefix))
}

/// Returns whether chains of this name exist only while service ports have source ranges.
pub(super) fn is_chain_before_dnat(name: &Name) -> bool {
    [FILTER_PREROUTING_PRE_DNAT, FILTER_OUTPUT_PRE_DNAT].contains(&name.as_str())
}

/// Returns whether chains of this name exist only while service ports have session affinity.
pub(super) fn is_chain_of_affinity(name: &Name) -> bool {
    is_chain_on_demand(name) && !name.as_str().starts_with(LB)
}

/// Returns whether sets of this name exist only while service ports use them.
pub(crate) fn is_set_on_demand(name: &Name) -> bool {
    let name = name.as_str();
    let prefixes = [CLIENTS].into_iter().chain(FORMER_SETS);
    prefixes.into_iter().any(|prefix| name.starts_with(prefix))
}

fn numbered(text: fmt::Arguments<'_>) -> Name {
    Name::new(&text.to_string()).expect("a word with a number is a valid name")
}

/// Returns a validated name from this file.
pub(crate) fn name(text: &'static str) -> Name {
    Name::new(text).expect("the names in this file are valid")
}

/// Returns a validated comment.
pub(super) fn comment(text: &'static str) -> Comment {
    Comment::new(text).expect("the comments in this crate are valid")
}

#[cfg(test)]
mod tests {
    use vipline_service_model::Transport;

    use super::super::affinity::LOCAL;
    use super::*;

    #[test]
    fn a_pool_depends_on_all_parts_of_the_name_of_a_service_port() {
        let name = |service: &str, port: &str, protocol| {
            pool(&PortName {
                namespace: "default".into(),
                service: service.into(),
                port: port.into(),
                protocol,
                created: None,
            })
        };
        let of_web = name("web", "http", Transport::Tcp);
        assert_eq!(of_web, name("web", "http", Transport::Tcp));
        assert_eq!(of_web & LOCAL, 0);
        for other in [
            name("web", "", Transport::Tcp),
            name("web2", "http", Transport::Tcp),
            name("web", "http", Transport::Udp),
        ] {
            assert_ne!(of_web, other);
        }
    }

    #[test]
    fn names_of_chains_on_demand_are_parsed() {
        let assert_parsed = |name: &Name, expected| {
            assert_eq!(OnDemand::parse(name), Some(expected));
            assert!(is_chain_on_demand(name), "{name}");
        };
        for (path, slots) in [
            ("", 300),
            ("short-", 1),
            ("nodeport-", 2),
            ("masquerade-nodeport-", 5),
            ("short-nodeport-", 9),
        ] {
            let name = lb(path, slots);
            assert_parsed(&name, OnDemand::Lb { path, slots });
            assert!(!is_chain_of_affinity(&name));
        }
        assert_parsed(&recall(12), OnDemand::Recall(12));
        assert_parsed(&forget(0), OnDemand::Forget(0));
        for lists in Lists::ALL {
            for is_nodeport in [false, true] {
                let learner = Learner {
                    lists,
                    seconds: 10_800,
                    shard: 63,
                };
                let name = learn(is_nodeport, learner);
                let expected = OnDemand::Learn {
                    is_nodeport,
                    learner,
                };
                assert_parsed(&name, expected);
                assert!(is_chain_of_affinity(&name));
            }
        }
        for other in [
            "lb-",
            "lb-x",
            "learn-2PJ2ZLJC6L4IFV3Z-10800",
            "learn-short-1-3",
            "learn-3",
            "recall-x",
            "sticky-3",
        ] {
            assert_eq!(OnDemand::parse(&name(other)), None, "{other}");
        }
        for other in [
            SERVICES,
            AFFINITY,
            AFFINITY_LEARNING,
            LEARNING,
            SHORT_CIRCUIT,
        ] {
            assert!(!is_chain_on_demand(&name(other)), "{other}");
        }
    }

    #[test]
    fn objects_of_the_former_layout_are_on_demand() {
        for chain in ["sticky-2PJ2ZLJC6L4IFV3Z-2", "learn-2PJ2ZLJC6L4IFV3Z-10800"] {
            assert!(is_chain_of_affinity(&name(chain)), "{chain}");
        }
        for set in [
            "clients-2PJ2ZLJC6L4IFV3Z",
            "endpoints-2PJ2ZLJC6L4IFV3Z-local",
        ] {
            assert!(is_set_on_demand(&name(set)), "{set}");
            assert_eq!(shard_of_clients(&name(set)), None, "{set}");
        }
    }

    #[test]
    fn names_of_sets_on_demand_are_parsed() {
        let clients = clients(12);
        assert_eq!(shard_of_clients(&clients), Some(12));
        assert!(is_set_on_demand(&clients));
        for other in [BACKENDS, NO_ENDPOINTS, POOL_IPS, RECORDED] {
            assert!(!is_set_on_demand(&name(other)), "{other}");
        }
    }
}
