//! What is there whatever Services there are: table, sets, chains and rules.

use std::sync::{LazyLock, OnceLock};

use vipline_nftables::expr::{CtState, CtStatus, NatFlags};
use vipline_nftables::selector::{
    Selector, concat, ct_state, ct_status, daddr, iifname, l4proto, mark, numgen_random, saddr,
    th_dport,
};
use vipline_nftables::statement::{Statement, drop, jump, masquerade, reject};
use vipline_nftables::{
    BaseChain, Chain, ChainKind, Datatype, Family, Hook, Object, Rule, Set, SetFlags, TableId,
    Value,
};
use vipline_service_model::{self as service_model, LocalTraffic};

use super::names::{self, comment, name};
use super::port;
use crate::Context;

/// The table of a family and the sets in it, made once and shared.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) id: TableId,
    /// `VIP . protocol . port . slot : endpoint . port`.
    pub(super) backends: Set,
    /// `VIP . protocol . port : goto lb-N`.
    pub(super) service_ips: Set,
    /// The cluster IPs in use.
    pub(super) cluster_ips: Set,
    /// `endpoint . endpoint . protocol . port` of the endpoints on this node.
    pub(super) hairpin_connections: Set,
    /// `VIP . protocol . port` of Services without endpoints.
    pub(super) no_endpoints: Set,
    /// `VIP . protocol . port` of Services with endpoints, but none allowed.
    pub(super) no_local_endpoints: Set,
    /// The networks that cluster IPs are taken from.
    pub(super) service_cidrs: Set,
    /// The chains for few slots, by their number, once they are asked for.
    lbs: [OnceLock<Chain>; 128],
}

impl Table {
    /// Returns the table of a family.
    pub(super) fn of(family: service_model::Family) -> &'static Self {
        static V4: LazyLock<Table> = LazyLock::new(|| Table::new(Family::Ip, Datatype::Ipv4Addr));
        static V6: LazyLock<Table> = LazyLock::new(|| Table::new(Family::Ip6, Datatype::Ipv6Addr));
        match family {
            service_model::Family::V4 => &V4,
            service_model::Family::V6 => &V6,
        }
    }

    fn new(family: Family, addr: Datatype) -> Self {
        let id = TableId::new(family, name(names::TABLE));
        let destination = [addr, Datatype::InetProto, Datatype::InetService].map(Into::into);
        let set = |text, key: &[Datatype], words| {
            let key: Vec<_> = key.iter().map(|&datatype| datatype.into()).collect();
            Set::set(id.clone(), name(text), key).with_comment(comment(words))
        };
        let ports = [addr, Datatype::InetProto, Datatype::InetService];
        Self {
            backends: backends(&id),
            service_ips: Set::verdict_map(id.clone(), name(names::SERVICE_IPS), destination)
                .with_comment(comment("ClusterIP, ExternalIP and LoadBalancer IP traffic")),
            cluster_ips: set(names::CLUSTER_IPS, &[addr], "Active ClusterIPs"),
            hairpin_connections: set(
                names::HAIRPIN_CONNECTIONS,
                &[addr, addr, Datatype::InetProto, Datatype::InetService],
                "service hairpin connections",
            ),
            no_endpoints: set(names::NO_ENDPOINTS, &ports, "services without endpoints"),
            no_local_endpoints: set(
                names::NO_LOCAL_ENDPOINTS,
                &ports,
                "services without endpoints that their policy allows",
            ),
            service_cidrs: set(names::SERVICE_CIDRS, &[addr], "networks of ClusterIPs")
                .with_flags(SetFlags::INTERVAL),
            lbs: [const { OnceLock::new() }; 128],
            id,
        }
    }

    /// Returns the chain that chooses among so many slots.
    pub(super) fn lb(&self, slots: u32) -> Chain {
        let make = || port::lb(self, slots);
        match self.lbs.get(slots as usize) {
            Some(lb) => lb.get_or_init(make).clone(),
            None => make(),
        }
    }

    fn object(&self) -> vipline_nftables::Table {
        vipline_nftables::Table {
            comment: Some(comment("rules for kube-proxy")),
            ..vipline_nftables::Table::new(self.id.clone())
        }
    }

    fn family(&self) -> Family {
        self.id.family
    }

    fn rule<const N: usize>(&self, statements: [Statement; N]) -> Rule {
        Rule::new(self.family(), statements)
    }

    fn chain<const N: usize>(&self, text: &'static str, rules: [Rule; N]) -> Chain {
        Chain::new(self.id.clone(), name(text)).with_rules(rules)
    }
}

/// Returns the objects that are there whatever Services there are.
pub(super) fn objects(cx: &Context) -> Vec<Object> {
    let table = Table::of(cx.family);
    let mut objects = vec![table.object().into()];
    objects.extend(sets(table).map(|set| Object::from(set.clone())));
    objects.extend(base_chains(table).map(Object::from));
    objects.extend(chains(cx, table).map(Object::from));
    objects.extend(service_cidrs(cx, table));
    objects
}

fn sets(table: &Table) -> [&Set; 7] {
    [
        &table.backends,
        &table.service_ips,
        &table.cluster_ips,
        &table.hairpin_connections,
        &table.no_endpoints,
        &table.no_local_endpoints,
        &table.service_cidrs,
    ]
}

/// Returns the map from the slots of Services to their endpoints.
///
/// The port of the data is a `th dport`: of a `tcp dport` nft concludes that
/// rules which use the map are for TCP alone.
/// The price is that nft 1.0.6 loads rules together with the map only, and
/// refuses to add one to a map that is there; netlink has no such scruples.
fn backends(id: &TableId) -> Set {
    let mut key = vip_port(id.family).to_vec();
    key.push(numgen_random(2));
    let key: Vec<_> = key.into_iter().map(Into::into).collect();
    let data = [daddr(id.family), th_dport()].map(Into::into);
    Set::map(id.clone(), name(names::BACKENDS), key, data)
        .with_comment(comment("endpoints by slot"))
}

/// ```nft
/// add element ip kube-proxy service-cidrs { 10.96.0.0/16 }
/// ```
///
/// Cluster IPs are taken from this network.
fn service_cidrs(cx: &Context, table: &Table) -> impl Iterator<Item = Object> {
    cx.service_cidrs.iter().map(|&network| {
        let element = table.service_cidrs.element(&[Value::from(network)]);
        element
            .expect("a network fits intervals of its family")
            .into()
    })
}

/// Returns the chains that packets enter: those of upstream, and one more.
fn base_chains(table: &Table) -> [Chain; 9] {
    use ChainKind::{Filter, Nat};
    use Hook::{Forward, Input, Output, Postrouting, Prerouting};
    let before_dnat = -110;
    let [dnat, filter, snat] = [-100, 0, 100];
    let chain = |text, kind, hook, priority| {
        table
            .chain(text, [])
            .with_base(BaseChain::new(kind, hook, priority))
    };
    [
        chain(
            names::FILTER_PREROUTING_PRE_DNAT,
            Filter,
            Prerouting,
            before_dnat,
        ),
        chain(names::FILTER_OUTPUT_PRE_DNAT, Filter, Output, before_dnat),
        chain(names::NAT_PREROUTING, Nat, Prerouting, dnat).with_rules([to_services(table)]),
        chain(names::NAT_OUTPUT, Nat, Output, dnat).with_rules([to_services(table)]),
        chain(names::FILTER_INPUT, Filter, Input, filter)
            .with_rules([to_service_endpoints_check(table)]),
        chain(names::FILTER_FORWARD, Filter, Forward, filter).with_rules([
            to_service_endpoints_check(table),
            to_cluster_ips_check(table),
        ]),
        chain(names::FILTER_OUTPUT, Filter, Output, filter).with_rules([
            to_service_endpoints_check(table),
            to_cluster_ips_check(table),
        ]),
        chain(names::FILTER_POSTROUTING, Filter, Postrouting, filter),
        chain(names::NAT_POSTROUTING, Nat, Postrouting, snat).with_rules([to_masquerading(table)]),
    ]
}

/// Returns the chains that packets are sent to.
fn chains(cx: &Context, table: &Table) -> [Chain; 4] {
    let services = masquerade_cluster_ips(cx, table).into_iter();
    [
        table
            .chain(names::SERVICES, [])
            .with_rules(services.chain([service_ips(table)])),
        table.chain(
            names::MASQUERADING,
            [masquerade_marked(cx, table), hairpin(table)],
        ),
        table.chain(
            names::SERVICE_ENDPOINTS_CHECK,
            [no_endpoints(table), no_local_endpoints(table)],
        ),
        table.chain(
            names::CLUSTER_IPS_CHECK,
            [unused_ports(table), unused_cluster_ips(table)],
        ),
    ]
}

/// ```nft
/// jump services
/// ```
///
/// A connection is sent to an endpoint before it is routed.
fn to_services(table: &Table) -> Rule {
    table.rule([jump(&name(names::SERVICES))])
}

/// ```nft
/// jump masquerading
/// ```
///
/// Sources are changed last, when it is known where the packet leaves.
fn to_masquerading(table: &Table) -> Rule {
    table.rule([jump(&name(names::MASQUERADING))])
}

/// ```nft
/// ct state new jump service-endpoints-check
/// ```
///
/// Only new connections are refused: those that have an endpoint keep it.
fn to_service_endpoints_check(table: &Table) -> Rule {
    table.rule([
        ct_state().is(CtState::NEW),
        jump(&name(names::SERVICE_ENDPOINTS_CHECK)),
    ])
}

/// ```nft
/// ct state new jump cluster-ips-check
/// ```
///
/// Comes after the check of endpoints, which knows more of the same address.
fn to_cluster_ips_check(table: &Table) -> Rule {
    table.rule([
        ct_state().is(CtState::NEW),
        jump(&name(names::CLUSTER_IPS_CHECK)),
    ])
}

/// ```nft
/// ip daddr @cluster-ips meta mark set meta mark | 0x00004000 comment "masquerade all clusterIP traffic"
/// ip daddr @cluster-ips ip saddr != 10.0.0.0/8 meta mark set meta mark | 0x00004000 comment "masquerade clusterIP traffic from outside cluster"
/// ip daddr @cluster-ips iifname != "cni0" meta mark set meta mark | 0x00004000 comment "masquerade clusterIP traffic from outside cluster"
/// ip daddr @cluster-ips iifname != "veth*" meta mark set meta mark | 0x00004000 comment "masquerade clusterIP traffic from outside cluster"
/// ```
///
/// Who is no pod, or with masquerade-all anybody, gets the answer by way of
/// this node: the endpoint may not know another way back.
fn masquerade_cluster_ips(cx: &Context, table: &Table) -> Option<Rule> {
    let to_cluster_ip = daddr(table.family()).in_set(&table.cluster_ips);
    let mark = mark().set(&mark().or(cx.masquerade_mark.value()));
    if cx.masquerade_all {
        let rule = table.rule([to_cluster_ip, mark]);
        return Some(rule.with_comment(comment("masquerade all clusterIP traffic")));
    }
    let from_elsewhere = not_local(cx.local.as_ref()?, table)?;
    let rule = table.rule([to_cluster_ip, from_elsewhere, mark]);
    Some(rule.with_comment(comment("masquerade clusterIP traffic from outside cluster")))
}

/// Returns the test for traffic that does not come from a local pod.
///
/// `None`: there is no other traffic.
fn not_local(local: &LocalTraffic, table: &Table) -> Option<Statement> {
    Some(match local {
        LocalTraffic::Cidr(network) if network.prefix_len() == 0 => return None,
        LocalTraffic::Cidr(network) => saddr(table.family()).is_not(*network),
        LocalTraffic::Interface(name) => iifname().is_not(&**name),
        LocalTraffic::InterfacePrefix(prefix) => iifname().is_not(&*format!("{prefix}*")),
    })
}

/// ```nft
/// ip daddr . meta l4proto . th dport vmap @service-ips
/// ```
///
/// One lookup finds the Service among all, and how many slots it has.
fn service_ips(table: &Table) -> Rule {
    table.rule([concat(vip_port(table.family())).vmap(&table.service_ips)])
}

/// ```nft
/// meta mark & 0x00004000 != 0x00000000 meta mark set meta mark ^ 0x00004000 masquerade fully-random
/// ```
///
/// The mark is ours within the node only: it is taken off again.
fn masquerade_marked(cx: &Context, table: &Table) -> Rule {
    let bit = cx.masquerade_mark.value();
    table.rule([
        mark().and(bit).is_not(0_u32),
        mark().set(&mark().xor(bit)),
        masquerade(NatFlags::FULLY_RANDOM),
    ])
}

/// ```nft
/// ct status dnat ip saddr . ip daddr . meta l4proto . th dport @hairpin-connections masquerade fully-random
/// ```
///
/// An endpoint that reached itself by a Service would drop its own answers.
fn hairpin(table: &Table) -> Rule {
    let family = table.family();
    let [daddr, l4proto, th_dport] = vip_port(family);
    table.rule([
        ct_status().is(CtStatus::DNAT),
        concat([saddr(family), daddr, l4proto, th_dport]).in_set(&table.hairpin_connections),
        masquerade(NatFlags::FULLY_RANDOM),
    ])
}

/// ```nft
/// ip daddr . meta l4proto . th dport @no-endpoints reject
/// ```
///
/// There is nobody to answer: the client hears of it at once.
fn no_endpoints(table: &Table) -> Rule {
    table.rule([
        concat(vip_port(table.family())).in_set(&table.no_endpoints),
        reject(),
    ])
}

/// ```nft
/// ip daddr . meta l4proto . th dport @no-local-endpoints drop
/// ```
///
/// Others could answer, but this node must not ask them: the client may find
/// another way.
fn no_local_endpoints(table: &Table) -> Rule {
    table.rule([
        concat(vip_port(table.family())).in_set(&table.no_local_endpoints),
        drop(),
    ])
}

/// ```nft
/// ip daddr @cluster-ips reject comment "Reject traffic to invalid ports of ClusterIPs"
/// ```
///
/// What is still addressed to a cluster IP was sent to a port it does not have.
fn unused_ports(table: &Table) -> Rule {
    table
        .rule([daddr(table.family()).in_set(&table.cluster_ips), reject()])
        .with_comment(comment("Reject traffic to invalid ports of ClusterIPs"))
}

/// ```nft
/// ip daddr @service-cidrs drop comment "Drop traffic to unallocated ClusterIPs"
/// ```
///
/// An address that no Service has must not lead out of the cluster.
fn unused_cluster_ips(table: &Table) -> Rule {
    table
        .rule([daddr(table.family()).in_set(&table.service_cidrs), drop()])
        .with_comment(comment("Drop traffic to unallocated ClusterIPs"))
}

/// Returns what Services are found by: `ip daddr . meta l4proto . th dport`.
pub(super) fn vip_port(family: Family) -> [Selector; 3] {
    [daddr(family), l4proto(), th_dport()]
}

#[cfg(test)]
mod tests {
    use vipline_service_model::{DetectLocal, Family};

    use super::super::tests::{assert_documented, command, cx};
    use super::*;

    #[test]
    fn rules_read_as_their_functions_say() {
        let network = "10.0.0.0/8".parse().unwrap();
        let [all, source, interface, prefix] = [
            DetectLocal::NodeCidr,
            DetectLocal::ClusterCidr(vec![network]),
            DetectLocal::Interface("cni0".into()),
            DetectLocal::InterfacePrefix("veth".into()),
        ]
        .map(|detect_local| cx(Family::V4, detect_local));
        let table = Table::of(Family::V4);
        let cidrs: Vec<_> = service_cidrs(&all, table).collect();
        assert_eq!(masquerade_cluster_ips(&all, table), None);
        let all = Context {
            masquerade_all: true,
            ..all
        };
        let marks = [&all, &source, &interface, &prefix]
            .map(|cx| masquerade_cluster_ips(cx, table).unwrap().to_string());
        let one = |rule: Rule| vec![rule.to_string()];
        assert_documented(
            include_str!("base.rs"),
            &[
                ("service_cidrs", cidrs.iter().map(command).collect()),
                ("to_services", one(to_services(table))),
                ("to_masquerading", one(to_masquerading(table))),
                (
                    "to_service_endpoints_check",
                    one(to_service_endpoints_check(table)),
                ),
                ("to_cluster_ips_check", one(to_cluster_ips_check(table))),
                ("masquerade_cluster_ips", marks.to_vec()),
                ("service_ips", one(service_ips(table))),
                ("masquerade_marked", one(masquerade_marked(&all, table))),
                ("hairpin", one(hairpin(table))),
                ("no_endpoints", one(no_endpoints(table))),
                ("no_local_endpoints", one(no_local_endpoints(table))),
                ("unused_ports", one(unused_ports(table))),
                ("unused_cluster_ips", one(unused_cluster_ips(table))),
            ],
        );
    }

    #[test]
    fn where_everybody_is_local_nobody_is_masqueraded() {
        let everybody = DetectLocal::ClusterCidr(vec!["0.0.0.0/0".parse().unwrap()]);
        let cx = cx(Family::V4, everybody);
        assert_eq!(masquerade_cluster_ips(&cx, Table::of(Family::V4)), None);
    }
}
