//! All that may ever be removed, by name.
//!
//! Nothing else in `src/cleanup` says what is a kube-proxy's.
//! What is listed is what upstream 1.36 removes with `--cleanup`, and marked as
//! such where it is what upstream makes and leaves behind.
//!
//! What the kubelet makes is not here and stays: the chains `KUBE-FIREWALL`,
//! `KUBE-MARK-DROP`, `KUBE-KUBELET-CANARY` and `KUBE-IPTABLES-HINT`, and the
//! jumps to them.

use vipline_rtnl::Name;

use super::Scope;

/// Returns the name of the link that mode ipvs gives addresses to.
pub fn link() -> Name {
    Name::new("kube-ipvs0").expect("it is short")
}

/// Which modes make something.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Maker {
    /// Modes iptables and ipvs.
    Both,
    /// Mode iptables.
    Iptables,
    /// Mode ipvs.
    Ipvs,
}

/// A chain of upstream's, with its table.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Chain {
    /// The table.
    pub table: &'static str,
    /// The name.
    pub name: &'static str,
}

/// A rule by which upstream leads packets into a chain of its own.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Jump {
    /// The table.
    pub table: &'static str,
    /// The chain of the kernel's that the rule is in.
    pub from: &'static str,
    /// Where it leads.
    pub to: &'static str,
    /// What it is commented with.
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

/// The chains with names of their own.
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

/// How the names of chains of one Service or endpoint begin, in table `nat`.
const OF_SERVICES: [&str; 5] = [
    "KUBE-SVC-",
    "KUBE-SVL-",
    "KUBE-EXT-",
    "KUBE-FW-",
    "KUBE-SEP-",
];

/// How long the hash is that such a name ends with.
const HASH: usize = 16;

/// The jumps, each with or without a match of new connections.
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

/// The sets of mode ipvs for IPv4.
///
/// Upstream leaves those for IPv6 behind, which [`is_set`] knows as well.
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
    // Of older releases, which left them behind.
    "KUBE-NODE-PORT-SCTP",
    "KUBE-NODE-PORT-LOCAL-SCTP",
];

/// The greatest length of a set's name.
const SET_NAME: usize = 31;

/// Tells whether a chain is a kube-proxy's, and of a mode within the scope.
pub fn is_chain(scope: Scope, table: &str, name: &str) -> bool {
    maker(table, name).is_some_and(|maker| scope.holds(maker))
}

/// Returns which modes make a chain, if any does.
fn maker(table: &str, name: &str) -> Option<Maker> {
    let of_service = |prefix: &&str| {
        name.strip_prefix(*prefix)
            .is_some_and(|hash| hash.len() == HASH && hash.bytes().all(is_base32))
    };
    if table == "nat" && OF_SERVICES.iter().any(of_service) {
        return Some(Maker::Iptables);
    }
    let is_it = |chain: &Chain| (chain.table, chain.name) == (table, name);
    let mut makers = CHAINS.iter();
    let found = makers.find(|(_, chains)| chains.iter().any(is_it));
    found.map(|(maker, _)| *maker)
}

/// Returns the jumps that modes within the scope make.
pub fn jumps(scope: Scope) -> impl Iterator<Item = &'static Jump> {
    let within = JUMPS.iter().filter(move |(maker, _)| scope.holds(*maker));
    within.flat_map(|(_, jumps)| jumps.iter())
}

fn is_base32(byte: u8) -> bool {
    matches!(byte, b'A'..=b'Z' | b'2'..=b'7')
}

/// Tells whether a set is a kube-proxy's, of either family.
pub fn is_set(name: &str) -> bool {
    SETS.iter()
        .any(|&set| set == name || name_for_v6(set) == name)
}

/// Returns the name that a set of IPv4's has for IPv6, cut to its length.
pub fn name_for_v6(set: &str) -> String {
    let mut name = set.replacen("KUBE-", "KUBE-6-", 1);
    name.truncate(SET_NAME);
    name
}

#[cfg(test)]
mod tests {
    use proxy_core::Mode;

    use super::*;

    #[test]
    fn chains_are_known_by_their_whole_name_and_table() {
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
        assert!(SETS.iter().all(|set| set.len() <= SET_NAME));
    }

    #[test]
    fn every_jump_leads_to_a_chain_that_is_removed() {
        for scope in [
            Scope::AllModes,
            Scope::OthersThan(Mode::Nftables),
            Scope::OthersThan(Mode::Iptables),
            Scope::OthersThan(Mode::Ipvs),
        ] {
            for jump in jumps(scope) {
                let within = |chain| is_chain(scope, jump.table, chain);
                // Chains of both modes stay, and jumps to them need not.
                let stays = maker(jump.table, jump.to) == Some(Maker::Both);
                assert!(within(jump.to) || stays, "{scope:?} {jump:?}");
                assert!(!within(jump.from), "{scope:?} {jump:?}");
            }
        }
    }

    #[test]
    fn what_a_mode_makes_itself_is_not_in_its_way() {
        let chains = [
            ("nat", "KUBE-SERVICES", [false, false, true]),
            ("filter", "KUBE-PROXY-FIREWALL", [false, false, true]),
            ("nat", "KUBE-SVC-NPX46M4PTMTKRN6Y", [false, true, true]),
            ("filter", "KUBE-SERVICES", [false, true, true]),
            ("nat", "KUBE-LOAD-BALANCER", [true, false, true]),
            ("filter", "KUBE-NODE-PORT", [true, false, true]),
        ];
        let scopes = [Mode::Iptables, Mode::Ipvs, Mode::Nftables].map(Scope::OthersThan);
        for (table, chain, expected) in chains {
            let in_the_way = scopes.map(|scope| is_chain(scope, table, chain));
            assert_eq!(in_the_way, expected, "{table} {chain}");
        }
        let comments = |mode| jumps(Scope::OthersThan(mode)).map(|jump| jump.comment);
        let portals = "kubernetes service portals";
        assert!(!comments(Mode::Iptables).any(|comment| comment == portals));
        assert_eq!(comments(Mode::Iptables).count(), 5);
        assert_eq!(comments(Mode::Ipvs).count(), 8);
        assert_eq!(comments(Mode::Nftables).count(), 17);
    }
}
