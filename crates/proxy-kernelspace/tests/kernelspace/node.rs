//! A Windows node: the engine, and HNS in memory.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use proxy_engine::{Config, Engine, Event, Family, Report};
use proxy_kernelspace::{Hns, Planner, Settings};
use vipline_hcn::{Endpoint, Memory, Network, Service, Version};
use vipline_service_model::api;

/// Name of the node, and of its network.
pub(crate) const NODE: &str = "node-1";
const NETWORK: &str = "TestNetwork";

/// HNS in memory, which the engine and the test share.
#[derive(Clone, Debug)]
pub(crate) struct SharedHns(Arc<Mutex<Memory>>);

impl SharedHns {
    /// Creates a service with one network.
    pub(crate) fn new(version: Version, network: &Network) -> Self {
        let mut memory = Memory::new().with_version(version);
        memory
            .create_network(network)
            .expect("the network is valid");
        memory.take_calls();
        Self(Arc::new(Mutex::new(memory)))
    }

    pub(crate) fn get(&self) -> MutexGuard<'_, Memory> {
        self.0.lock().expect("no test panicked")
    }

    /// Creates an endpoint in the network.
    pub(crate) fn create_endpoint(&self, endpoint: &Endpoint) {
        let mut memory = self.get();
        let network = memory.network_by_name(NETWORK).expect("the network exists");
        // A requested rejection may apply to this call.
        let mut attempts = (0..100).map(|_| memory.create_endpoint(&network.id, endpoint));
        assert!(attempts.any(|it| it.is_ok()), "the endpoint is valid");
        memory.take_calls();
    }

    /// Deletes an endpoint, and the load balancers that have only this endpoint.
    pub(crate) fn delete_endpoint(&self, address: IpAddr) {
        let mut memory = self.get();
        let mut endpoints = memory.all_endpoints();
        let endpoint = endpoints.find(|it| it.addresses().any(|it| it == address));
        let id = endpoint.expect("the endpoint exists").id.clone();
        drop(endpoints);
        let load_balancers = memory.all_load_balancers();
        let only = load_balancers.filter(|it| it.endpoints == [id.clone()]);
        let only: Vec<_> = only.map(|it| it.id.clone()).collect();
        for load_balancer in only {
            memory
                .delete_load_balancer(&load_balancer)
                .expect("the load balancer exists");
        }
        memory.delete_endpoint(&id).expect("the endpoint is free");
        memory.take_calls();
    }
}

/// The engine of a node, over HNS in memory.
pub(crate) struct Node {
    pub(crate) engine: Engine,
    now: Duration,
}

impl Node {
    /// Starts the engine.
    pub(crate) fn new(hns: &SharedHns, families: &[Family], settings: &Settings) -> Self {
        let config = Config::new(NODE).with_families(families);
        let kernel = |family| Hns::new(Arc::clone(&hns.0), NETWORK, family, settings.clone());
        let mut engine = Engine::with_kernels(config, Planner::new(settings.clone()), kernel);
        let node_address = |address: &str| api::NodeAddress {
            kind: "InternalIP".into(),
            address: address.into(),
        };
        let mut node = api::Node {
            metadata: api::ObjectMeta::named("", NODE),
            ..api::Node::default()
        };
        node.status.addresses = ["10.0.0.1", "10::1"].map(node_address).into();
        engine.apply(Event::from(node));
        let now = Duration::from_secs(100);
        Self { engine, now }
    }

    /// Syncs at a time after all timers.
    pub(crate) fn sync(&mut self) -> Report {
        self.engine.apply(Event::Synced);
        self.engine.request_resync();
        self.change()
    }

    /// Syncs changes without reading the state of HNS.
    pub(crate) fn change(&mut self) -> Report {
        // The first poll after a sync starts the pause, which the second one ends.
        let reports = (0..3).find_map(|_| {
            self.now += Duration::from_secs(120);
            self.engine.poll(self.now)
        });
        reports.expect("a sync was requested")
    }
}

/// Returns the overlay network of upstream's tests.
pub(crate) fn overlay() -> Network {
    let subnet = vipline_hcn::RemoteSubnetRoutePolicy::new(
        "192.168.2.0/24",
        4096,
        "10.0.0.3",
        "00-11-22-33-44-55",
    );
    Network::new(NETWORK, vipline_hcn::NetworkType::Overlay).with_policy(subnet)
}

/// Returns the other network of upstream's tests.
pub(crate) fn l2bridge() -> Network {
    Network::new(NETWORK, vipline_hcn::NetworkType::L2Bridge)
}

/// Returns the settings of upstream's tests.
pub(crate) fn settings(network: &Network, version: Version) -> Settings {
    let settings = Settings::default().with_network(network);
    let mut settings = settings.expect("the network is valid");
    settings.source_vip = settings.is_overlay.then(|| [192, 168, 1, 2].into());
    settings.host_mac = "00-11-22-33-44-55".into();
    settings.healthz_port = 10256;
    settings.features = vipline_hcn::Features::of(version);
    settings
}
