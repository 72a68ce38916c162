//! Helpers for tests of rules and their documentation.

use std::sync::Arc;

use vipline_nftables::{Element, Object};
use vipline_service_model::{
    DetectLocal, Endpoint, Family, NodeView, PortName, Route, ServicePort, Transport,
};

use super::Planner;
use super::table::Table;
use proxy_engine::Planner as _;
use proxy_engine::{Config, Context};

/// Panics if the functions of a source file do not emit the nft code in their docs.
///
/// `emitted` must contain all functions with nft code in their docs.
#[track_caller]
pub(super) fn assert_documented(source: &str, emitted: &[(&str, Vec<String>)]) {
    let mut functions = Vec::new();
    for doc in source.split("/// ```nft\n").skip(1) {
        let (block, rest) = doc.split_once("/// ```\n").expect("a block ends");
        let lines: Vec<_> = block
            .lines()
            .map(|line| line.replacen("/// ", "", 1))
            .collect();
        let function = rest.split_once("fn ").expect("a function follows").1;
        let (name, _) = function.split_once(['(', '<']).expect("it takes something");
        let found = emitted.iter().find(|(function, _)| *function == name);
        assert_eq!(found.map(|(_, text)| text), Some(&lines), "{name}");
        functions.push(name);
    }
    assert_eq!(
        functions,
        emitted.iter().map(|(name, _)| *name).collect::<Vec<_>>()
    );
}

/// Returns the command that adds an element.
pub(super) fn command(object: &Object) -> String {
    let Object::Element(element) = object else {
        panic!("no element: {object:?}");
    };
    let set = element.set();
    format!("add element {} {} {{ {element} }}", set.table, set.name)
}

/// Returns the commands for the elements of a set.
pub(super) fn commands(objects: &[Object], set: &str) -> Vec<String> {
    let in_set = |element: &Element| element.set().name.as_str() == set;
    let elements = objects
        .iter()
        .filter(|object| matches!(object, Object::Element(element) if in_set(element)));
    elements.map(command).collect()
}

/// Returns the base objects, and a chain of each kind that exists on demand.
pub(crate) fn rules_of_all_kinds(family: Family) -> Vec<Object> {
    let table = Table::of(family);
    let cx = cx(family, DetectLocal::NodeCidr);
    let balancing = table.paths().map(|path| path.lb(2).into());
    let before_dnat = super::base::chains_before_dnat(table).map(Object::from);
    let mut objects = Planner.base(&cx);
    objects.extend(super::affinity::chains_of_affinity(table));
    objects.extend(balancing.into_iter().chain(before_dnat));
    objects
}

/// Returns all objects of a service port.
pub(crate) fn planned(cx: &Context, port: &ServicePort) -> Vec<Object> {
    super::port::objects(cx, port).into_objects().collect()
}

/// Returns the context of a family with its own ServiceCIDR.
pub(crate) fn cx(family: Family, detect_local: DetectLocal) -> Context {
    let networks = ["10.96.0.0/16", "fd00:96::/112"].map(|text| text.parse().unwrap());
    let config = Config::default().with_detect_local(detect_local);
    Context::new(&config, &NodeView::new("node-1"), networks, family)
}

/// Returns a service port with two local endpoints to which `route` leads.
pub(crate) fn service_port(route: Route) -> ServicePort {
    let endpoints = [[10, 1, 0, 1], [10, 1, 0, 2]].map(|addr| Endpoint {
        addr: addr.into(),
        port: 8080,
        is_local: true,
    });
    let listed = |by| {
        if route == by {
            Arc::from(endpoints)
        } else {
            Arc::from([])
        }
    };
    let name = Arc::new(PortName {
        namespace: "default".into(),
        service: "web".into(),
        port: "".into(),
        protocol: Transport::Tcp,
        created: None,
    });
    ServicePort {
        internal: route,
        cluster: listed(Route::Cluster),
        local: listed(Route::Local),
        ..ServicePort::new(name, [10, 96, 0, 10].into(), 80)
    }
}
