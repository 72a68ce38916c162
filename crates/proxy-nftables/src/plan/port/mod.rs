//! Objects of one service port.

mod affinity;

mod external;

use std::collections::BTreeSet;
use std::net::IpAddr;

use vipline_nftables::{Chain, Name, Object, Set, TableId, Value, Verdict};
use vipline_service_model::{Route, ServicePort};

use self::affinity::Affinity;
use super::affinity as plan_affinity;
use super::names::OnDemand;
use super::table::{LookupPath, Table, element};
use super::{endpoint, names};
use proxy_engine::Fragment;
use proxy_engine::{Address, AddressKind, Context, PortObjects};

/// Returns the objects of a service port.
pub(super) fn objects(cx: &Context, port: &ServicePort) -> PortObjects<Object> {
    let table = Table::of(cx.family);
    let mut out = Fragment::default();
    // Must come first: batches detect the start of a Service by it.
    out.own.push(active(table, port));
    networks(table, port, &mut out.own);
    endpoint::hairpin(table, port, &mut out.own);
    let affinity = Affinity::of(port);
    if let Some(affinity) = &affinity {
        affinity.shared(table, port, &mut out.own);
    }
    let affinity = affinity.as_ref();
    cluster_ip(table, port, affinity, &mut out);
    external::add(cx, table, port, affinity, &mut out);
    out.into()
}

/// An address or node port that clients connect to.
#[derive(Clone, Debug)]
struct Front<'a> {
    /// Fields of the lookup key.
    fields: [Value; 3],
    /// Number of fields.
    len: usize,
    port: &'a ServicePort,
    affinity: Option<&'a Affinity>,
}

impl<'a> Front<'a> {
    fn ip(addr: IpAddr, port: &'a ServicePort, affinity: Option<&'a Affinity>) -> Self {
        let protocol = port.protocol.number();
        Self {
            fields: [addr.into(), protocol.into(), port.port.into()],
            len: 3,
            port,
            affinity,
        }
    }

    fn nodeport(number: u16, port: &'a ServicePort, affinity: Option<&'a Affinity>) -> Self {
        let protocol = port.protocol.number();
        Self {
            fields: [protocol.into(), number.into(), 0_u8.into()],
            len: 2,
            port,
            affinity,
        }
    }

    /// Returns the lookup key: `10.96.0.10 . tcp . 80` or `tcp . 30080`.
    fn key(&self) -> &[Value] {
        &self.fields[..self.len]
    }

    /// Returns the lookup key, followed by other fields.
    fn key_and<const N: usize>(&self, fields: [Value; N]) -> Vec<Value> {
        self.key().iter().cloned().chain(fields).collect()
    }
}

/// ```nft
/// add element ip kube-proxy active-cluster-ips { 10.96.0.10 }
/// ```
///
/// Marks the cluster IP as in use. Several ports may share the element.
fn active(table: &Table, port: &ServicePort) -> Object {
    element(&table.cluster_ips, &[port.cluster_ip.into()])
}

/// ```nft
/// add element ip kube-proxy service-networks { 10.96.0.0 }
/// add element ip kube-proxy service-networks { 203.0.112.0 }
/// add element ip kube-proxy external-networks { 203.0.112.0 }
/// ```
///
/// Preselects packets to the addresses, so that other packets skip all other lookups.
/// Many Services share the elements.
fn networks(table: &Table, port: &ServicePort, out: &mut Vec<Object>) {
    let networks = port
        .external_addresses()
        .map(|(addr, _)| Table::network(addr));
    let external: BTreeSet<_> = networks.collect();
    let of_set = |set, network: IpAddr| element(set, &[network.into()]);
    let cluster_ip = Table::network(port.cluster_ip);
    out.push(of_set(&table.service_networks, cluster_ip));
    for network in external {
        if network != cluster_ip {
            out.push(of_set(&table.service_networks, network));
        }
        out.push(of_set(&table.external_networks, network));
    }
}

/// ```nft
/// add element ip kube-proxy backends-2 { 10.96.0.10 . tcp . 80 . 0 : 10.1.0.1 . 8080 }
/// add element ip kube-proxy backends-2 { 10.96.0.10 . tcp . 80 . 1 : 10.1.0.2 . 8080 }
/// ```
///
/// Routes the cluster IP by the internal traffic policy.
fn cluster_ip(
    table: &Table,
    port: &ServicePort,
    affinity: Option<&Affinity>,
    out: &mut Fragment<Object>,
) {
    let front = Front::ip(port.cluster_ip, port, affinity);
    let address = Address::ip(port, port.cluster_ip);
    let objects = out.at(AddressKind::ClusterIp, address);
    objects.reserve_exact(port.cluster.len());
    match port.internal {
        Route::Cluster | Route::Local => {
            balance(&table.ips, &front, port.internal, objects);
            if let Some(affinity) = affinity {
                affinity.record(&table.ips, &front, port.internal, objects);
            }
        }
        Route::Drop => objects.push(no_local_endpoints(&table.no_local_endpoints, &front)),
        Route::Reject => objects.push(no_endpoints(&table.no_endpoints, &front)),
    }
}

/// ```nft
/// add element ip kube-proxy dispatch-nodeports { tcp . 30080 : goto lb-masquerade-nodeport-2 }
/// ```
///
/// Sends the address to the chain for its number of endpoints. An address with few endpoints
/// has no chain: rules find its endpoints directly. With session affinity, clients with a
/// recorded endpoint do not come here.
fn balance(path: &LookupPath, front: &Front<'_>, route: Route, out: &mut Vec<Object>) {
    let endpoints = front.port.endpoints(route);
    let slots = u32::try_from(endpoints.len()).expect("the number of endpoints fits in 32 bits");
    if front.affinity.is_some() {
        affinity::recorded(path, front, route, out);
    }
    if let Some(backends) = path.direct(slots) {
        return endpoint::backends(backends, front.key(), endpoints, out);
    }
    endpoint::backends(&path.backends, front.key(), endpoints, out);
    out.push(path.lb(slots).into());
    out.push(dispatch(path, front, names::lb(path.infix, slots)));
}

/// Returns the element that sends an address to a chain.
fn dispatch(path: &LookupPath, front: &Front<'_>, chain: Name) -> Object {
    let element = path.dispatch.element(front.key());
    let element = element.and_then(|it| it.with_verdict(Verdict::Goto(chain)));
    element
        .expect("the verdict of an address fits the map")
        .into()
}

/// Returns the on-demand chain with this name.
pub(super) fn chain_on_demand(id: &TableId, name: &Name) -> Option<Chain> {
    let table = Table::of_id(id)?;
    let path_with = |infix| table.paths().into_iter().find(|path| path.infix == infix);
    let chain = match OnDemand::parse(name)? {
        OnDemand::Lb { slots: 0, .. } => return None,
        OnDemand::Lb { path, slots } => path_with(path)?.lb(slots),
        OnDemand::Recall(shard) => plan_affinity::recall(table, shard),
        OnDemand::Forget(shard) => plan_affinity::forget(table, shard),
        OnDemand::Learn { learner, .. } if learner.seconds == 0 => return None,
        OnDemand::Learn {
            is_nodeport: true,
            learner,
        } if learner.is_usual() => return None,
        OnDemand::Learn {
            is_nodeport,
            learner,
        } => {
            let path = if is_nodeport {
                &table.nodeports
            } else {
                &table.ips
            };
            plan_affinity::learn(path, learner)
        }
    };
    (chain.name == *name).then_some(chain)
}

/// ```nft
/// add element ip kube-proxy no-endpoints { 10.96.0.10 . tcp . 80 }
/// ```
///
/// Rejects connections to a Service without endpoints.
fn no_endpoints(set: &Set, front: &Front<'_>) -> Object {
    element(set, front.key())
}

/// ```nft
/// add element ip kube-proxy no-local-endpoints { 10.96.0.10 . tcp . 80 }
/// ```
///
/// Drops connections to a Service whose endpoints the policy does not allow.
fn no_local_endpoints(set: &Set, front: &Front<'_>) -> Object {
    element(set, front.key())
}

#[cfg(test)]
mod tests {
    use vipline_service_model::{DetectLocal, Endpoint, Family};

    use super::super::tests::{assert_documented, commands, cx, planned, service_port};
    use super::*;

    fn of_route(route: Route) -> Vec<Object> {
        planned(&cx(Family::V4, DetectLocal::NodeCidr), &service_port(route))
    }

    #[test]
    fn elements_and_rules_match_their_documentation() {
        let mut port = service_port(Route::Cluster);
        port.node_port = Some(30080);
        port.external = Route::Cluster;
        let served = planned(&cx(Family::V4, DetectLocal::NodeCidr), &port);
        let dispatched = commands(&served, names::DISPATCH_NODEPORTS);
        let mut exposed = service_port(Route::Cluster);
        exposed.load_balancer_ips = [[203, 0, 113, 9], [203, 0, 113, 10]]
            .map(IpAddr::from)
            .into();
        let exposed = planned(&cx(Family::V4, DetectLocal::NodeCidr), &exposed);
        let networks = [names::SERVICE_NETWORKS, names::EXTERNAL_NETWORKS]
            .map(|set| commands(&exposed, set))
            .concat();
        assert_documented(
            include_str!("mod.rs"),
            &[
                ("active", commands(&served, names::ACTIVE_CLUSTER_IPS)),
                ("networks", networks),
                ("cluster_ip", commands(&served, names::direct(2).as_str())),
                ("balance", dispatched),
                (
                    "no_endpoints",
                    commands(&of_route(Route::Reject), names::NO_ENDPOINTS),
                ),
                (
                    "no_local_endpoints",
                    commands(&of_route(Route::Drop), names::NO_LOCAL_ENDPOINTS),
                ),
            ],
        );
    }

    #[test]
    fn each_route_has_exactly_one_target() {
        for route in [Route::Cluster, Route::Local, Route::Drop, Route::Reject] {
            let planned = of_route(route);
            let places = ["backends-2", names::NO_ENDPOINTS, names::NO_LOCAL_ENDPOINTS];
            let counts = places.map(|set| commands(&planned, set).len());
            let expected = match route {
                Route::Cluster | Route::Local => [2, 0, 0],
                Route::Reject => [0, 1, 0],
                Route::Drop => [0, 0, 1],
            };
            assert_eq!(counts, expected, "{route:?}");
            assert_eq!(commands(&planned, names::BACKENDS).len(), 0);
            assert_eq!(commands(&planned, names::ACTIVE_CLUSTER_IPS).len(), 1);
        }
    }

    #[test]
    fn an_address_with_many_endpoints_is_in_the_map() {
        let mut port = service_port(Route::Cluster);
        let many = (1..=9).map(|n| Endpoint {
            addr: [10, 1, 0, n].into(),
            port: 8080,
            is_local: false,
        });
        port.cluster = many.collect();
        let planned = planned(&cx(Family::V4, DetectLocal::NodeCidr), &port);
        assert_eq!(
            commands(&planned, names::DISPATCH_IPS),
            ["add element ip kube-proxy dispatch-ips { 10.96.0.10 . tcp . 80 : goto lb-9 }"]
        );
        let chains = planned.iter().filter_map(|object| match object {
            Object::Chain(chain) => Some(chain.name.as_str()),
            _ => None,
        });
        assert_eq!(chains.collect::<Vec<_>>(), ["lb-9"]);
    }
}
