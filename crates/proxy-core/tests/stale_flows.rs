//! Clients that keep their port, over endpoints that come and go.
#![cfg(all(feature = "nftables", feature = "iptables"))]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the kernel judges what was programmed"
)]

mod fixtures;

mod rules;

mod stage;

use std::io;
use std::net::UdpSocket;
use std::time::Duration;

use proxy_core::Event;
use rules::Rules;
use stage::{
    Destination::{self, ClusterIp, ExternalIp, LoadBalancer, NodePort},
    PORT,
    Source::{self, External, Node, Pod},
    Stage, Way, Web, config,
};
use testkit::lab::Host;
use testkit::netns::Netns;
use testkit::traffic::Protocol;

/// The Service.
const NUMBER: u16 = 1;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long it is listened for an answer that must not come.
const SILENCE: Duration = Duration::from_millis(100);

rules::tests_of_rules! {
    all {
        a_client_that_keeps_its_port_is_led_to_whoever_serves
        flows_that_are_not_stale_are_left_alone
    }
    iptables {}
}

/// A client that sends all its datagrams from one port.
struct Client {
    socket: UdpSocket,
    what: String,
}

impl Client {
    fn new(stage: &Stage, from: Source, to: Destination, family: usize) -> Self {
        let way = Way {
            family,
            protocol: Protocol::Udp,
        };
        let target = stage.ask(from, to, NUMBER, way).target;
        let any = if family == 0 { "0.0.0.0:0" } else { "[::]:0" };
        let socket = stage.host(from).netns.run(|| {
            let socket = UdpSocket::bind(any)?;
            socket.connect(target)?;
            io::Result::Ok(socket)
        });
        Self {
            socket: socket.expect("a port is free"),
            what: format!("{from:?} to {target}"),
        }
    }

    /// Sends a datagram, and returns who answers.
    fn ask(&self, patience: Duration) -> io::Result<String> {
        self.socket.set_read_timeout(Some(patience))?;
        self.socket.send(b"?")?;
        let mut buffer = [0; 256];
        let length = self.socket.recv(&mut buffer)?;
        let answer = String::from_utf8_lossy(&buffer[..length]).into_owned();
        let (server, _) = answer.split_once(' ').expect("it says its name");
        Ok(server.to_owned())
    }

    /// Forgets what was said late to former questions.
    fn drain(&self) {
        self.socket.set_nonblocking(true).expect("it is a socket");
        // A refusal is told once.
        let mut buffer = [0; 256];
        for _ in 0..64 {
            if let Err(error) = self.socket.recv(&mut buffer) {
                if error.kind() == io::ErrorKind::WouldBlock {
                    break;
                }
            }
        }
        self.socket.set_nonblocking(false).expect("it is a socket");
    }
}

fn clients(stage: &Stage) -> Vec<Client> {
    let ways = [
        (External, ClusterIp),
        (External, NodePort),
        (External, LoadBalancer),
        (External, ExternalIp),
        (Pod, ClusterIp),
        (Pod, NodePort),
        (Node, ClusterIp),
    ];
    let both = |(from, to)| [0, 1].map(|family| Client::new(stage, from, to, family));
    ways.into_iter().flat_map(both).collect()
}

/// Returns the events of the Service with these endpoints.
fn served_by<'a>(hosts: impl IntoIterator<Item = (&'a Host, &'static str)>) -> Vec<Event> {
    Web::new(NUMBER, hosts).events()
}

fn a_client_that_keeps_its_port_is_led_to_whoever_serves(rules: Rules) {
    let mut stage = Stage::new(rules, config(rules));
    let clients = clients(&stage);
    // Before the Service they go wherever routes lead, and are tracked.
    for client in &clients {
        let _ = client.ask(SILENCE);
        let _ = client.ask(SILENCE);
    }
    for serving in [
        &["near"][..],
        &["far"],
        &["near"],
        &[],
        &["far"],
        &[],
        &["near"],
    ] {
        let events = served_by(serving.iter().map(|name| match *name {
            "near" => stage.near(),
            _ => stage.far(),
        }));
        let expected = serving.first().map(|name| match *name {
            "near" => stage.near().0.name.clone(),
            _ => stage.far().0.name.clone(),
        });
        stage.sync(events);
        for client in &clients {
            client.drain();
            let what = &client.what;
            match &expected {
                Some(name) => {
                    let answer = client.ask(PATIENCE);
                    assert_eq!(answer.as_ref().ok(), Some(name), "{what}: {answer:?}");
                }
                None => {
                    let answer = client.ask(SILENCE);
                    assert!(answer.is_err(), "{what}: {answer:?}");
                }
            }
        }
    }
}

fn flows_that_are_not_stale_are_left_alone(rules: Rules) {
    let mut stage = Stage::new(rules, config(rules));
    let both = served_by([stage.near(), stage.far()]);
    stage.sync(both);
    let clients = clients(&stage);
    let ask = |client: &Client| {
        let answer = client.ask(PATIENCE);
        answer.unwrap_or_else(|error| panic!("{}: {error}", client.what))
    };
    let first: Vec<_> = clients.iter().map(ask).collect();
    let ids = flows(&stage.lab.node.netns);
    assert!(ids.len() >= clients.len(), "{ids:?}");
    // Another Service comes; nobody has to change places.
    stage.sync(Web::new(2, [stage.near()]).events());
    let again: Vec<_> = clients.iter().map(ask).collect();
    assert_eq!(again, first);
    assert_eq!(flows(&stage.lab.node.netns), ids);
}

/// Returns the numbers of the flows of UDP that have to do with the Service.
fn flows(netns: &Netns) -> Vec<u32> {
    use vipline_conntrack::{Client, Dump, Filter, Protocol};

    netns.run(|| {
        let filter = Filter::new().protocol(Protocol::UDP);
        let flows = Client::open().and_then(|mut client| client.flows(&filter));
        let (Dump::Complete(flows) | Dump::Interrupted(flows)) = flows.expect("the kernel tells");
        let ports = [PORT, stage::node_port(NUMBER)];
        let own = flows.iter().filter(|flow| {
            let port = flow.original.destination_port();
            port.is_some_and(|port| ports.contains(&port))
        });
        let mut ids: Vec<_> = own.filter_map(|flow| flow.id).collect();
        ids.sort_unstable();
        ids
    })
}
