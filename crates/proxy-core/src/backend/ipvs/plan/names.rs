//! All names and comments in the kernel.

use std::sync::OnceLock;

use vipline_ipset::{self as ipset, SetType};
use vipline_rtnl as rtnl;
use vipline_service_model::Family;

pub(super) use crate::backend::iptables::plan::names::{
    FILTER, FORWARD, INPUT, KUBE_FORWARD, KUBE_POSTROUTING, Kind, MARK_MASQ, NAT, OUTPUT,
    POSTROUTING, PREROUTING, PROXY_FIREWALL, SERVICES, chain, whole_or_foreign,
};
use crate::{Mode, owned};

// Chains that do not depend on Services.
pub(super) const IPVS_FILTER: &str = "KUBE-IPVS-FILTER";
pub(super) const IPVS_OUT_FILTER: &str = "KUBE-IPVS-OUT-FILTER";
pub(super) const KUBE_LOAD_BALANCER: &str = "KUBE-LOAD-BALANCER";
pub(super) const KUBE_NODE_PORT: &str = "KUBE-NODE-PORT";
pub(super) const SOURCE_RANGES_FIREWALL: &str = "KUBE-SOURCE-RANGES-FIREWALL";

/// Maximum length of a set name in bytes: `IPSET_MAXNAMELEN - 1`.
pub(in crate::backend) const MAX_SET_NAME: usize = 31;

/// Returns the name of the link with the addresses of Services.
pub(in crate::backend) fn link() -> rtnl::Name {
    crate::interfaces::service_link()
}

/// A set, one per family.
#[derive(Debug)]
pub(in crate::backend) struct Set {
    /// Name of the IPv4 set.
    name: &'static str,
    /// Names by family, created on first use and shared by all entries.
    names: [OnceLock<ipset::Name>; 2],
    pub(super) kind: SetType,
    /// Comment of rules that match the set.
    pub(super) comment: &'static str,
}

impl Set {
    const fn new(name: &'static str, kind: SetType, comment: &'static str) -> Self {
        Self {
            name,
            names: [const { OnceLock::new() }; 2],
            kind,
            comment,
        }
    }

    /// Returns the name of the set of a family.
    pub(in crate::backend) fn name(&self, family: Family) -> ipset::Name {
        let [v4, v6] = &self.names;
        let new = |name: &str| ipset::Name::new(name).expect("the names in this file are valid");
        let name = match family {
            Family::V4 => v4.get_or_init(|| new(self.name)),
            Family::V6 => v6.get_or_init(|| new(&name_for_v6(self.name))),
        };
        name.clone()
    }
}

/// Returns the IPv6 name of an IPv4 set, truncated to the maximum length.
pub(in crate::backend) fn name_for_v6(set: &str) -> String {
    let mut name = set.replacen("KUBE-", "KUBE-6-", 1);
    name.truncate(MAX_SET_NAME);
    name
}

pub(super) static LOOP_BACK: Set = Set::new(
    "KUBE-LOOP-BACK",
    SetType::HashIpPortIp,
    "Kubernetes endpoints dst ip:port, source ip for solving hairpin purpose",
);
pub(super) static CLUSTER_IP: Set = Set::new(
    "KUBE-CLUSTER-IP",
    SetType::HashIpPort,
    "Kubernetes service cluster ip + port for masquerade purpose",
);
pub(super) static EXTERNAL_IP: Set = Set::new(
    "KUBE-EXTERNAL-IP",
    SetType::HashIpPort,
    "Kubernetes service external ip + port for masquerade and filter purpose",
);
pub(super) static EXTERNAL_IP_LOCAL: Set = Set::new(
    "KUBE-EXTERNAL-IP-LOCAL",
    SetType::HashIpPort,
    "Kubernetes service external ip + port with externalTrafficPolicy=local",
);
pub(super) static LOAD_BALANCER: Set = Set::new(
    "KUBE-LOAD-BALANCER",
    SetType::HashIpPort,
    "Kubernetes service lb portal",
);
pub(super) static LOAD_BALANCER_FW: Set = Set::new(
    "KUBE-LOAD-BALANCER-FW",
    SetType::HashIpPort,
    "Kubernetes service load balancer ip + port for load balancer with sourceRange",
);
pub(super) static LOAD_BALANCER_LOCAL: Set = Set::new(
    "KUBE-LOAD-BALANCER-LOCAL",
    SetType::HashIpPort,
    "Kubernetes service load balancer ip + port with externalTrafficPolicy=local",
);
pub(super) static LOAD_BALANCER_SOURCE_IP: Set = Set::new(
    "KUBE-LOAD-BALANCER-SOURCE-IP",
    SetType::HashIpPortIp,
    "Kubernetes service load balancer ip + port + source IP for packet filter purpose",
);
pub(super) static LOAD_BALANCER_SOURCE_CIDR: Set = Set::new(
    "KUBE-LOAD-BALANCER-SOURCE-CIDR",
    SetType::HashIpPortNet,
    "Kubernetes service load balancer ip + port + source cidr for packet filter purpose",
);
pub(in crate::backend) static NODE_PORT_TCP: Set = Set::new(
    "KUBE-NODE-PORT-TCP",
    SetType::BitmapPort,
    "Kubernetes nodeport TCP port for masquerade purpose",
);
pub(super) static NODE_PORT_LOCAL_TCP: Set = Set::new(
    "KUBE-NODE-PORT-LOCAL-TCP",
    SetType::BitmapPort,
    "Kubernetes nodeport TCP port with externalTrafficPolicy=local",
);
pub(in crate::backend) static NODE_PORT_UDP: Set = Set::new(
    "KUBE-NODE-PORT-UDP",
    SetType::BitmapPort,
    "Kubernetes nodeport UDP port for masquerade purpose",
);
pub(super) static NODE_PORT_LOCAL_UDP: Set = Set::new(
    "KUBE-NODE-PORT-LOCAL-UDP",
    SetType::BitmapPort,
    "Kubernetes nodeport UDP port with externalTrafficPolicy=local",
);
pub(super) static NODE_PORT_SCTP: Set = Set::new(
    "KUBE-NODE-PORT-SCTP-HASH",
    SetType::HashIpPort,
    "Kubernetes nodeport SCTP port for masquerade purpose with type 'hash ip:port'",
);
pub(super) static NODE_PORT_LOCAL_SCTP: Set = Set::new(
    "KUBE-NODE-PORT-LOCAL-SCTP-HASH",
    SetType::HashIpPort,
    "Kubernetes nodeport SCTP port with externalTrafficPolicy=local with type 'hash ip:port'",
);
pub(super) static HEALTH_CHECK_NODE_PORT: Set = Set::new(
    "KUBE-HEALTH-CHECK-NODE-PORT",
    SetType::BitmapPort,
    "Kubernetes health check node port",
);
pub(super) static IPVS_IPS: Set = Set::new(
    "KUBE-IPVS-IPS",
    SetType::HashIp,
    "Addresses on the ipvs interface",
);

/// All sets.
pub(in crate::backend) static SETS: [&Set; 17] = [
    &LOOP_BACK,
    &CLUSTER_IP,
    &EXTERNAL_IP,
    &EXTERNAL_IP_LOCAL,
    &LOAD_BALANCER,
    &LOAD_BALANCER_FW,
    &LOAD_BALANCER_LOCAL,
    &LOAD_BALANCER_SOURCE_IP,
    &LOAD_BALANCER_SOURCE_CIDR,
    &NODE_PORT_TCP,
    &NODE_PORT_LOCAL_TCP,
    &NODE_PORT_UDP,
    &NODE_PORT_LOCAL_UDP,
    &NODE_PORT_SCTP,
    &NODE_PORT_LOCAL_SCTP,
    &HEALTH_CHECK_NODE_PORT,
    &IPVS_IPS,
];

/// Returns the names of all sets of a family that a kube-proxy wrote, planned ones first.
pub(in crate::backend) fn all_sets(family: Family) -> Vec<ipset::Name> {
    let mut names: Vec<_> = SETS.iter().map(|set| set.name(family)).collect();
    for old in owned::SETS {
        let name = match family {
            Family::V4 => old.to_owned(),
            Family::V6 => name_for_v6(old),
        };
        let name = ipset::Name::new(&name).expect("the names in the list are valid");
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Returns the kind of a chain of a table.
pub(super) fn kind(table: &str, chain: &str) -> Kind {
    match (table, chain) {
        (FILTER, IPVS_OUT_FILTER) => Kind::Shared,
        (FILTER, INPUT | FORWARD | OUTPUT) | (NAT, PREROUTING | OUTPUT | POSTROUTING) => {
            Kind::System
        }
        _ => whole_or_foreign(Mode::Ipvs, table, chain),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_ipv6_have_names_of_their_own_that_are_cut() {
        for (set, v4, v6) in [
            (&CLUSTER_IP, "KUBE-CLUSTER-IP", "KUBE-6-CLUSTER-IP"),
            (
                &LOAD_BALANCER_SOURCE_CIDR,
                "KUBE-LOAD-BALANCER-SOURCE-CIDR",
                "KUBE-6-LOAD-BALANCER-SOURCE-CID",
            ),
            (
                &NODE_PORT_LOCAL_SCTP,
                "KUBE-NODE-PORT-LOCAL-SCTP-HASH",
                "KUBE-6-NODE-PORT-LOCAL-SCTP-HAS",
            ),
        ] {
            assert_eq!(set.name(Family::V4).as_str(), v4);
            assert_eq!(set.name(Family::V6).as_str(), v6);
        }
    }
}
