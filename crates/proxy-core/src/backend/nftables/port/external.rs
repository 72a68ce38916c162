//! Addresses that clients outside the cluster use.

use std::net::IpAddr;

use ipnet::IpNet;
use vipline_nftables::{Object, Set, Value};
use vipline_service_model::{Endpoint, Route, ServicePort};

use super::{Front, affinity, allowed, balance, element, no_endpoints, no_local_endpoints};
use crate::backend::nftables::table::{Table, Way};
use crate::{Address, Claim, Context};

/// Adds what a service port wants for its addresses outside the cluster.
pub(super) fn claims(
    cx: &Context,
    table: &Table,
    port: &ServicePort,
    claims: &mut Vec<Claim<Object>>,
) {
    let mut ips: Vec<_> = port.external_ips.iter().collect();
    ips.extend(&*port.load_balancer_ips);
    ips.sort_unstable();
    ips.dedup();
    claims.extend(
        ips.into_iter()
            .map(|&addr| external_ip(cx, table, port, addr)),
    );
    claims.extend(port.node_port.map(|number| node_port(table, port, number)));
}

/// The sets and maps of one kind of external address.
#[derive(Clone, Copy, Debug)]
struct Kind<'a> {
    way: &'a Way,
    short: &'a Way,
    masquerade: &'a Set,
    local_policy: &'a Set,
    no_endpoints: &'a Set,
    no_local_endpoints: &'a Set,
}

/// ```nft
/// add element ip kube-proxy slots-2 { 203.0.113.9 . tcp . 80 }
/// ```
///
/// An external IP or that of a load balancer takes the route of the policy for
/// external traffic.
fn external_ip(cx: &Context, table: &Table, port: &ServicePort, addr: IpAddr) -> Claim<Object> {
    let kind = Kind {
        way: &table.ips,
        short: &table.short_ips,
        masquerade: &table.masquerade_ips,
        local_policy: &table.local_policy_ips,
        no_endpoints: &table.no_endpoints,
        no_local_endpoints: &table.no_local_endpoints,
    };
    let front = Front::ip(addr, port);
    let mut objects = Vec::new();
    if port.load_balancer_ips.contains(&addr) {
        source_ranges(cx, table, &front, addr, &mut objects);
    }
    route(kind, &front, &mut objects);
    let address = Address::Ip(addr, port.protocol, port.port);
    Claim { address, objects }
}

/// ```nft
/// add element ip kube-proxy service-nodeports { tcp . 30080 : goto lb-nodeport-2 }
/// ```
///
/// A port of the node takes the route of the policy for external traffic.
fn node_port(table: &Table, port: &ServicePort, number: u16) -> Claim<Object> {
    let kind = Kind {
        way: &table.nodeports,
        short: &table.short_nodeports,
        masquerade: &table.masquerade_nodeports,
        local_policy: &table.local_policy_nodeports,
        no_endpoints: &table.no_endpoints_nodeports,
        no_local_endpoints: &table.no_local_endpoints_nodeports,
    };
    let mut objects = Vec::new();
    route(kind, &Front::nodeport(number, port), &mut objects);
    let address = Address::NodePort(port.protocol, number);
    Claim { address, objects }
}

/// Sends traffic where the policy for external traffic says.
fn route(kind: Kind<'_>, front: &Front<'_>, out: &mut Vec<Object>) {
    let port = front.port;
    let outside = allowed(port.external, port);
    match port.external {
        Route::Cluster => {
            balance(kind.way, front, outside, out);
            out.push(masquerade(kind.masquerade, front));
        }
        Route::Local => balance(kind.way, front, outside, out),
        Route::Drop => out.push(no_local_endpoints(kind.no_local_endpoints, front)),
        Route::Reject => out.push(no_endpoints(kind.no_endpoints, front)),
    }
    let mut inside: &[Endpoint] = &[];
    if port.external_policy_local && !port.cluster.is_empty() {
        inside = &port.cluster;
        balance(kind.short, front, inside, out);
        out.push(short_circuit(kind.local_policy, front));
    }
    affinity::memory(kind.way, front, &[outside, inside], out);
}

/// ```nft
/// add element ip kube-proxy masquerade-ips { 203.0.113.9 . tcp . 80 }
/// ```
///
/// Any endpoint of the cluster may answer, so the answer comes by way of here.
fn masquerade(set: &Set, front: &Front<'_>) -> Object {
    element(set, &front.key)
}

/// ```nft
/// add element ip kube-proxy local-policy-ips { 203.0.113.9 . tcp . 80 }
/// ```
///
/// Policy Local is for those outside; pods and the node use all endpoints.
fn short_circuit(set: &Set, front: &Front<'_>) -> Object {
    element(set, &front.key)
}

/// ```nft
/// add element ip kube-proxy firewall-ips { 203.0.113.9 . tcp . 80 }
/// add element ip kube-proxy source-ranges { 203.0.113.9 . tcp . 80 . 192.168.0.0/16 }
/// add element ip kube-proxy source-ranges { 203.0.113.9 . tcp . 80 . 203.0.113.9 }
/// ```
///
/// Only clients in these networks may use the address. A process of a node in
/// one of them may be seen at the address itself.
fn source_ranges(
    cx: &Context,
    table: &Table,
    front: &Front<'_>,
    addr: IpAddr,
    out: &mut Vec<Object>,
) {
    let ranges = &*front.port.source_ranges;
    if ranges.is_empty() {
        return;
    }
    out.push(element(&table.firewall_ips, &front.key));
    let mut allowed = ranges.to_vec();
    let node = cx.node_address;
    if node.is_some_and(|node| ranges.iter().any(|range| range.contains(&node))) {
        allowed.push(addr.into());
    }
    // Networks within one another would be refused by the kernel.
    let allowed = IpNet::aggregate(&allowed);
    let of_range = |&range| element(&table.source_ranges, &front.key_and([Value::from(range)]));
    out.extend(allowed.iter().map(of_range));
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use vipline_service_model::{DetectLocal, Family};

    use super::*;
    use crate::backend::nftables::names;
    use crate::backend::nftables::tests::{assert_documented, commands, cx, planned, service_port};

    const VIP: [u8; 4] = [203, 0, 113, 9];

    fn external(route: Route) -> ServicePort {
        let mut port = service_port(Route::Cluster);
        port.load_balancer_ips = Arc::new([VIP.into()]);
        port.node_port = Some(30080);
        port.external = route;
        port.external_policy_local = route != Route::Cluster;
        port.local = Arc::clone(&port.cluster);
        port
    }

    fn context() -> Context {
        Context {
            node_address: Some([192, 168, 0, 1].into()),
            ..cx(Family::V4, DetectLocal::NodeCidr)
        }
    }

    #[test]
    fn elements_read_as_their_functions_say() {
        let mut open = external(Route::Cluster);
        let of_cluster = planned(&context(), &open);
        let of_vip = |lines: Vec<String>| -> Vec<_> {
            let lines = lines.into_iter();
            lines
                .filter(|line| line.contains("203.0.113.9 . tcp"))
                .collect()
        };
        let ips = commands(&of_cluster, "slots-2");
        let node_ports = commands(&of_cluster, names::SERVICE_NODEPORTS);
        let marked = commands(&of_cluster, names::MASQUERADE_IPS);
        open.source_ranges = Arc::new(["192.168.0.0/16".parse().unwrap()]);
        let guarded = planned(&context(), &open);
        let ranges = [names::FIREWALL_IPS, names::SOURCE_RANGES];
        let local = planned(&context(), &external(Route::Local));
        assert_documented(
            include_str!("external.rs"),
            &[
                ("external_ip", of_vip(ips)),
                ("node_port", node_ports),
                ("masquerade", marked),
                ("short_circuit", commands(&local, names::LOCAL_POLICY_IPS)),
                (
                    "source_ranges",
                    ranges.map(|set| commands(&guarded, set)).concat(),
                ),
            ],
        );
    }

    #[test]
    fn policy_local_has_a_short_way_for_the_cluster() {
        for route in [Route::Local, Route::Drop] {
            let planned = planned(&context(), &external(route));
            let count = |set| commands(&planned, set).len();
            let local = usize::from(route == Route::Local);
            assert_eq!(count(names::SHORT_IPS), 1, "{route:?}");
            assert_eq!(count(names::SHORT_BACKENDS), 2);
            assert_eq!(count(names::SHORT_NODEPORTS), 1);
            assert_eq!(count(names::LOCAL_POLICY_NODEPORTS), 1);
            assert_eq!(count(names::SERVICE_NODEPORTS), local);
            assert_eq!(count(names::NO_LOCAL_ENDPOINTS), 1 - local);
            assert_eq!(count(names::NO_LOCAL_ENDPOINTS_NODEPORTS), 1 - local);
            assert_eq!(count(names::MASQUERADE_IPS), 0);
        }
    }

    #[test]
    fn ranges_within_each_other_are_one() {
        let mut port = external(Route::Cluster);
        let ranges = ["10.0.0.0/8", "10.1.0.0/16", "10.0.0.1/32"];
        port.source_ranges = ranges.iter().map(|text| text.parse().unwrap()).collect();
        let planned = planned(&context(), &port);
        assert_eq!(commands(&planned, names::SOURCE_RANGES).len(), 1);
    }
}
