//! All names and comments in the kernel.

use std::fmt;

use data_encoding::BASE32;
use sha2::{Digest, Sha256};
use vipline_iptables::{ChainName, TableName, nfacct};
use vipline_service_model::{Endpoint, PortName};

use crate::{Mode, owned};

// Tables.
pub(in crate::backend) const FILTER: &str = "filter";
pub(in crate::backend) const MANGLE: &str = "mangle";
pub(in crate::backend) const NAT: &str = "nat";

// Built-in chains.
pub(in crate::backend) const FORWARD: &str = "FORWARD";
pub(in crate::backend) const INPUT: &str = "INPUT";
pub(in crate::backend) const OUTPUT: &str = "OUTPUT";
pub(in crate::backend) const POSTROUTING: &str = "POSTROUTING";
pub(in crate::backend) const PREROUTING: &str = "PREROUTING";

// Chains that do not depend on Services.
pub(in crate::backend) const CANARY: &str = "KUBE-PROXY-CANARY";
pub(super) const EXTERNAL_SERVICES: &str = "KUBE-EXTERNAL-SERVICES";
pub(super) const FIREWALL: &str = "KUBE-FIREWALL";
pub(in crate::backend) const KUBE_FORWARD: &str = "KUBE-FORWARD";
pub(in crate::backend) const KUBE_POSTROUTING: &str = "KUBE-POSTROUTING";
pub(in crate::backend) const MARK_MASQ: &str = "KUBE-MARK-MASQ";
pub(in crate::backend) const NODEPORTS: &str = "KUBE-NODEPORTS";
pub(in crate::backend) const PROXY_FIREWALL: &str = "KUBE-PROXY-FIREWALL";
pub(in crate::backend) const SERVICES: &str = "KUBE-SERVICES";

// nfacct counters.
pub(in crate::backend) const INVALID_DROPPED: &str = "ct_state_invalid_dropped_pkts";
pub(in crate::backend) const LOCALHOST_ACCEPTED: &str = "localhost_nps_accepted_pkts";

/// Returns the name of a table of this file.
pub(in crate::backend) fn table(name: &str) -> TableName {
    TableName::new(name).expect("the tables in this file have valid names")
}

/// Returns the name of a chain of this module.
pub(in crate::backend) fn chain(name: &str) -> ChainName {
    ChainName::new(name).expect("the chains of this module have valid names")
}

/// Returns the name of a counter of this file.
pub(in crate::backend) fn counter(name: &str) -> nfacct::Name {
    nfacct::Name::new(name).expect("the counters in this file have valid names")
}

/// Names of one service port and its endpoints.
#[derive(Debug)]
pub(super) struct Names {
    /// Name of the service port in comments: `shop/web:http`.
    pub(super) port: String,
    /// Hash in the names of all its chains.
    hash: Hash,
    /// Input of the hash so far.
    hashed: Sha256,
}

impl Names {
    pub(super) fn new(name: &PortName) -> Self {
        let port = name.to_string();
        let mut hashed = Sha256::new();
        hashed.update(&port);
        hashed.update(name.protocol.name());
        let hash = Hash::new(hashed.clone());
        Self { port, hash, hashed }
    }

    /// Returns the chain that selects among all endpoints.
    pub(super) fn cluster(&self) -> ChainName {
        self.chain("KUBE-SVC-")
    }

    /// Returns the chain that selects among the endpoints of this node.
    pub(super) fn local(&self) -> ChainName {
        self.chain("KUBE-SVL-")
    }

    /// Returns the chain for external addresses and node ports.
    pub(super) fn external(&self) -> ChainName {
        self.chain("KUBE-EXT-")
    }

    /// Returns the chain that checks source ranges.
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

/// Kind of a chain by ownership.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::backend) enum Kind {
    /// Our chain; all its rules have one owner.
    Whole,
    /// Our chain; its rules have several owners.
    Shared,
    /// Built-in chain with jumps to our chains.
    System,
    /// Chain of another program.
    Foreign,
}

/// Returns the kind of a chain of a table.
///
/// Chains that earlier releases of this mode wrote, such as `KUBE-XLB-…`, are ours, so that
/// a takeover removes them together with the chains that they jump to.
pub(super) fn kind(table: &str, chain: &str) -> Kind {
    match (table, chain) {
        (FILTER, SERVICES | EXTERNAL_SERVICES | NODEPORTS | PROXY_FIREWALL)
        | (NAT, SERVICES | NODEPORTS) => Kind::Shared,
        (FILTER, FIREWALL) => Kind::Whole,
        (FILTER, INPUT | FORWARD | OUTPUT) | (NAT, PREROUTING | OUTPUT | POSTROUTING) => {
            Kind::System
        }
        _ => whole_or_foreign(Mode::Iptables, table, chain),
    }
}

/// Returns the kind of a chain that has no kind of its own in a mode: ours if a release
/// wrote it in this mode and the kubelet does not.
pub(in crate::backend) fn whole_or_foreign(mode: Mode, table: &str, chain: &str) -> Kind {
    match owned::find(table, chain) {
        Some(known) if known.modes.contains(&mode) && !known.is_kubelets => Kind::Whole,
        _ => Kind::Foreign,
    }
}

#[cfg(test)]
mod tests {
    use vipline_service_model::Transport;

    use super::*;

    fn port(namespace: &str, service: &str, port: &str, protocol: Transport) -> Names {
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
        let web = port("ns1", "svc1", "p80", Transport::Tcp);
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
                port("default", "kubernetes", "https", Transport::Tcp),
                "NPX46M4PTMTKRN6Y",
            ),
            (
                port("kube-system", "kube-dns", "dns", Transport::Udp),
                "TCOU7JCQXEZGVUNU",
            ),
            (port("ns1", "svc1", "", Transport::Tcp), "AQI2S6QIMU7PVVRP"),
        ] {
            assert_eq!(names.cluster().as_str(), format!("KUBE-SVC-{expected}"));
        }
    }

    #[test]
    fn kind_distinguishes_our_chains_from_others() {
        for (table, chain, expected) in [
            (NAT, "KUBE-SVC-XPGD46QRK7WJZT7O", Kind::Whole),
            (FILTER, "KUBE-SVC-XPGD46QRK7WJZT7O", Kind::Foreign),
            (NAT, "KUBE-XLB-XPGD46QRK7WJZT7O", Kind::Whole),
            (NAT, "KUBE-SVC-MINE", Kind::Foreign),
            (NAT, "KUBE-SVC-xpgd46qrk7wjzt7o", Kind::Foreign),
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
