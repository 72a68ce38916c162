//! Random histories: the state after many changes is the state of a start.

use proxy_engine::Event;
use proxy_engine::Family;
use proxy_kernelspace::Settings;
use vipline_hcn::{Call, Endpoint, HResult, Version};
use vipline_service_model::ObjectName;
use vipline_service_model::arbitrary::Dice;

use crate::node::{NODE, Node, SharedHns, l2bridge, overlay, settings};
use crate::script::{service, slice};

const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

/// Returns the documents of all load balancers and endpoints without identifiers.
fn state(hns: &SharedHns) -> Vec<String> {
    let memory = hns.get();
    let address = |id: &vipline_hcn::Id| {
        let mut endpoints = memory.all_endpoints();
        let endpoint = endpoints
            .find(|it| it.id == *id)
            .expect("the endpoint exists");
        let addresses: Vec<_> = endpoint.addresses().map(|it| it.to_string()).collect();
        addresses.join(",")
    };
    let mut lines: Vec<String> = memory.all_endpoints().map(|it| address(&it.id)).collect();
    for load_balancer in memory.all_load_balancers() {
        let mut endpoints: Vec<_> = load_balancer.endpoints.iter().map(address).collect();
        endpoints.sort_unstable();
        let mut document = load_balancer.clone();
        document.id = vipline_hcn::Id::default();
        document.endpoints.clear();
        let json = serde_json::to_string(&document).expect("a document has JSON");
        lines.push(format!("{json} {endpoints:?}"));
    }
    lines.sort_unstable();
    lines
}

/// Returns HNS of a random version, with settings of a random network.
fn random_hns(dice: &mut Dice) -> (SharedHns, Settings) {
    let network = if dice.once_in(2) {
        overlay()
    } else {
        l2bridge()
    };
    let version = dice.pick(&[
        Version::new(9, 2),
        Version::new(11, 10),
        Version::new(15, 4),
    ]);
    let hns = SharedHns::new(version, &network);
    let mut settings = settings(&network, version);
    settings.enable_dsr = dice.once_in(2);
    if dice.once_in(2) {
        let mut gateway = Endpoint::local([192, 168, 2, 1].into());
        let second = "192::1".parse().expect("an address");
        gateway
            .ip_configurations
            .push(vipline_hcn::IpConfig::new(second));
        hns.create_endpoint(&gateway);
        settings = settings.with_gateway(&gateway);
    }
    (hns, settings)
}

/// Creates the local endpoints of a slice, which another program would create.
fn create_local(hns: &SharedHns, event: &Event, created: &mut Vec<Endpoint>) {
    let Event::SliceApplied(slice) = event else {
        return;
    };
    for endpoint in &slice.endpoints {
        let is_here = endpoint.node_name.as_deref() == Some(NODE);
        let address = endpoint.addresses.first().and_then(|it| it.parse().ok());
        let Some(address) = address.filter(|_| is_here) else {
            continue;
        };
        let endpoint = Endpoint::local(address);
        if !created.contains(&endpoint) && address.to_string() != "192.168.2.1" {
            hns.create_endpoint(&endpoint);
            created.push(endpoint);
        }
    }
}

/// Returns random events of one of five Services, most of which have endpoints.
fn random_service(dice: &mut Dice) -> Vec<Event> {
    let number = dice.roll(5);
    let name = format!("svc{number}");
    if dice.once_in(6) {
        return vec![Event::ServiceDeleted(ObjectName::new("ns1", &*name))];
    }
    let cluster = format!("cluster=10.96.7.{number}");
    let mut words = vec![cluster, "port=80".into()];
    if dice.once_in(2) {
        let kind = dice.pick(&["NodePort", "LoadBalancer"]);
        words.push(format!("type={kind}"));
        words.push(format!("node-port=3100{number}"));
        if kind == "LoadBalancer" {
            // Two Services may claim one address.
            words.push(format!("ingress=203.0.113.{}", dice.roll(5)));
        }
    }
    for word in [
        "etp=Local",
        "itp=Local",
        "affinity",
        "preserve",
        "external=198.18.0.7",
    ] {
        let is_exposed = words.len() > 2;
        if dice.once_in(3) && (is_exposed || !word.starts_with("etp")) {
            words.push(word.into());
        }
    }
    let mut endpoints = vec![dice.pick(&["port=80", "port=8080"]).to_owned()];
    for _ in 0..dice.roll(5) {
        // Pods of this node, of another node and outside of the cluster.
        let address = dice.pick(&["192.168.4.", "192.168.2.", "11.0.0."]);
        let place = if address == "192.168.4." {
            "here"
        } else {
            "elsewhere"
        };
        let state = dice.pick(&["ready", "ready", "ready", "terminating", "unready", "gone"]);
        endpoints.push(format!("{address}{}@{place}/{state}", dice.roll(4)));
    }
    let text = |words: Vec<String>| words.join(" ");
    let (service_text, slice_text) = (text(words), text(endpoints));
    let service_words: Vec<_> = service_text.split(' ').collect();
    let slice_words: Vec<_> = slice_text.split(' ').collect();
    vec![service(&name, &service_words), slice(&name, &slice_words)]
}

/// Runs a history. Returns the number of load balancers at its end.
fn check(seed: u64) -> usize {
    let mut dice = Dice::from_seed(seed);
    let (hns, settings) = random_hns(&mut dice);
    let mut node = Node::new(&hns, &FAMILIES, &settings);
    let (mut events, mut local) = (Vec::<Event>::new(), Vec::new());
    for _ in 0..60 {
        let new = match dice.once_in(4) {
            true => vec![dice.event()],
            false => random_service(&mut dice),
        };
        for event in new {
            if dice.once_in(2) {
                create_local(&hns, &event, &mut local);
            }
            events.push(event.clone());
            node.engine.apply(event);
        }
        if dice.once_in(8) {
            let failing = [
                Call::CreateEndpoint,
                Call::CreateLoadBalancer,
                Call::DeleteLoadBalancer,
            ];
            hns.get().reject(dice.pick(&failing), HResult::E_FAIL);
        }
        if dice.once_in(4) {
            node.sync();
        }
        if dice.once_in(16) {
            node = Node::new(&hns, &FAMILIES, &settings);
            events
                .iter()
                .for_each(|event| drop(node.engine.apply(event.clone())));
        }
    }
    // Requested rejections that are left apply to the first syncs.
    (0..12).for_each(|_| drop(node.sync()));
    let incremental = state(&hns);
    hns.get().take_calls();

    // A restart without a change writes nothing.
    let mut restarted = Node::new(&hns, &FAMILIES, &settings);
    events
        .iter()
        .for_each(|event| drop(restarted.engine.apply(event.clone())));
    restarted.sync();
    assert_eq!(hns.get().take_calls(), [], "seed {seed}");

    // A start in an empty service leads to the same state.
    let mut dice = Dice::from_seed(seed);
    let (empty, settings) = random_hns(&mut dice);
    local.iter().for_each(|it| empty.create_endpoint(it));
    let mut fresh = Node::new(&empty, &FAMILIES, &settings);
    events
        .iter()
        .for_each(|event| drop(fresh.engine.apply(event.clone())));
    fresh.sync();
    assert_eq!(state(&empty), incremental, "seed {seed}");
    hns.get().all_load_balancers().count()
}

#[test]
fn histories_lead_to_the_state_of_a_start_and_a_restart_writes_nothing() {
    let load_balancers: usize = (0..100).map(check).sum();
    testkit::figures!("{load_balancers} load balancers in 100 histories");
    assert!(load_balancers > 200, "{load_balancers}");
}
