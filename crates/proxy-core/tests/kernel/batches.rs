//! Kernel state after an interrupted load of many Services.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proxy_core::backend::nftables::{Kernel as Nftables, transactions};
use proxy_core::{Config, Event, Family};
use testkit::generate::{Stack, cluster};
use testkit::netns::Netns;
use vipline_nftables::{Client, Element, Object};
use vipline_reconcile::{Edit, Target, diff};
use vipline_service_model::api;

use crate::fixtures::{Kernels, apply, config, service_cidr};

/// Returns the configuration of an IPv4-only engine.
fn v4() -> Config {
    config().with_families(vec![Family::V4])
}

/// Returns the events of `services` Services with `endpoints` endpoints each.
///
/// A quarter of the Services each has an external IP, a node port, a load balancer IP
/// with source ranges, or session affinity.
fn events(services: usize, endpoints: usize) -> Vec<Event> {
    let builders = cluster(services, endpoints, Stack::V4).enumerate();
    let events = builders.flat_map(|(number, builder)| {
        let builder = builder.port(api::TransportProtocol::Udp, 53, 5353);
        let (mut service, slices) = (builder.service(), builder.slices());
        set_kind(number, &mut service.spec, &mut service.status);
        let slices = slices.into_iter().map(Event::from);
        [Event::from(service)].into_iter().chain(slices)
    });
    let cidr = service_cidr(&["10.96.0.0/12"]);
    [cidr].into_iter().chain(events).collect()
}

fn set_kind(number: usize, spec: &mut api::ServiceSpec, status: &mut api::ServiceStatus) {
    let external = format!(
        "203.{}.{}.{}",
        number >> 16 & 255,
        number >> 8 & 255,
        number & 255
    );
    match number % 4 {
        0 => spec.external_ips = vec![external],
        1 => {
            spec.kind = api::ServiceType::NodePort;
            spec.ports[0].node_port = u16::try_from(20_000 + number).expect("a port");
        }
        2 => {
            spec.kind = api::ServiceType::LoadBalancer;
            spec.load_balancer_source_ranges =
                vec!["198.51.100.0/24".into(), "192.0.2.0/25".into()];
            status.load_balancer.ingress = vec![api::Ingress {
                ip: external,
                ..api::Ingress::default()
            }];
        }
        _ => spec.session_affinity = api::Affinity::ClientIp,
    }
}

/// Returns the edits of a first sync with these events, in their order.
fn edits(events: Vec<Event>) -> Vec<Edit<Object>> {
    let kernels = Kernels::default();
    let mut engine = kernels.engine(v4());
    apply(&mut engine, events);
    engine.apply(Event::Synced);
    let report = engine.poll(Duration::ZERO).expect("a start is due");
    assert!(report.is_success(), "{report}");
    let kernel = kernels.v4.get();
    kernel.last_edits.clone()
}

/// Returns the elements of each Service address and node port, as text.
fn frontends<'a>(objects: impl IntoIterator<Item = &'a Object>) -> Frontends {
    let mut frontends = Frontends::new();
    for object in objects {
        if let Object::Element(element) = object
            && let Some(frontend) = frontend(element)
        {
            let words = format!("{} {{ {element} }}", element.set().name);
            frontends.entry(frontend).or_default().insert(words);
        }
    }
    frontends
}

type Frontends = BTreeMap<String, BTreeSet<String>>;

/// Returns the address or the node port in the key of an element.
fn frontend(element: &Element) -> Option<String> {
    let text = element.to_string();
    let (key, _) = text.split_once(" : ").unwrap_or((&text, ""));
    let fields: Vec<_> = key.split(" . ").collect();
    match (element.set().name.as_str(), &*fields) {
        ("hairpin-endpoints" | "service-cidrs" | "nodeport-networks", _) => None,
        // Several Services share these elements.
        (
            "service-networks"
            | "external-networks"
            | "sticky-protocols"
            | "sticky-nodeport-protocols"
            | "recalls"
            | "forgets"
            | "learners"
            | "usual-learners"
            | "nodeport-learners",
            _,
        ) => None,
        (_, [protocol @ ("tcp" | "udp"), port, ..]) => Some(format!("{protocol} . {port}")),
        (_, [address, ..]) => Some((*address).to_owned()),
        _ => None,
    }
}

fn dump() -> Vec<Object> {
    let mut kernel = Nftables::open(Family::V4).expect("the kernel has nf_tables");
    kernel.dump().expect("a dump")
}

/// Starts an engine in the namespace of the calling thread and returns the number of
/// edits of its first sync.
fn start(events: Vec<Event>) -> usize {
    let mut engine = v4().open().expect("the kernel has nf_tables");
    apply(&mut engine, events);
    engine.apply(Event::Synced);
    let report = engine.poll(Duration::ZERO).expect("a start is due");
    assert!(report.is_success(), "{report}");
    let outcome = report.families[0].outcome.as_ref();
    outcome.expect("a success").edits
}

#[test]
fn an_interrupted_start_leaves_complete_services_and_the_next_start_adds_the_rest() {
    let events = events(400, 5);
    let edits = edits(events.clone());
    let end = frontends(edits.iter().map(Edit::object));
    let services = |installed: &Frontends| {
        let is_cluster_ip = |words: &String| words.starts_with("active-cluster-ips ");
        let frontends = installed.values();
        frontends
            .filter(|words| words.iter().any(is_cluster_ip))
            .count()
    };
    assert_eq!(services(&end), 400);
    Netns::new().unwrap().run(|| {
        let mut client = Client::open().unwrap();
        let mut before = 0;
        let count = transactions(&edits).count();
        assert!(count > 2, "{count}");
        for transaction in transactions(&edits).take(count - 1) {
            client.commit(&transaction).unwrap();
            let installed = frontends(&dump());
            for (frontend, words) in &installed {
                assert_eq!(words, &end[frontend], "{frontend}");
            }
            // A quarter of the Services has no address other than the cluster IP.
            let services = services(&installed);
            // The first transactions contain only chains and sets.
            assert!(services > before || before == 0);
            assert_eq!(
                installed.len() - services,
                services - services / 4,
                "a Service is split"
            );
            before = services;
        }
        assert!(before > 0);
        assert!(start(events.clone()) > 0);
        assert_eq!(start(events), 0);
    });
}

#[test]
fn an_interrupted_change_leaves_each_address_in_its_old_or_new_state() {
    let [before, after] =
        [(400, 5), (385, 9)].map(|(services, each)| edits(events(services, each)));
    let [old, new] = [&before, &after].map(|edits| frontends(edits.iter().map(Edit::object)));
    Netns::new().unwrap().run(|| {
        let mut client = Client::open().unwrap();
        for transaction in transactions(&before) {
            client.commit(&transaction).unwrap();
        }
        let wanted: Vec<_> = after.iter().map(|edit| edit.object().clone()).collect();
        let edits = diff(dump(), &wanted);
        let mut done = Vec::new();
        for transaction in transactions(&edits) {
            client.commit(&transaction).unwrap();
            let installed = frontends(&dump());
            let frontends: BTreeSet<_> = old.keys().chain(new.keys()).collect();
            let in_new_state = frontends.iter().filter(|&&frontend| {
                let [words, old, new] = [&installed, &old, &new].map(|state| state.get(frontend));
                assert!(words == old || words == new, "{frontend}: {words:?}");
                words == new
            });
            done.push(in_new_state.count());
        }
        assert!(done.is_sorted() && done.len() > 3, "{done:?}");
        assert_eq!(diff(dump(), &wanted), []);
    });
}
