//! Decisions about packets.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use vipline_ipvs::{Connections, Flags, RealServer, Scheduler, ServiceKey, Table, Transport};

use super::{Balancer, Decision, History, Packet, Real, Servers, Settings, TemplateKey, Unknown};

fn end(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Returns the table of commands of `ipvsadm`.
fn table(text: &str) -> Table {
    text.parse().unwrap()
}

fn packet(destination: &str) -> Packet {
    Packet::new(Transport::Tcp, end("10.1.0.9:40000"), end(destination))
}

/// Returns the addresses and weights that can receive a packet, or the other decision.
fn decide(balancer: &Balancer, packet: &Packet, history: &dyn History) -> String {
    match balancer.decide(packet, history) {
        Err(error) => error.to_string(),
        Ok(Decision::Accepted) => "accepted".to_owned(),
        Ok(Decision::Rejected(_)) => "rejected".to_owned(),
        Ok(Decision::Dropped) => "dropped".to_owned(),
        Ok(Decision::Forwarded { servers, .. }) => match servers {
            Servers::Shares(shares) => {
                let shares = shares.iter();
                let shares = shares.map(|(it, weight)| format!("{} {weight}", it.address));
                shares.collect::<Vec<_>>().join(", ")
            }
            Servers::Possible(targets) => {
                let targets = targets.iter().map(|it| it.address.to_string());
                format!("one of {}", targets.collect::<Vec<_>>().join(", "))
            }
        },
    }
}

fn of(text: &str, destination: &str) -> String {
    decide(
        &Balancer::from(&table(text)),
        &packet(destination),
        &Unknown,
    )
}

#[test]
fn marks_precede_ports_and_ports_precede_ftp_and_port_zero() {
    let text = "-A -t 10.0.0.1:80 -s rr\n-a -t 10.0.0.1:80 -r 10.2.0.1:8080 -m\n\
                -A -t 10.0.0.1:21 -s rr -p 300\n-a -t 10.0.0.1:21 -r 10.2.0.2:21 -m\n\
                -A -t 10.0.0.1:0 -s rr -p 300\n-a -t 10.0.0.1:0 -r 10.2.0.3:0 -m\n\
                -A -f 7 -s rr\n-a -f 7 -r 10.2.0.4:9 -m\n";
    let balancer = Balancer::from(&table(text));
    let none = BTreeMap::<TemplateKey, SocketAddr>::new();
    for (packet, expected) in [
        (packet("10.0.0.1:80"), "10.2.0.1:8080 1"),
        (packet("10.0.0.1:80").with_mark(7), "10.2.0.4:9 1"),
        (packet("10.0.0.1:80").with_mark(8), "10.2.0.1:8080 1"),
        (packet("10.0.0.1:21"), "10.2.0.2:21 1"),
        // A data connection of FTP keeps its port.
        (packet("10.0.0.1:5000"), "10.2.0.2:5000 1"),
        (packet("10.0.0.1:443"), "10.2.0.3:443 1"),
        (packet("10.0.0.2:80"), "accepted"),
        (packet("10.0.0.1:80").opening(false), "accepted"),
    ] {
        assert_eq!(decide(&balancer, &packet, &none), expected, "{packet:?}");
    }
}

#[test]
fn weights_are_shares_and_zero_receives_nothing() {
    let text = |scheduler: &str| {
        format!(
            "-A -t 10.0.0.1:80 -s {scheduler}\n-a -t 10.0.0.1:80 -r 10.2.0.1:80 -m -w 1\n\
             -a -t 10.0.0.1:80 -r 10.2.0.2:80 -m -w 3\n-a -t 10.0.0.1:80 -r 10.2.0.3:80 -m -w 0\n"
        )
    };
    let of = |scheduler| of(&text(scheduler), "10.0.0.1:80");
    assert_eq!(of("rr"), "10.2.0.1:80 1, 10.2.0.2:80 1");
    assert_eq!(of("wrr"), "10.2.0.1:80 1, 10.2.0.2:80 3");
    assert_eq!(of("fo"), "10.2.0.2:80 1");
    for scheduler in ["lc", "wlc", "sed", "nq", "ovf", "twos", "lblc", "lblcr"] {
        assert_eq!(
            of(scheduler),
            "one of 10.2.0.1:80, 10.2.0.2:80",
            "{scheduler}"
        );
    }
    let empty = "-A -t 10.0.0.1:80 -s rr\n";
    let drained = "-A -t 10.0.0.1:80 -s rr\n-a -t 10.0.0.1:80 -r 10.2.0.1:80 -m -w 0\n";
    for text in [empty, drained] {
        assert_eq!(super::tests::of(text, "10.0.0.1:80"), "rejected");
    }
}

/// Returns a table with real servers of weights and active and inactive connections.
fn counted(scheduler: Scheduler, reals: &[(u32, u32, u32)]) -> Balancer {
    let service = ServiceKey::new(Transport::Tcp, "10.0.0.1".parse().unwrap(), 80);
    let real = |(at, (weight, active, inactive)): (u8, &(u32, u32, u32))| Real {
        server: RealServer::new([10, 2, 0, at].into(), 80).with_weight(*weight),
        connections: Some(Connections {
            active: *active,
            inactive: *inactive,
            persistent: 0,
        }),
    };
    let mut balancer = Balancer::new();
    let server = vipline_ipvs::VirtualServer::new(service, scheduler);
    balancer.add(server, (1..).zip(reals).map(real));
    balancer
}

#[test]
fn connections_select_the_server() {
    use Scheduler::{
        LeastConnections, NeverQueue, Overflow, PowerOfTwo, ShortestDelay, WeightedLeastConnections,
    };
    let loads = [(1, 2, 0), (4, 3, 0), (2, 2, 1)];
    let table = [
        (LeastConnections, "10.2.0.1:80 1"),
        (WeightedLeastConnections, "10.2.0.2:80 1"),
        (ShortestDelay, "10.2.0.2:80 1"),
        (NeverQueue, "10.2.0.2:80 1"),
        (Overflow, "10.2.0.2:80 1"),
    ];
    let packet = packet("10.0.0.1:80");
    for (scheduler, expected) in table {
        let balancer = counted(scheduler, &loads);
        assert_eq!(
            decide(&balancer, &packet, &Unknown),
            expected,
            "{scheduler:?}"
        );
    }
    let idle = counted(NeverQueue, &[(9, 1, 0), (1, 0, 5)]);
    assert_eq!(decide(&idle, &packet, &Unknown), "10.2.0.2:80 1");
    let full = counted(Overflow, &[(2, 2, 0), (1, 1, 0)]);
    assert_eq!(decide(&full, &packet, &Unknown), "rejected");
    // Of 16 pairs of random numbers, only two equal ones select the loaded server.
    let two = counted(PowerOfTwo, &[(1, 5, 0), (2, 0, 0)]);
    assert_eq!(
        decide(&two, &packet, &Unknown),
        "10.2.0.1:80 4, 10.2.0.2:80 12"
    );
}

#[test]
fn thresholds_need_connection_counts() {
    let text = "-A -t 10.0.0.1:80 -s rr\n-a -t 10.0.0.1:80 -r 10.2.0.1:80 -m -x 4 -y 2\n";
    assert_eq!(
        of(text, "10.0.0.1:80"),
        "service -t 10.0.0.1:80: unknown: connections of a real server with thresholds"
    );
    let with = |active, lower_threshold| {
        let mut balancer = Balancer::new();
        let service = ServiceKey::new(Transport::Tcp, "10.0.0.1".parse().unwrap(), 80);
        let connections = Some(Connections {
            active,
            ..Connections::default()
        });
        let server = RealServer::new([10, 2, 0, 1].into(), 80)
            .with_upper_threshold(4)
            .with_lower_threshold(lower_threshold);
        let real = Real {
            server,
            connections,
        };
        let server = vipline_ipvs::VirtualServer::new(service, Scheduler::RoundRobin);
        balancer.add(server, [real]);
        decide(&balancer, &packet("10.0.0.1:80"), &Unknown)
    };
    assert_eq!(with(4, 2), "rejected");
    assert_eq!(with(1, 2), "10.2.0.1:80 1");
    assert!(with(3, 2).ends_with("whether a real server is still overloaded"));
    assert_eq!(with(2, 0), "10.2.0.1:80 1");
    assert!(with(3, 0).ends_with("still overloaded"));
}

#[test]
fn keys_are_read_from_the_connection_table() {
    let key = |line: &str| TemplateKey::of(&line.parse().unwrap());
    let client = "192.0.2.1".parse().unwrap();
    let of_port = TemplateKey {
        client,
        protocol: 17,
        address: Some("10.0.0.1".parse().unwrap()),
        mark: 0,
        port: 80,
    };
    for state in ["NONE   ", "ASSURED"] {
        let line = format!("UDP C0000201 0000 0A000001 0050 0A010005 1F90 {state}         359");
        assert_eq!(key(&line), Some(of_port));
    }
    let of_mark = TemplateKey {
        protocol: 0,
        address: None,
        mark: 7,
        port: 0,
        ..of_port
    };
    let line = "IP  C0000201 0000 00000007 0000 0A010005 0000 NONE            359";
    assert_eq!(key(line), Some(of_mark));
    let line = "IP  fd00::1 0000 0000:0007:: 0000 fd00::5 0000 NONE            359";
    let client = "fd00::1".parse().unwrap();
    assert_eq!(key(line), Some(TemplateKey { client, ..of_mark }));
    for other in [
        "TCP C0000201 D2F0 0A000001 0050 0A010005 1F90 NONE            889",
        "TCP C0000201 0000 0A000001 0050 0A010005 1F90 ESTABLISHED     889",
        "UDP C0000201 0000 0A000001 13C4 0A010005 13C4 NONE            359 sip 8cb2",
        "GRE C0000201 0000 0A000001 13C4 0A010005 13C4 NONE            359",
    ] {
        assert_eq!(key(other), None, "{other}");
    }
}

#[test]
fn templates_keep_clients_at_their_server() {
    let text = "-A -t 10.0.0.1:80 -s rr -p 300 -M 255.255.255.0\n\
                -a -t 10.0.0.1:80 -r 10.2.0.1:80 -m -w 0\n-a -t 10.0.0.1:80 -r 10.2.0.2:80 -m\n";
    let balancer = Balancer::from(&table(text));
    let first = packet("10.0.0.1:80");
    let unknown = decide(&balancer, &first, &Unknown);
    assert_eq!(unknown, "one of 10.2.0.1:80, 10.2.0.2:80");
    let key = TemplateKey {
        client: "10.1.0.0".parse().unwrap(),
        protocol: 6,
        address: Some("10.0.0.1".parse().unwrap()),
        mark: 0,
        port: 80,
    };
    let mut templates = BTreeMap::new();
    assert_eq!(decide(&balancer, &first, &templates), "10.2.0.2:80 1");
    // The client stays at a real server of weight 0.
    templates.insert(key, end("10.2.0.1:80"));
    assert_eq!(decide(&balancer, &first, &templates), "10.2.0.1:80 1");
    let settings = Settings {
        expire_quiescent_template: true,
        ..Settings::default()
    };
    let strict = balancer.clone().with_settings(settings);
    assert_eq!(decide(&strict, &first, &templates), "10.2.0.2:80 1");
    // A removed real server has no clients.
    templates.insert(key, end("10.2.0.9:80"));
    assert_eq!(decide(&balancer, &first, &templates), "10.2.0.2:80 1");
    // A client without a template never gets a real server of weight 0.
    for scheduler in ["lc", "sh"] {
        let unknown = Balancer::from(&table(&text.replace("rr", scheduler)));
        let new = decide(&unknown, &first, &BTreeMap::new());
        assert_eq!(new, "one of 10.2.0.2:80", "{scheduler}");
    }
    let known = first.with_connection(end("10.2.0.1:80"));
    assert_eq!(decide(&balancer, &known, &Unknown), "10.2.0.1:80 1");
    let removed = first.with_connection(end("10.2.0.9:80"));
    assert_eq!(decide(&balancer, &removed, &Unknown), "dropped");
}

#[test]
fn hashes_select_one_server_and_fall_back_only_if_configured() {
    let service = ServiceKey::new(Transport::Tcp, "10.0.0.1".parse().unwrap(), 80);
    let select = |scheduler, flags, weights: [u32; 2], source: &str| {
        let real = |(at, weight)| {
            Real::from(RealServer::new([10, 2, 0, at].into(), 80).with_weight(weight))
        };
        let server = vipline_ipvs::VirtualServer::new(service, scheduler).with_flags(flags);
        let mut balancer = Balancer::new();
        balancer.add(server, (1..).zip(weights).map(real));
        let packet = Packet::new(Transport::Tcp, end(source), end("10.0.0.1:80"));
        decide(&balancer, &packet, &Unknown)
    };
    let none = Flags::empty();
    for scheduler in [Scheduler::SourceHash, Scheduler::Maglev] {
        let of = |flags, source: &str| select(scheduler, flags, [1, 1], source);
        let first = of(none, "10.1.0.9:1");
        assert!((100..150).all(|port| of(none, &format!("10.1.0.9:{port}")) == first));
        let ports = Flags::SCHEDULER_2;
        assert!(
            (100..150)
                .any(|port| of(ports, &format!("10.1.0.9:{port}")) != of(ports, "10.1.0.9:1"))
        );
    }
    let results: Vec<String> = (1..50)
        .map(|host| {
            select(
                Scheduler::SourceHash,
                none,
                [0, 1],
                &format!("10.1.0.{host}:1"),
            )
        })
        .collect();
    assert!(results.contains(&"rejected".to_owned()));
    assert!(results.contains(&"10.2.0.2:80 1".to_owned()));
    let fallback = (1..50).map(|host| {
        let source = format!("10.1.0.{host}:1");
        select(Scheduler::SourceHash, Flags::SH_FALLBACK, [0, 1], &source)
    });
    assert!(fallback.into_iter().all(|it| it == "10.2.0.2:80 1"));
    // The order of a planned table is unknown.
    let planned = "-A -t 10.0.0.1:80 -s sh\n-a -t 10.0.0.1:80 -r 10.2.0.1:80 -m\n\
                   -a -t 10.0.0.1:80 -r 10.2.0.2:80 -m\n";
    assert_eq!(
        of(planned, "10.0.0.1:80"),
        "one of 10.2.0.1:80, 10.2.0.2:80"
    );
}
