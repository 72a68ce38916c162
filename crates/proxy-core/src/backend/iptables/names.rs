//! Every string that becomes a name in the kernel, and every comment there.

use std::fmt;

use data_encoding::BASE32;
use sha2::{Digest, Sha256};
use vipline_iptables::{ChainName, TableName, nfacct};
use vipline_service_model::{Endpoint, PortName, Protocol};

// Tables.
pub(in crate::backend) const FILTER: &str = "filter";
pub(super) const MANGLE: &str = "mangle";
pub(in crate::backend) const NAT: &str = "nat";

// Chains of the system.
pub(in crate::backend) const FORWARD: &str = "FORWARD";
pub(in crate::backend) const INPUT: &str = "INPUT";
pub(in crate::backend) const OUTPUT: &str = "OUTPUT";
pub(in crate::backend) const POSTROUTING: &str = "POSTROUTING";
pub(in crate::backend) const PREROUTING: &str = "PREROUTING";

// Chains that are there whatever Services there are.
pub(super) const CANARY: &str = "KUBE-PROXY-CANARY";
pub(super) const EXTERNAL_SERVICES: &str = "KUBE-EXTERNAL-SERVICES";
pub(super) const FIREWALL: &str = "KUBE-FIREWALL";
pub(in crate::backend) const KUBE_FORWARD: &str = "KUBE-FORWARD";
pub(in crate::backend) const KUBE_POSTROUTING: &str = "KUBE-POSTROUTING";
pub(in crate::backend) const MARK_MASQ: &str = "KUBE-MARK-MASQ";
pub(super) const NODEPORTS: &str = "KUBE-NODEPORTS";
pub(in crate::backend) const PROXY_FIREWALL: &str = "KUBE-PROXY-FIREWALL";
pub(in crate::backend) const SERVICES: &str = "KUBE-SERVICES";

/// How the names of chains begin that a service port or an endpoint has.
const PREFIXES: [&str; 5] = [
    "KUBE-SVC-",
    "KUBE-SVL-",
    "KUBE-EXT-",
    "KUBE-FW-",
    "KUBE-SEP-",
];

// Counters.
pub(super) const INVALID_DROPPED: &str = "ct_state_invalid_dropped_pkts";
pub(super) const LOCALHOST_ACCEPTED: &str = "localhost_nps_accepted_pkts";

/// Returns the name of a table that is known to be one.
pub(in crate::backend) fn table(name: &str) -> TableName {
    TableName::new(name).expect("the tables are written here")
}

/// Returns the name of a chain that is known to be one.
pub(in crate::backend) fn chain(name: &str) -> ChainName {
    ChainName::new(name).expect("the names of chains are made here")
}

/// Returns the name of a counter that is known to be one.
pub(super) fn counter(name: &str) -> nfacct::Name {
    nfacct::Name::new(name).expect("the counters are written here")
}

/// The names of one service port, and those of its endpoints.
#[derive(Debug)]
pub(super) struct Names {
    /// What rules call it in comments: `shop/web:http`.
    pub(super) port: String,
    /// What all its chains are named after.
    hash: Hash,
    /// What has been hashed for that.
    hashed: Sha256,
}

impl Names {
    pub(super) fn new(name: &PortName) -> Self {
        let port = name.to_string();
        let mut hashed = Sha256::new();
        hashed.update(&port);
        hashed.update(protocol(name.protocol));
        let hash = Hash::new(hashed.clone());
        Self { port, hash, hashed }
    }

    /// Returns the chain that the endpoints of the cluster are chosen in.
    pub(super) fn cluster(&self) -> ChainName {
        self.chain("KUBE-SVC-")
    }

    /// Returns the chain that the endpoints of this node are chosen in.
    pub(super) fn local(&self) -> ChainName {
        self.chain("KUBE-SVL-")
    }

    /// Returns the chain of traffic to addresses outside the cluster.
    pub(super) fn external(&self) -> ChainName {
        self.chain("KUBE-EXT-")
    }

    /// Returns the chain of traffic that has to come from certain networks.
    pub(super) fn firewall(&self) -> ChainName {
        self.chain("KUBE-FW-")
    }

    /// Returns the chain of an endpoint.
    pub(super) fn endpoint(&self, endpoint: &Endpoint) -> ChainName {
        let mut hashed = self.hashed.clone();
        hashed.update(endpoint.to_string());
        Hash::new(hashed).chain("KUBE-SEP-")
    }

    fn chain(&self, prefix: &str) -> ChainName {
        self.hash.chain(prefix)
    }
}

/// The first 80 bits of a SHA-256, in Base32 (RFC 4648).
#[derive(Debug)]
struct Hash(String);

impl Hash {
    fn new(hashed: Sha256) -> Self {
        let bytes: [u8; 32] = hashed.finalize().into();
        let (first, _) = bytes.split_at(10);
        Self(BASE32.encode(first))
    }

    fn chain(&self, prefix: &str) -> ChainName {
        chain(&format!("{prefix}{self}"))
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns the name of a protocol as rules have it.
pub(super) const fn protocol(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
        Protocol::Sctp => "sctp",
    }
}

/// Tells whether a chain is one that a service port or an endpoint has.
pub(super) fn is_of_service(chain: &str) -> bool {
    PREFIXES.iter().any(|prefix| chain.starts_with(prefix))
}

/// What a chain is to us.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::backend) enum Kind {
    /// One of ours whose rules all have one owner.
    Whole,
    /// One of ours whose rules have several owners.
    Shared,
    /// One of the system, with jumps to ours.
    System,
    /// Somebody else's.
    Foreign,
}

/// Tells what a chain of a table is to us.
pub(super) fn kind(table: &str, chain: &str) -> Kind {
    if chain == CANARY {
        return Kind::Whole;
    }
    match (table, chain) {
        (FILTER, SERVICES | EXTERNAL_SERVICES | NODEPORTS | PROXY_FIREWALL)
        | (NAT, SERVICES | NODEPORTS) => Kind::Shared,
        (FILTER, KUBE_FORWARD | FIREWALL) | (NAT, KUBE_POSTROUTING | MARK_MASQ) => Kind::Whole,
        (NAT, name) if is_of_service(name) => Kind::Whole,
        (FILTER, INPUT | FORWARD | OUTPUT) | (NAT, PREROUTING | OUTPUT | POSTROUTING) => {
            Kind::System
        }
        _ => Kind::Foreign,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(namespace: &str, service: &str, port: &str, protocol: Protocol) -> Names {
        Names::new(&PortName {
            namespace: namespace.into(),
            service: service.into(),
            port: port.into(),
            protocol,
            created: None,
        })
    }

    fn endpoint(addr: &str, port: u16) -> Endpoint {
        Endpoint {
            addr: addr.parse().unwrap(),
            port,
            is_local: false,
        }
    }

    #[test]
    fn chains_have_the_names_that_upstream_gives_them() {
        let web = port("ns1", "svc1", "p80", Protocol::Tcp);
        assert_eq!(web.port, "ns1/svc1:p80");
        assert_eq!(web.cluster().as_str(), "KUBE-SVC-XPGD46QRK7WJZT7O");
        assert_eq!(web.local().as_str(), "KUBE-SVL-XPGD46QRK7WJZT7O");
        assert_eq!(web.external().as_str(), "KUBE-EXT-XPGD46QRK7WJZT7O");
        assert_eq!(web.firewall().as_str(), "KUBE-FW-XPGD46QRK7WJZT7O");
        for (endpoint, expected) in [
            (endpoint("10.180.0.1", 80), "KUBE-SEP-SXIVWICOYRO3J4NJ"),
            (endpoint("fd00:1::5", 80), "KUBE-SEP-PJZRRGBS4MPCWYC6"),
        ] {
            assert_eq!(web.endpoint(&endpoint).as_str(), expected);
        }
        for (names, expected) in [
            (
                port("default", "kubernetes", "https", Protocol::Tcp),
                "NPX46M4PTMTKRN6Y",
            ),
            (
                port("kube-system", "kube-dns", "dns", Protocol::Udp),
                "TCOU7JCQXEZGVUNU",
            ),
            (port("ns1", "svc1", "", Protocol::Tcp), "AQI2S6QIMU7PVVRP"),
        ] {
            assert_eq!(names.cluster().as_str(), format!("KUBE-SVC-{expected}"));
        }
    }

    #[test]
    fn chains_are_told_from_those_of_others() {
        for (table, chain, expected) in [
            (NAT, "KUBE-SVC-XPGD46QRK7WJZT7O", Kind::Whole),
            (FILTER, "KUBE-SVC-XPGD46QRK7WJZT7O", Kind::Foreign),
            (MANGLE, CANARY, Kind::Whole),
            (NAT, SERVICES, Kind::Shared),
            (FILTER, FIREWALL, Kind::Whole),
            (NAT, FIREWALL, Kind::Foreign),
            (NAT, OUTPUT, Kind::System),
            (MANGLE, OUTPUT, Kind::Foreign),
            (NAT, "KUBE-KUBELET-CANARY", Kind::Foreign),
            (MANGLE, "KUBE-IPTABLES-HINT", Kind::Foreign),
            (NAT, "KUBE-MARK-DROP", Kind::Foreign),
        ] {
            assert_eq!(kind(table, chain), expected, "{table} {chain}");
        }
    }
}
