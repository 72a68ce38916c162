//! Sampled packets: datagrams through a programmed kernel, compared with the evaluation of
//! the rules that the kernel dumps.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use proxy_core::evaluate::{Outcome, Rules, Verdict, observed_host, read_kernel};
use proxy_core::{Family, Mode};
use testkit::lab::{self, Lab};
use testkit::traffic::{Probe, Protocol};
use vipline_evaluate::{Host, Packet};
use vipline_service_model::api;
use vipline_service_model::arbitrary::Dice;

use crate::fixtures::{NODE, OTHER_NODE};
use crate::rules;
use crate::stage::{
    Destination, OTHER_PORT, PORT, Stage, TARGET, TO_WORLD, Web, addresses, node_port,
};

/// Number of Services in a fixture.
const SERVICES: u16 = 16;

/// Time between two datagrams of one source. The kernel sends at most 1,000 errors per
/// second.
const PACE: Duration = Duration::from_millis(5);

/// Time that a datagram without an answer is waited for.
const SILENCE: Duration = Duration::from_millis(700);

/// Time limit of a connection. The client ignores an error that arrives while it still sends
/// the first packet, and retransmits after a second.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(2500);

/// Number of times that a datagram is sent if no answer arrives, although one must.
const ATTEMPTS: usize = 3;

/// An observation of a client.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Seen {
    /// A server answered: its address, and the address of the client that it saw.
    Answer(IpAddr, IpAddr),
    /// Host `world` answered.
    World,
    /// An error.
    Refused,
    /// Nothing.
    Silence,
}

/// A datagram or a connection.
#[derive(Clone, Copy, Debug)]
struct Flow {
    /// Position of the sender in [`senders`].
    from: usize,
    protocol: Protocol,
    to: SocketAddr,
}

/// Chooses the Services of a fixture.
fn services(stage: &Stage, dice: &mut Dice) -> Vec<Web> {
    let number = 1..=SERVICES;
    number.map(|number| service(stage, number, dice)).collect()
}

fn service(stage: &Stage, number: u16, dice: &mut Dice) -> Web {
    let near = stage.lab.backends.iter().map(|host| (host, NODE));
    let all: Vec<_> = near.chain([stage.far()]).collect();
    let share = dice.pick(&[0, 2, 2, 2]);
    let chosen: Vec<_> = all.into_iter().filter(|_| dice.roll(3) < share).collect();
    let mut web = Web::new(number, chosen);
    if dice.once_in(3) {
        web = web.internally_local();
    }
    if dice.once_in(2) {
        web = web.externally_local();
    }
    let ranges: [&[&str]; 4] = [
        &["192.0.2.0/24", "2001:db8::/64"],
        &["172.16.0.0/16", "10.244.1.101/32", "fd00:244::/32"],
        &["198.51.100.1/32", "2001:db8:1::1/128"],
        &["0.0.0.0/0"],
    ];
    if dice.once_in(3) {
        web = web.with_source_ranges(dice.pick(&ranges));
    }
    let conditions = |ready, serving, terminating| api::Conditions {
        ready: Some(ready),
        serving: Some(serving),
        terminating: Some(terminating),
    };
    for node in [NODE, OTHER_NODE] {
        let chosen = match dice.roll(6) {
            0 | 1 => conditions(false, true, true),
            2 => conditions(false, false, true),
            _ => continue,
        };
        web = web.conditions(node, &chosen);
    }
    if dice.once_in(4) {
        web.service.spec.session_affinity = api::Affinity::ClientIp;
    }
    web
}

/// Returns the hosts that send datagrams, each with the interface of the node that receives
/// them. The node sends its own.
fn senders(lab: &Lab) -> Vec<(&lab::Host, Option<&str>)> {
    let pods = lab.pods().map(|host| (host, Some(&*host.name)));
    let neighbor = Some(&*lab.neighbor.name);
    let others = [
        (&lab.client, Some(&*lab.client.name)),
        (&lab.neighbor, neighbor),
        (&lab.remote, neighbor),
        (&lab.node, None),
    ];
    pods.chain(others).collect()
}

/// Chooses a destination, mostly an address of a Service.
fn destination(stage: &Stage, dice: &mut Dice) -> SocketAddr {
    let family = usize::from(dice.roll(2));
    let number = 1 + u16::from(dice.roll(u8::try_from(SERVICES).expect("few Services")));
    let kinds = [
        Destination::ClusterIp,
        Destination::LoadBalancer,
        Destination::ExternalIp,
    ];
    let own = [stage.lab.node.addresses(), TO_WORLD, Lab::GATEWAYS];
    match dice.roll(16) {
        0 => (addresses(dice.pick(&kinds), number)[family], OTHER_PORT).into(),
        1 => (addresses(Destination::ClusterIp, 99)[family], PORT).into(),
        2..6 => (dice.pick(&own)[family], node_port(number)).into(),
        _ => (addresses(dice.pick(&kinds), number)[family], PORT).into(),
    }
}

/// Sends `count` datagrams in each of `fixtures` random fixtures, and compares what the
/// clients see with the evaluation of the kernel's rules. Returns the counts as a line.
pub(crate) fn compare(
    rules: rules::Rules,
    config: proxy_core::Config,
    seed: u64,
    fixtures: u64,
    count: usize,
) -> String {
    let mut stage = Stage::with_backends(3, rules, config);
    let (mut sent, mut counts) = (0, [0; 4]);
    for seed in seed..seed + fixtures {
        let mut dice = Dice::from_seed(seed);
        let services = services(&stage, &mut dice);
        stage.sync(services.into_iter().flat_map(Web::events));
        let installed = installed_rules(&stage);
        let host = stage.lab.node.netns.run(observed_host);
        let host = host.expect("the kernel lists addresses and routes");
        let senders = senders(&stage.lab);
        let flows: Vec<_> = (0..count)
            .map(|_| Flow {
                from: usize::from(dice.roll(u8::try_from(senders.len()).expect("few hosts"))),
                protocol: match dice.once_in(4) {
                    true => Protocol::Tcp,
                    false => Protocol::Udp,
                },
                to: destination(&stage, &mut dice),
            })
            .collect();
        let mut open = flows;
        sent += open.len();
        for attempt in 1..=ATTEMPTS {
            let all = send(&senders, &open);
            open.clear();
            for (flow, source, seen) in all {
                let (from, input) = senders[flow.from];
                let wanted = expected(&installed, &host, input, source, flow);
                let is_lost = seen == Seen::Silence && attempt < ATTEMPTS;
                let Flow { protocol, to, .. } = flow;
                assert!(
                    is_lost || wanted.contains(&seen),
                    "{rules:?}, SEED={seed}: {protocol} {to} --from {source} ({}): {seen:?} instead of {wanted:?}",
                    from.name
                );
                match wanted.contains(&seen) {
                    true => counts[kind(seen, source)] += 1,
                    false => open.push(flow),
                }
            }
        }
    }
    let last = seed + fixtures - 1;
    let [answered, masqueraded, refused, silent] = counts;
    assert!(counts.iter().all(|count| count * 30 > sent), "{counts:?}");
    format!(
        "{rules:?}: {sent} datagrams and connections, seeds {seed} to {last}: {answered} answered, \
         {masqueraded} answered and masqueraded, {refused} refused, {silent} without an answer; \
         0 disagreements"
    )
}

/// Returns the kind of an observation as a position in the counts.
fn kind(seen: Seen, source: SocketAddr) -> usize {
    match seen {
        Seen::Answer(_, client) if client == source.ip() => 0,
        Seen::Answer(..) | Seen::World => 1,
        Seen::Refused => 2,
        Seen::Silence => 3,
    }
}

/// Reads the rules of the node's kernel, for IPv4 and IPv6.
///
/// An engine with chosen programs of iptables cannot read rules. The state of the kernel
/// contains those of both variants.
fn installed_rules(stage: &Stage) -> [Rules; 2] {
    stage.lab.node.netns.run(|| {
        if let rules::Rules::Iptables(_) = stage.rules {
            let state = read_kernel().expect("the kernel is readable");
            return Family::ALL.map(|_| {
                let rules = Mode::Iptables.saved_rules(&state);
                let rules = rules.expect("the state is complete");
                rules.expect("the rules of the mode can be evaluated")
            });
        }
        let opened = stage.opened.lock();
        let config = &opened.expect("no test continues after a panic").config;
        Family::ALL.map(|family| {
            let rules = config.mode.installed_rules(config, family);
            let rules = rules.expect("the rules are readable");
            rules.expect("the rules of the mode can be evaluated")
        })
    })
}

/// Returns everything that a client may see.
fn expected(
    rules: &[Rules; 2],
    host: &Host,
    input: Option<&str>,
    source: SocketAddr,
    Flow { protocol, to, .. }: Flow,
) -> BTreeSet<Seen> {
    let packet = match protocol {
        Protocol::Tcp => Packet::tcp(source, to),
        Protocol::Udp => Packet::udp(source, to),
    };
    let packet = match input {
        Some(input) => packet.with_input(input),
        None => packet,
    };
    let outcomes = rules[usize::from(to.is_ipv6())].evaluate(&packet, host);
    let outcomes = outcomes.unwrap_or_else(|error| panic!("{packet}: {error}"));
    let seen = |outcome: &Outcome| match outcome.verdict {
        // A host drops packets from its own address.
        Verdict::Endpoint(to) if to.ip() == outcome.packet.source() => vec![Seen::Silence],
        Verdict::Endpoint(to) => {
            assert_eq!(to.port(), TARGET, "{packet}: {outcome}");
            vec![Seen::Answer(to.ip(), outcome.packet.source())]
        }
        // Host `world` answers datagrams from another address.
        Verdict::Forwarded => vec![match protocol {
            Protocol::Tcp => Seen::World,
            Protocol::Udp => Seen::Silence,
        }],
        // No process of the node listens.
        Verdict::Delivered => vec![Seen::Refused],
        // Both prevent a process of the node from sending.
        Verdict::Refused | Verdict::Dropped if input.is_none() => {
            vec![Seen::Refused, Seen::Silence]
        }
        Verdict::Refused => vec![Seen::Refused],
        Verdict::Dropped => vec![Seen::Silence],
        ref other => panic!("{packet}: {other}"),
    };
    outcomes.iter().flat_map(seen).collect()
}

/// Sends datagrams from new ports, and returns the source and what the client sees.
fn send(senders: &[(&lab::Host, Option<&str>)], flows: &[Flow]) -> Vec<(Flow, SocketAddr, Seen)> {
    let names: Vec<_> = senders
        .iter()
        .flat_map(|(host, _)| host.addresses().map(|address| (host.name.clone(), address)))
        .collect();
    let of_sender = |from: usize| {
        let own: Vec<_> = flows
            .iter()
            .copied()
            .filter(|flow| flow.from == from)
            .collect();
        let names = &names;
        senders[from].0.netns.run(move || exchange(&own, names))
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..senders.len())
            .map(|from| scope.spawn(move || of_sender(from)))
            .collect();
        let results = threads
            .into_iter()
            .flat_map(|it| it.join().expect("a sender"));
        results.collect()
    })
}

/// Sends datagrams and opens connections from the namespace of the calling thread, and waits
/// for all answers.
fn exchange(flows: &[Flow], names: &[(String, IpAddr)]) -> Vec<(Flow, SocketAddr, Seen)> {
    let of = |protocol| {
        flows
            .iter()
            .copied()
            .filter(move |it| it.protocol == protocol)
    };
    let datagrams: Vec<_> = of(Protocol::Udp).collect();
    let mut all = exchange_datagrams(&datagrams, names);
    thread::scope(|scope| {
        let connections = of(Protocol::Tcp).map(|flow| scope.spawn(move || connect(flow, names)));
        let connections: Vec<_> = connections.collect();
        let results = connections.into_iter().map(|it| it.join());
        all.extend(results.map(|it| it.expect("a connection")));
    });
    all
}

/// Opens a connection.
fn connect(flow: Flow, names: &[(String, IpAddr)]) -> (Flow, SocketAddr, Seen) {
    // The kernel chooses the source address of both protocols by the route.
    let source = socket(flow.to).local_addr().expect("a bound socket");
    let probe = Probe::new(Protocol::Tcp, flow.to).timeout(CONNECT_TIMEOUT);
    let seen = match probe.in_current_netns() {
        Ok(answer) => seen(&answer.server, answer.client, names),
        Err(error) if error.kind() == ErrorKind::TimedOut => Seen::Silence,
        Err(_) => Seen::Refused,
    };
    (flow, source, seen)
}

/// Sends datagrams from the namespace of the calling thread, and waits for all answers.
fn exchange_datagrams(flows: &[Flow], names: &[(String, IpAddr)]) -> Vec<(Flow, SocketAddr, Seen)> {
    let sockets: Vec<_> = flows
        .iter()
        .map(|flow| {
            let socket = socket(flow.to);
            thread::sleep(PACE);
            let sent = socket.send(b"sample");
            (socket, sent.is_err().then_some(Seen::Refused))
        })
        .collect();
    let mut seen: Vec<_> = sockets.iter().map(|(_, seen)| *seen).collect();
    let deadline = Instant::now() + SILENCE;
    while Instant::now() < deadline && seen.contains(&None) {
        for ((socket, _), seen) in sockets.iter().zip(&mut seen) {
            if seen.is_none() {
                *seen = receive(socket, names);
            }
        }
        thread::sleep(Duration::from_millis(10));
    }
    let sources = sockets
        .iter()
        .map(|(socket, _)| socket.local_addr().expect("a bound socket"));
    let seen = seen.into_iter().map(|seen| seen.unwrap_or(Seen::Silence));
    let results = flows.iter().copied().zip(sources).zip(seen);
    results
        .map(|((flow, source), seen)| (flow, source, seen))
        .collect()
}

/// Opens a socket at a port that no datagram had before.
fn socket(to: SocketAddr) -> UdpSocket {
    static NEXT: AtomicU16 = AtomicU16::new(10_000);
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let port = NEXT.fetch_add(1, Ordering::Relaxed);
    let socket = UdpSocket::bind((any, port)).expect("the port is free");
    socket.connect(to).expect("a route");
    socket.set_nonblocking(true).expect("a socket");
    socket
}

/// Returns what an answer shows: the server by its name, and the client that it saw.
fn seen(server: &str, client: IpAddr, names: &[(String, IpAddr)]) -> Seen {
    let is_it = |(own, ip): &&(String, IpAddr)| own == server && ip.is_ipv4() == client.is_ipv4();
    match names.iter().find(is_it) {
        Some((_, server)) => Seen::Answer(*server, client),
        None => Seen::World,
    }
}

/// Returns the answer to a datagram, or `None` if none has arrived.
fn receive(socket: &UdpSocket, names: &[(String, IpAddr)]) -> Option<Seen> {
    let mut buffer = [0; 128];
    match socket.recv(&mut buffer) {
        Ok(length) => {
            let text = String::from_utf8_lossy(&buffer[..length]);
            let (name, client) = text.trim_end().rsplit_once(' ').expect("an answer");
            let client: IpAddr = client.parse().expect("an address");
            Some(seen(name, client, names))
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        Err(_) => Some(Seen::Refused),
    }
}
