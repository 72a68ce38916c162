//! Names of the chains and jumps in iptables that may be removed.
//!
//! The lists contain what upstream 1.36 removes with `--cleanup`. Objects that upstream
//! creates and leaves behind are marked.
//!
//! Objects of the kubelet are not listed and stay: the chains `KUBE-FIREWALL`,
//! `KUBE-MARK-DROP`, `KUBE-KUBELET-CANARY` and `KUBE-IPTABLES-HINT`, and the jumps to
//! them.

use crate::Mode;

/// Chains and jumps that exactly these modes create.
#[derive(Debug)]
pub(crate) struct Names {
    /// The modes.
    pub(crate) modes: &'static [Mode],
    /// Chains with constant names.
    pub(crate) chains: &'static [Chain],
    /// Prefixes of the names of per-Service and per-endpoint chains in table `nat`.
    pub(crate) service_chain_prefixes: &'static [&'static str],
    /// The jumps, each with or without a match of state NEW.
    pub(crate) jumps: &'static [Jump],
}

/// A chain of upstream.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Chain {
    /// The table.
    pub(crate) table: &'static str,
    /// The name.
    pub(crate) name: &'static str,
}

/// A rule of upstream that jumps to one of its chains.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Jump {
    /// The table.
    pub(crate) table: &'static str,
    /// The chain that contains the rule.
    pub(crate) from: &'static str,
    /// The target chain.
    pub(crate) to: &'static str,
    /// The comment of the rule.
    pub(crate) comment: &'static str,
}

pub(crate) const fn chain(table: &'static str, name: &'static str) -> Chain {
    Chain { table, name }
}

pub(crate) const fn jump(
    table: &'static str,
    from: &'static str,
    to: &'static str,
    comment: &'static str,
) -> Jump {
    Jump {
        table,
        from,
        to,
        comment,
    }
}

/// Length of the hash after a prefix of [`Names::service_chain_prefixes`].
const HASH_LENGTH: usize = 16;

impl Names {
    /// Returns whether a chain is one of these.
    pub(crate) fn has_chain(&self, table: &str, name: &str) -> bool {
        let of_service = |prefix: &&str| {
            name.strip_prefix(*prefix)
                .is_some_and(|hash| hash.len() == HASH_LENGTH && hash.bytes().all(is_base32))
        };
        (table == "nat" && self.service_chain_prefixes.iter().any(of_service))
            || self
                .chains
                .iter()
                .any(|chain| (chain.table, chain.name) == (table, name))
    }
}

fn is_base32(byte: u8) -> bool {
    matches!(byte, b'A'..=b'Z' | b'2'..=b'7')
}

/// Returns whether a chain is one of those in `names`.
pub(crate) fn is_chain(names: &[&Names], table: &str, name: &str) -> bool {
    names.iter().any(|names| names.has_chain(table, name))
}

/// Returns all jumps in `names`.
pub(crate) fn jumps<'a>(names: &'a [&'static Names]) -> impl Iterator<Item = &'static Jump> + 'a {
    names.iter().flat_map(|names| names.jumps)
}

/// Chains and jumps of modes iptables and ipvs, and those of mode iptables alone.
pub(in crate::backend::iptables) const IPTABLES: &[Names] = &[
    Names {
        modes: &[Mode::Iptables, Mode::Ipvs],
        chains: &[
            chain("nat", "KUBE-SERVICES"),
            chain("nat", "KUBE-POSTROUTING"),
            chain("nat", "KUBE-MARK-MASQ"),
            chain("filter", "KUBE-FORWARD"),
            chain("filter", "KUBE-PROXY-FIREWALL"),
        ],
        service_chain_prefixes: &[],
        jumps: &[
            jump(
                "nat",
                "OUTPUT",
                "KUBE-SERVICES",
                "kubernetes service portals",
            ),
            jump(
                "nat",
                "PREROUTING",
                "KUBE-SERVICES",
                "kubernetes service portals",
            ),
            jump(
                "nat",
                "POSTROUTING",
                "KUBE-POSTROUTING",
                "kubernetes postrouting rules",
            ),
            jump(
                "filter",
                "FORWARD",
                "KUBE-FORWARD",
                "kubernetes forwarding rules",
            ),
        ],
    },
    Names {
        modes: &[Mode::Iptables],
        chains: &[
            chain("nat", "KUBE-NODEPORTS"),
            chain("nat", "KUBE-PROXY-CANARY"),
            chain("filter", "KUBE-SERVICES"),
            chain("filter", "KUBE-EXTERNAL-SERVICES"),
            chain("filter", "KUBE-NODEPORTS"),
            chain("filter", "KUBE-PROXY-CANARY"),
            chain("mangle", "KUBE-PROXY-CANARY"),
        ],
        service_chain_prefixes: &[
            "KUBE-SVC-",
            "KUBE-SVL-",
            "KUBE-EXT-",
            "KUBE-FW-",
            "KUBE-SEP-",
        ],
        jumps: &[
            jump(
                "filter",
                "INPUT",
                "KUBE-EXTERNAL-SERVICES",
                "kubernetes externally-visible service portals",
            ),
            jump(
                "filter",
                "FORWARD",
                "KUBE-EXTERNAL-SERVICES",
                "kubernetes externally-visible service portals",
            ),
            jump(
                "filter",
                "INPUT",
                "KUBE-NODEPORTS",
                "kubernetes health check service ports",
            ),
            jump(
                "filter",
                "FORWARD",
                "KUBE-SERVICES",
                "kubernetes service portals",
            ),
            jump(
                "filter",
                "OUTPUT",
                "KUBE-SERVICES",
                "kubernetes service portals",
            ),
            jump(
                "filter",
                "INPUT",
                "KUBE-PROXY-FIREWALL",
                "kubernetes load balancer firewall",
            ),
            jump(
                "filter",
                "OUTPUT",
                "KUBE-PROXY-FIREWALL",
                "kubernetes load balancer firewall",
            ),
            jump(
                "filter",
                "FORWARD",
                "KUBE-PROXY-FIREWALL",
                "kubernetes load balancer firewall",
            ),
        ],
    },
];
