//! Clients with a fixed source port while endpoints change.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use testkit::netns::Netns;

use crate::health::metric_in;
use crate::iptables::ip;
use crate::stage::{Stage, service, slice, wait_until};

const SERVICE: &str = "10.96.0.10:53";
const CLIENT: &str = "10.244.9.9";

/// Timeout for a datagram.
const TIMEOUT_SECONDS: Duration = Duration::from_secs(20);

/// Flags with flow timeouts that no test exceeds.
const FLAGS: &str = "--conntrack-udp-timeout 10m --conntrack-udp-timeout-stream 10m";

/// Returns the manifests of a UDP Service with one endpoint, 10.244.NET.1.
fn dns(net: u8) -> String {
    let udp = |text: String, port: &str| {
        let number = format!("port: {port}\n");
        text.replace(&number, &format!("{{port: {port}, protocol: UDP}}\n"))
    };
    udp(service("dns", "10.96.0.10"), "80").replace("80", "53") + &udp(slice("dns", net, 1), "8080")
}

/// A client with a fixed source port, and two servers.
struct Site {
    service: SocketAddr,
    client: UdpSocket,
    /// Servers at 10.244.1.1 and 10.244.2.1.
    servers: [UdpSocket; 2],
}

impl Site {
    fn new(stage: &Stage) -> Self {
        let netns = &stage.netns;
        for address in [CLIENT, "10.244.1.1", "10.244.2.1"] {
            ip(netns, &format!("address add {address}/32 dev lo"));
        }
        ip(netns, "route add 10.96.0.0/16 dev lo");
        let servers = ["10.244.1.1:8080", "10.244.2.1:8080"];
        let servers = servers.map(|address| bind(netns, address));
        let service = SERVICE.parse().unwrap();
        Self {
            service,
            client: connect(netns, service),
            servers,
        }
    }

    /// Returns a site with the same servers and a new client of another Service
    /// address.
    fn at(&self, netns: &Netns, service: SocketAddr) -> Self {
        let again = |server: &UdpSocket| server.try_clone().unwrap();
        let [first, second] = &self.servers;
        Self {
            service,
            client: connect(netns, service),
            servers: [again(first), again(second)],
        }
    }

    fn port(&self) -> u16 {
        self.client.local_addr().unwrap().port()
    }

    /// Sends a request, answers it, and returns the network number of the server.
    #[track_caller]
    fn request(&self) -> u8 {
        self.client.send(b"request").unwrap();
        let (net, from) = wait("the request", || {
            let nets = self.servers.iter().zip(1..);
            nets.filter_map(|(server, net)| Some((net, receive(server)?)))
                .next()
        });
        let server = &self.servers[usize::from(net) - 1];
        server.send_to(b"answer", from).unwrap();
        let from = wait("the answer", || receive(&self.client));
        assert_eq!(from, self.service);
        net
    }
}

/// Returns a non-blocking socket.
fn bind(netns: &Netns, address: &str) -> UdpSocket {
    let socket = netns.run(|| UdpSocket::bind(address)).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

/// Returns the socket of a client with its own port.
fn connect(netns: &Netns, service: SocketAddr) -> UdpSocket {
    let client = bind(netns, &format!("{CLIENT}:0"));
    netns.run(|| client.connect(service)).unwrap();
    client
}

fn receive(socket: &UdpSocket) -> Option<SocketAddr> {
    let mut buffer = [0; 64];
    match socket.recv_from(&mut buffer) {
        Ok((_, from)) => Some(from),
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        Err(error) => panic!("{error}"),
    }
}

#[track_caller]
fn wait<T>(what: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = poll() {
            return value;
        }
        assert!(start.elapsed() < TIMEOUT_SECONDS, "{what} did not arrive");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Changes the endpoint while the proxy runs and while it does not run. `apply` applies
/// the output of `diff`.
pub(crate) fn follow_endpoints(stage: &Stage, apply: impl FnOnce(&str)) {
    let site = Site::new(stage);
    let deleted = |count| {
        let name = "kubeproxy_conntrack_reconciler_deleted_entries_total{ip_family=\"IPv4\"}";
        wait_until("the count", || metric_in(&stage.netns, name) == Some(count));
    };
    stage.write("dns.yaml", &dns(1));
    let proxy = stage.start_with(&format!("{FLAGS} --v 2"));
    deleted(0.0);
    assert_eq!((site.request(), site.request()), (1, 1));
    stage.write("dns.yaml", &dns(2));
    deleted(1.0);
    assert_eq!((site.request(), site.request()), (2, 2));
    let [count, time] = ["count", "sum"].map(|end| {
        let name = format!("kubeproxy_conntrack_reconciler_sync_duration_seconds_{end}");
        metric_in(&stage.netns, &(name + "{ip_family=\"IPv4\"}")).unwrap()
    });
    assert!(count >= 2.0 && time > 0.0, "{count} {time}");
    let message = "deleted stale flows family=IPv4 deleted=1 ";
    wait_until(message, || proxy.output().contains(message));
    assert!(proxy.terminate().unwrap().success());

    let nothing = stage.run("diff");
    assert_eq!((nothing.code, &*nothing.stdout), (0, ""), "{nothing:?}");
    stage.write("dns.yaml", &dns(1));
    let outcome = stage.run("diff");
    let is_flow = |line: &&str| line.starts_with("# stale flow: ipv4 ");
    let count = outcome.stdout.lines().filter(is_flow).count();
    assert_eq!((outcome.code, count), (1, 1), "{outcome:?}");
    apply(&outcome.stdout);
    assert_eq!(site.request(), 2, "the flow is still there");
    let outcome = stage.run("diff");
    assert_eq!(
        (outcome.code, outcome.stdout.lines().count()),
        (1, 1),
        "{outcome:?}"
    );
    let flow = outcome.stdout;
    assert!(is_flow(&&*flow), "{flow}");
    for part in [
        format!(
            "src={CLIENT} dst=10.96.0.10 sport={} dport=53 ",
            site.port()
        ),
        "src=10.244.2.1 ".to_owned(),
    ] {
        assert!(flow.contains(&part), "{part}: {flow}");
    }

    let proxy = stage.start_with(FLAGS);
    deleted(1.0);
    assert_eq!(site.request(), 1);
    assert!(proxy.terminate().unwrap().success());
    assert_eq!(stage.run("diff").code, 0);
}

#[test]
fn a_client_with_a_fixed_port_reaches_the_new_endpoint() {
    let stage = Stage::new();
    follow_endpoints(&stage, |difference| stage.load(difference));
}

/// Addresses of the node. The Node object has the first address. The last address is
/// added after the proxy has started.
const NODE_ADDRESSES: [&str; 4] = ["192.0.2.1", "192.0.2.2", "198.51.100.7", "198.51.100.8"];

/// The manifest of the Node.
const NODE: &str = "apiVersion: v1\nkind: Node\nmetadata: {name: node-1}\n\
                    status: {addresses: [{type: InternalIP, address: 192.0.2.1}]}\n";

/// Replaces the endpoint of a NodePort Service, and sends requests to each address of
/// the node before and after.
pub(crate) fn follow_endpoints_at_all_node_addresses(stage: &Stage, flags: &str) {
    let netns = &stage.netns;
    let site = Site::new(stage);
    let add = |address| ip(netns, &format!("address add {address}/32 dev lo"));
    let (last, first) = NODE_ADDRESSES.split_last().unwrap();
    first.iter().for_each(add);
    let node_port = |net| {
        let ports = "  ports:\n  - {port: 53, protocol: UDP";
        dns(net).replace(
            &format!("{ports}}}"),
            &format!("  type: NodePort\n{ports}, nodePort: 30053}}"),
        )
    };
    assert!(node_port(1).contains("nodePort"));
    stage.write("node.yaml", NODE);
    stage.write("dns.yaml", &node_port(1));
    let proxy = stage.start_with(&format!("{FLAGS} --v 2 {flags}"));
    // A new address triggers a sync.
    let syncs = || proxy.output().matches("synced family=IPv4").count();
    let before = syncs();
    add(last);
    wait_until("the sync with the last address", || syncs() > before);
    let at = |address| site.at(netns, format!("{address}:30053").parse().unwrap());
    let sites = NODE_ADDRESSES.map(at);
    for site in &sites {
        assert_eq!((site.request(), site.request()), (1, 1), "{}", site.service);
    }
    stage.write("dns.yaml", &node_port(2));
    let name = "kubeproxy_conntrack_reconciler_deleted_entries_total{ip_family=\"IPv4\"}";
    wait_until("the deletion of each flow", || {
        metric_in(netns, name) == Some(4.0)
    });
    for site in &sites {
        assert_eq!((site.request(), site.request()), (2, 2), "{}", site.service);
    }
    assert!(proxy.terminate().unwrap().success());
}

/// Flags with the networks of all addresses of the node.
pub(crate) const NETWORKS: &str = "--nodeport-addresses 192.0.2.0/24,198.51.100.0/24";

#[test]
fn flows_to_a_node_port_follow_the_endpoints_at_every_address_of_the_node() {
    // Without the flag this mode serves node ports only on the first address.
    let all = "--nodeport-addresses 0.0.0.0/0";
    follow_endpoints_at_all_node_addresses(&Stage::new(), all);
}

#[test]
fn flows_to_a_node_port_follow_the_endpoints_at_every_address_in_the_networks() {
    follow_endpoints_at_all_node_addresses(&Stage::new(), NETWORKS);
}
