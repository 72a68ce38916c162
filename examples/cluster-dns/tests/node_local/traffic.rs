//! Questions of pods and of the node, and their conntrack entries.

use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use cluster_dns::node_local::{NodeLocal, Options};
use testkit::lab::{Host, Lab};
use testkit::traffic::{Probe, Protocol, Server};
use vipline_conntrack::{Client, Filter};

/// Node-local addresses of both families, then cluster IPs of the DNS Service.
const ADDRESSES: [&str; 4] = ["169.254.20.10", "fd00::10", "10.96.0.10", "fd00:96::10"];

const PROTOCOLS: [Protocol; 2] = [Protocol::Udp, Protocol::Tcp];

/// Requests of one client to one address by one protocol.
const REQUESTS: usize = 20;

/// Rules of another program: connection tracking, and the cluster IPs lead to a backend.
const RULES: &str = "
table inet services {
    chain prerouting {
        type nat hook prerouting priority dstnat
        ip daddr 10.96.0.10 meta l4proto { tcp, udp } dnat ip to 10.244.1.11
        ip6 daddr fd00:96::10 meta l4proto { tcp, udp } dnat ip6 to fd00:244:1::11
    }
    chain output {
        type nat hook output priority -100
        ip daddr 10.96.0.10 meta l4proto { tcp, udp } dnat ip to 10.244.1.11
        ip6 daddr fd00:96::10 meta l4proto { tcp, udp } dnat ip6 to fd00:244:1::11
    }
    chain input {
        type filter hook input priority filter
        ct state invalid drop
    }
}
";

fn addresses() -> [IpAddr; 4] {
    ADDRESSES.map(|text| text.parse().unwrap())
}

fn options(addresses: &[IpAddr]) -> Options {
    let interface = "lo".parse().unwrap();
    Options::new(addresses.to_vec(), 53, interface).unwrap()
}

/// Starts servers of both protocols at port 53 of addresses.
fn serve(host: &Host, addresses: &[IpAddr], name: &str) -> Vec<Server> {
    let mut servers = Vec::new();
    for address in addresses {
        for protocol in PROTOCOLS {
            let at = SocketAddr::new(*address, 53);
            servers.push(Server::start(&host.netns, protocol, at, name).unwrap());
        }
    }
    servers
}

/// A lab with connection tracking and the rules of another program on the node.
fn lab() -> Lab {
    let lab = Lab::with_backends(1).unwrap();
    lab.node.netns.run(|| {
        let mut nft = Command::new("nft");
        let status = nft.arg(RULES).status().unwrap();
        assert!(status.success());
    });
    lab
}

/// Returns the number of conntrack entries of a node.
fn entries(lab: &Lab) -> usize {
    lab.node.netns.run(|| {
        let mut client = Client::open().unwrap();
        let flows = client.flows(&Filter::new()).unwrap();
        flows.complete().unwrap().len()
    })
}

/// Returns the interfaces of a node with their addresses, one a line.
///
/// Without their states and link-local addresses: a veth is up, and has one, some time after
/// both of its ends exist, which may be in the middle of a test.
fn interfaces(lab: &Lab) -> String {
    let mut ip = Command::new("ip");
    ip.args(["-brief", "address"]);
    let output = lab.node.netns.run(|| ip.output()).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = |line: &str| {
        let mut words: Vec<_> = line.split_whitespace().collect();
        words.remove(1);
        words.retain(|word| !word.starts_with("fe80:"));
        words.join(" ") + "\n"
    };
    text.lines().map(line).collect()
}

/// Waits until the IPv6 addresses have routes.
///
/// The kernel acknowledges an IPv6 address before its work queue adds the local route.
fn wait_for_routes(lab: &Lab) {
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut ip = Command::new("ip");
    ip.args(["-6", "route", "show", "table", "local"]);
    let mut has_routes = || {
        let output = lab.node.netns.run(|| ip.output()).unwrap();
        let routes = String::from_utf8(output.stdout).unwrap();
        let mut addresses = ADDRESSES.iter().filter(|address| address.contains(':'));
        addresses.all(|address| routes.contains(&format!("local {address} ")))
    };
    while !has_routes() {
        assert!(Instant::now() < deadline, "no routes");
        thread::sleep(Duration::from_millis(5));
    }
}

fn forget_entries(lab: &Lab) {
    lab.node.netns.run(|| {
        let _ = Client::open().unwrap().flush(&Filter::new()).unwrap();
    });
}

/// Sends requests from a pod and from the node. All must be answered by `server`.
#[track_caller]
fn ask(lab: &Lab, addresses: &[IpAddr], server: &str) {
    for client in [&lab.pod, &lab.node] {
        for address in addresses {
            for protocol in PROTOCOLS {
                let probe = Probe::new(protocol, SocketAddr::new(*address, 53));
                let answers = probe.times(&client.netns, REQUESTS);
                let found = answers.count(server);
                assert_eq!(found, REQUESTS, "{} {address} {answers:?}", client.name);
            }
        }
    }
}

#[test]
fn questions_and_answers_make_no_conntrack_entries() {
    let (lab, all) = (lab(), addresses());
    let before = interfaces(&lab);
    let node = lab.node.netns.run(|| NodeLocal::open(options(&all)));
    let node = node.unwrap();
    wait_for_routes(&lab);
    let meanwhile = interfaces(&lab);
    let of_interface = meanwhile.lines().find(|line| line.starts_with("lo "));
    let of_interface = of_interface.unwrap();
    for address in ADDRESSES {
        assert!(
            of_interface.contains(&format!(" {address}/")),
            "{meanwhile}"
        );
    }
    let _servers = serve(&lab.node, &all, "node-local");
    // Without rules, each request to a node-local address makes an entry.
    ask(&lab, &all[..2], "node-local");
    assert!(entries(&lab) >= REQUESTS, "{}", entries(&lab));
    node.serve().unwrap();
    forget_entries(&lab);
    ask(&lab, &all, "node-local");
    assert_eq!(entries(&lab), 0);
    node.close().unwrap();
    assert_eq!(interfaces(&lab), before);
}

#[test]
fn cluster_ips_lead_to_their_service_before_and_after_node_local_use() {
    let (lab, all) = (lab(), addresses());
    let cluster_ips = &all[2..];
    let backend = &lab.backends[0];
    let _backend = serve(backend, &backend.addresses(), "cluster");
    ask(&lab, cluster_ips, "cluster");
    let node = lab.node.netns.run(|| NodeLocal::open(options(&all)));
    let node = node.unwrap();
    wait_for_routes(&lab);
    // The addresses are on the node, but the rules of the Service apply.
    ask(&lab, cluster_ips, "cluster");
    let servers = serve(&lab.node, &all, "node-local");
    node.serve().unwrap();
    ask(&lab, cluster_ips, "node-local");
    node.withdraw().unwrap();
    ask(&lab, cluster_ips, "cluster");
    drop(servers);
    node.close().unwrap();
    ask(&lab, cluster_ips, "cluster");
}
