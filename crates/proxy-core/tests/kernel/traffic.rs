//! Packets of processes on the node, within one network namespace.
//!
//! The node has the addresses of the endpoints. Half of the cluster IPs is routed to a
//! link without hosts. The other half is routed to `lo`, where a server answers. A
//! missing rule is thus visible for each half.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::time::Duration;

use proxy_core::Event;
use testkit::generate::ServiceBuilder;
use testkit::netns::Netns;
use vipline_service_model::api::TransportProtocol;

use crate::fixtures::{NODE, apply, config, local_only, service_cidr, web, with_endpoints};
use crate::rules::Rules;

/// Timeout for requests that must fail.
const SHORT_TIMEOUT: Duration = Duration::from_millis(300);

/// Maximum time until a rejection. The client ignores a rejection that arrives while it
/// still sends the first packet, and retransmits after a second.
const REJECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Timeout for requests that must succeed. IPv6 uses a new link after up to a second.
const TIMEOUT: Duration = Duration::from_secs(10);

fn ip(args: &str) {
    let output = Command::new("ip").args(args.split(' ')).output();
    let output = output.expect("ip is installed");
    assert!(output.status.success(), "ip {args}: {output:?}");
}

crate::rules::tests_of_rules! {
    all {
        connections_to_a_cluster_ip_reach_each_endpoint
        a_connection_of_an_endpoint_to_itself_through_its_service_is_masqueraded
        datagrams_to_a_cluster_ip_are_answered_from_the_cluster_ip
        addresses_without_endpoints_are_rejected_or_dropped
    }
    iptables {}
    netlink {
        connections_to_a_cluster_ip_reach_each_endpoint
        a_connection_of_an_endpoint_to_itself_through_its_service_is_masqueraded
        datagrams_to_a_cluster_ip_are_answered_from_the_cluster_ip
        addresses_without_endpoints_are_rejected_or_dropped
    }
}

/// Creates a network namespace as the module documentation describes.
fn node() -> Netns {
    let netns = Netns::new().expect("a network namespace");
    netns.run(|| {
        ip("link add link0 type veth peer name link1");
        ip("link set link0 up");
        ip("link set link1 up");
        ip("addr add 10.1.0.1/32 dev link0");
        ip("addr add 10.1.0.2/32 dev link0");
        ip("addr add fd00:1::1/128 dev link0 nodad");
        ip("route add 10.96.0.0/17 dev link0 src 10.1.0.1");
        ip("route add fd00:96::/113 dev link0 src fd00:1::1");
        ip("route add local 10.96.128.0/17 dev lo");
        ip("route add local fd00:96::8000/113 dev lo");
    });
    netns
}

/// Programs Services with and without endpoints in the namespace of the calling thread.
fn program(rules: Rules) {
    let here = |builder: ServiceBuilder, addr: &str| {
        builder.endpoint(addr.parse().expect("an address"), NODE)
    };
    let named = |name: &str, addr: &str| {
        let builder = ServiceBuilder::new(name).cluster_ip(addr.parse().expect("an address"));
        builder.port(TransportProtocol::Tcp, 80, 8080)
    };
    let v4 = here(here(web("10.96.0.10"), "10.1.0.1"), "10.1.0.2");
    let v6 = here(named("web6", "fd00:96::10"), "fd00:1::1");
    let dns = ServiceBuilder::new("dns").cluster_ip("10.96.0.53".parse().expect("an address"));
    let dns = here(dns.port(TransportProtocol::Udp, 53, 5353), "10.1.0.1");
    let elsewhere = with_endpoints(named("elsewhere", "10.96.200.30"), &["10.2.0.1"]);
    let mut events = [v4, v6, dns, named("empty", "10.96.0.20")].map(|builder| builder.events());
    events[3].extend(local_only(&elsewhere));
    let mut opened = rules.open(rules.configured(config()));
    let engine = &mut opened.engine;
    apply(engine, events.into_iter().flatten());
    apply(
        engine,
        [
            service_cidr(&["10.96.0.0/16", "fd00:96::/112"]),
            Event::Synced,
        ],
    );
    let report = engine.poll(Duration::ZERO).expect("the first sync is due");
    assert!(report.is_success(), "{report}");
}

fn connect(to: &str, timeout: Duration) -> Result<TcpStream, ErrorKind> {
    let to: SocketAddr = to.parse().expect("an address");
    TcpStream::connect_timeout(&to, timeout).map_err(|error| error.kind())
}

fn connections_to_a_cluster_ip_reach_each_endpoint(rules: Rules) {
    node().run(|| {
        let listen = |addr: &str| TcpListener::bind(addr).expect("the address is the node's");
        let [first, second] = ["10.1.0.1:8080", "10.1.0.2:8080"].map(listen);
        let third = listen("[fd00:1::1]:8080");
        program(rules);
        for listener in [&first, &second, &third] {
            listener.set_nonblocking(true).expect("a listener");
        }
        let streams: Vec<_> = (0..100)
            .map(|_| connect("10.96.0.10:80", TIMEOUT))
            .collect();
        assert!(streams.iter().all(Result::is_ok), "{streams:?}");
        let [first, second] =
            [first, second].map(|listener| std::iter::from_fn(|| listener.accept().ok()).count());
        assert_eq!(first + second, 100);
        assert!(first >= 20 && second >= 20, "{first} {second}");
        assert!(connect("[fd00:96::10]:80", TIMEOUT).is_ok());
        assert!(third.accept().is_ok());
    });
}

fn a_connection_of_an_endpoint_to_itself_through_its_service_is_masqueraded(rules: Rules) {
    node().run(|| {
        program(rules);
        let socket = UdpSocket::bind("10.1.0.1:5353").expect("the address is the node's");
        socket
            .set_read_timeout(Some(TIMEOUT))
            .expect("a valid timeout");
        socket
            .send_to(b"?", "10.96.0.53:53")
            .expect("the datagram is sent");
        let mut buffer = [0; 8];
        let (_, from) = socket.recv_from(&mut buffer).expect("the datagram arrives");
        assert_ne!(from.port(), 5353, "not masqueraded: {from}");
    });
}

fn datagrams_to_a_cluster_ip_are_answered_from_the_cluster_ip(rules: Rules) {
    node().run(|| {
        let server = UdpSocket::bind("10.1.0.1:5353").expect("the address is the node's");
        program(rules);
        let client = UdpSocket::bind("10.1.0.2:0").expect("the address is the node's");
        for socket in [&client, &server] {
            socket
                .set_read_timeout(Some(TIMEOUT))
                .expect("a valid timeout");
        }
        client
            .send_to(b"?", "10.96.0.53:53")
            .expect("the datagram is sent");
        let mut buffer = [0; 8];
        let (_, from) = server.recv_from(&mut buffer).expect("the datagram arrives");
        server.send_to(b"!", from).expect("the datagram is sent");
        let (_, from) = client.recv_from(&mut buffer).expect("an answer arrives");
        assert_eq!(from.to_string(), "10.96.0.53:53");
    });
}

fn addresses_without_endpoints_are_rejected_or_dropped(rules: Rules) {
    node().run(|| {
        let all = TcpListener::bind("[::]:80").expect("the port is free");
        let without_local = "10.96.200.30:80";
        let unallocated = ["10.96.200.77:80", "[fd00:96::8077]:80"];
        for to in unallocated.into_iter().chain([without_local]) {
            assert!(
                connect(to, TIMEOUT).is_ok(),
                "{to} is answered without rules"
            );
        }
        program(rules);
        let refused = Err(ErrorKind::ConnectionRefused);
        let dropped = Err(ErrorKind::TimedOut);
        assert_eq!(connect("10.96.0.20:80", TIMEOUT).map(drop), refused);
        assert_eq!(connect(without_local, SHORT_TIMEOUT).map(drop), dropped);
        // Mode iptables has rules only for the ports of Services.
        let (undefined, unserved) = match rules {
            Rules::Nftables => (refused, dropped),
            Rules::Iptables(_) | Rules::IptablesNetlink | Rules::Ipvs => (dropped, Ok(())),
        };
        for to in ["10.96.0.10:81", "[fd00:96::10]:81"] {
            assert_eq!(connect(to, REJECT_TIMEOUT).map(drop), undefined, "{to}");
        }
        for to in unallocated {
            assert_eq!(connect(to, SHORT_TIMEOUT).map(drop), unserved, "{to}");
        }
        drop(all);
    });
}
