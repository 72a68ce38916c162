//! Clients with a fixed source port while endpoints change.
#![allow(dead_code, reason = "each test binary uses a part of it")]

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
use testkit::traffic::{Connection, Protocol, receive};
use vipline_conntrack::Flow;

use crate::rules::Rules;
use crate::stage::{
    self,
    Destination::{self, ClusterIp, ExternalIp, LoadBalancer, NodePort},
    PORT,
    Source::{self, External, Node, Pod},
    Stage, TARGET, Way, Web, config,
};

/// Number of the Service.
const NUMBER: u16 = 1;
/// Timeout for expected answers.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Time without an answer after which a request counts as unanswered.
const SILENCE: Duration = Duration::from_millis(100);

/// A UDP client with a fixed source port.
struct Client {
    socket: UdpSocket,
    label: String,
}

impl Client {
    fn new(stage: &Stage, from: Source, to: Destination, family: usize) -> Self {
        let way = Way {
            family,
            protocol: Protocol::Udp,
        };
        let target = stage.probe(from, to, NUMBER, way).target;
        let any = if family == 0 { "0.0.0.0:0" } else { "[::]:0" };
        let socket = stage.host(from).netns.run(|| {
            let socket = UdpSocket::bind(any)?;
            socket.connect(target)?;
            io::Result::Ok(socket)
        });
        Self {
            socket: socket.expect("a port is free"),
            label: format!("{from:?} to {target}"),
        }
    }

    /// Sends a datagram and returns the name of the server that answers.
    fn probe(&self, timeout: Duration) -> io::Result<String> {
        self.socket.set_read_timeout(Some(timeout))?;
        self.socket.send(b"?")?;
        let mut buffer = [0; 256];
        let length = receive(&self.socket, &mut buffer)?;
        let answer = String::from_utf8_lossy(&buffer[..length]).into_owned();
        let (server, _) = answer
            .split_once(' ')
            .expect("an answer starts with the name of the server");
        Ok(server.to_owned())
    }

    /// Discards late answers to earlier requests.
    fn drain(&self) {
        self.socket
            .set_nonblocking(true)
            .expect("the socket is open");
        // The socket reports a rejection once.
        let mut buffer = [0; 256];
        for _ in 0..64 {
            if let Err(error) = self.socket.recv(&mut buffer)
                && error.kind() == io::ErrorKind::WouldBlock
            {
                break;
            }
        }
        self.socket
            .set_nonblocking(false)
            .expect("the socket is open");
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

/// Returns the minimum duration of endpoint changes in seconds. Environment variable
/// `CHURN_SECONDS` overrides the default.
fn change_duration(rules: Rules) -> Duration {
    let default = match rules {
        Rules::Nftables => 4,
        Rules::Iptables(_) | Rules::IptablesNetlink | Rules::Ipvs => 2,
    };
    let asked = env::var("CHURN_SECONDS").map(|text| text.parse().expect("a number"));
    Duration::from_secs(asked.unwrap_or(default))
}

/// Returns the events of the Service with these endpoints.
fn served_by<'a>(hosts: impl IntoIterator<Item = (&'a Host, &'static str)>) -> Vec<Event> {
    Web::new(NUMBER, hosts).events()
}

pub(crate) fn a_client_with_a_fixed_port_reaches_the_current_endpoint(rules: Rules) {
    let mut stage = Stage::new(rules, config(rules));
    let clients = clients(&stage);
    // Before the Service exists, requests follow the routes and are tracked.
    for client in &clients {
        let _ = client.probe(SILENCE);
        let _ = client.probe(SILENCE);
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
            let label = &client.label;
            match &expected {
                Some(name) => {
                    let answer = client.probe(TIMEOUT);
                    assert_eq!(answer.as_ref().ok(), Some(name), "{label}: {answer:?}");
                }
                None => {
                    let answer = client.probe(SILENCE);
                    assert!(answer.is_err(), "{label}: {answer:?}");
                }
            }
        }
    }
}

pub(crate) fn flows_that_are_not_stale_are_kept(rules: Rules) {
    let mut stage = Stage::new(rules, config(rules));
    let both = served_by([stage.near(), stage.far()]);
    stage.sync(both);
    let clients = clients(&stage);
    let probe = |client: &Client| {
        let answer = client.probe(TIMEOUT);
        answer.unwrap_or_else(|error| panic!("{}: {error}", client.label))
    };
    let first: Vec<_> = clients.iter().map(probe).collect();
    let ids = flows(&stage.lab.node.netns);
    assert!(ids.len() >= clients.len(), "{ids:?}");
    // A second Service does not affect existing flows.
    stage.sync(Web::new(2, [stage.near()]).events());
    let again: Vec<_> = clients.iter().map(probe).collect();
    assert_eq!(again, first);
    assert_eq!(flows(&stage.lab.node.netns), ids);
}

pub(crate) fn flows_stay_with_an_endpoint_that_is_serving_and_terminating(rules: Rules) {
    let mut stage = Stage::new(rules, config(rules));
    let near = served_by([stage.near()]);
    stage.sync(near);
    let clients = clients(&stage);
    let (near, far) = (stage.near().0.name.clone(), stage.far().0.name.clone());
    let assert_served_by = |clients: &[Client], name: &String| {
        for client in clients {
            let answer = client.probe(TIMEOUT);
            assert_eq!(
                answer.as_ref().ok(),
                Some(name),
                "{}: {answer:?}",
                client.label
            );
        }
    };
    assert_served_by(&clients, &near);
    let both = Web::new(NUMBER, [stage.near(), stage.far()]).leaving(stage.near().0);
    stage.sync(both.events());
    assert_served_by(&clients, &near);
    assert_served_by(&self::clients(&stage), &far);
    assert_served_by(&clients, &near);
    let far_alone = served_by([stage.far()]);
    stage.sync(far_alone);
    assert_served_by(&clients, &far);
}

pub(crate) fn every_request_is_answered_while_endpoints_change(rules: Rules) {
    let mut stage = Stage::new(rules, config(rules));
    let clients = clients(&stage);
    let (load, change_duration) = (&ClientLoad::new(clients.len()), change_duration(rules));
    load.change(&mut stage, [true, false]);
    thread::scope(|scope| {
        let clients = clients.iter().enumerate();
        let threads: Vec<_> = clients
            .map(|(index, client)| scope.spawn(move || load.probe(index, client)))
            .collect();
        let start = Instant::now();
        let rounds = [[false, true], [true, true], [false, true], [true, false]];
        let mut changes = 0;
        while changes < 2 * rounds.len() || start.elapsed() < change_duration {
            load.change(&mut stage, rounds[changes % rounds.len()]);
            changes += 1;
            let before = load.requests();
            let has_progress = |(now, before)| now > before + 1;
            // No client waits for an answer longer than its timeout.
            while !load.requests().into_iter().zip(&before).all(has_progress) {
                if load.is_stopped.load(Ordering::Relaxed) {
                    break;
                }
                thread::sleep(Duration::from_millis(1));
            }
        }
        load.is_stopped.store(true, Ordering::Relaxed);
        for thread in threads {
            let done = thread.join().expect("clients do not panic");
            done.unwrap_or_else(|error| panic!("after {changes} changes: {error}"));
        }
    });
}

/// Clients that send requests continuously, except during a change, so each request
/// must be answered.
struct ClientLoad {
    /// Names of the current endpoints. Clients hold the read lock during a request.
    serving: RwLock<BTreeSet<String>>,
    /// Number of answers of each client.
    asked: Vec<AtomicUsize>,
    /// Whether the clients must stop.
    is_stopped: AtomicBool,
}

impl ClientLoad {
    fn new(clients: usize) -> Self {
        Self {
            serving: RwLock::default(),
            asked: (0..clients).map(|_| AtomicUsize::new(0)).collect(),
            is_stopped: AtomicBool::new(false),
        }
    }

    /// Adds or removes the endpoint on the node and the endpoint on the other node.
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

    fn requests(&self) -> Vec<usize> {
        let asked = self.asked.iter();
        asked.map(|asked| asked.load(Ordering::Relaxed)).collect()
    }

    /// Sends requests until the load is stopped, or an answer is missing or wrong.
    fn probe(&self, index: usize, client: &Client) -> Result<(), String> {
        while !self.is_stopped.load(Ordering::Relaxed) {
            let serving = self.serving.read().expect("changes do not panic");
            let answer = client.probe(TIMEOUT);
            if !answer.as_ref().is_ok_and(|name| serving.contains(name)) {
                self.is_stopped.store(true, Ordering::Relaxed);
                return Err(format!("{}: {answer:?} of {serving:?}", client.label));
            }
            self.asked[index].fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

pub(crate) fn attempts_to_connect_move_to_a_new_endpoint_and_connections_stay(rules: Rules) {
    let mut stage = Stage::new(rules, config(rules));
    drop_requests(&stage.near().0.netns);
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
            let probe = stage.probe(from, to, NUMBER, way).timeout(3 * TIMEOUT);
            let netns = stage.host(from).netns.path();
            let label = format!("{from:?} to {}", probe.target);
            thread::spawn(move || {
                let opened = Netns::open(netns).and_then(|netns| Connection::open(&netns, probe));
                opened.map_err(|error| format!("{label}: {error}"))
            })
        })
        .collect();
    let node = &stage.lab.node.netns;
    let deadline = Instant::now() + TIMEOUT;
    while unanswered(node) < attempts.len() {
        assert!(Instant::now() < deadline, "{} probe", unanswered(node));
        thread::sleep(Duration::from_millis(5));
    }
    stage.sync(far);
    let name = stage.far().0.name.clone();
    let opened = attempts.into_iter().map(|attempt| {
        let opened = attempt.join().expect("a client does not panic");
        opened.unwrap_or_else(|error| panic!("{error}"))
    });
    let mut opened: Vec<_> = opened.collect();
    // Only established connections stay with a removed endpoint.
    stage.sync(near);
    for connection in &mut opened {
        assert_eq!(connection.server(), name);
        connection.exchange("still there?").expect("an echo");
    }
}

/// Drops requests to an endpoint, so connection attempts stay unanswered.
fn drop_requests(netns: &Netns) {
    let script = format!(
        "add table inet mute; add chain inet mute input {{ type filter hook input priority 0; }}; \
         add rule inet mute input tcp dport {TARGET} drop"
    );
    let status = netns.run(|| Command::new("nft").arg(script).status());
    assert!(status.expect("nft is installed").success());
}

/// Returns the number of unanswered connection attempts to the Service.
fn unanswered(netns: &Netns) -> usize {
    use vipline_conntrack::{Protocol, Status};

    let flows = service_flows(netns, Protocol::TCP).into_iter();
    flows
        .filter(|flow| !flow.status.contains(Status::SEEN_REPLY))
        .count()
}

/// Returns the conntrack IDs of the UDP flows of the Service.
fn flows(netns: &Netns) -> Vec<u32> {
    let flows = service_flows(netns, vipline_conntrack::Protocol::UDP);
    let mut ids: Vec<_> = flows.iter().filter_map(|flow| flow.id).collect();
    ids.sort_unstable();
    ids
}

/// Returns the flows of a protocol that are addressed to the Service.
fn service_flows(netns: &Netns, protocol: vipline_conntrack::Protocol) -> Vec<Flow> {
    use vipline_conntrack::{Client, Dump, Filter};

    netns.run(|| {
        let filter = Filter::new().with_protocol(protocol);
        let flows = Client::open().and_then(|mut client| client.flows(&filter));
        let (Dump::Complete(flows) | Dump::Interrupted(flows)) = flows.expect("a dump");
        let ports = [PORT, stage::node_port(NUMBER)];
        let own = flows.into_iter().filter(|flow| {
            let port = flow.original.destination_port();
            port.is_some_and(|port| ports.contains(&port))
        });
        own.collect()
    })
}
