//! Clients that keep their port, over endpoints that come and go.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::process::Command;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use std::{env, io};

use proxy_core::Event;
use testkit::lab::Host;
use testkit::netns::Netns;
use testkit::traffic::{Conversation, Protocol};
use vipline_conntrack::Flow;

use crate::rules::Rules;
use crate::stage::{
    self,
    Destination::{self, ClusterIp, ExternalIp, LoadBalancer, NodePort},
    PORT,
    Source::{self, External, Node, Pod},
    Stage, TARGET, Way, Web, config,
};

/// The Service.
const NUMBER: u16 = 1;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long it is listened for an answer that must not come.
const SILENCE: Duration = Duration::from_millis(100);

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

/// Returns for how long endpoints come and go at least: who looks closer says it
/// in `CHURN_SECONDS`.
fn churn(rules: Rules) -> Duration {
    let usual = match rules {
        Rules::Nftables => 10,
        Rules::Iptables(_) | Rules::Ipvs => 2,
    };
    let asked = env::var("CHURN_SECONDS").map(|text| text.parse().expect("a number"));
    Duration::from_secs(asked.unwrap_or(usual))
}

/// Returns the events of the Service with these endpoints.
fn served_by<'a>(hosts: impl IntoIterator<Item = (&'a Host, &'static str)>) -> Vec<Event> {
    Web::new(NUMBER, hosts).events()
}

pub(crate) fn a_client_that_keeps_its_port_is_led_to_whoever_serves(rules: Rules) {
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

pub(crate) fn flows_that_are_not_stale_are_left_alone(rules: Rules) {
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

pub(crate) fn flows_stay_with_an_endpoint_while_it_serves_on_its_way_out(rules: Rules) {
    let mut stage = Stage::new(rules, config(rules));
    let near = served_by([stage.near()]);
    stage.sync(near);
    let clients = clients(&stage);
    let (near, far) = (stage.near().0.name.clone(), stage.far().0.name.clone());
    let who = |clients: &[Client], name: &String| {
        for client in clients {
            let answer = client.ask(PATIENCE);
            assert_eq!(
                answer.as_ref().ok(),
                Some(name),
                "{}: {answer:?}",
                client.what
            );
        }
    };
    who(&clients, &near);
    let both = Web::new(NUMBER, [stage.near(), stage.far()]).leaving(stage.near().0);
    stage.sync(both.events());
    who(&clients, &near);
    who(&self::clients(&stage), &far);
    who(&clients, &near);
    let far_alone = served_by([stage.far()]);
    stage.sync(far_alone);
    who(&clients, &far);
}

pub(crate) fn every_question_is_answered_while_endpoints_come_and_go(rules: Rules) {
    let mut stage = Stage::new(rules, config(rules));
    let clients = clients(&stage);
    let (rush, churn) = (&Rush::of(clients.len()), churn(rules));
    rush.change(&mut stage, [true, false]);
    thread::scope(|scope| {
        let clients = clients.iter().enumerate();
        let threads: Vec<_> = clients
            .map(|(index, client)| scope.spawn(move || rush.ask(index, client)))
            .collect();
        let start = Instant::now();
        let rounds = [[false, true], [true, true], [false, true], [true, false]];
        let mut changes = 0;
        while changes < 2 * rounds.len() || start.elapsed() < churn {
            rush.change(&mut stage, rounds[changes % rounds.len()]);
            changes += 1;
            let before = rush.asked();
            let has_asked = |(now, before)| now > before + 1;
            // None waits for an answer longer than its patience.
            while !rush.asked().into_iter().zip(&before).all(has_asked) {
                if rush.is_over.load(Ordering::Relaxed) {
                    break;
                }
                thread::sleep(Duration::from_millis(1));
            }
        }
        rush.is_over.store(true, Ordering::Relaxed);
        for thread in threads {
            let done = thread.join().expect("clients do not panic");
            done.unwrap_or_else(|error| panic!("after {changes} changes: {error}"));
        }
    });
}

/// Clients that ask all the time, but not during a change, so that each question
/// has to be answered.
struct Rush {
    /// The names of the endpoints, kept from changing by who asks.
    serving: RwLock<BTreeSet<String>>,
    /// How often each client was answered.
    asked: Vec<AtomicUsize>,
    /// Whether nobody is to ask any more, as after a failure.
    is_over: AtomicBool,
}

impl Rush {
    fn of(clients: usize) -> Self {
        Self {
            serving: RwLock::default(),
            asked: (0..clients).map(|_| AtomicUsize::new(0)).collect(),
            is_over: AtomicBool::new(false),
        }
    }

    /// Lets the endpoint on the node serve or not, and that of the other node.
    fn change(&self, stage: &mut Stage, is_serving: [bool; 2]) {
        let hosts = [stage.near(), stage.far()].into_iter().zip(is_serving);
        let hosts = hosts.filter(|(_, is_serving)| *is_serving);
        let hosts: Vec<_> = hosts.map(|(host, _)| host).collect();
        let names = hosts.iter().map(|(host, _)| host.name.clone()).collect();
        let events = served_by(hosts);
        let mut serving = self.serving.write().expect("clients do not panic");
        stage.sync(events);
        *serving = names;
    }

    fn asked(&self) -> Vec<usize> {
        let asked = self.asked.iter();
        asked.map(|asked| asked.load(Ordering::Relaxed)).collect()
    }

    /// Asks until it is over, or until an answer is missing or wrong.
    fn ask(&self, index: usize, client: &Client) -> Result<(), String> {
        while !self.is_over.load(Ordering::Relaxed) {
            let serving = self.serving.read().expect("changes do not panic");
            let answer = client.ask(PATIENCE);
            if !answer.as_ref().is_ok_and(|name| serving.contains(name)) {
                self.is_over.store(true, Ordering::Relaxed);
                return Err(format!("{}: {answer:?} of {serving:?}", client.what));
            }
            self.asked[index].fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

pub(crate) fn attempts_to_connect_go_elsewhere_and_connections_stay(rules: Rules) {
    let mut stage = Stage::new(rules, config(rules));
    mute(&stage.near().0.netns);
    let near = served_by([stage.near()]);
    let far = served_by([stage.far()]);
    stage.sync(near.clone());
    let ways = [
        (External, ClusterIp),
        (External, NodePort),
        (External, ExternalIp),
        (Pod, ClusterIp),
        (Node, ClusterIp),
    ];
    let both = |(from, to)| [0, 1].map(|family| (from, to, family));
    let attempts: Vec<_> = ways
        .into_iter()
        .flat_map(both)
        .map(|(from, to, family)| {
            let way = Way {
                family,
                protocol: Protocol::Tcp,
            };
            let ask = stage.ask(from, to, NUMBER, way).patience(3 * PATIENCE);
            let netns = stage.host(from).netns.path();
            let what = format!("{from:?} to {}", ask.target);
            thread::spawn(move || {
                let opened = Netns::open(netns).and_then(|netns| Conversation::open(&netns, ask));
                opened.map_err(|error| format!("{what}: {error}"))
            })
        })
        .collect();
    let node = &stage.lab.node.netns;
    let deadline = Instant::now() + PATIENCE;
    while unanswered(node) < attempts.len() {
        assert!(Instant::now() < deadline, "{} ask", unanswered(node));
        thread::sleep(Duration::from_millis(5));
    }
    stage.sync(far);
    let name = stage.far().0.name.clone();
    let opened = attempts.into_iter().map(|attempt| {
        let opened = attempt.join().expect("it does not panic");
        opened.unwrap_or_else(|error| panic!("{error}"))
    });
    let mut opened: Vec<_> = opened.collect();
    // They stay with an endpoint that is gone, and only they do.
    stage.sync(near);
    for conversation in &mut opened {
        assert_eq!(conversation.server(), name);
        conversation.say("still there?").expect("it is");
    }
}

/// Has whoever connects to an endpoint wait for an answer.
fn mute(netns: &Netns) {
    let script = format!(
        "add table inet mute; add chain inet mute input {{ type filter hook input priority 0; }}; \
         add rule inet mute input tcp dport {TARGET} drop"
    );
    let status = netns.run(|| Command::new("nft").arg(script).status());
    assert!(status.expect("nft is installed").success());
}

/// Returns how many attempts to connect to the Service nobody has answered.
fn unanswered(netns: &Netns) -> usize {
    use vipline_conntrack::{Protocol, Status};

    let flows = flows_of(netns, Protocol::TCP).into_iter();
    flows
        .filter(|flow| !flow.status.contains(Status::SEEN_REPLY))
        .count()
}

/// Returns the numbers of the flows of UDP that have to do with the Service.
fn flows(netns: &Netns) -> Vec<u32> {
    let flows = flows_of(netns, vipline_conntrack::Protocol::UDP);
    let mut ids: Vec<_> = flows.iter().filter_map(|flow| flow.id).collect();
    ids.sort_unstable();
    ids
}

/// Returns the flows of a protocol that have to do with the Service.
fn flows_of(netns: &Netns, protocol: vipline_conntrack::Protocol) -> Vec<Flow> {
    use vipline_conntrack::{Client, Dump, Filter};

    netns.run(|| {
        let filter = Filter::new().protocol(protocol);
        let flows = Client::open().and_then(|mut client| client.flows(&filter));
        let (Dump::Complete(flows) | Dump::Interrupted(flows)) = flows.expect("the kernel tells");
        let ports = [PORT, stage::node_port(NUMBER)];
        let own = flows.into_iter().filter(|flow| {
            let port = flow.original.destination_port();
            port.is_some_and(|port| ports.contains(&port))
        });
        own.collect()
    })
}
