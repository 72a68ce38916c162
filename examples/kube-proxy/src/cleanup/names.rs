//! Names of all objects that may be removed. No other file of `src/cleanup`
//! contains such names.
//!
//! The lists contain what upstream 1.36 removes with `--cleanup`. Objects that
//! upstream creates and leaves behind are marked.
//!
//! Objects of the kubelet are not listed and stay: the chains `KUBE-FIREWALL`,
//! `KUBE-MARK-DROP`, `KUBE-KUBELET-CANARY` and `KUBE-IPTABLES-HINT`, and the
//! jumps to them.

use vipline_rtnl::Name;

use super::Scope;

/// Returns the name of the link that mode ipvs adds addresses to.
pub fn link() -> Name {
    Name::new("kube-ipvs0").expect("a valid name")
}

/// The modes that create an object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Maker {
    /// Modes iptables and ipvs.
    Both,
    /// Mode iptables.
    Iptables,
    /// Mode ipvs.
    Ipvs,
}

/// A chain of upstream.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Chain {
    /// The table.
    pub table: &'static str,
    /// The name.
    pub name: &'static str,
}

/// A rule of upstream that jumps to one of its chains.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Jump {
    /// The table.
    pub table: &'static str,
    /// The chain that contains the rule.
    pub from: &'static str,
    /// The target chain.
    pub to: &'static str,
    /// The comment of the rule.
    pub comment: &'static str,
}

const fn chain(table: &'static str, name: &'static str) -> Chain {
    Chain { table, name }
}

const fn jump(
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

/// Chains with constant names.
const CHAINS: &[(Maker, &[Chain])] = &[
    (
        Maker::Both,
        &[
            chain("nat", "KUBE-SERVICES"),
            chain("nat", "KUBE-POSTROUTING"),
            chain("nat", "KUBE-MARK-MASQ"),
            chain("filter", "KUBE-FORWARD"),
            chain("filter", "KUBE-PROXY-FIREWALL"),
        ],
    ),
    (
        Maker::Iptables,
        &[
            chain("nat", "KUBE-NODEPORTS"),
            chain("nat", "KUBE-PROXY-CANARY"),
            chain("filter", "KUBE-SERVICES"),
            chain("filter", "KUBE-EXTERNAL-SERVICES"),
            chain("filter", "KUBE-NODEPORTS"),
            chain("filter", "KUBE-PROXY-CANARY"),
            chain("mangle", "KUBE-PROXY-CANARY"),
        ],
    ),
    (
        Maker::Ipvs,
        &[
            chain("nat", "KUBE-NODE-PORT"),
            chain("nat", "KUBE-LOAD-BALANCER"),
            chain("filter", "KUBE-NODE-PORT"),
            chain("filter", "KUBE-SOURCE-RANGES-FIREWALL"),
            chain("filter", "KUBE-IPVS-FILTER"),
            chain("filter", "KUBE-IPVS-OUT-FILTER"),
        ],
    ),
];

/// Prefixes of the names of per-Service and per-endpoint chains in table `nat`.
const SERVICE_CHAIN_PREFIXES: [&str; 5] = [
    "KUBE-SVC-",
    "KUBE-SVL-",
    "KUBE-EXT-",
    "KUBE-FW-",
    "KUBE-SEP-",
];

/// Length of the hash at the end of such a name.
const HASH_LENGTH: usize = 16;

/// The jumps, each with or without a match of state NEW.
const JUMPS: &[(Maker, &[Jump])] = &[
    (
        Maker::Both,
        &[
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
    ),
    (
        Maker::Iptables,
        &[
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
    ),
    (
        Maker::Ipvs,
        &[
            jump(
                "filter",
                "INPUT",
                "KUBE-NODE-PORT",
                "kubernetes health check rules",
            ),
            jump(
                "filter",
                "INPUT",
                "KUBE-PROXY-FIREWALL",
                "kube-proxy firewall rules",
            ),
            jump(
                "filter",
                "FORWARD",
                "KUBE-PROXY-FIREWALL",
                "kube-proxy firewall rules",
            ),
            jump(
                "filter",
                "INPUT",
                "KUBE-IPVS-FILTER",
                "kubernetes ipvs access filter",
            ),
            jump(
                "filter",
                "OUTPUT",
                "KUBE-IPVS-OUT-FILTER",
                "kubernetes ipvs access filter",
            ),
        ],
    ),
];

/// The IPv4 sets of mode ipvs.
///
/// Upstream leaves the IPv6 sets behind. [`is_set`] recognizes them, too.
const SETS: [&str; 19] = [
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
    // Sets of older releases, which left them behind.
    "KUBE-NODE-PORT-SCTP",
    "KUBE-NODE-PORT-LOCAL-SCTP",
];

/// Maximum length of a set name.
const MAX_SET_NAME: usize = 31;

/// Returns whether a chain belongs to kube-proxy and to a mode within the
/// scope.
pub fn is_chain(scope: Scope, table: &str, name: &str) -> bool {
    maker(table, name).is_some_and(|maker| scope.includes_maker(maker))
}

/// Returns the modes that create a chain, if any.
fn maker(table: &str, name: &str) -> Option<Maker> {
    let of_service = |prefix: &&str| {
        name.strip_prefix(*prefix)
            .is_some_and(|hash| hash.len() == HASH_LENGTH && hash.bytes().all(is_base32))
    };
    if table == "nat" && SERVICE_CHAIN_PREFIXES.iter().any(of_service) {
        return Some(Maker::Iptables);
    }
    let is_it = |chain: &Chain| (chain.table, chain.name) == (table, name);
    let mut makers = CHAINS.iter();
    let found = makers.find(|(_, chains)| chains.iter().any(is_it));
    found.map(|(maker, _)| *maker)
}

/// Returns the jumps that modes within the scope create.
pub fn jumps(scope: Scope) -> impl Iterator<Item = &'static Jump> {
    let within = JUMPS
        .iter()
        .filter(move |(maker, _)| scope.includes_maker(*maker));
    within.flat_map(|(_, jumps)| jumps.iter())
}

fn is_base32(byte: u8) -> bool {
    matches!(byte, b'A'..=b'Z' | b'2'..=b'7')
}

/// Returns whether a set belongs to kube-proxy, in either family.
pub fn is_set(name: &str) -> bool {
    SETS.iter()
        .any(|&set| set == name || name_for_v6(set) == name)
}

/// Returns the IPv6 name of an IPv4 set, truncated to the maximum length.
pub fn name_for_v6(set: &str) -> String {
    let mut name = set.replacen("KUBE-", "KUBE-6-", 1);
    name.truncate(MAX_SET_NAME);
    name
}

#[cfg(test)]
mod tests {
    use proxy_core::Mode;

    use super::*;

    #[test]
    fn chains_are_identified_by_full_name_and_table() {
        for (table, name) in [
            ("nat", "KUBE-SERVICES"),
            ("nat", "KUBE-SVC-NPX46M4PTMTKRN6Y"),
            ("nat", "KUBE-SEP-SXIVWICOYRO3J4NJ"),
            ("filter", "KUBE-IPVS-OUT-FILTER"),
            ("mangle", "KUBE-PROXY-CANARY"),
        ] {
            assert!(is_chain(Scope::AllModes, table, name), "{table} {name}");
        }
        for (table, name) in [
            ("nat", "KUBE-SVC-MINE"),
            ("nat", "KUBE-SVC-npx46m4ptmtkrn6y"),
            ("nat", "KUBE-SVC-NPX46M4PTMTKRN6Y2"),
            ("filter", "KUBE-SVC-NPX46M4PTMTKRN6Y"),
            ("filter", "KUBE-FIREWALL"),
            ("filter", "KUBE-KUBELET-CANARY"),
            ("mangle", "KUBE-SERVICES"),
            ("nat", "MY-KUBE-SERVICES"),
        ] {
            assert!(!is_chain(Scope::AllModes, table, name), "{table} {name}");
        }
    }

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
    fn every_jump_leads_to_a_chain_that_is_removed() {
        for scope in [
            Scope::AllModes,
            Scope::AllExcept(Mode::Nftables),
            Scope::AllExcept(Mode::Iptables),
            Scope::AllExcept(Mode::Ipvs),
        ] {
            for jump in jumps(scope) {
                let within = |chain| is_chain(scope, jump.table, chain);
                // Chains of both modes stay, and their jumps may stay.
                let stays = maker(jump.table, jump.to) == Some(Maker::Both);
                assert!(within(jump.to) || stays, "{scope:?} {jump:?}");
                assert!(!within(jump.from), "{scope:?} {jump:?}");
            }
        }
    }

    #[test]
    fn objects_of_a_mode_are_not_leftovers_for_it() {
        let chains = [
            ("nat", "KUBE-SERVICES", [false, false, true]),
            ("filter", "KUBE-PROXY-FIREWALL", [false, false, true]),
            ("nat", "KUBE-SVC-NPX46M4PTMTKRN6Y", [false, true, true]),
            ("filter", "KUBE-SERVICES", [false, true, true]),
            ("nat", "KUBE-LOAD-BALANCER", [true, false, true]),
            ("filter", "KUBE-NODE-PORT", [true, false, true]),
        ];
        let scopes = [Mode::Iptables, Mode::Ipvs, Mode::Nftables].map(Scope::AllExcept);
        for (table, chain, expected) in chains {
            let in_the_way = scopes.map(|scope| is_chain(scope, table, chain));
            assert_eq!(in_the_way, expected, "{table} {chain}");
        }
        let comments = |mode| jumps(Scope::AllExcept(mode)).map(|jump| jump.comment);
        let portals = "kubernetes service portals";
        assert!(!comments(Mode::Iptables).any(|comment| comment == portals));
        assert_eq!(comments(Mode::Iptables).count(), 5);
        assert_eq!(comments(Mode::Ipvs).count(), 8);
        assert_eq!(comments(Mode::Nftables).count(), 17);
    }
}
