//! Objects of external addresses and node ports.

use ipnet::IpNet;
use vipline_nftables::{Object, Set, Value};
use vipline_service_model::{Route, ServicePort};

use super::affinity::Affinity;
use super::{Front, balance, no_endpoints, no_local_endpoints};
use crate::plan::base::chains_before_dnat;
use crate::plan::table::{LookupPath, Table, element};
use proxy_engine::Fragment;
use proxy_engine::{Address, AddressKind, Context};

/// Adds the objects of external addresses and the node port.
pub(super) fn add(
    cx: &Context,
    table: &Table,
    port: &ServicePort,
    affinity: Option<&Affinity>,
    out: &mut Fragment<Object>,
) {
    if port.restricts_sources() {
        out.own.extend(chains_before_dnat(table).map(Object::from));
    }
    // An address of both kinds is a load balancer IP, which has precedence.
    let mut ips: Vec<_> = port.external_addresses().collect();
    ips.sort_unstable();
    ips.dedup_by_key(|(addr, _)| *addr);
    for (addr, kind) in ips {
        let front = Front::ip(addr, port, affinity);
        let objects = out.at(kind, Address::ip(port, addr));
        if kind == AddressKind::LoadBalancerIp && port.restricts_sources() {
            source_ranges(cx, table, &front, objects);
        }
        external_ip(table, &front, objects);
    }
    if let Some(number) = port.node_port {
        let front = Front::nodeport(number, port, affinity);
        let address = Address::NodePort(port.protocol, number);
        node_port(table, &front, out.at(AddressKind::NodePort, address));
    }
}

/// The sets and maps of one kind of external address.
#[derive(Clone, Copy, Debug)]
struct Sets<'a> {
    path: &'a LookupPath,
    short: &'a LookupPath,
    masquerade: Option<&'a Set>,
    local_policy: &'a Set,
    no_endpoints: &'a Set,
    no_local_endpoints: &'a Set,
}

/// ```nft
/// add element ip kube-proxy backends-2 { 203.0.113.9 . tcp . 80 . 0 : 10.1.0.1 . 8080 }
/// add element ip kube-proxy backends-2 { 203.0.113.9 . tcp . 80 . 1 : 10.1.0.2 . 8080 }
/// ```
///
/// Routes an external IP or load balancer IP by the external traffic policy.
fn external_ip(table: &Table, front: &Front<'_>, out: &mut Vec<Object>) {
    let sets = Sets {
        path: &table.ips,
        short: &table.short_ips,
        masquerade: Some(&table.masquerade_ips),
        local_policy: &table.local_policy_ips,
        no_endpoints: &table.no_endpoints,
        no_local_endpoints: &table.no_local_endpoints,
    };
    route(sets, front, out);
}

/// ```nft
/// add element ip kube-proxy dispatch-nodeports { tcp . 30080 : goto lb-masquerade-nodeport-2 }
/// ```
///
/// Routes a node port by the external traffic policy.
fn node_port(table: &Table, front: &Front<'_>, out: &mut Vec<Object>) {
    let sets = Sets {
        path: match front.port.masquerades_external() {
            true => &table.masquerade_nodeports,
            false => &table.nodeports,
        },
        short: &table.short_nodeports,
        // The chains of the path mark packets.
        masquerade: None,
        local_policy: &table.local_policy_nodeports,
        no_endpoints: &table.no_endpoints_nodeports,
        no_local_endpoints: &table.no_local_endpoints_nodeports,
    };
    route(sets, front, out);
}

/// Adds the objects for the external traffic policy.
fn route(sets: Sets<'_>, front: &Front<'_>, out: &mut Vec<Object>) {
    let port = front.port;
    match port.external {
        Route::Cluster | Route::Local => {
            balance(sets.path, front, port.external, out);
            if let Some(set) = sets.masquerade.filter(|_| port.masquerades_external()) {
                out.push(masquerade(set, front));
            }
        }
        Route::Drop => out.push(no_local_endpoints(sets.no_local_endpoints, front)),
        Route::Reject => out.push(no_endpoints(sets.no_endpoints, front)),
    }
    let is_short = port.has_short_circuit();
    if is_short {
        balance(sets.short, front, Route::Cluster, out);
        out.push(short_circuit(sets.local_policy, front));
    }
    let leads = is_short || port.external.has_endpoints();
    if let Some(affinity) = front.affinity.filter(|_| leads) {
        affinity.record(sets.path, front, port.external, out);
    }
}

/// ```nft
/// add element ip kube-proxy masquerade-ips { 203.0.113.9 . tcp . 80 }
/// ```
///
/// Masquerades external traffic, because an endpoint on another node must reply by way of
/// this node.
fn masquerade(set: &Set, front: &Front<'_>) -> Object {
    element(set, front.key())
}

/// ```nft
/// add element ip kube-proxy local-policy-ips { 203.0.113.9 . tcp . 80 }
/// ```
///
/// Marks an address with policy Local, which applies to clients outside the cluster. Pods
/// and the node use all endpoints.
fn short_circuit(set: &Set, front: &Front<'_>) -> Object {
    element(set, front.key())
}

/// ```nft
/// add element ip kube-proxy restricted-ips { 203.0.113.9 . tcp . 80 }
/// add element ip kube-proxy source-ranges { 203.0.113.9 . tcp . 80 . 192.168.0.0/16 }
/// add element ip kube-proxy source-ranges { 203.0.113.9 . tcp . 80 . 203.0.113.9 }
/// ```
///
/// Restricts the address to clients in `spec.loadBalancerSourceRanges`. If a range
/// contains the node's address, the load balancer IPs are also allowed: local processes may
/// use them as their source.
fn source_ranges(cx: &Context, table: &Table, front: &Front<'_>, out: &mut Vec<Object>) {
    out.push(element(&table.restricted_ips, front.key()));
    let mut allowed = front.port.source_ranges.to_vec();
    if front.port.allows_node(cx.node_address) {
        let own = front.port.load_balancer_ips.iter();
        allowed.extend(own.map(|&addr| IpNet::from(addr)));
    }
    // The kernel rejects overlapping networks.
    let allowed = IpNet::aggregate(&allowed);
    let of_range = |&range| element(&table.source_ranges, &front.key_and([Value::from(range)]));
    out.extend(allowed.iter().map(of_range));
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use vipline_service_model::{DetectLocal, Family};

    use super::*;
    use crate::plan::tests::{assert_documented, commands, cx, planned, service_port};
    use crate::plan::{Planner, names};
    use proxy_engine::Planner as _;

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
        let mut cx = cx(Family::V4, DetectLocal::NodeCidr);
        cx.node_address = Some([192, 168, 0, 1].into());
        cx
    }

    #[test]
    fn base_chains_before_dnat_exist_with_source_ranges_only() {
        let before_dnat = |port: &ServicePort| -> Vec<Object> {
            let planned = planned(&context(), port).into_iter();
            let is_before_dnat = |object: &Object| match object {
                Object::Chain(chain) => names::is_chain_before_dnat(&chain.name),
                _ => false,
            };
            planned.filter(is_before_dnat).collect()
        };
        let mut port = external(Route::Cluster);
        assert_eq!(before_dnat(&port), []);
        port.source_ranges = Arc::new(["192.168.0.0/16".parse().unwrap()]);
        let chains = before_dnat(&port);
        assert_eq!(chains.len(), 2);
        for chain in &chains {
            assert!(Planner::is_removal_delayed(chain), "{chain:?}");
            assert!(Planner::tolerates_unused(chain), "{chain:?}");
        }
        let Object::Chain(chain) = &chains[0] else {
            panic!("a chain: {:?}", chains[0]);
        };
        let other = chain.clone().with_rules([]);
        assert!(!Planner::tolerates_unused(&other.into()));
    }

    #[test]
    fn chains_of_node_ports_mark_packets_with_policy_cluster_only() {
        for (route, chains) in [
            (Route::Cluster, ["lb-masquerade-nodeport-2"].as_slice()),
            (Route::Local, &["lb-nodeport-2", "lb-short-nodeport-2"]),
        ] {
            let planned = planned(&context(), &external(route));
            let names = planned.iter().filter_map(|object| match object {
                Object::Chain(chain) => Some(chain.name.as_str()),
                _ => None,
            });
            let names: Vec<_> = names.filter(|name| name.contains("nodeport")).collect();
            assert_eq!(names, chains, "{route:?}");
        }
    }

    #[test]
    fn elements_match_their_documentation() {
        let mut open = external(Route::Cluster);
        let of_cluster = planned(&context(), &open);
        let of_vip = |lines: Vec<String>| -> Vec<_> {
            let lines = lines.into_iter();
            lines
                .filter(|line| line.contains("203.0.113.9 . tcp"))
                .collect()
        };
        let ips = commands(&of_cluster, "backends-2");
        let node_ports = commands(&of_cluster, names::DISPATCH_NODEPORTS);
        let marked = commands(&of_cluster, names::MASQUERADE_IPS);
        open.source_ranges = Arc::new(["192.168.0.0/16".parse().unwrap()]);
        let guarded = planned(&context(), &open);
        let ranges = [names::RESTRICTED_IPS, names::SOURCE_RANGES];
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
    fn policy_local_short_circuits_traffic_inside_the_cluster() {
        for route in [Route::Local, Route::Drop] {
            let planned = planned(&context(), &external(route));
            let count = |set| commands(&planned, set).len();
            let local = usize::from(route == Route::Local);
            assert_eq!(count(names::SHORT_IPS), 1, "{route:?}");
            assert_eq!(count(names::SHORT_BACKENDS), 2);
            assert_eq!(count(names::SHORT_NODEPORTS), 1);
            assert_eq!(count(names::LOCAL_POLICY_NODEPORTS), 1);
            assert_eq!(count(names::DISPATCH_NODEPORTS), local);
            assert_eq!(count(names::NO_LOCAL_ENDPOINTS), 1 - local);
            assert_eq!(count(names::NO_LOCAL_ENDPOINTS_NODEPORTS), 1 - local);
            assert_eq!(count(names::MASQUERADE_IPS), 0);
        }
    }

    #[test]
    fn nested_source_ranges_are_merged() {
        let mut port = external(Route::Cluster);
        let ranges = ["10.0.0.0/8", "10.1.0.0/16", "10.0.0.1/32"];
        port.source_ranges = ranges.iter().map(|text| text.parse().unwrap()).collect();
        let planned = planned(&context(), &port);
        assert_eq!(commands(&planned, names::SOURCE_RANGES).len(), 1);
    }
}
