//! Objects for session affinity.

use std::time::Duration;

use vipline_nftables::expression::{concat, ct_original_saddr, daddr, l4proto, saddr, th_dport};
use vipline_nftables::statement::{dnat, goto, update_map};
use vipline_nftables::{Chain, Name, Object, Rule, Set, Value, Verdict};
use vipline_service_model::{Endpoint, Protocol, Route, ServicePort};

use super::Front;
use crate::backend::nftables::plan::affinity::Pool;
use crate::backend::nftables::plan::names::{self, Lists};
use crate::backend::nftables::plan::table::{LookupPath, Table, element};

/// The session affinity of a service port.
#[derive(Clone, Debug)]
pub(super) struct Affinity {
    /// Identifies the service port in names.
    id: Box<str>,
    protocol: Protocol,
    lists: Lists,
    /// Time in seconds for which a client without new connections stays recorded.
    seconds: u32,
}

impl Affinity {
    /// Returns the affinity of a service port that has endpoints.
    pub(super) fn of(port: &ServicePort) -> Option<Self> {
        let seconds = port.affinity?;
        let leads = |route| port.internal == route || port.external == route;
        let lists = match (
            leads(Route::Cluster) || port.has_short_circuit(),
            leads(Route::Local),
        ) {
            (true, true) => Lists::Both,
            (true, false) => Lists::Cluster,
            (false, true) => Lists::Local,
            (false, false) => return None,
        };
        let id = names::port_id(&port.name);
        Some(Self {
            id,
            protocol: port.protocol,
            lists,
            seconds,
        })
    }

    /// Returns the name of the pool for the endpoints of a route.
    fn pool(&self, route: Route) -> names::Pool<'_> {
        names::Pool {
            id: &self.id,
            is_local: route == Route::Local,
        }
    }

    /// Adds the client pools and the endpoints that may be recorded.
    pub(super) fn pools(&self, table: &Table, port: &ServicePort, out: &mut Vec<Object>) {
        out.push(protocol(&table.sticky_protocols, self.protocol));
        if port.node_port.is_some() {
            out.push(protocol(&table.sticky_nodeport_protocols, self.protocol));
        }
        for name in self.lists.pools(&self.id) {
            let pool = Pool::new(table, name);
            out.push(pool.clients.clone().into());
            out.push(pool.endpoints.clone().into());
            let route = if name.is_local {
                Route::Local
            } else {
                Route::Cluster
            };
            let endpoints = port.endpoints(route).iter();
            out.extend(endpoints.map(|endpoint| allowed_endpoint(&pool, endpoint)));
        }
    }

    /// Adds the chain that prefers recorded endpoints over `slots` slots, and returns its
    /// name.
    pub(super) fn balance(
        &self,
        path: &LookupPath,
        route: Route,
        slots: u32,
        out: &mut Vec<Object>,
    ) -> Name {
        let chain = sticky(path, self.pool(route), self.protocol, slots);
        let name = chain.name.clone();
        out.push(chain.into());
        name
    }

    /// Adds the objects that record the endpoints of clients of an address or node port.
    pub(super) fn record(&self, path: &LookupPath, front: &Front<'_>, out: &mut Vec<Object>) {
        out.push(learn(path, &self.id, self.lists, self.seconds).into());
        out.push(learner(self, path, front));
    }
}

/// ```nft
/// add element ip kube-proxy sticky-protocols { tcp }
/// add element ip kube-proxy sticky-nodeport-protocols { tcp }
/// ```
///
/// Records clients of this protocol. Without session affinity packets skip the lookups of
/// their original destination. Few node ports have session affinity, so most packets skip
/// the lookup of node ports.
fn protocol(set: &Set, protocol: Protocol) -> Object {
    element(set, &[protocol.number().into()])
}

/// ```nft
/// add element ip kube-proxy sticky-ips { 10.96.0.10 . tcp . 80 : goto learn-NEN34NKV7KVWB727-10800 }
/// ```
///
/// Records clients of the address for `timeoutSeconds` of the Service.
fn learner(affinity: &Affinity, path: &LookupPath, front: &Front<'_>) -> Object {
    let chain = names::learn(&affinity.id, affinity.lists, affinity.seconds);
    let element = path.learners.element(front.key());
    element
        .and_then(|it| it.with_verdict(Verdict::Goto(chain)))
        .expect("the verdict of an address fits the map")
        .into()
}

/// ```nft
/// add element ip kube-proxy endpoints-NEN34NKV7KVWB727 { 10.1.0.1 . 8080 }
/// ```
///
/// Allows a client to be recorded for an endpoint. A stuck connection retransmits its
/// first packet when the endpoint is removed; such an endpoint must not be recorded.
fn allowed_endpoint(pool: &Pool, endpoint: &Endpoint) -> Object {
    let endpoint: [Value; 2] = [endpoint.addr.into(), endpoint.port.into()];
    element(&pool.endpoints, &endpoint)
}

/// ```nft
/// meta l4proto tcp dnat ip to ip saddr map @clients-NEN34NKV7KVWB727
/// goto lb-2
/// ```
///
/// Sends a recorded client to its endpoint, and another client to any endpoint. Tests one
/// protocol: a test of several protocols would need another set, and the kernel walks all
/// sets for each added set.
pub(super) fn sticky(
    path: &LookupPath,
    name: names::Pool<'_>,
    of_port: Protocol,
    slots: u32,
) -> Chain {
    let family = path.id.family;
    let pool = Pool::new(path.table(), name);
    let rules = [
        // nft loads a map of ports only after a protocol match.
        vec![
            l4proto().is(of_port.number()),
            dnat(saddr(family).map(&pool.clients)),
        ],
        vec![goto(&names::lb(path.infix, slots))],
    ];
    let rules = rules.into_iter().map(|rule| Rule::new(family, rule));
    Chain::new(path.id.clone(), names::sticky(name, path.infix, slots))
        .with_rules(path.mark().into_iter().chain(rules))
}

/// ```nft
/// ip daddr . th dport @endpoints-NEN34NKV7KVWB727 update @clients-NEN34NKV7KVWB727 { ct original ip saddr timeout 3h : ip daddr . th dport }
/// ip daddr . th dport @endpoints-NEN34NKV7KVWB727-local update @clients-NEN34NKV7KVWB727-local { ct original ip saddr timeout 3h : ip daddr . th dport }
/// ```
///
/// Records the endpoint of the client. The timeout restarts with each new connection. A
/// client keeps the first endpoint of each list.
pub(super) fn learn(path: &LookupPath, id: &str, lists: Lists, seconds: u32) -> Chain {
    let family = path.id.family;
    let timeout = Duration::from_secs(seconds.into());
    let endpoint = || concat([daddr(family), th_dport()]);
    let rules = lists.pools(id).map(|name| {
        let pool = Pool::new(path.table(), name);
        let client = ct_original_saddr(family);
        let chosen = endpoint().in_set(&pool.endpoints);
        let update = update_map(&pool.clients, &client, Some(timeout), &endpoint());
        Rule::new(family, [chosen, update])
    });
    Chain::new(path.id.clone(), names::learn(id, lists, seconds)).with_rules(rules)
}

#[cfg(test)]
mod tests {
    use vipline_service_model::{DetectLocal, Family};

    use super::*;
    use crate::backend::nftables::plan::tests::{
        assert_documented, commands, cx, planned, service_port,
    };

    fn text(chain: &Chain) -> Vec<String> {
        chain.rules.iter().map(Rule::to_string).collect()
    }

    #[test]
    fn elements_and_rules_match_their_documentation() {
        let mut port = service_port(Route::Cluster);
        port.affinity = Some(10_800);
        let plan = |port: &ServicePort| planned(&cx(Family::V4, DetectLocal::NodeCidr), port);
        let planned = plan(&port);
        let path = &Table::of(Family::V4).ips;
        let affinity = Affinity::of(&port).unwrap();
        let id = &*affinity.id;
        let protocols = |planned: &[Object]| {
            let sets = [names::STICKY_PROTOCOLS, names::STICKY_NODEPORT_PROTOCOLS];
            sets.map(|set| commands(planned, set)).concat()
        };
        assert_eq!(protocols(&planned).len(), 1);
        let exposed = ServicePort {
            node_port: Some(30_080),
            ..port.clone()
        };
        let exposed = plan(&exposed);
        let endpoints = commands(&planned, affinity.pool(Route::Cluster).endpoints().as_str());
        assert_documented(
            include_str!("affinity.rs"),
            &[
                ("protocol", protocols(&exposed)),
                ("learner", commands(&planned, names::STICKY_IPS)),
                ("allowed_endpoint", endpoints[..1].to_vec()),
                (
                    "sticky",
                    text(&sticky(
                        path,
                        affinity.pool(Route::Cluster),
                        Protocol::Tcp,
                        2,
                    )),
                ),
                ("learn", text(&learn(path, id, Lists::Both, 10_800))),
            ],
        );
        assert_eq!(endpoints.len(), 2);
        assert_eq!(commands(&planned, "backends-2").len(), 0);
        assert_eq!(text(&learn(path, id, Lists::Local, 1)).len(), 1);
    }

    #[test]
    fn clients_are_recorded_for_the_endpoint_lists_of_their_routes() {
        use Route::{Cluster, Drop, Local, Reject};
        for (internal, external, policy_local, expected) in [
            (Cluster, Cluster, false, Some(Lists::Cluster)),
            (Cluster, Local, true, Some(Lists::Both)),
            (Local, Cluster, false, Some(Lists::Both)),
            (Drop, Drop, true, Some(Lists::Cluster)),
            (Drop, Drop, false, None),
            (Reject, Reject, false, None),
        ] {
            let mut port = service_port(Cluster);
            port.affinity = Some(10_800);
            (port.internal, port.external) = (internal, external);
            port.external_policy_local = policy_local;
            let lists = Affinity::of(&port).map(|affinity| affinity.lists);
            assert_eq!(lists, expected, "{internal:?} {external:?}");
        }
        let mut port = service_port(Local);
        (port.affinity, port.external) = (Some(10_800), Local);
        assert_eq!(Affinity::of(&port).unwrap().lists, Lists::Local);
    }
}
