//! What one service port wants.

use std::net::IpAddr;

use vipline_nftables::selector::{concat, numgen_random};
use vipline_nftables::statement::dnat;
use vipline_nftables::{Chain, Object, Rule, Set, Value, Verdict};
use vipline_service_model::{Endpoint, Protocol, Route, ServicePort};

use super::base::{Table, vip_port};
use super::{endpoint, names};
use crate::Context;

/// Returns the objects that a service port wants.
pub(super) fn objects(cx: &Context, port: &ServicePort) -> Vec<Object> {
    let table = Table::of(cx.family);
    let mut objects = Vec::with_capacity(4 + port.cluster.len() + port.local.len());
    cluster_ip(table, port, &mut objects);
    objects.extend(endpoint::hairpin(table, port));
    objects
}

/// An address and port that clients use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vip {
    pub(super) addr: IpAddr,
    pub(super) protocol: Protocol,
    pub(super) port: u16,
}

impl Vip {
    /// Returns the fields of its key: `10.96.0.10 . tcp . 80`.
    pub(super) fn key(self) -> [Value; 3] {
        [
            self.addr.into(),
            protocol(self.protocol).into(),
            self.port.into(),
        ]
    }
}

/// ```nft
/// add element ip kube-proxy cluster-ips { 10.96.0.10 }
/// ```
///
/// The cluster IP is one of those in use, and its traffic takes the route of
/// the policy for internal traffic.
fn cluster_ip(table: &Table, port: &ServicePort, out: &mut Vec<Object>) {
    out.push(element(&table.cluster_ips, &[port.cluster_ip.into()]));
    let vip = Vip {
        addr: port.cluster_ip,
        protocol: port.protocol,
        port: port.port,
    };
    match port.internal {
        Route::Cluster => balance(table, vip, &port.cluster, out),
        Route::Local => balance(table, vip, &port.local, out),
        Route::Drop => out.push(no_local_endpoints(table, vip)),
        Route::Reject => out.push(no_endpoints(table, vip)),
    }
}

/// ```nft
/// add element ip kube-proxy service-ips { 10.96.0.10 . tcp . 80 : goto lb-2 }
/// ```
///
/// Sends the address to the chain for as many slots as there are endpoints.
/// Slots follow the order of the endpoints: a function of who they are now.
fn balance(table: &Table, vip: Vip, endpoints: &[Endpoint], out: &mut Vec<Object>) {
    let slots = u32::try_from(endpoints.len()).expect("no Service has four billion endpoints");
    let lb = table.lb(slots);
    let goto = Verdict::Goto(lb.name.clone());
    out.push(lb.into());
    for (slot, endpoint) in (0..slots).zip(endpoints) {
        out.push(endpoint::backend(table, vip, slot, endpoint));
    }
    let element = table.service_ips.element(&vip.key());
    let element = element.and_then(|it| it.with_verdict(goto));
    out.push(
        element
            .expect("the verdict of an address fits the map")
            .into(),
    );
}

/// ```nft
/// dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 2 map @backends
/// ```
///
/// One chain serves all addresses with so many endpoints: it draws a slot and
/// finds the endpoint there.
pub(super) fn lb(table: &Table, slots: u32) -> Chain {
    let family = table.id.family;
    let mut key = vip_port(family).to_vec();
    key.push(numgen_random(slots));
    let rule = Rule::new(family, [dnat(concat(key).map(&table.backends))]);
    Chain::new(table.id.clone(), names::lb(slots)).with_rules([rule])
}

/// ```nft
/// add element ip kube-proxy no-endpoints { 10.96.0.10 . tcp . 80 }
/// ```
///
/// Connections are rejected: there are no endpoints at all.
fn no_endpoints(table: &Table, vip: Vip) -> Object {
    element(&table.no_endpoints, &vip.key())
}

/// ```nft
/// add element ip kube-proxy no-local-endpoints { 10.96.0.10 . tcp . 80 }
/// ```
///
/// Connections are dropped: there are endpoints, but the policy allows none.
fn no_local_endpoints(table: &Table, vip: Vip) -> Object {
    element(&table.no_local_endpoints, &vip.key())
}

/// Returns an element of a set whose key the values are of.
pub(super) fn element(set: &Set, key: &[Value]) -> Object {
    let element = set.element(key);
    element
        .expect("the values are of the fields of the set")
        .into()
}

/// Returns the number of a protocol: `IPPROTO_*` of `linux/in.h`.
pub(super) fn protocol(protocol: Protocol) -> u8 {
    match protocol {
        Protocol::Tcp => 6,
        Protocol::Udp => 17,
        Protocol::Sctp => 132,
    }
}

#[cfg(test)]
mod tests {
    use vipline_service_model::{DetectLocal, Family};

    use super::super::tests::{assert_documented, commands, cx, service_port};
    use super::*;

    fn planned(route: Route) -> Vec<Object> {
        objects(&cx(Family::V4, DetectLocal::NodeCidr), &service_port(route))
    }

    #[test]
    fn elements_and_rules_read_as_their_functions_say() {
        let served = planned(Route::Cluster);
        let lb = lb(Table::of(Family::V4), 2);
        assert_documented(
            include_str!("port.rs"),
            &[
                ("cluster_ip", commands(&served, names::CLUSTER_IPS)),
                ("balance", commands(&served, names::SERVICE_IPS)),
                ("lb", lb.rules.iter().map(Rule::to_string).collect()),
                (
                    "no_endpoints",
                    commands(&planned(Route::Reject), names::NO_ENDPOINTS),
                ),
                (
                    "no_local_endpoints",
                    commands(&planned(Route::Drop), names::NO_LOCAL_ENDPOINTS),
                ),
            ],
        );
    }

    #[test]
    fn each_route_leads_to_one_place() {
        for route in [Route::Cluster, Route::Local, Route::Drop, Route::Reject] {
            let planned = planned(route);
            let places = [
                names::SERVICE_IPS,
                names::NO_ENDPOINTS,
                names::NO_LOCAL_ENDPOINTS,
            ];
            let counts = places.map(|set| commands(&planned, set).len());
            let expected = match route {
                Route::Cluster | Route::Local => [1, 0, 0],
                Route::Reject => [0, 1, 0],
                Route::Drop => [0, 0, 1],
            };
            assert_eq!(counts, expected, "{route:?}");
            assert_eq!(commands(&planned, names::BACKENDS).len(), 2 * counts[0]);
            assert_eq!(commands(&planned, names::CLUSTER_IPS).len(), 1);
        }
    }
}
