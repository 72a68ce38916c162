//! All names and comments in the kernel.

use std::fmt;

use data_encoding::BASE32;
use sha2::{Digest, Sha256};
use vipline_nftables::{Comment, Name};
use vipline_service_model::PortName;

/// Name of the table in each family. Upstream uses the same name.
pub const TABLE: &str = crate::owned::NFTABLES_TABLE;

// Maps of slots to endpoints.
pub(super) const BACKENDS: &str = "backends";
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
pub(super) const STICKY_IPS: &str = "sticky-ips";
pub(super) const STICKY_NODEPORTS: &str = "sticky-nodeports";

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
pub(super) const AFFINITY_LEARNING: &str = "affinity-learning";
pub(super) const CLUSTER_IPS_CHECK: &str = "cluster-ips-check";
pub(super) const EXTERNAL_IPS: &str = "external-ips";
pub(super) const FIREWALL_CHECK: &str = "firewall-check";
pub(super) const MARK_FOR_MASQUERADE: &str = "mark-for-masquerade";
pub(super) const MASQUERADING: &str = "masquerading";
pub(super) const NODEPORTS: &str = "nodeports";
pub(super) const NODEPORT_ENDPOINTS_CHECK: &str = "nodeport-endpoints-check";
pub(super) const SERVICES: &str = "services";
pub(super) const SERVICE_ENDPOINTS_CHECK: &str = "service-endpoints-check";
pub(super) const SERVICE_IPS_CHECK: &str = "service-ips-check";
pub(super) const SHORT_CIRCUIT: &str = "short-circuit";
pub(super) const SHORT_CIRCUIT_NODEPORTS: &str = "short-circuit-nodeports";
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
        SERVICE_NETWORKS,
        STICKY_NODEPORT_PROTOCOLS,
        STICKY_PROTOCOLS,
    ];
    shared.contains(&name.as_str())
}

/// Prefix of maps of addresses with a given number of slots.
const DIRECT: &str = "backends-";
/// Prefix of load-balancing chains.
const LB: &str = "lb-";
/// Prefix of chains that record the endpoints of clients.
const LEARN: &str = "learn-";
/// Prefix of chains that send clients to their recorded endpoints.
const STICKY: &str = "sticky-";
/// Prefix of maps of clients to their recorded endpoints.
const CLIENTS: &str = "clients-";
/// Prefix of sets of endpoints that may be recorded.
const ENDPOINTS: &str = "endpoints-";
/// Marks names for local endpoints only.
const LOCAL: &str = "local";
/// Marks a chain that records clients both for all endpoints and for local endpoints.
const BOTH: &str = "both";

/// Length in bytes of the hash in names of a service port. A multiple of five, so that
/// base32 needs no padding.
const HASH: usize = 10;

/// Returns the part of names that identifies a service port: `2PJ2ZLJC6L4IFV3Z`.
///
/// Names of Services may be too long for nf_tables, so this is a truncated SHA-256 hash.
pub(super) fn port_id(port: &PortName) -> Box<str> {
    let PortName {
        namespace,
        service,
        port,
        protocol,
        ..
    } = port;
    let hash = Sha256::digest(format!("{namespace}/{service}/{protocol}/{port}"));
    let hash = hash.get(..HASH).expect("a hash has 32 bytes");
    BASE32.encode(hash).into()
}

/// The clients of a service port that share a list of endpoints.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(in crate::backend) struct Pool<'a> {
    /// Identifies the service port.
    pub(in crate::backend) id: &'a str,
    /// Whether the pool contains local endpoints only.
    pub(in crate::backend) is_local: bool,
}

impl<'a> Pool<'a> {
    /// Returns the name of the map of clients: `clients-2PJ2ZLJC6L4IFV3Z-local`.
    pub(super) fn clients(self) -> Name {
        self.named(CLIENTS)
    }

    /// Returns the name of the set of endpoints: `endpoints-2PJ2ZLJC6L4IFV3Z`.
    pub(super) fn endpoints(self) -> Name {
        self.named(ENDPOINTS)
    }

    fn named(self, prefix: &str) -> Name {
        let (id, dash, local) = match self.is_local {
            true => (self.id, "-", LOCAL),
            false => (self.id, "", ""),
        };
        numbered(format_args!("{prefix}{id}{dash}{local}"))
    }

    /// Parses the name of a map of clients.
    pub(in crate::backend) fn of_clients(name: &'a Name) -> Option<Self> {
        Self::parse(name.as_str().strip_prefix(CLIENTS)?)
    }

    /// Parses the name of a set of endpoints.
    pub(super) fn of_endpoints(name: &'a Name) -> Option<Self> {
        Self::parse(name.as_str().strip_prefix(ENDPOINTS)?)
    }

    fn parse(text: &'a str) -> Option<Self> {
        let (id, local) = match text.split_once('-') {
            Some((id, LOCAL)) => (id, true),
            Some(_) => return None,
            None => (text, false),
        };
        let is_local = local;
        Some(Self { id, is_local })
    }
}

/// The lists of endpoints for which clients of a service port are recorded.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Lists {
    Cluster,
    Local,
    Both,
}

impl Lists {
    /// Returns the pools of a service port.
    pub(super) fn pools(self, id: &str) -> impl Iterator<Item = Pool<'_>> {
        let lists: &[bool] = match self {
            Self::Cluster => &[false],
            Self::Local => &[true],
            Self::Both => &[false, true],
        };
        lists.iter().map(move |&is_local| Pool { id, is_local })
    }
}

/// Returns the name of the map of addresses with `slots` slots: `backends-3`.
pub(super) fn direct(slots: u32) -> Name {
    numbered(format_args!("{DIRECT}{slots}"))
}

/// Returns the name of a load-balancing chain: `lb-short-3`.
///
/// `path` is the infix of the lookup path: `""`, `"short-"`, `"nodeport-"`,
/// `"masquerade-nodeport-"`, `"short-nodeport-"`.
pub(super) fn lb(path: &str, slots: u32) -> Name {
    numbered(format_args!("{LB}{path}{slots}"))
}

/// Returns the name of a chain that sends clients to their recorded endpoints, and other
/// clients to [`lb`]: `sticky-2PJ2ZLJC6L4IFV3Z-local-nodeport-3`.
pub(super) fn sticky(pool: Pool<'_>, path: &str, slots: u32) -> Name {
    let id = pool.id;
    match pool.is_local {
        true => numbered(format_args!("{STICKY}{id}-{LOCAL}-{path}{slots}")),
        false => numbered(format_args!("{STICKY}{id}-{path}{slots}")),
    }
}

/// Returns the name of the chain that records the endpoints of clients for `seconds`:
/// `learn-2PJ2ZLJC6L4IFV3Z-10800`.
pub(super) fn learn(id: &str, lists: Lists, seconds: u32) -> Name {
    match lists {
        Lists::Cluster => numbered(format_args!("{LEARN}{id}-{seconds}")),
        Lists::Local => numbered(format_args!("{LEARN}{id}-{LOCAL}-{seconds}")),
        Lists::Both => numbered(format_args!("{LEARN}{id}-{BOTH}-{seconds}")),
    }
}

/// The purpose of a chain on demand, by its name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum OnDemand<'a> {
    /// [`lb`].
    Lb { path: &'a str, slots: u32 },
    /// [`sticky`].
    Sticky {
        pool: Pool<'a>,
        path: &'a str,
        slots: u32,
    },
    /// [`learn`].
    Learn {
        id: &'a str,
        lists: Lists,
        seconds: u32,
    },
}

impl<'a> OnDemand<'a> {
    /// Parses the name of a chain.
    pub(super) fn parse(name: &'a Name) -> Option<Self> {
        let name = name.as_str();
        if let Some(text) = name.strip_prefix(LB) {
            let (path, slots) = path_and_number(text)?;
            return Some(Self::Lb { path, slots });
        }
        if let Some(text) = name.strip_prefix(STICKY) {
            let (id, text) = text.split_once('-')?;
            let (path, slots) = path_and_number(text)?;
            let local = path.strip_prefix(LOCAL).and_then(|it| it.strip_prefix('-'));
            let pool = Pool {
                id,
                is_local: local.is_some(),
            };
            let path = local.unwrap_or(path);
            return Some(Self::Sticky { pool, path, slots });
        }
        let (id, text) = name.strip_prefix(LEARN)?.split_once('-')?;
        let (lists, seconds) = match text.split_once('-') {
            Some((LOCAL, seconds)) => (Lists::Local, seconds),
            Some((BOTH, seconds)) => (Lists::Both, seconds),
            Some(_) => return None,
            None => (Lists::Cluster, text),
        };
        let seconds = seconds.parse().ok()?;
        Some(Self::Learn { id, lists, seconds })
    }
}

/// Splits `short-nodeport-3` into `short-nodeport-` and 3.
fn path_and_number(text: &str) -> Option<(&str, u32)> {
    let at = text.rfind('-').map_or(0, |dash| dash + 1);
    let (path, number) = text.split_at(at);
    Some((path, number.parse().ok()?))
}

/// Returns whether chains of this name exist only while service ports use them.
pub(in crate::backend) fn is_chain_on_demand(name: &Name) -> bool {
    let name = name.as_str();
    [LB, LEARN, STICKY]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

/// Returns whether chains of this name exist only while service ports have source ranges.
pub(super) fn is_chain_before_dnat(name: &Name) -> bool {
    [FILTER_PREROUTING_PRE_DNAT, FILTER_OUTPUT_PRE_DNAT].contains(&name.as_str())
}

/// Returns whether only one service port uses a chain of this name.
pub(super) fn is_chain_of_port(name: &Name) -> bool {
    is_chain_on_demand(name) && !name.as_str().starts_with(LB)
}

/// Returns whether sets of this name exist only while service ports use them.
pub(in crate::backend) fn is_set_on_demand(name: &Name) -> bool {
    let name = name.as_str();
    [CLIENTS, ENDPOINTS]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

fn numbered(text: fmt::Arguments<'_>) -> Name {
    Name::new(&text.to_string()).expect("a word with a number is a valid name")
}

/// Returns a validated name from this file.
pub(in crate::backend) fn name(text: &'static str) -> Name {
    Name::new(text).expect("the names in this file are valid")
}

/// Returns a validated comment.
pub(super) fn comment(text: &'static str) -> Comment {
    Comment::new(text).expect("the comments in this crate are valid")
}

#[cfg(test)]
mod tests {
    use vipline_service_model::Protocol;

    use super::*;

    const ID: &str = "2PJ2ZLJC6L4IFV3Z";

    #[test]
    fn a_service_port_is_identified_by_all_parts_of_its_name() {
        let name = |service: &str, port: &str, protocol| {
            port_id(&PortName {
                namespace: "default".into(),
                service: service.into(),
                port: port.into(),
                protocol,
                created: None,
            })
        };
        let id = name("web", "http", Protocol::Tcp);
        assert_eq!(id, name("web", "http", Protocol::Tcp));
        assert_eq!((id.len(), id.contains('-')), (16, false));
        for other in [
            name("web", "", Protocol::Tcp),
            name("web2", "http", Protocol::Tcp),
            name("web", "http", Protocol::Udp),
        ] {
            assert_ne!(id, other);
        }
        let long = "x".repeat(10_000);
        assert_eq!(name(&long, &long, Protocol::Tcp).len(), 16);
    }

    #[test]
    fn names_of_chains_on_demand_are_parsed() {
        let pools = [false, true].map(|is_local| Pool { id: ID, is_local });
        for (path, slots) in [
            ("", 300),
            ("short-", 1),
            ("nodeport-", 2),
            ("masquerade-nodeport-", 5),
            ("short-nodeport-", 9),
        ] {
            let name = lb(path, slots);
            assert_eq!(OnDemand::parse(&name), Some(OnDemand::Lb { path, slots }));
            for pool in pools {
                let name = sticky(pool, path, slots);
                let expected = OnDemand::Sticky { pool, path, slots };
                assert_eq!(OnDemand::parse(&name), Some(expected));
                assert!(is_chain_on_demand(&name));
            }
        }
        for lists in [Lists::Cluster, Lists::Local, Lists::Both] {
            let (id, seconds) = (ID, 10_800);
            let name = learn(id, lists, seconds);
            let expected = OnDemand::Learn { id, lists, seconds };
            assert_eq!(OnDemand::parse(&name), Some(expected));
            assert!(is_chain_on_demand(&name));
        }
        for other in [
            "lb-",
            "lb-x",
            "learn-A",
            "learn-A-short-3",
            "sticky-3",
            "sticky-ips",
        ] {
            assert_eq!(OnDemand::parse(&name(other)), None, "{other}");
        }
        for other in [SERVICES, AFFINITY_LEARNING, SHORT_CIRCUIT] {
            assert!(!is_chain_on_demand(&name(other)), "{other}");
        }
    }

    #[test]
    fn names_of_sets_on_demand_are_parsed() {
        for is_local in [false, true] {
            let pool = Pool { id: ID, is_local };
            let [clients, endpoints] = [pool.clients(), pool.endpoints()];
            assert_eq!(Pool::of_clients(&clients), Some(pool));
            assert_eq!(Pool::of_endpoints(&endpoints), Some(pool));
            assert_eq!(Pool::of_endpoints(&clients), None);
            assert!(is_set_on_demand(&clients) && is_set_on_demand(&endpoints));
        }
        for other in [BACKENDS, NO_ENDPOINTS, STICKY_IPS] {
            assert!(!is_set_on_demand(&name(other)), "{other}");
        }
    }
}
