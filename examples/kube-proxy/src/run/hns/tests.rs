//! The main loop with an API server and HNS in memory.
#![allow(clippy::disallowed_methods, reason = "a test has threads of its own")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::{self, JoinHandle};

use anyhow::bail;
use apiserver::ApiServer;
use clap::Parser;
use serde_json::json;
use testkit::scoped::Directory;
use vipline_hcn::{
    Memory, ModifyRequest, Network, NetworkPolicy, NetworkType, Policy, Query,
    RemoteSubnetRoutePolicy, RequestType,
};

use super::*;
use crate::cli::Cli;
use crate::config::Effective;

/// Maximum time until a change is visible.
const PATIENCE: Duration = Duration::from_secs(30);

/// Name of the network.
const NETWORK: &str = "cbr0";

/// A proxy with the objects of an API server.
struct Proxy {
    server: ApiServer,
    hns: Arc<Mutex<Memory>>,
    stop: Stop,
    running: Option<JoinHandle<Result<(), Failure>>>,
    metrics: u16,
    _folder: Directory,
}

impl Proxy {
    /// Starts a proxy on a node with or without the network.
    fn start(network: Option<&Network>, flags: &str) -> Self {
        let server = ApiServer::start();
        server.apply(json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": { "name": "node-1" },
            "status": { "addresses": [{ "type": "InternalIP", "address": "192.0.2.1" }] },
        }));
        let folder = Directory::new().unwrap();
        folder.write("kubeconfig", &server.kubeconfig()).unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let metrics = free.local_addr().unwrap().port();
        drop(free);
        let line = format!(
            "kube-proxy --proxy-mode kernelspace --hostname-override node-1 --healthz-port 0 \
             --metrics-bind-address 127.0.0.1:{metrics} \
             --network-name {NETWORK} --kubeconfig {} {flags}",
            kubeconfig.display()
        );
        let cli = Cli::try_parse_from(line.split_whitespace()).unwrap();
        let effective = Effective::new(&cli.flags).unwrap();
        let settings = Settings::new(&cli.flags, effective, "other").unwrap();
        let (hns, stop) = (Arc::new(Mutex::new(Memory::new())), Stop::default());
        if let Some(network) = network {
            Arc::clone(&hns).create_network(network).unwrap();
        }
        let (service, requested) = (Arc::clone(&hns), stop.clone());
        let host_mac = || Ok("00-15-5D-00-00-01".to_owned());
        let running = thread::spawn(move || run(settings, service, &host_mac, &requested));
        Self {
            server,
            hns,
            stop,
            running: Some(running),
            metrics,
            _folder: folder,
        }
    }

    /// Adds a Service with one endpoint.
    fn serve(&self, name: &str, address: &str, endpoint: &str) {
        let metadata = |object: String| {
            json!({
                "name": object,
                "namespace": "default",
                "labels": { "kubernetes.io/service-name": name },
            })
        };
        self.server.apply(json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata(name.to_owned()),
            "spec": {
                "type": "ClusterIP",
                "clusterIP": address,
                "clusterIPs": [address],
                "ipFamilies": ["IPv4"],
                "ports": [{ "protocol": "TCP", "port": 80, "targetPort": 8080 }],
            },
        }));
        self.server.apply(json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": metadata(format!("{name}-1")),
            "addressType": "IPv4",
            "endpoints": [{ "addresses": [endpoint], "nodeName": "node-2" }],
            "ports": [{ "protocol": "TCP", "port": 8080 }],
        }));
    }

    /// Returns the addresses of load balancers.
    fn frontends(&self) -> Vec<String> {
        let balancers = Arc::clone(&self.hns).load_balancers(&Query::all()).unwrap();
        let frontends = balancers.into_iter().flat_map(|it| it.frontend_vips);
        let mut frontends: Vec<_> = frontends.collect();
        frontends.sort();
        frontends
    }

    /// Returns whether HNS has an endpoint whose node has the address `provider`.
    fn has_provider(&self, endpoint: &str, provider: &str) -> bool {
        let endpoints = Arc::clone(&self.hns).endpoints(&Query::all()).unwrap();
        let mut found = endpoints
            .iter()
            .filter(|it| it.addresses().any(|addr| addr.to_string() == endpoint));
        let expected = format!(r#""ProviderAddress":"{provider}""#);
        found.any(|it| serde_json::to_string(it).unwrap().contains(&expected))
    }

    /// Waits for a state of HNS.
    fn wait(&self, what: &str, is_reached: impl Fn() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_reached() {
            let is_running = self.running.as_ref().is_some_and(|it| !it.is_finished());
            assert!(is_running && Instant::now() < deadline, "{what}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns a page of the metrics server.
    fn page(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.metrics)).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    /// Stops the proxy.
    fn stop(&mut self) -> Result<(), Failure> {
        self.stop.request();
        self.running.take().unwrap().join().unwrap()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop.request();
    }
}

#[test]
fn load_balancers_follow_the_objects_and_outlive_the_proxy() {
    let mut proxy = Proxy::start(None, "--iptables-sync-period 1s");
    proxy.serve("web", "10.96.0.10", "10.244.2.1");
    // The proxy waits for the network.
    let network = Network::new(NETWORK, NetworkType::L2Bridge);
    let network = network.with_subnet("10.244.1.0/24", "10.244.1.1");
    Arc::clone(&proxy.hns).create_network(&network).unwrap();
    proxy.wait("the first Service", || proxy.frontends() == ["10.96.0.10"]);
    proxy.serve("api", "10.96.0.11", "10.244.2.2");
    let both = ["10.96.0.10", "10.96.0.11"];
    proxy.wait("the second Service", || proxy.frontends() == both);
    let mut hns = Arc::clone(&proxy.hns);
    let balancers = hns.load_balancers(&Query::all()).unwrap();
    hns.delete_load_balancer(&balancers[0].id).unwrap();
    proxy.wait("the repair of a deletion", || proxy.frontends() == both);
    assert!(proxy.page("/proxyMode").ends_with("\r\nkernelspace"));
    let metrics = proxy.page("/metrics");
    let rejected = "kubeproxy_sync_rejected_objects{ip_family=\"IPv4\",mode=\"kernelspace\"} 0\n";
    assert!(metrics.contains(rejected), "{metrics}");
    assert!(!metrics.contains("_iptables_"), "{metrics}");
    proxy.stop().unwrap();
    assert_eq!(proxy.frontends(), both);
}

/// Returns the route to a node.
fn route(node: u8) -> RemoteSubnetRoutePolicy {
    let (subnet, address) = (format!("10.244.{node}.0/24"), format!("192.0.2.{node}"));
    RemoteSubnetRoutePolicy::new(&subnet, 4096, &address, &format!("00-15-5D-00-00-0{node}"))
}

#[test]
fn endpoints_on_a_new_node_are_reached_by_its_address() {
    let network = Network::new(NETWORK, NetworkType::Overlay);
    let network = network.with_subnet("10.244.1.0/24", "10.244.1.1");
    let network = network.with_policy(route(3));
    let proxy = Proxy::start(
        Some(&network),
        "--source-vip 10.244.1.200 --iptables-sync-period 1h",
    );
    let network = Arc::clone(&proxy.hns).network_by_name(NETWORK).unwrap();
    proxy.serve("web", "10.96.0.10", "10.244.1.7");
    proxy.wait("the first Service", || proxy.frontends() == ["10.96.0.10"]);
    let policies = [Policy::<NetworkPolicy>::new(route(2))];
    let request = ModifyRequest::policies(RequestType::Add, &policies).unwrap();
    let mut hns = Arc::clone(&proxy.hns);
    hns.modify_network(&network.id, &request).unwrap();
    proxy.serve("api", "10.96.0.11", "10.244.2.2");
    proxy.wait("the second Service", || {
        proxy.has_provider("10.244.2.2", "192.0.2.2")
    });
    // The former routes stay if one becomes invalid.
    let invalid = RemoteSubnetRoutePolicy::new("10.244.2.0", 4096, "192.0.2.2", "");
    let policies = [Policy::<NetworkPolicy>::new(invalid)];
    let request = ModifyRequest::policies(RequestType::Update, &policies).unwrap();
    hns.modify_network(&network.id, &request).unwrap();
    proxy.serve("db", "10.96.0.12", "10.244.3.2");
    proxy.wait("the third Service", || {
        proxy.has_provider("10.244.3.2", "192.0.2.3")
    });
}

#[test]
fn an_invalid_route_is_an_error_at_the_start() {
    let invalid = RemoteSubnetRoutePolicy::new("10.244.2.0", 4096, "192.0.2.2", "");
    let network = Network::new(NETWORK, NetworkType::Overlay).with_policy(invalid);
    let mut proxy = Proxy::start(Some(&network), "--source-vip 10.244.1.200");
    let running = proxy.running.take().unwrap();
    let deadline = Instant::now() + PATIENCE;
    while !running.is_finished() {
        assert!(Instant::now() < deadline, "the proxy runs");
        thread::sleep(Duration::from_millis(20));
    }
    let ended = running.join().unwrap();
    let reason = "network cbr0: Policies[0] (RemoteSubnetRoute): DestinationPrefix";
    let error = ended.unwrap_err().to_string();
    assert!(error.starts_with(reason), "{error}");
}

#[test]
fn a_proxy_that_waits_for_the_network_stops() {
    let mut proxy = Proxy::start(None, "");
    proxy.stop().unwrap();
    let settings = |flags: &str| {
        let line = format!("kube-proxy --proxy-mode kernelspace --hostname-override n {flags}");
        let cli = Cli::try_parse_from(line.split_whitespace()).unwrap();
        Settings::new(&cli.flags, Effective::new(&cli.flags).unwrap(), "n").unwrap()
    };
    let no_mac = || bail!("no adapter has 192.0.2.1 and a MAC address");
    let mut hns = Memory::new();
    hns.create_network(&Network::new("vxlan0", NetworkType::Overlay).with_policy(route(2)))
        .unwrap();
    let settings = settings("--network-name vxlan0 --source-vip 10.244.1.200");
    let error = run(settings, hns, &no_mac, &Stop::default()).unwrap_err();
    let reason = "no adapter has 192.0.2.1 and a MAC address";
    assert_eq!(error.to_string(), reason);
}
