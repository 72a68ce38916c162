//! Properties that hold for any objects and any order of events.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use proptest::prelude::*;
use vipline_service_model::arbitrary::{Dice, NODE};
use vipline_service_model::{
    Config, Endpoint, Event, Family, HealthCheck, NoLocalEndpoints, NodeView, ObjectName,
    PortChange, PortName, Route, ServicePort, SpecialAddress, Store, api, parse_address,
};

type Ports = BTreeMap<(Family, Arc<PortName>), Arc<ServicePort>>;

/// The complete output of a store.
#[derive(Debug, PartialEq)]
struct Output {
    ports: Ports,
    health_checks: Vec<(ObjectName, HealthCheck)>,
    service_cidrs: Vec<Vec<IpNet>>,
    without_local: Vec<NoLocalEndpoints>,
    endpoints: Vec<usize>,
}

fn output(store: &Store) -> Output {
    let ports = store
        .ports()
        .map(|port| ((port.family, Arc::clone(&port.name)), Arc::clone(port)));
    let checks = store
        .health_checks()
        .map(|(name, check)| (name.clone(), *check));
    Output {
        ports: ports.collect(),
        health_checks: checks.collect(),
        service_cidrs: Family::ALL
            .iter()
            .map(|&family| store.service_cidrs(family))
            .collect(),
        without_local: Family::ALL
            .iter()
            .flat_map(|&family| {
                [
                    store.ports_without_local_endpoints(family),
                    store.services_without_local_endpoints(family),
                ]
            })
            .collect(),
        endpoints: Family::ALL
            .iter()
            .map(|&family| store.endpoints(family))
            .collect(),
    }
}

fn store() -> Store {
    Store::new(Config::new(NODE))
}

fn resolve(store: &mut Store) -> Vec<PortChange> {
    let node = store.node();
    store.resolve(&node)
}

/// Applies events to a new store and resolves once, at the end.
fn from_scratch(events: &[Event]) -> Store {
    let mut store = store();
    for event in events {
        store.apply(event.clone());
    }
    store.apply(Event::Synced);
    resolve(&mut store);
    store
}

/// The object of an event.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
enum Subject {
    Service(ObjectName),
    Slice(ObjectName),
    Node(String),
    Namespace(String),
    ServiceCidr(String),
}

fn subject(event: &Event) -> Option<Subject> {
    Some(match event {
        Event::ServiceApplied(service) => Subject::Service(service.metadata.object_name()),
        Event::ServiceDeleted(name) => Subject::Service(name.clone()),
        Event::SliceApplied(slice) => Subject::Slice(slice.metadata.object_name()),
        Event::SliceDeleted(name) => Subject::Slice(name.clone()),
        Event::NodeApplied(node) => Subject::Node(node.metadata.name.clone()),
        Event::NamespaceApplied(it) => Subject::Namespace(it.metadata.name.clone()),
        Event::NamespaceDeleted(name) => Subject::Namespace(name.to_string()),
        Event::ServiceCidrApplied(cidr) => Subject::ServiceCidr(cidr.metadata.name.clone()),
        Event::ServiceCidrDeleted(name) => Subject::ServiceCidr(name.to_string()),
        Event::NodeDeleted(_) | Event::Synced => return None,
    })
}

/// Returns the last event of each object, in random order.
fn shuffled_last_events(events: &[Event], dice: &mut Dice) -> Vec<Event> {
    let mut words: BTreeMap<Subject, Event> = BTreeMap::new();
    for event in events {
        if let Some(subject) = subject(event) {
            words.insert(subject, event.clone());
        }
    }
    let mut shuffled = Vec::new();
    for event in words.into_values() {
        let place = usize::from(dice.roll(u8::MAX)) % (shuffled.len() + 1);
        shuffled.insert(place, event);
    }
    shuffled
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(500)
    })]

    #[test]
    fn the_order_of_events_does_not_matter(seed: u64, count in 0..80_usize) {
        let mut dice = Dice::from_seed(seed);
        let events: Vec<_> = (0..count).map(|_| dice.event()).collect();
        let shuffled = shuffled_last_events(&events, &mut dice);
        prop_assert_eq!(output(&from_scratch(&events)), output(&from_scratch(&shuffled)));
    }

    #[test]
    fn repeated_resolving_equals_resolving_once(seed: u64, count in 0..80_usize) {
        let mut dice = Dice::from_seed(seed);
        let mut store = store();
        store.apply(Event::Synced);
        let mut events = Vec::new();
        let mut followed = Ports::new();
        for _ in 0..count {
            let event = dice.event();
            store.apply(event.clone());
            events.push(event);
            if dice.once_in(3) {
                follow(&mut followed, resolve(&mut store));
                prop_assert_eq!(output(&store), output(&from_scratch(&events)));
                prop_assert_eq!(&followed, &output(&store).ports);
                prop_assert_eq!(resolve(&mut store), []);
            }
        }
    }

    #[test]
    fn warnings_do_not_depend_on_earlier_events(seed: u64, count in 1..20_usize) {
        let mut dice = Dice::from_seed(seed);
        let mut used = store();
        for _ in 0..count {
            let event = dice.event();
            let warnings = used.apply(event.clone());
            prop_assert_eq!(&warnings, &store().apply(event));
            for warning in warnings {
                prop_assert!(!warning.to_string().contains('\n'));
            }
        }
    }

    #[test]
    fn events_from_arbitrary_bytes_never_panic(bytes: Vec<u8>) {
        let mut dice = Dice::from_bytes(&bytes);
        let mut store = store();
        store.apply(Event::Synced);
        for _ in 0..50 {
            store.apply(dice.event());
            resolve(&mut store);
        }
    }

    #[test]
    fn endpoints_equal_a_straightforward_reference_implementation(seed: u64, count in 0..60_usize) {
        let mut dice = Dice::from_seed(seed);
        let events: Vec<_> = (0..count).map(|_| dice.event()).collect();
        let store = from_scratch(&events);
        let slices = final_slices(&events);
        let node = store.node();
        for port in store.ports() {
            let reference = Reference::read(port, &slices, &node);
            prop_assert_eq!(&*port.cluster, &reference.cluster[..], "cluster of {}", port.name);
            prop_assert_eq!(&*port.local, &reference.local[..], "local of {}", port.name);
            prop_assert_eq!(&*port.serving, &reference.serving[..], "serving of {}", port.name);
            prop_assert_eq!(&*port.serving_terminating, &reference.serving_terminating[..], "serving_terminating of {}", port.name);
            prop_assert_eq!(port.internal, reference.internal, "internal of {}", port.name);
            prop_assert_eq!(port.external, reference.external, "external of {}", port.name);
        }
    }
}

/// Applies changes to a copy of the ports.
fn follow(ports: &mut Ports, changes: Vec<PortChange>) {
    let mut seen = BTreeSet::new();
    for PortChange {
        family, name, port, ..
    } in changes
    {
        assert!(
            seen.insert((family, Arc::clone(&name))),
            "{name} changed twice"
        );
        match port {
            Some(port) => {
                let former = ports.insert((family, name), Arc::clone(&port));
                assert_ne!(former, Some(port), "a change without effect");
            }
            None => assert!(
                ports.remove(&(family, name)).is_some(),
                "removal of an unknown port"
            ),
        }
    }
}

fn final_slices(events: &[Event]) -> Vec<api::EndpointSlice> {
    let mut slices: BTreeMap<ObjectName, Option<api::EndpointSlice>> = BTreeMap::new();
    for event in events {
        match event {
            Event::SliceApplied(slice) => {
                slices.insert(slice.metadata.object_name(), Some(slice.clone()));
            }
            Event::SliceDeleted(name) => {
                slices.insert(name.clone(), None);
            }
            _ => {}
        }
    }
    slices.into_values().flatten().collect()
}

/// A slow reference implementation of endpoint selection.
struct Reference {
    cluster: Vec<Endpoint>,
    local: Vec<Endpoint>,
    serving: Vec<Endpoint>,
    serving_terminating: Vec<Endpoint>,
    internal: Route,
    external: Route,
}

impl Reference {
    fn read(port: &ServicePort, slices: &[api::EndpointSlice], node: &NodeView) -> Self {
        let all = gather(port, slices);
        let uses_cluster = !port.internal_policy_local || port.is_external();
        let uses_local =
            port.internal_policy_local || (port.external_policy_local && port.is_external());
        let is_local = |e: &api::SliceEndpoint| e.node_name.as_deref() == Some(NODE);
        let ready = |e: &api::SliceEndpoint| e.conditions.ready != Some(false);
        let serving = |e: &api::SliceEndpoint| e.conditions.serving != Some(false);
        let serving_terminating =
            |e: &api::SliceEndpoint| serving(e) && e.conditions.terminating == Some(true);
        let select = |keep: &dyn Fn(&api::SliceEndpoint) -> bool| -> Vec<Endpoint> {
            let kept = all.iter().filter(|(_, endpoint)| keep(endpoint));
            kept.map(|(&(addr, port), e)| Endpoint {
                addr,
                port,
                is_local: is_local(e),
            })
            .collect()
        };
        let or_else = |first: Vec<Endpoint>, second: Vec<Endpoint>| {
            if first.is_empty() { second } else { first }
        };
        let mut cluster = Vec::new();
        let mut any = false;
        if uses_cluster {
            let ready_ones: Vec<_> = all.values().filter(|e| ready(e)).collect();
            let mode = mode(&ready_ones, node);
            let near =
                |e: &api::SliceEndpoint| ready(e) && mode.iter().all(|(f, of)| has(e, *f, of));
            cluster = or_else(select(&near), select(&serving_terminating));
            any = !cluster.is_empty();
        }
        let mut local = Vec::new();
        if uses_local {
            any |= all.values().any(|e| ready(e) || serving_terminating(e));
            let (here, leaving_here) = (
                select(&|e: &api::SliceEndpoint| ready(e) && is_local(e)),
                select(&|e: &api::SliceEndpoint| serving_terminating(e) && is_local(e)),
            );
            local = or_else(here, leaving_here);
        }
        let route = |policy_local, list: &[Endpoint], taken| match (list.is_empty(), any) {
            (false, _) => taken,
            (true, true) if policy_local => Route::Drop,
            (true, _) => Route::Reject,
        };
        let decide = |policy_local| match policy_local {
            true => route(true, &local, Route::Local),
            false => route(false, &cluster, Route::Cluster),
        };
        Self {
            internal: decide(port.internal_policy_local),
            external: decide(port.external_policy_local),
            serving: select(&serving),
            serving_terminating: select(&serving_terminating),
            cluster,
            local,
        }
    }
}

type Hinted = fn(&api::SliceEndpoint) -> Vec<&str>;

fn zone_hints(endpoint: &api::SliceEndpoint) -> Vec<&str> {
    let hints = endpoint.hints.iter().flat_map(|hints| &hints.for_zones);
    hints.map(|hint| hint.name.as_str()).collect()
}

fn node_hints(endpoint: &api::SliceEndpoint) -> Vec<&str> {
    let hints = endpoint.hints.iter().flat_map(|hints| &hints.for_nodes);
    hints.map(|hint| hint.name.as_str()).collect()
}

fn has(endpoint: &api::SliceEndpoint, hinted: Hinted, name: &str) -> bool {
    hinted(endpoint).contains(&name)
}

/// Returns the kind of hints that applies, and the required name.
fn mode(ready: &[&api::SliceEndpoint], node: &NodeView) -> Option<(Hinted, String)> {
    let zone = node.zone.as_deref().unwrap_or("");
    let modes: [(Hinted, &str); 2] = [(node_hints, NODE), (zone_hints, zone)];
    for (hinted, name) in modes {
        if ready.iter().all(|e| !hinted(e).is_empty()) && ready.iter().any(|e| has(e, hinted, name))
        {
            return Some((hinted, name.into()));
        }
    }
    None
}

/// Returns the endpoints of a port by address and port.
fn gather(
    port: &ServicePort,
    slices: &[api::EndpointSlice],
) -> BTreeMap<(IpAddr, u16), api::SliceEndpoint> {
    let mut all: BTreeMap<_, api::SliceEndpoint> = BTreeMap::new();
    for slice in slices {
        let labels = &slice.metadata.labels;
        let family = HashMap::from([("IPv4", Family::V4), ("IPv6", Family::V6)]);
        if *slice.metadata.namespace != *port.name.namespace
            || labels.get("kubernetes.io/service-name").map(|s| &**s) != Some(&port.name.service)
            || labels.contains_key("service.kubernetes.io/headless")
            || family.get(slice.address_type.as_str()) != Some(&port.family)
        {
            continue;
        }
        let ports = slice.ports.iter().filter(|p| {
            p.name.as_deref() == Some(&port.name.port)
                && p.protocol.as_str() == port.protocol.to_string()
        });
        let mut numbers: Vec<_> = ports
            .filter_map(|p| u16::try_from(p.port?).ok())
            .filter(|&p| p != 0)
            .collect();
        numbers.sort_unstable();
        for number in numbers {
            for endpoint in &slice.endpoints {
                let Some(addr) = endpoint
                    .addresses
                    .first()
                    .and_then(|text| parse_address(text))
                else {
                    continue;
                };
                if SpecialAddress::of(addr).is_some() || Family::of(addr) != port.family {
                    continue;
                }
                let key = (addr, number);
                if !all.contains_key(&key) || endpoint.conditions.terminating != Some(true) {
                    all.insert(key, endpoint.clone());
                }
            }
        }
    }
    all
}
