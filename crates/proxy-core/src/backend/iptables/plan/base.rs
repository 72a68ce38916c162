//! Objects that do not depend on Services: chains, jumps and rules.

use std::net::IpAddr;

use vipline_iptables::matches::{AddrType, AddressTypes, Conntrack, CtState, Mark, Nfacct};
use vipline_iptables::targets::{Mark as SetMark, Masquerade, Target};
use vipline_iptables::{Chain, Contents, Object, Position, Rule};
use vipline_service_model::{Family, NodePortMatch};

use super::jump::{self, Jump};
use super::names::{self, FILTER, MANGLE, NAT};
use super::rules::{chain, entry, shared};
use crate::{Context, Iptables};

/// Comment of the last rule of nat KUBE-SERVICES.
const LAST_RULE: &str =
    "kubernetes service nodeports; NOTE: this must be the last rule in this chain";

/// Returns the objects that do not depend on Services.
pub(super) fn objects(cx: &Context, settings: &Iptables) -> Vec<Object> {
    let serves_localhost = settings.serves_localhost(cx);
    let mut objects = vec![
        shared(FILTER, names::SERVICES),
        shared(FILTER, names::EXTERNAL_SERVICES),
        forward(cx, settings),
        shared(FILTER, names::NODEPORTS),
        shared(FILTER, names::PROXY_FIREWALL),
        firewall(cx, serves_localhost),
        shared(NAT, names::SERVICES),
        shared(NAT, names::NODEPORTS),
        postrouting(cx, settings.random_fully),
        mark_for_masquerading(cx),
    ];
    objects.extend([MANGLE, NAT, FILTER].map(|table| canary(cx.family, table)));
    objects.extend(jumps(cx.family));
    objects.extend(to_node_ports(cx, serves_localhost));
    objects
}

/// The jumps, in the order in which they are inserted at the head of their chains.
const JUMPS: [Jump; 14] = [
    Jump::new(FILTER, names::INPUT, names::EXTERNAL_SERVICES)
        .of_new()
        .with_comment("kubernetes externally-visible service portals"),
    Jump::new(FILTER, names::FORWARD, names::EXTERNAL_SERVICES)
        .of_new()
        .with_comment("kubernetes externally-visible service portals"),
    Jump::new(FILTER, names::INPUT, names::NODEPORTS)
        .with_comment("kubernetes health check service ports"),
    Jump::new(FILTER, names::FORWARD, names::SERVICES)
        .of_new()
        .with_comment("kubernetes service portals"),
    Jump::new(FILTER, names::OUTPUT, names::SERVICES)
        .of_new()
        .with_comment("kubernetes service portals"),
    Jump::new(FILTER, names::FORWARD, names::KUBE_FORWARD)
        .with_comment("kubernetes forwarding rules"),
    Jump::new(FILTER, names::INPUT, names::PROXY_FIREWALL)
        .of_new()
        .with_comment("kubernetes load balancer firewall"),
    Jump::new(FILTER, names::OUTPUT, names::PROXY_FIREWALL)
        .of_new()
        .with_comment("kubernetes load balancer firewall"),
    Jump::new(FILTER, names::FORWARD, names::PROXY_FIREWALL)
        .of_new()
        .with_comment("kubernetes load balancer firewall"),
    Jump::new(NAT, names::OUTPUT, names::SERVICES).with_comment("kubernetes service portals"),
    Jump::new(NAT, names::PREROUTING, names::SERVICES).with_comment("kubernetes service portals"),
    Jump::new(NAT, names::POSTROUTING, names::KUBE_POSTROUTING)
        .with_comment("kubernetes postrouting rules"),
    Jump::new(FILTER, names::INPUT, names::FIREWALL),
    Jump::new(FILTER, names::OUTPUT, names::FIREWALL),
];

/// ```iptables
/// -t filter -I INPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes externally-visible service portals" -j KUBE-EXTERNAL-SERVICES
/// -t filter -I FORWARD -m conntrack --ctstate NEW -m comment --comment "kubernetes externally-visible service portals" -j KUBE-EXTERNAL-SERVICES
/// -t filter -I INPUT -m comment --comment "kubernetes health check service ports" -j KUBE-NODEPORTS
/// -t filter -I FORWARD -m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
/// -t filter -I OUTPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
/// -t filter -I FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
/// -t filter -I INPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes load balancer firewall" -j KUBE-PROXY-FIREWALL
/// -t filter -I OUTPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes load balancer firewall" -j KUBE-PROXY-FIREWALL
/// -t filter -I FORWARD -m conntrack --ctstate NEW -m comment --comment "kubernetes load balancer firewall" -j KUBE-PROXY-FIREWALL
/// -t nat -I OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
/// -t nat -I PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
/// -t nat -I POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
/// -t filter -I INPUT -j KUBE-FIREWALL
/// -t filter -I OUTPUT -j KUBE-FIREWALL
/// ```
///
/// Inserts the jumps at the head, so that packets reach our chains first. Existing jumps
/// stay in place.
fn jumps(family: Family) -> impl Iterator<Item = Object> {
    jump::objects(&JUMPS, family)
}

/// Returns the index of a jump by its table, chain and rule.
pub(super) fn place_of_jump(table: &str, from: &str, rule: &str) -> Option<usize> {
    jump::place(&JUMPS, table, from, rule)
}

/// Returns whether Services work without an object, although not completely. If the kernel
/// rejects such an object, it is reported and retried like one of a Service.
///
/// Optional are the chains that only jumps of built-in chains lead to, and
/// all jumps except those to the Services: without KUBE-FORWARD the policy of FORWARD decides,
/// without KUBE-POSTROUTING the endpoints see the client. KUBE-MARK-MASQ is not optional,
/// because the chains of all endpoints jump to it.
pub(in crate::backend) fn is_optional(object: &Object) -> bool {
    match object {
        Object::Chain(chain) => matches!(
            (chain.table.as_str(), chain.name.as_str()),
            (FILTER, names::KUBE_FORWARD | names::FIREWALL) | (NAT, names::KUBE_POSTROUTING)
        ),
        Object::SharedRule(entry) => !matches!(
            (entry.table.as_str(), entry.chain.as_str()),
            (NAT, names::PREROUTING | names::OUTPUT)
        ),
    }
}

/// Returns an empty chain that serves as a canary: if it is missing, another process
/// flushed the rules.
fn canary(family: Family, table: &str) -> Object {
    chain(family, table, names::chain(names::CANARY), [])
}

/// ```iptables
/// -t filter -A KUBE-FORWARD -m conntrack --ctstate INVALID -m nfacct --nfacct-name  ct_state_invalid_dropped_pkts -j DROP
/// -t filter -A KUBE-FORWARD -m comment --comment "kubernetes forwarding rules" -m mark --mark 0x4000/0x4000 -j ACCEPT
/// -t filter -A KUBE-FORWARD -m comment --comment "kubernetes forwarding conntrack rule" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
/// ```
///
/// Accepts traffic of Services regardless of the policy of FORWARD. Drops packets that
/// conntrack considers invalid, because their addresses would not be translated.
fn forward(cx: &Context, settings: &Iptables) -> Object {
    let invalid = settings.drop_invalid.then(|| {
        let mut rule = Rule::new().with_match(Conntrack::state(CtState::INVALID));
        if settings.nfacct {
            rule = rule.with_match(Nfacct::new(names::INVALID_DROPPED));
        }
        rule.with_target(Target::Drop)
    });
    let rules = invalid.into_iter().chain(forwarding(cx));
    chain(cx.family, FILTER, names::chain(names::KUBE_FORWARD), rules)
}

/// Returns the rules that accept traffic of Services in FORWARD.
pub(in crate::backend) fn forwarding(cx: &Context) -> [Rule<'static>; 2] {
    let mark = cx.masquerade_mark.value();
    [
        Rule::new()
            .with_comment("kubernetes forwarding rules")
            .with_match(Mark::is(mark, mark))
            .with_target(Target::Accept),
        Rule::new()
            .with_comment("kubernetes forwarding conntrack rule")
            .with_match(Conntrack::state(CtState::RELATED | CtState::ESTABLISHED))
            .with_target(Target::Accept),
    ]
}

/// ```iptables
/// -t filter -A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment "block incoming localnet connections" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP
/// ```
///
/// Blocks connections from other hosts to loopback addresses if node ports are served on
/// these addresses, because the kernel then routes such packets. Otherwise the kubelet
/// owns the chain.
fn firewall(cx: &Context, serves_localhost: bool) -> Object {
    let name = names::chain(names::FIREWALL);
    if !serves_localhost {
        return Chain::new(names::table(FILTER), name)
            .with_contents(Contents::Unmanaged)
            .into();
    }
    let accepted = CtState::RELATED | CtState::ESTABLISHED | CtState::DNAT;
    let rule = Rule::new()
        .with_not_source(Family::V4.loopback())
        .with_destination(Family::V4.loopback())
        .with_comment("block incoming localnet connections")
        .with_match(Conntrack::not_state(accepted))
        .with_target(Target::Drop);
    chain(cx.family, FILTER, name, [rule])
}

/// ```iptables
/// -t nat -A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
/// -t nat -A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0
/// -t nat -A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully
/// ```
///
/// Masquerades marked connections. Clears the mark first, because packets in a tunnel
/// pass this chain again.
fn postrouting(cx: &Context, random_fully: bool) -> Object {
    let name = names::chain(names::KUBE_POSTROUTING);
    chain(cx.family, NAT, name, masquerading(cx, random_fully))
}

/// Returns the rules that masquerade marked connections.
pub(in crate::backend) fn masquerading(cx: &Context, random_fully: bool) -> [Rule<'static>; 3] {
    let mark = cx.masquerade_mark.value();
    let masquerade = match random_fully {
        true => Masquerade::new().with_random_fully(),
        false => Masquerade::new(),
    };
    [
        Rule::new()
            .with_match(Mark::is_not(mark, mark))
            .with_target(Target::Return),
        Rule::new().with_target(SetMark::xor(mark)),
        Rule::new()
            .with_comment("kubernetes service traffic requiring SNAT")
            .with_target(masquerade),
    ]
}

/// ```iptables
/// -t nat -A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
/// ```
///
/// Marks connections for masquerading.
pub(in crate::backend) fn mark_for_masquerading(cx: &Context) -> Object {
    let rule = Rule::new().with_target(SetMark::or(cx.masquerade_mark.value()));
    chain(cx.family, NAT, names::chain(names::MARK_MASQ), [rule])
}

/// ```iptables
/// -t nat -A KUBE-SERVICES ! -d 127.0.0.0/8 -m comment --comment "kubernetes service nodeports; NOTE: this must be the last rule in this chain" -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS
/// -t nat -A KUBE-SERVICES -d 192.168.0.1/32 -m comment --comment "kubernetes service nodeports; NOTE: this must be the last rule in this chain" -j KUBE-NODEPORTS
/// ```
///
/// Looks up all other packets as node ports: on all addresses of the node, or on each
/// configured address.
fn to_node_ports(cx: &Context, serves_localhost: bool) -> Vec<Object> {
    let base = || Rule::new().with_comment(LAST_RULE);
    let rules = match &cx.nodeport_addresses {
        NodePortMatch::All => {
            let local = base().with_match(AddrType::destination(AddressTypes::LOCAL));
            vec![match serves_localhost {
                true => local,
                false => local.with_not_destination(cx.family.loopback()),
            }]
        }
        NodePortMatch::Only(addresses) => {
            let is_served = |addr: &&IpAddr| serves_localhost || !addr.is_loopback();
            let served = addresses.iter().filter(is_served);
            served.map(|&addr| base().with_destination(addr)).collect()
        }
    };
    let last = |rule: Rule<'static>| {
        let rule = rule.with_jump(names::chain(names::NODEPORTS));
        entry(cx.family, NAT, names::SERVICES, Position::Tail, rule)
    };
    rules.into_iter().map(last).collect()
}
