//! Objects for session affinity.

use std::collections::BTreeSet;

use vipline_nftables::{Chain, Object, Set, Value, Verdict};
use vipline_service_model::{Route, ServicePort, Transport};

use super::Front;
use crate::plan::affinity::{
    LOCAL, MAX_TIMEOUT, USUAL, clients, forget, learn, recall, shard, slots, token,
};
use crate::plan::names::{self, Learner, Lists};
use crate::plan::table::{LookupPath, Table, element};

/// The session affinity of a service port.
#[derive(Clone, Copy, Debug)]
pub(super) struct Affinity {
    pool: u32,
    protocol: Transport,
    learner: Learner,
}

impl Affinity {
    /// Returns the affinity of a service port that has endpoints.
    pub(super) fn of(port: &ServicePort) -> Option<Self> {
        let seconds = port.affinity?.min(MAX_TIMEOUT);
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
        let pool = names::pool(&port.name);
        Some(Self {
            pool,
            protocol: port.protocol,
            learner: Learner {
                lists,
                seconds,
                shard: shard(pool),
            },
        })
    }

    /// Adds the objects that all Services with the same shard and timeout share.
    ///
    /// A plan of 10,000 Services has each of them 150 times, so they are created once: to
    /// create a chain takes longer than all elements of a Service.
    pub(super) fn shared(&self, table: &Table, port: &ServicePort, out: &mut Vec<Object>) {
        let shard = self.learner.shard;
        let make = || shard_objects(table, shard);
        match table.shards.get(shard as usize) {
            Some(objects) => out.extend(objects.get_or_init(make).iter().cloned()),
            None => out.extend(make()),
        }
        self.recording(table, &table.ips, out);
        out.push(protocol(&table.sticky_protocols, self.protocol));
        if port.node_port.is_some() {
            if !self.learner.is_usual() {
                self.recording(table, &table.nodeports, out);
            }
            out.push(protocol(&table.sticky_nodeport_protocols, self.protocol));
        }
    }

    /// Adds the chain that records clients, and the verdict that leads to it. Node ports share
    /// that of a usual learner.
    fn recording(&self, table: &Table, path: &LookupPath, out: &mut Vec<Object>) {
        let learner = self.learner;
        let make = || learner_objects(table, path, learner);
        match table.of_usual_learners.get(learner.shard as usize) {
            Some(objects) if learner.is_usual() => {
                out.extend(objects.get_or_init(make).iter().cloned());
            }
            _ => out.extend(make()),
        }
    }

    /// Adds the objects of an address or node port, to which `route` leads.
    ///
    /// Without endpoints for the route the address may still have the short circuit.
    pub(super) fn record(
        &self,
        path: &LookupPath,
        front: &Front<'_>,
        route: Route,
        out: &mut Vec<Object>,
    ) {
        let endpoints = match route {
            Route::Cluster | Route::Local => front.port.endpoints(route).len(),
            Route::Drop | Route::Reject => 0,
        };
        let slots = slots(path, u32::try_from(endpoints).unwrap_or(u32::MAX));
        let local = if route == Route::Local { LOCAL } else { 0 };
        let is_usual = self.learner.is_usual();
        let usual = if is_usual { USUAL } else { 0 };
        let pool = self.pool | slots | local | usual;
        out.push(number(&path.pools, front, pool));
        if !is_usual {
            out.push(number(&path.learners, front, self.learner.number()));
        }
    }
}

/// Returns the map of clients of a shard, its chains and the verdicts that lead to them.
fn shard_objects(table: &Table, shard: u32) -> [Object; 5] {
    let [recall, forget] = [recall(table, shard), forget(table, shard)];
    let to = |map, chain: &Chain| verdict(map, shard, Verdict::Jump(chain.name.clone()));
    [
        clients(table, shard).into(),
        to(&table.recalls, &recall),
        to(&table.forgets, &forget),
        recall.into(),
        forget.into(),
    ]
}

/// Returns the chain of a learner, and the verdict that leads to it.
fn learner_objects(table: &Table, path: &LookupPath, learner: Learner) -> [Object; 2] {
    let map = match path.is_of_nodeports() {
        _ if learner.is_usual() => &table.usual_learners,
        true => &table.of_nodeport_learners,
        false => &table.of_learners,
    };
    let chain = learn(path, learner);
    let to_chain = Verdict::Goto(chain.name.clone());
    [verdict(map, learner.number(), to_chain), chain.into()]
}

/// ```nft
/// add element ip kube-proxy sticky-protocols { tcp }
/// add element ip kube-proxy sticky-nodeport-protocols { tcp }
/// ```
///
/// Records clients of this protocol. Without session affinity packets skip the lookups of
/// their original destination. Few node ports have session affinity, so most packets skip
/// the lookup of node ports.
fn protocol(set: &Set, protocol: Transport) -> Object {
    element(set, &[protocol.number().into()])
}

/// ```nft
/// add element ip kube-proxy recalls { 0:35 : jump recall-53 }
/// add element ip kube-proxy forgets { 0:35 : jump forget-53 }
/// add element ip kube-proxy usual-learners { 4000:35 : goto learn-10800-53 }
/// add element ip kube-proxy learners { e:1035 : goto learn-3600-53 }
/// ```
///
/// Leads from a number to a chain. Many Services share the elements: the kernel validates all
/// verdicts when one of them is added.
fn verdict(map: &Set, number: u32, verdict: Verdict) -> Object {
    let element = map.element(&[number.into()]);
    element
        .and_then(|it| it.with_verdict(verdict))
        .expect("a number and a verdict fit the map")
        .into()
}

/// ```nft
/// add element ip kube-proxy pool-ips { 10.96.0.10 . tcp . 80 : 511b:be35 }
/// add element ip kube-proxy learner-ips { 10.96.0.10 . tcp . 80 : e:1035 }
/// ```
///
/// Gives the address the pool of its service port with its number of slots, and the timeout of
/// its clients unless it is the usual one.
fn number(map: &Set, front: &Front<'_>, number: u32) -> Object {
    let element = map.element(front.key());
    element
        .and_then(|it| it.with_data(&[number.into()]))
        .expect("the number of an address fits the map")
        .into()
}

/// ```nft
/// add element ip kube-proxy recorded { 10.96.0.10 . tcp . 80 . 3ff3:840 : 10.1.0.1 . 8080 }
/// add element ip kube-proxy recorded { 10.96.0.10 . tcp . 80 . 3907:c196 : 10.1.0.2 . 8080 }
/// ```
///
/// Leads recorded clients to the endpoints of the address. A client with another endpoint,
/// which was removed, is treated like a new one.
pub(super) fn recorded(path: &LookupPath, front: &Front<'_>, route: Route, out: &mut Vec<Object>) {
    let keys = path.recorded.key_prefix(front.key());
    let keys = keys.expect("a key of the path fits its maps");
    let mut tokens = BTreeSet::new();
    for endpoint in front.port.endpoints(route) {
        let token = token(endpoint);
        if tokens.insert(token) {
            let target: [Value; 2] = [endpoint.addr.into(), endpoint.port.into()];
            let element = keys.map_element(&[token.into()], &target);
            out.push(element.expect("endpoints are of one family").into());
        }
    }
}

#[cfg(test)]
mod tests {
    use vipline_nftables::ElementData;
    use vipline_service_model::{DetectLocal, Endpoint, Family};

    use super::*;
    use crate::plan::tests::{assert_documented, commands, cx, planned, service_port};

    fn plan(port: &ServicePort) -> Vec<Object> {
        planned(&cx(Family::V4, DetectLocal::NodeCidr), port)
    }

    fn sticky() -> ServicePort {
        let mut port = service_port(Route::Cluster);
        port.affinity = Some(10_800);
        port
    }

    fn of_sets(planned: &[Object], sets: &[&str]) -> Vec<String> {
        let commands = sets.iter().map(|set| commands(planned, set));
        commands.flatten().collect()
    }

    #[test]
    fn elements_match_their_documentation() {
        let planned = plan(&sticky());
        let exposed = plan(&ServicePort {
            node_port: Some(30_080),
            ..sticky()
        });
        let protocols = [names::STICKY_PROTOCOLS, names::STICKY_NODEPORT_PROTOCOLS];
        assert_eq!(of_sets(&planned, &protocols).len(), 1);
        let unusual = plan(&ServicePort {
            affinity: Some(3600),
            ..sticky()
        });
        let verdicts = [names::RECALLS, names::FORGETS, names::USUAL_LEARNERS];
        let with_unusual = |sets: &[&str], set| {
            let both = [of_sets(&planned, sets), of_sets(&unusual, &[set])];
            both.concat()
        };
        assert_eq!(
            of_sets(&planned, &[names::LEARNERS, names::LEARNER_IPS]),
            [""; 0]
        );
        assert_eq!(of_sets(&unusual, &[names::USUAL_LEARNERS]), [""; 0]);
        assert_documented(
            include_str!("affinity.rs"),
            &[
                ("protocol", of_sets(&exposed, &protocols)),
                ("verdict", with_unusual(&verdicts, names::LEARNERS)),
                (
                    "number",
                    with_unusual(&[names::POOL_IPS], names::LEARNER_IPS),
                ),
                ("recorded", of_sets(&planned, &[names::RECORDED])),
            ],
        );
    }

    #[test]
    fn session_affinity_adds_elements_to_those_of_a_service_without_it() {
        let keys = |planned: &[Object]| -> BTreeSet<String> {
            let elements = planned.iter().filter_map(|object| match object {
                Object::Element(element) => Some(format!("{} {element}", element.set().name)),
                _ => None,
            });
            elements.collect()
        };
        let with = keys(&plan(&sticky()));
        assert!(with.is_superset(&keys(&plan(&service_port(Route::Cluster)))));
    }

    #[test]
    fn an_address_with_policy_local_has_the_pool_of_local_endpoints() {
        let mut port = sticky();
        port.local = port.cluster.clone();
        port.load_balancer_ips = std::sync::Arc::new([[203, 0, 113, 9].into()]);
        (port.external, port.external_policy_local) = (Route::Local, true);
        let pools = commands(&plan(&port), names::POOL_IPS);
        let slots = slots(&Table::of(Family::V4).ips, 2);
        let pool = names::pool(&port.name) | slots;
        for (vip, pool) in [("10.96.0.10", pool), ("203.0.113.9", pool | LOCAL)] {
            let pool = format!("{vip} . tcp . 80 : {:x}:{:x} }}", pool >> 16, pool & 0xffff);
            assert!(pools.iter().any(|line| line.ends_with(&pool)), "{pools:?}");
        }
        for set in [names::RECORDED, names::SHORT_RECORDED] {
            let to_vip = commands(&plan(&port), set).into_iter();
            let to_vip = to_vip.filter(|line| line.contains("203.0.113.9"));
            assert_eq!(to_vip.count(), 2, "{set}");
        }
    }

    #[test]
    fn the_number_of_an_address_tells_its_slots_and_whether_its_learner_is_usual() {
        let number = |endpoints: u8, seconds| {
            let mut port = sticky();
            let endpoint = |n| Endpoint {
                addr: [10, 1, 0, n].into(),
                port: 8080,
                is_local: false,
            };
            port.cluster = (1..=endpoints).map(endpoint).collect();
            port.affinity = Some(seconds);
            let element = plan(&port).into_iter().find_map(|object| match object {
                Object::Element(element) if element.set().name.as_str() == names::POOL_IPS => {
                    Some(element)
                }
                _ => None,
            });
            let element = element.unwrap();
            let Some(ElementData::Value(bytes)) = element.data() else {
                panic!("{element}");
            };
            u32::from_ne_bytes(bytes.try_into().unwrap())
        };
        let pool = names::pool(&sticky().name);
        for (endpoints, slots) in [(1, 1), (6, 6), (7, 0), (9, 0)] {
            assert_eq!(number(endpoints, 10_800), USUAL | slots << 27 | pool);
            assert_eq!(number(endpoints, 10_801), slots << 27 | pool);
        }
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
            let mut port = sticky();
            (port.internal, port.external) = (internal, external);
            port.external_policy_local = policy_local;
            let lists = Affinity::of(&port).map(|affinity| affinity.learner.lists);
            assert_eq!(lists, expected, "{internal:?} {external:?}");
        }
        let mut port = service_port(Local);
        (port.affinity, port.external) = (Some(10_800), Local);
        assert_eq!(Affinity::of(&port).unwrap().learner.lists, Lists::Local);
    }
}
