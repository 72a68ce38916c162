//! The one list of everything that a kube-proxy since Kubernetes 1.20 wrote, by table and
//! name: chains and jumps of iptables, IP sets, and tables of nf_tables.
//!
//! Three parts of this crate must agree on it. A mode that takes a node over removes the
//! chains of its own mode that it does not plan itself. `--cleanup`, and the
//! removal of leftovers after the first sync, remove those of all modes. `explain` tells
//! rules of a kube-proxy from rules of other programs. When the lists differed,
//! `KUBE-XLB-*` of 1.23 belonged to nobody: the chains stayed, their jumps kept the chains
//! of endpoints in use, and the kernel refused the removal of those for ever.
//!
//! The names come from `pkg/proxy` of the releases 1.20 to 1.36. A prefix is followed by
//! 16 characters of Base32. Names alone do not decide: network policies have chains such
//! as `KUBE-NWPLCY-…` and `KUBE-SVC-MINE` may be anybody's.
//!
//! Two chains of the kubelet are in the list, because releases of kube-proxy create them,
//! too. They are nobody's leftovers: `--cleanup` of upstream leaves them as well. Chains
//! that only the kubelet writes, such as `KUBE-KUBELET-CANARY`, are not in the list.

use crate::Mode;

/// Name of the table of mode nftables, since 1.29, in the families `ip` and `ip6`.
pub const NFTABLES_TABLE: &str = "kube-proxy";

/// A chain, or all chains with a prefix.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Chain {
    table: &'static str,
    name: Name,
    /// The modes that write it. Empty: mode userspace, which ended with 1.25.
    pub(crate) modes: &'static [Mode],
    /// Whether the kubelet writes the chain, too. Then it stays.
    pub(crate) is_kubelets: bool,
}

/// Name of a chain.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Name {
    Exact(&'static str),
    /// A prefix and a hash: one chain for each service port or endpoint.
    Hashed(&'static str),
}

/// A rule in a built-in chain that jumps to a chain of a kube-proxy.
///
/// It matches all packets, new connections, or (in mode userspace) local destinations.
#[cfg(feature = "iptables")]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Jump {
    pub(crate) table: &'static str,
    pub(crate) from: &'static str,
    pub(crate) to: &'static str,
    pub(crate) comment: &'static str,
    pub(crate) modes: &'static [Mode],
}

const IPTABLES: &[Mode] = &[Mode::Iptables];
const IPVS: &[Mode] = &[Mode::Ipvs];
const BOTH: &[Mode] = &[Mode::Iptables, Mode::Ipvs];
const USERSPACE: &[Mode] = &[];

const fn exact(table: &'static str, name: &'static str, modes: &'static [Mode]) -> Chain {
    Chain {
        table,
        name: Name::Exact(name),
        modes,
        is_kubelets: false,
    }
}

/// Chains of service ports and endpoints. Only mode iptables has them, in table `nat`.
const fn hashed(prefix: &'static str) -> Chain {
    Chain {
        table: "nat",
        name: Name::Hashed(prefix),
        modes: IPTABLES,
        is_kubelets: false,
    }
}

const fn kubelets(table: &'static str, name: &'static str, modes: &'static [Mode]) -> Chain {
    Chain {
        is_kubelets: true,
        ..exact(table, name, modes)
    }
}

static CHAINS: [Chain; 32] = [
    exact("nat", "KUBE-SERVICES", BOTH),
    exact("nat", "KUBE-POSTROUTING", BOTH),
    exact("nat", "KUBE-MARK-MASQ", BOTH),
    exact("filter", "KUBE-FORWARD", BOTH),
    exact("filter", "KUBE-PROXY-FIREWALL", BOTH),
    // Mode iptables.
    exact("nat", "KUBE-NODEPORTS", IPTABLES),
    exact("nat", "KUBE-PROXY-CANARY", IPTABLES),
    exact("filter", "KUBE-SERVICES", IPTABLES),
    exact("filter", "KUBE-EXTERNAL-SERVICES", IPTABLES),
    exact("filter", "KUBE-NODEPORTS", IPTABLES),
    exact("filter", "KUBE-PROXY-CANARY", IPTABLES),
    exact("mangle", "KUBE-PROXY-CANARY", IPTABLES),
    hashed("KUBE-SVC-"),
    hashed("KUBE-SEP-"),
    hashed("KUBE-FW-"),
    // 1.24 replaced XLB by EXT and SVL.
    hashed("KUBE-XLB-"),
    hashed("KUBE-EXT-"),
    hashed("KUBE-SVL-"),
    // Mode ipvs.
    exact("nat", "KUBE-NODE-PORT", IPVS),
    exact("nat", "KUBE-LOAD-BALANCER", IPVS),
    // Until 1.25. The chain of the kubelet with this name is in table `filter`.
    exact("nat", "KUBE-FIREWALL", IPVS),
    exact("filter", "KUBE-NODE-PORT", IPVS),
    exact("filter", "KUBE-SOURCE-RANGES-FIREWALL", IPVS),
    exact("filter", "KUBE-IPVS-FILTER", IPVS),
    exact("filter", "KUBE-IPVS-OUT-FILTER", IPVS),
    // Mode userspace.
    exact("nat", "KUBE-PORTALS-CONTAINER", USERSPACE),
    exact("nat", "KUBE-PORTALS-HOST", USERSPACE),
    exact("nat", "KUBE-NODEPORT-CONTAINER", USERSPACE),
    exact("nat", "KUBE-NODEPORT-HOST", USERSPACE),
    exact("filter", "KUBE-NODEPORT-NON-LOCAL", USERSPACE),
    // Chains of the kubelet. Mode iptables writes the rule in KUBE-FIREWALL that the kubelet
    // writes, too. Releases until 1.25 created KUBE-MARK-DROP, but no rule in it.
    kubelets("filter", "KUBE-FIREWALL", IPTABLES),
    kubelets("nat", "KUBE-MARK-DROP", BOTH),
];

#[cfg(feature = "iptables")]
const fn jump(
    [table, from, to]: [&'static str; 3],
    comment: &'static str,
    modes: &'static [Mode],
) -> Jump {
    Jump {
        table,
        from,
        to,
        comment,
        modes,
    }
}

#[cfg(feature = "iptables")]
const PORTALS: &str = "kubernetes service portals";
#[cfg(feature = "iptables")]
const VISIBLE_PORTALS: &str = "kubernetes externally-visible service portals";
#[cfg(feature = "iptables")]
const LOAD_BALANCER_FIREWALL: &str = "kubernetes load balancer firewall";
#[cfg(feature = "iptables")]
const IPVS_FIREWALL: &str = "kube-proxy firewall rules";
#[cfg(feature = "iptables")]
const IPVS_FILTER: &str = "kubernetes ipvs access filter";
#[cfg(feature = "iptables")]
const CLUSTER_IPS: &str = "handle ClusterIPs; NOTE: this must be before the NodePort rules";
#[cfg(feature = "iptables")]
const NODE_PORTS: &str = "handle service NodePorts; NOTE: this must be the last rule in the chain";

#[cfg(feature = "iptables")]
pub(crate) static JUMPS: [Jump; 23] = [
    jump(["nat", "OUTPUT", "KUBE-SERVICES"], PORTALS, BOTH),
    jump(["nat", "PREROUTING", "KUBE-SERVICES"], PORTALS, BOTH),
    jump(
        ["nat", "POSTROUTING", "KUBE-POSTROUTING"],
        "kubernetes postrouting rules",
        BOTH,
    ),
    jump(
        ["filter", "FORWARD", "KUBE-FORWARD"],
        "kubernetes forwarding rules",
        BOTH,
    ),
    jump(
        ["filter", "INPUT", "KUBE-EXTERNAL-SERVICES"],
        VISIBLE_PORTALS,
        IPTABLES,
    ),
    jump(
        ["filter", "FORWARD", "KUBE-EXTERNAL-SERVICES"],
        VISIBLE_PORTALS,
        IPTABLES,
    ),
    jump(
        ["filter", "INPUT", "KUBE-NODEPORTS"],
        "kubernetes health check service ports",
        IPTABLES,
    ),
    // Until 1.19. Releases before 1.26 still removed it, and an upgrade may skip them.
    jump(["filter", "INPUT", "KUBE-SERVICES"], PORTALS, IPTABLES),
    jump(["filter", "FORWARD", "KUBE-SERVICES"], PORTALS, IPTABLES),
    jump(["filter", "OUTPUT", "KUBE-SERVICES"], PORTALS, IPTABLES),
    jump(
        ["filter", "INPUT", "KUBE-PROXY-FIREWALL"],
        LOAD_BALANCER_FIREWALL,
        IPTABLES,
    ),
    jump(
        ["filter", "OUTPUT", "KUBE-PROXY-FIREWALL"],
        LOAD_BALANCER_FIREWALL,
        IPTABLES,
    ),
    jump(
        ["filter", "FORWARD", "KUBE-PROXY-FIREWALL"],
        LOAD_BALANCER_FIREWALL,
        IPTABLES,
    ),
    jump(
        ["filter", "INPUT", "KUBE-NODE-PORT"],
        "kubernetes health check rules",
        IPVS,
    ),
    jump(
        ["filter", "INPUT", "KUBE-PROXY-FIREWALL"],
        IPVS_FIREWALL,
        IPVS,
    ),
    jump(
        ["filter", "FORWARD", "KUBE-PROXY-FIREWALL"],
        IPVS_FIREWALL,
        IPVS,
    ),
    jump(["filter", "INPUT", "KUBE-IPVS-FILTER"], IPVS_FILTER, IPVS),
    jump(
        ["filter", "OUTPUT", "KUBE-IPVS-OUT-FILTER"],
        IPVS_FILTER,
        IPVS,
    ),
    jump(
        ["nat", "PREROUTING", "KUBE-PORTALS-CONTAINER"],
        CLUSTER_IPS,
        USERSPACE,
    ),
    jump(
        ["nat", "OUTPUT", "KUBE-PORTALS-HOST"],
        CLUSTER_IPS,
        USERSPACE,
    ),
    jump(
        ["nat", "PREROUTING", "KUBE-NODEPORT-CONTAINER"],
        NODE_PORTS,
        USERSPACE,
    ),
    jump(
        ["nat", "OUTPUT", "KUBE-NODEPORT-HOST"],
        NODE_PORTS,
        USERSPACE,
    ),
    jump(
        ["filter", "INPUT", "KUBE-NODEPORT-NON-LOCAL"],
        "Ensure that non-local NodePort traffic can flow",
        USERSPACE,
    ),
];

/// IP sets of mode ipvs for IPv4. Those for IPv6 begin with `KUBE-6-` and are cut after 31
/// bytes.
#[cfg(feature = "ipvs")]
pub(crate) static SETS: [&str; 19] = [
    "KUBE-LOOP-BACK",
    "KUBE-CLUSTER-IP",
    "KUBE-EXTERNAL-IP",
    "KUBE-EXTERNAL-IP-LOCAL",
    "KUBE-LOAD-BALANCER",
    "KUBE-LOAD-BALANCER-FW",
    "KUBE-LOAD-BALANCER-LOCAL",
    "KUBE-LOAD-BALANCER-SOURCE-IP",
    "KUBE-LOAD-BALANCER-SOURCE-CIDR",
    "KUBE-NODE-PORT-TCP",
    "KUBE-NODE-PORT-LOCAL-TCP",
    "KUBE-NODE-PORT-UDP",
    "KUBE-NODE-PORT-LOCAL-UDP",
    "KUBE-NODE-PORT-SCTP-HASH",
    "KUBE-NODE-PORT-LOCAL-SCTP-HASH",
    "KUBE-HEALTH-CHECK-NODE-PORT",
    "KUBE-IPVS-IPS",
    // Releases before 1.20 left these behind when they renamed them to `-HASH`.
    "KUBE-NODE-PORT-SCTP",
    "KUBE-NODE-PORT-LOCAL-SCTP",
];

impl Chain {
    fn is(&self, table: &str, name: &str) -> bool {
        self.table == table
            && match self.name {
                Name::Exact(own) => own == name,
                Name::Hashed(prefix) => name.strip_prefix(prefix).is_some_and(is_hash),
            }
    }
}

/// Returns whether a text is a hash in the name of a chain: the first 80 bits of a
/// SHA-256, in Base32.
fn is_hash(text: &str) -> bool {
    let is_base32 = |byte| matches!(byte, b'A'..=b'Z' | b'2'..=b'7');
    text.len() == 16 && text.bytes().all(is_base32)
}

/// Returns a chain of the list.
pub(crate) fn find(table: &str, name: &str) -> Option<&'static Chain> {
    CHAINS.iter().find(|chain| chain.is(table, name))
}

/// Returns whether a kube-proxy wrote a chain of iptables and decides about its rules.
///
/// `true` for filter `KUBE-FIREWALL`, whose rule the kubelet shares. `false` for the other
/// chains of the kubelet.
pub fn is_chain(table: &str, name: &str) -> bool {
    let found = find(table, name);
    found.is_some_and(|chain| !chain.is_kubelets || (table, name) == ("filter", "KUBE-FIREWALL"))
}

/// Returns whether a chain of table `nat` belongs to a service port or an endpoint.
#[cfg(feature = "iptables")]
pub(crate) fn is_of_service(name: &str) -> bool {
    find("nat", name).is_some_and(|chain| matches!(chain.name, Name::Hashed(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_are_identified_by_table_and_full_name() {
        for (table, name, modes) in [
            ("nat", "KUBE-SERVICES", BOTH),
            ("nat", "KUBE-SVC-NPX46M4PTMTKRN6Y", IPTABLES),
            ("nat", "KUBE-XLB-NPX46M4PTMTKRN6Y", IPTABLES),
            ("nat", "KUBE-FIREWALL", IPVS),
            ("nat", "KUBE-PORTALS-HOST", USERSPACE),
        ] {
            let chain = find(table, name).expect(name);
            assert_eq!(chain.modes, modes, "{table} {name}");
            assert!(!chain.is_kubelets && is_chain(table, name), "{name}");
        }
        for (table, name) in [
            ("nat", "KUBE-SVC-MINE"),
            ("nat", "KUBE-XLB-npx46m4ptmtkrn6y"),
            ("nat", "KUBE-SVC-NPX46M4PTMTKRN6Y2"),
            ("filter", "KUBE-XLB-NPX46M4PTMTKRN6Y"),
            ("mangle", "KUBE-SERVICES"),
            ("nat", "MY-KUBE-SERVICES"),
            ("filter", "KUBE-NWPLCY-X"),
        ] {
            assert_eq!(find(table, name), None, "{table} {name}");
        }
    }

    #[test]
    fn chains_of_the_kubelet_are_nobodys_leftovers() {
        for (table, name) in [("nat", "KUBE-MARK-DROP"), ("filter", "KUBE-FIREWALL")] {
            assert!(find(table, name).expect(name).is_kubelets, "{table} {name}");
        }
        for (table, name) in [
            ("nat", "KUBE-KUBELET-CANARY"),
            ("mangle", "KUBE-IPTABLES-HINT"),
        ] {
            assert_eq!(find(table, name), None, "{table} {name}");
        }
        assert!(is_chain("filter", "KUBE-FIREWALL"));
        assert!(!is_chain("nat", "KUBE-MARK-DROP"));
    }

    #[test]
    fn every_jump_leads_to_a_chain_that_the_same_modes_write() {
        for jump in &JUMPS {
            let to = find(jump.table, jump.to).expect(jump.to);
            assert!(!to.is_kubelets, "{jump:?}");
            let writes = |mode| to.modes.contains(mode);
            assert!(jump.modes.iter().all(writes), "{jump:?}");
            assert_eq!(find(jump.table, jump.from), None, "{jump:?}");
        }
    }
}
