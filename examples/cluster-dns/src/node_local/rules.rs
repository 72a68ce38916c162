//! Rules that exempt the questions to node-local addresses, and the answers, from
//! connection tracking.

use std::net::IpAddr;

use vipline_nftables::expression::{
    concat, ip_daddr, ip_saddr, ip6_daddr, ip6_saddr, l4proto, th_dport, th_sport,
};
use vipline_nftables::statement::notrack;
use vipline_nftables::{
    BaseChain, Chain, ChainType, Comment, Datatype, Expression, Family, Hook, Name, Object, Rule,
    Set, Table, TableId, Value,
};

use super::Options;

/// Name of the table, in family `inet`.
const TABLE: &str = "cluster-dns";

/// Priority `raw`: before connection tracking.
const RAW: i32 = -300;

/// Transport protocols of DNS: `IPPROTO_TCP` and `IPPROTO_UDP`.
const PROTOCOLS: [u8; 2] = [6, 17];

/// Returns the ID of the table.
pub(super) fn table() -> TableId {
    TableId::new(Family::Inet, name(TABLE))
}

/// Returns the table object.
pub(super) fn table_object() -> Object {
    let comment = Comment::new("node-local DNS without connection tracking");
    let table = Table::new(table());
    table.with_comment(comment.expect("a valid comment")).into()
}

/// Returns sets, elements and chains for addresses and port.
pub(super) fn objects(options: &Options) -> Vec<Object> {
    let sets = Sockets::new();
    let elements = options.addresses.iter().flat_map(|address| {
        let elements = PROTOCOLS.map(|protocol| sets.element(*address, protocol, options.port));
        elements.into_iter().flatten().map(Object::from)
    });
    let elements: Vec<_> = elements.collect();
    let chains = [
        chain("prerouting", Hook::Prerouting)
            .with_rules([ipv4_questions(&sets.ipv4), ipv6_questions(&sets.ipv6)]),
        chain("output", Hook::Output).with_rules([
            ipv4_questions(&sets.ipv4),
            ipv6_questions(&sets.ipv6),
            ipv4_answers(&sets.ipv4),
            ipv6_answers(&sets.ipv6),
        ]),
    ];
    let sets = [sets.ipv4, sets.ipv6].map(Object::from);
    let objects = sets.into_iter().chain(elements);
    objects.chain(chains.map(Object::from)).collect()
}

/// Sets of address, protocol and port.
struct Sockets {
    ipv4: Set,
    ipv6: Set,
}

impl Sockets {
    fn new() -> Self {
        let set = |text, address| {
            let key = [address, Datatype::InetProto, Datatype::InetService];
            let comment = Comment::new("sockets of cluster-dns").expect("a valid comment");
            Set::new(table(), name(text), key).with_comment(comment)
        };
        Self {
            ipv4: set("ipv4-sockets", Datatype::Ipv4Addr),
            ipv6: set("ipv6-sockets", Datatype::Ipv6Addr),
        }
    }

    fn element(
        &self,
        address: IpAddr,
        protocol: u8,
        port: u16,
    ) -> Option<vipline_nftables::Element> {
        let set = match address {
            IpAddr::V4(_) => &self.ipv4,
            IpAddr::V6(_) => &self.ipv6,
        };
        let key = [Value::from(address), protocol.into(), port.into()];
        set.element(&key).ok()
    }
}

/// ```nft
/// meta nfproto ipv4 ip daddr . meta l4proto . th dport @ipv4-sockets notrack
/// ```
///
/// Questions from pods, and from processes of the node.
fn ipv4_questions(sockets: &Set) -> Rule {
    untracked(sockets, ip_daddr(), th_dport())
}

/// ```nft
/// meta nfproto ipv6 ip6 daddr . meta l4proto . th dport @ipv6-sockets notrack
/// ```
///
/// Questions from pods, and from processes of the node.
fn ipv6_questions(sockets: &Set) -> Rule {
    untracked(sockets, ip6_daddr(), th_dport())
}

/// ```nft
/// meta nfproto ipv4 ip saddr . meta l4proto . th sport @ipv4-sockets notrack
/// ```
///
/// Answers. Without the rule, they would be new connections.
fn ipv4_answers(sockets: &Set) -> Rule {
    untracked(sockets, ip_saddr(), th_sport())
}

/// ```nft
/// meta nfproto ipv6 ip6 saddr . meta l4proto . th sport @ipv6-sockets notrack
/// ```
///
/// Answers. Without the rule, they would be new connections.
fn ipv6_answers(sockets: &Set) -> Rule {
    untracked(sockets, ip6_saddr(), th_sport())
}

fn untracked<A>(sockets: &Set, address: Expression<A>, port: Expression<u16>) -> Rule {
    let socket = concat((address, l4proto(), port));
    let rule = Rule::new(Family::Inet, [socket.in_set(sockets), notrack()]);
    rule.expect("lookups have no values")
}

fn chain(text: &str, hook: Hook) -> Chain {
    let base = BaseChain::new(ChainType::Filter, hook, RAW);
    Chain::new(table(), name(text)).with_base(base)
}

/// Creates a name from a constant.
pub(super) fn name(text: &str) -> Name {
    Name::new(text).expect("a valid name")
}

#[cfg(test)]
mod tests {
    use vipline_rtnl as rtnl;

    use super::*;

    #[test]
    fn rules_match_their_documentation() {
        let Sockets { ipv4, ipv6 } = Sockets::new();
        let emitted = [
            ("ipv4_questions", ipv4_questions(&ipv4)),
            ("ipv6_questions", ipv6_questions(&ipv6)),
            ("ipv4_answers", ipv4_answers(&ipv4)),
            ("ipv6_answers", ipv6_answers(&ipv6)),
        ];
        let source = include_str!("rules.rs");
        let documented: Vec<_> = source.split("/// ```nft\n/// ").skip(1).collect();
        assert_eq!(documented.len(), emitted.len());
        for (block, (function, rule)) in documented.into_iter().zip(emitted) {
            let (line, rest) = block.split_once("\n/// ```\n").unwrap();
            assert_eq!(line, rule.to_string(), "{function}");
            let (_, rest) = rest.split_once("fn ").unwrap();
            assert!(rest.starts_with(&format!("{function}(")), "{function}");
        }
    }

    #[test]
    fn each_address_has_an_element_for_each_protocol() {
        let addresses = ["169.254.20.10", "fd00::10"].map(|text| text.parse().unwrap());
        let interface = rtnl::Name::new("lo").unwrap();
        let options = Options::new(addresses.to_vec(), 5353, interface).unwrap();
        let elements = objects(&options)
            .into_iter()
            .filter_map(|object| match object {
                Object::Element(element) => Some(element.to_string()),
                _ => None,
            });
        let expected = [
            "169.254.20.10 . tcp . 5353",
            "169.254.20.10 . udp . 5353",
            "fd00::10 . tcp . 5353",
            "fd00::10 . udp . 5353",
        ];
        assert_eq!(elements.collect::<Vec<_>>(), expected);
    }
}
