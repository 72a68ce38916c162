//! Concise constructors of test objects.
#![allow(dead_code, reason = "not every test needs every object")]

use std::sync::Arc;

use vipline_service_model::{
    Config, Event, Family, NodeView, ObjectName, PortChange, ServicePort, Store, api,
};

/// Name of this node.
pub(crate) const HERE: &str = "here";

/// A ClusterIP Service `default/web` at 10.96.0.10, port 80/TCP.
pub(crate) fn web() -> api::Service {
    api::Service {
        metadata: api::ObjectMeta::named("default", "web"),
        spec: api::ServiceSpec {
            cluster_ip: "10.96.0.10".into(),
            ports: vec![port("", "TCP", 80)],
            ..api::ServiceSpec::default()
        },
        status: api::ServiceStatus::default(),
    }
}

pub(crate) fn port(name: &str, protocol: &str, port: u16) -> api::ServicePortSpec {
    api::ServicePortSpec {
        name: name.into(),
        protocol: protocol.into(),
        port,
        node_port: 0,
    }
}

/// An IPv4 slice of `default/web` with these endpoints on port 8080/TCP.
pub(crate) fn slice(name: &str, endpoints: Vec<api::SliceEndpoint>) -> api::EndpointSlice {
    let mut slice = api::EndpointSlice {
        metadata: api::ObjectMeta::named("default", name),
        ports: vec![endpoint_port("", "TCP", 8080)],
        endpoints,
        ..api::EndpointSlice::default()
    };
    let label = api::EndpointSlice::SERVICE_NAME_LABEL.to_owned();
    slice.metadata.labels.insert(label, "web".into());
    slice
}

pub(crate) fn endpoint_port(name: &str, protocol: &str, port: i32) -> api::EndpointPort {
    api::EndpointPort {
        name: Some(name.into()),
        protocol: protocol.into(),
        port: Some(port),
    }
}

/// Parses an endpoint such as `10.0.0.1 here unready terminating`.
///
/// `here` and `there` are nodes. `unready`, `stopped` (not serving) and
/// `terminating` are conditions. `zone=a` and `node=here` are hints.
pub(crate) fn endpoint(words: &str) -> api::SliceEndpoint {
    let mut words = words.split(' ');
    let mut endpoint = api::SliceEndpoint {
        addresses: vec![words.next().expect("an address comes first").into()],
        ..api::SliceEndpoint::default()
    };
    for word in words {
        let conditions = &mut endpoint.conditions;
        match (word, word.split_once('=')) {
            (_, Some((kind, name))) => {
                let hints = endpoint.hints.get_or_insert_default();
                let hint = api::NamedHint { name: name.into() };
                match kind {
                    "zone" => hints.for_zones.push(hint),
                    "node" => hints.for_nodes.push(hint),
                    _ => panic!("unknown hint {word}"),
                }
            }
            ("here" | "there", _) => endpoint.node_name = Some(word.into()),
            ("unready", _) => conditions.ready = Some(false),
            ("stopped", _) => conditions.serving = Some(false),
            ("terminating", _) => conditions.terminating = Some(true),
            _ => panic!("unknown word {word}"),
        }
    }
    endpoint
}

/// Returns a store for the node `here` with the given events and a complete list.
pub(crate) fn synced(events: impl IntoIterator<Item = Event>) -> Store {
    let mut store = Store::new(Config::new(HERE));
    for event in events {
        store.apply(event);
    }
    store.apply(Event::Synced);
    store
}

/// Resolves for the node of the store.
pub(crate) fn resolve(store: &mut Store) -> Vec<PortChange> {
    let node = store.node();
    store.resolve(&node)
}

/// Resolves for the node `here` in a zone.
pub(crate) fn in_zone(zone: &str) -> NodeView {
    let mut node = NodeView::new(HERE);
    node.zone = (!zone.is_empty()).then(|| zone.into());
    node
}

/// The service ports of `default/web` in a family, after resolving.
pub(crate) fn ports(store: &mut Store, family: Family) -> Vec<Arc<ServicePort>> {
    resolve(store);
    let ports = store.ports_of(&ObjectName::new("default", "web")).iter();
    ports
        .filter(|port| port.family == family)
        .cloned()
        .collect()
}

/// The only IPv4 service port of `default/web`, after resolving.
pub(crate) fn only_port(store: &mut Store) -> Arc<ServicePort> {
    let ports = ports(store, Family::V4);
    assert_eq!(ports.len(), 1, "{ports:?}");
    ports.into_iter().next().expect("one port")
}

/// Shows changes as one line each.
pub(crate) fn lines(resolved: &[PortChange]) -> Vec<String> {
    let line = |change: &PortChange| match &change.port {
        Some(port) => format!("{} {port} {}", change.name, endpoints(&port.cluster)),
        None => format!(
            "{} {} {} gone",
            change.name, change.family, change.name.protocol
        ),
    };
    resolved.iter().map(line).collect()
}

/// Shows a list of endpoints on one line.
pub(crate) fn endpoints(list: &[vipline_service_model::Endpoint]) -> String {
    let texts: Vec<_> = list.iter().map(ToString::to_string).collect();
    texts.join(" ")
}
