//! Objects that do not depend on Services: the link, sets, chains and jumps.

use vipline_ipset::{self as ipset, Range, SetType};
use vipline_iptables::matches::{self, AddrType, AddressTypes, Conntrack, CtState, Physdev};
use vipline_iptables::targets::{Masquerade, Reject, Target};
use vipline_iptables::{Direction, Negatable, Protocol, Rule, SetDirections};
use vipline_rtnl::{self as rtnl, Link};
use vipline_service_model::Family;

use super::Object;
use super::names::{self, FILTER, NAT, Set};
use crate::Context;
use crate::MasqueradedClients;
use crate::backend::iptables::plan::base::{forwarding, mark_for_masquerading, masquerading};
use crate::backend::iptables::plan::jump::{self, Jump};
use crate::backend::iptables::plan::rules::{chain, not_from_pods, shared};

/// `maxelem` of the sets of upstream.
pub(in crate::backend) const DEFAULT_MAXELEM: u32 = 1 << 16;

/// Initial `hashsize` of sets.
const HASH_SIZE: u32 = 1024;

/// Returns the objects that do not depend on Services.
pub(super) fn objects(cx: &Context, random_fully: bool) -> Vec<Object> {
    let mut objects = vec![rtnl::Object::from(Link::dummy(names::link())).into()];
    let sets = names::SETS
        .iter()
        .map(|of| ipset::Object::from(set(of, cx.family)));
    objects.extend(sets.map(Object::from));
    let chains = [
        services(cx),
        postrouting(cx, random_fully),
        node_port(cx),
        load_balancer(cx),
        mark_for_masquerading(cx),
        shared(FILTER, names::IPVS_OUT_FILTER),
        chain_of(cx, FILTER, names::KUBE_FORWARD, forwarding(cx)),
        health_check(cx),
        firewall(cx),
        source_ranges(cx),
        ipvs_filter(cx),
    ];
    objects.extend(chains.map(Object::from));
    objects.extend(jumps(cx.family));
    objects
}

/// Returns an empty set.
fn set(of: &Set, family: Family) -> ipset::Set {
    let set = ipset::Set::new(of.name(family), of.kind.clone(), family.into());
    match of.kind {
        SetType::BitmapPort => set.with_range(Range::Ports(0, u16::MAX)),
        _ => set.with_hashsize(HASH_SIZE).with_maxelem(DEFAULT_MAXELEM),
    }
}

fn chain_of<'a>(
    cx: &Context,
    table: &str,
    name: &str,
    rules: impl IntoIterator<Item = Rule<'a>>,
) -> vipline_iptables::Object {
    chain(cx.family, table, names::chain(name), rules)
}

/// The jumps, in the order in which they are inserted at the head of their chains.
const JUMPS: [Jump; 9] = [
    Jump::new(NAT, names::OUTPUT, names::SERVICES).with_comment("kubernetes service portals"),
    Jump::new(NAT, names::PREROUTING, names::SERVICES).with_comment("kubernetes service portals"),
    Jump::new(NAT, names::POSTROUTING, names::KUBE_POSTROUTING)
        .with_comment("kubernetes postrouting rules"),
    Jump::new(FILTER, names::FORWARD, names::KUBE_FORWARD)
        .with_comment("kubernetes forwarding rules"),
    Jump::new(FILTER, names::INPUT, names::KUBE_NODE_PORT)
        .with_comment("kubernetes health check rules"),
    Jump::new(FILTER, names::INPUT, names::PROXY_FIREWALL)
        .with_comment("kube-proxy firewall rules"),
    Jump::new(FILTER, names::FORWARD, names::PROXY_FIREWALL)
        .with_comment("kube-proxy firewall rules"),
    Jump::new(FILTER, names::INPUT, names::IPVS_FILTER)
        .with_comment("kubernetes ipvs access filter"),
    Jump::new(FILTER, names::OUTPUT, names::IPVS_OUT_FILTER)
        .with_comment("kubernetes ipvs access filter"),
];

/// ```iptables
/// -t nat -I OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
/// -t nat -I PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
/// -t nat -I POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
/// -t filter -I FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
/// -t filter -I INPUT -m comment --comment "kubernetes health check rules" -j KUBE-NODE-PORT
/// -t filter -I INPUT -m comment --comment "kube-proxy firewall rules" -j KUBE-PROXY-FIREWALL
/// -t filter -I FORWARD -m comment --comment "kube-proxy firewall rules" -j KUBE-PROXY-FIREWALL
/// -t filter -I INPUT -m comment --comment "kubernetes ipvs access filter" -j KUBE-IPVS-FILTER
/// -t filter -I OUTPUT -m comment --comment "kubernetes ipvs access filter" -j KUBE-IPVS-OUT-FILTER
/// ```
///
/// Inserts the jumps at the head, so that packets reach our chains first. Existing jumps
/// stay in place.
fn jumps(family: Family) -> impl Iterator<Item = Object> {
    jump::objects(&JUMPS, family).map(Object::from)
}

/// Returns the index of a jump by its table, chain and rule.
pub(super) fn place_of_jump(table: &str, from: &str, rule: &str) -> Option<usize> {
    jump::place(&JUMPS, table, from, rule)
}

/// Returns a rule that matches the entries of a set, with the comment of the set.
fn about(cx: &Context, set: &Set, directions: impl Into<SetDirections>) -> Rule<'static> {
    Rule::new()
        .with_comment(set.comment)
        .with_match(contains(cx, set, directions))
}

fn contains(
    cx: &Context,
    set: &Set,
    directions: impl Into<SetDirections>,
) -> matches::Set<'static> {
    matches::Set::contains(set.name(cx.family).to_string(), directions)
}

/// Returns the match directions of destination address and port.
fn dst_dst() -> SetDirections {
    directions([Direction::Destination, Direction::Destination])
}

/// Returns the match directions of destination address and port, and source address.
fn dst_dst_src() -> SetDirections {
    directions([
        Direction::Destination,
        Direction::Destination,
        Direction::Source,
    ])
}

fn directions<const N: usize>(directions: [Direction; N]) -> SetDirections {
    SetDirections::new(directions).expect("a match has one to three directions")
}

fn to_mark_masq(rule: Rule<'static>) -> Rule<'static> {
    rule.with_jump(names::chain(names::MARK_MASQ))
}

fn to_local() -> AddrType {
    AddrType::destination(AddressTypes::LOCAL)
}

fn not_from_local() -> AddrType {
    let mut kind = AddrType::source(AddressTypes::LOCAL);
    kind.source = Some(Negatable::Not(AddressTypes::LOCAL));
    kind
}

/// ```iptables
/// -t nat -A KUBE-SERVICES -s 127.0.0.0/8 -j RETURN
/// -t nat -A KUBE-SERVICES -m comment --comment "Kubernetes service lb portal" -m set --match-set KUBE-LOAD-BALANCER dst,dst -j KUBE-LOAD-BALANCER
/// -t nat -A KUBE-SERVICES ! -s 10.0.0.0/14 -m comment --comment "Kubernetes service cluster ip + port for masquerade purpose" -m set --match-set KUBE-CLUSTER-IP dst,dst -j KUBE-MARK-MASQ
/// -t nat -A KUBE-SERVICES … external IPs …
/// -t nat -A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODE-PORT
/// -t nat -A KUBE-SERVICES -m set --match-set KUBE-CLUSTER-IP dst,dst -j ACCEPT
/// -t nat -A KUBE-SERVICES -m set --match-set KUBE-LOAD-BALANCER dst,dst -j ACCEPT
/// ```
///
/// Marks traffic to Services for masquerading if endpoints must not see its source.
/// Accepts it at the end, so that no later rule changes its destination.
fn services(cx: &Context) -> vipline_iptables::Object {
    let from_loopback = Rule::new().with_source(cx.family.loopback());
    let mut rules = vec![
        from_loopback.with_target(Target::Return),
        about(cx, &names::LOAD_BALANCER, dst_dst())
            .with_jump(names::chain(names::KUBE_LOAD_BALANCER)),
        masquerade(cx),
    ];
    rules.extend(external_ip(cx));
    rules.push(
        Rule::new()
            .with_match(to_local())
            .with_jump(names::chain(names::KUBE_NODE_PORT)),
    );
    let accepted = [&names::CLUSTER_IP, &names::LOAD_BALANCER];
    rules.extend(accepted.map(|set| {
        let rule = Rule::new().with_match(contains(cx, set, dst_dst()));
        rule.with_target(Target::Accept)
    }));
    chain_of(cx, NAT, names::SERVICES, rules)
}

/// ```iptables
/// -t nat -A KUBE-SERVICES -m comment --comment "Kubernetes service cluster ip + port for masquerade purpose" -m set --match-set KUBE-CLUSTER-IP dst,dst -j KUBE-MARK-MASQ
/// -t nat -A KUBE-SERVICES ! -s 10.0.0.0/14 -m comment --comment "Kubernetes service cluster ip + port for masquerade purpose" -m set --match-set KUBE-CLUSTER-IP dst,dst -j KUBE-MARK-MASQ
/// -t nat -A KUBE-SERVICES -m comment --comment "Kubernetes service cluster ip + port for masquerade purpose" -m set --match-set KUBE-CLUSTER-IP src,dst -j KUBE-MARK-MASQ
/// ```
///
/// Marks traffic from outside the pod network for masquerading, because endpoints must
/// reply by way of this node. Without detection of local traffic, marks only connections
/// of the node to itself, whose source is the cluster IP.
fn masquerade(cx: &Context) -> Rule<'static> {
    let set = &names::CLUSTER_IP;
    let rule = match cx.masqueraded_clients() {
        MasqueradedClients::All => about(cx, set, dst_dst()),
        MasqueradedClients::Outside(pods) => not_from_pods(about(cx, set, dst_dst()), pods),
        MasqueradedClients::None => about(
            cx,
            set,
            directions([Direction::Source, Direction::Destination]),
        ),
    };
    to_mark_masq(rule)
}

/// ```iptables
/// -t nat -A KUBE-SERVICES -m comment --comment "Kubernetes service external ip + port for masquerade and filter purpose" -m set --match-set KUBE-EXTERNAL-IP dst,dst -j KUBE-MARK-MASQ
/// -t nat -A KUBE-SERVICES -m comment --comment "Kubernetes service external ip + port for masquerade and filter purpose" -m set --match-set KUBE-EXTERNAL-IP dst,dst -m physdev ! --physdev-is-in -m addrtype ! --src-type LOCAL -j ACCEPT
/// -t nat -A KUBE-SERVICES -m comment --comment "Kubernetes service external ip + port for masquerade and filter purpose" -m set --match-set KUBE-EXTERNAL-IP dst,dst -m addrtype --dst-type LOCAL -j ACCEPT
/// -t nat -A KUBE-SERVICES … KUBE-EXTERNAL-IP-LOCAL, without the mark …
/// ```
///
/// Marks traffic to external IPs for masquerading, unless policy Local preserves the
/// source.
fn external_ip(cx: &Context) -> impl Iterator<Item = Rule<'static>> {
    let accept = |set: &'static Set| {
        let not_bridged = Physdev {
            is_in: Some(Negatable::Not(())),
            ..Physdev::default()
        };
        let rule = || about(cx, set, dst_dst());
        [
            rule().with_match(not_bridged).with_match(not_from_local()),
            rule().with_match(to_local()),
        ]
        .map(|rule| rule.with_target(Target::Accept))
    };
    let marked = to_mark_masq(about(cx, &names::EXTERNAL_IP, dst_dst()));
    [marked]
        .into_iter()
        .chain(accept(&names::EXTERNAL_IP))
        .chain(accept(&names::EXTERNAL_IP_LOCAL))
}

/// ```iptables
/// -t nat -A KUBE-POSTROUTING -m comment --comment "Kubernetes endpoints dst ip:port, source ip for solving hairpin purpose" -m set --match-set KUBE-LOOP-BACK dst,dst,src -j MASQUERADE
/// ```
///
/// Masquerades connections of a pod to itself. Otherwise the pod would see its own
/// address as the client and reply without passing the node. The remaining rules
/// masquerade marked packets.
fn postrouting(cx: &Context, random_fully: bool) -> vipline_iptables::Object {
    let hairpin = about(cx, &names::LOOP_BACK, dst_dst_src()).with_target(Masquerade::new());
    let rules = [hairpin].into_iter().chain(masquerading(cx, random_fully));
    chain_of(cx, NAT, names::KUBE_POSTROUTING, rules)
}

/// ```iptables
/// -t nat -A KUBE-NODE-PORT -p tcp -m comment --comment "Kubernetes nodeport TCP port with externalTrafficPolicy=local" -m set --match-set KUBE-NODE-PORT-LOCAL-TCP dst -j RETURN
/// -t nat -A KUBE-NODE-PORT -p tcp -m comment --comment "Kubernetes nodeport TCP port for masquerade purpose" -m set --match-set KUBE-NODE-PORT-TCP dst -j KUBE-MARK-MASQ
/// -t nat -A KUBE-NODE-PORT … the same for udp and sctp …
/// ```
///
/// Marks traffic to node ports for masquerading, unless policy Local preserves the
/// source.
fn node_port(cx: &Context) -> vipline_iptables::Object {
    let one = || SetDirections::from(Direction::Destination);
    let kinds = [
        (
            Protocol::TCP,
            &names::NODE_PORT_LOCAL_TCP,
            &names::NODE_PORT_TCP,
            one(),
        ),
        (
            Protocol::UDP,
            &names::NODE_PORT_LOCAL_UDP,
            &names::NODE_PORT_UDP,
            one(),
        ),
        (
            Protocol::SCTP,
            &names::NODE_PORT_LOCAL_SCTP,
            &names::NODE_PORT_SCTP,
            dst_dst(),
        ),
    ];
    let rules = kinds
        .into_iter()
        .flat_map(|(protocol, local, all, directions)| {
            let rule = |set| about(cx, set, directions).with_protocol(protocol);
            [
                rule(local).with_target(Target::Return),
                to_mark_masq(rule(all)),
            ]
        });
    chain_of(cx, NAT, names::KUBE_NODE_PORT, rules)
}

/// ```iptables
/// -t nat -A KUBE-LOAD-BALANCER -m comment --comment "Kubernetes service load balancer ip + port with externalTrafficPolicy=local" -m set --match-set KUBE-LOAD-BALANCER-LOCAL dst,dst -j RETURN
/// -t nat -A KUBE-LOAD-BALANCER -j KUBE-MARK-MASQ
/// ```
///
/// Marks traffic to load balancer IPs for masquerading, unless policy Local preserves the
/// source.
fn load_balancer(cx: &Context) -> vipline_iptables::Object {
    let kept = about(cx, &names::LOAD_BALANCER_LOCAL, dst_dst()).with_target(Target::Return);
    let rules = [kept, to_mark_masq(Rule::new())];
    chain_of(cx, NAT, names::KUBE_LOAD_BALANCER, rules)
}

/// ```iptables
/// -t filter -A KUBE-NODE-PORT -m comment --comment "Kubernetes health check node port" -m set --match-set KUBE-HEALTH-CHECK-NODE-PORT dst -j ACCEPT
/// ```
///
/// Accepts health checks of load balancers.
fn health_check(cx: &Context) -> vipline_iptables::Object {
    let rule = about(cx, &names::HEALTH_CHECK_NODE_PORT, Direction::Destination);
    chain_of(
        cx,
        FILTER,
        names::KUBE_NODE_PORT,
        [rule.with_target(Target::Accept)],
    )
}

/// ```iptables
/// -t filter -A KUBE-PROXY-FIREWALL -m comment --comment "Kubernetes service load balancer ip + port for load balancer with sourceRange" -m set --match-set KUBE-LOAD-BALANCER-FW dst,dst -j KUBE-SOURCE-RANGES-FIREWALL
/// ```
///
/// Sends traffic to load balancer IPs with source ranges to the chain that checks
/// sources.
fn firewall(cx: &Context) -> vipline_iptables::Object {
    let rule = about(cx, &names::LOAD_BALANCER_FW, dst_dst());
    let rule = rule.with_jump(names::chain(names::SOURCE_RANGES_FIREWALL));
    chain_of(cx, FILTER, names::PROXY_FIREWALL, [rule])
}

/// ```iptables
/// -t filter -A KUBE-SOURCE-RANGES-FIREWALL -m comment --comment "Kubernetes service load balancer ip + port + source cidr for packet filter purpose" -m set --match-set KUBE-LOAD-BALANCER-SOURCE-CIDR dst,dst,src -j RETURN
/// -t filter -A KUBE-SOURCE-RANGES-FIREWALL -m comment --comment "Kubernetes service load balancer ip + port + source IP for packet filter purpose" -m set --match-set KUBE-LOAD-BALANCER-SOURCE-IP dst,dst,src -j RETURN
/// -t filter -A KUBE-SOURCE-RANGES-FIREWALL -j DROP
/// ```
///
/// Drops traffic to restricted load balancer IPs from sources outside the source ranges.
fn source_ranges(cx: &Context) -> vipline_iptables::Object {
    let allowed = [
        &names::LOAD_BALANCER_SOURCE_CIDR,
        &names::LOAD_BALANCER_SOURCE_IP,
    ];
    let allowed = allowed.map(|set| about(cx, set, dst_dst_src()).with_target(Target::Return));
    let rules = allowed
        .into_iter()
        .chain([Rule::new().with_target(Target::Drop)]);
    chain_of(cx, FILTER, names::SOURCE_RANGES_FIREWALL, rules)
}

/// ```iptables
/// -t filter -A KUBE-IPVS-FILTER -m set --match-set KUBE-LOAD-BALANCER dst,dst -j RETURN
/// -t filter -A KUBE-IPVS-FILTER -m set --match-set KUBE-CLUSTER-IP dst,dst -j RETURN
/// -t filter -A KUBE-IPVS-FILTER -m set --match-set KUBE-EXTERNAL-IP dst,dst -j RETURN
/// -t filter -A KUBE-IPVS-FILTER -m set --match-set KUBE-EXTERNAL-IP-LOCAL dst,dst -j RETURN
/// -t filter -A KUBE-IPVS-FILTER -m set --match-set KUBE-HEALTH-CHECK-NODE-PORT dst -j RETURN
/// -t filter -A KUBE-IPVS-FILTER -m conntrack --ctstate NEW -m set --match-set KUBE-IPVS-IPS dst -j REJECT --reject-with icmp-port-unreachable
/// ```
///
/// Rejects connections to other ports of Service addresses. These addresses are local, so
/// other programs on the node would otherwise be reachable by them.
fn ipvs_filter(cx: &Context) -> vipline_iptables::Object {
    let served = [
        (&names::LOAD_BALANCER, dst_dst()),
        (&names::CLUSTER_IP, dst_dst()),
        (&names::EXTERNAL_IP, dst_dst()),
        (&names::EXTERNAL_IP_LOCAL, dst_dst()),
        (
            &names::HEALTH_CHECK_NODE_PORT,
            Direction::Destination.into(),
        ),
    ];
    let served = served.map(|(set, directions)| {
        let rule = Rule::new().with_match(contains(cx, set, directions));
        rule.with_target(Target::Return)
    });
    let refused = Rule::new()
        .with_match(Conntrack::state(CtState::NEW))
        .with_match(contains(cx, &names::IPVS_IPS, Direction::Destination))
        .with_target(Target::from(Reject::Default));
    chain_of(
        cx,
        FILTER,
        names::IPVS_FILTER,
        served.into_iter().chain([refused]),
    )
}
