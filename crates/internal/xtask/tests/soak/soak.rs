//! The soak in two phases: first proxies are killed, then one proxy stays.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use std::{env, iter};

use apiserver::{Chaos, FaultCounts};
use testkit::flag::SetOnDrop;
use testkit::netns::Netns;
use testkit::nft;
use testkit::proxy::{Options, Proxy};
use testkit::traffic::{Answers, Load, Probe};

use crate::cluster::{Cluster, PAUSE, Source, until};
use crate::events::{Events, RATE};
use crate::objects::{PORTS, web_probes};
use crate::process::{descriptors, median, memory};
use crate::random::Random;

/// Duration without variable `SOAK_SECONDS`, in seconds.
const SECONDS: u64 = 10;

/// Mean pause between faults of the API server.
const CHAOS_PAUSE: Duration = Duration::from_secs(1);

/// Minimum and maximum pause between kills and between foreign changes, in milliseconds.
const PAUSES: (usize, usize) = (800, 2500);

/// Interval of measurements of memory.
const SAMPLE: Duration = Duration::from_millis(100);

/// Number of parts of the second phase with a median of the memory.
const WINDOWS: usize = 6;

/// Number of bursts of events before the second phase, and events of a burst. Memory grows
/// until the allocator has served all sizes.
const BURSTS: usize = 6;
const BURST: usize = 600;

/// Limit of the growth of memory after the warm-up, in percent.
const MAX_GROWTH: f64 = 5.0;

/// Timeout of requests. A packet that arrives while the rules are flushed is dropped, and
/// sent again after a second.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// Networks of Services. Without rules, no router of a cluster knows them.
const SERVICE_NETWORKS: [&str; 2] = ["10.96.0.0/12", "fd00:10:96::/112"];

/// Table of another program, such as a network plugin. It keeps connection tracking and NAT
/// enabled while the rules of the proxy are flushed. Otherwise packets of open connections
/// pass without translation, and the node resets the connections.
const OTHER_TABLE: &str = "table inet other {
    chain forward { type filter hook forward priority 10; ct state established accept; }
    chain nat { type nat hook postrouting priority 110; }
}";

/// Measurements of a proxy that was not killed.
struct Survivor {
    flushes: usize,
    /// Medians of the memory in equal parts of the phase, in KiB.
    memory: Vec<usize>,
    /// Number of descriptors at the start and at the end.
    descriptors: [usize; 2],
}

impl Survivor {
    /// Returns the growth of memory from the first to the second half of the phase, in percent.
    fn growth(&self) -> f64 {
        let (first, second) = self.memory.split_at(WINDOWS / 2);
        let [first, second] = [first, second].map(|half| median(half) as f64);
        100.0 * (second - first) / first
    }
}

#[test]
fn a_proxy_in_mode_nftables_survives() {
    let flushes = [
        "flush table ip kube-proxy",
        "flush table ip6 kube-proxy",
        "flush set ip kube-proxy active-cluster-ips",
    ];
    soak("nftables", &flushes);
}

#[test]
fn a_proxy_in_mode_iptables_survives() {
    let flushes = [
        "flush table ip nat",
        "flush table ip6 nat",
        "flush chain ip filter KUBE-FORWARD",
    ];
    soak("iptables", &flushes);
}

/// Runs a proxy in a mode. `flushes` are the foreign changes, as commands of nft.
fn soak(mode: &'static str, flushes: &[&str]) {
    let seconds = env::var("SOAK_SECONDS").map_or(SECONDS, |text| text.parse().unwrap());
    let duration = Duration::from_secs(seconds);
    let cluster = Cluster::new();
    prepare(&cluster.lab.node.netns);
    let options = options(&cluster, mode);
    let mut events = Events::new(&cluster.server, &cluster.lab);
    let proxy = cluster.start(&options);
    let loads = load(&cluster, duration);
    let begin = Instant::now();

    let (kills, killing) = during(&cluster, &mut events, duration / 3, |is_over| {
        kill_repeatedly(&cluster, &options, proxy, is_over)
    });
    let proxy = cluster.start(&options);
    let (survivor, surviving) = survive(&cluster, &mut events, &proxy, flushes, duration * 2 / 3);
    until("the kernel equals the plan", || {
        has_no_difference(&cluster, &options)
    });

    let answers = loads.into_iter().map(|(probe, load)| {
        let answers = load.stop();
        for failure in &answers.failures {
            println!("{} {}: {failure:?}", probe.protocol, probe.target);
        }
        answers
    });
    let answers = answers.fold(Answers::default(), Answers::merge);
    let took = begin.elapsed();
    proxy.stop().unwrap();
    let sent = killing.sent + surviving.sent;
    let active = (killing.time + surviving.time).as_secs_f64();
    let faults: usize = [&killing.faults, &surviving.faults]
        .iter()
        .flat_map(|counts| counts.values())
        .sum();
    testkit::figures!(
        "{mode}, {took:.0?}: {sent} events, {:.0} per second; {kills} kills, {} foreign flushes, \
         {faults} API faults; {} requests, {} failed; memory {:?} KiB, {:+.1} %; descriptors {:?}; \
         kernel equal to plan",
        sent as f64 / active,
        survivor.flushes,
        answers.requests(),
        answers.failures.len(),
        survivor.memory,
        survivor.growth(),
        survivor.descriptors,
    );
    assert!(answers.failures.is_empty(), "{answers}");
    assert!(survivor.growth() < MAX_GROWTH, "{:?}", survivor.memory);
    assert!(
        sent as f64 > 0.95 * RATE as f64 * active,
        "{sent} in {active} s"
    );
    assert!(kills > 0 && survivor.flushes > 0 && faults > 0);
}

/// Events and faults of a phase.
struct Phase {
    sent: u64,
    time: Duration,
    faults: FaultCounts,
}

/// Sends events and injects faults of the API server for a duration. Runs `work` at the
/// same time, whose argument becomes true at the end.
fn during<T: Send>(
    cluster: &Cluster,
    events: &mut Events<'_>,
    duration: Duration,
    work: impl FnOnce(&AtomicBool) -> T + Send,
) -> (T, Phase) {
    let is_over = AtomicBool::new(false);
    let begin = Instant::now();
    let chaos = Chaos::new(duration.as_secs(), duration).pause(CHAOS_PAUSE);
    thread::scope(|scope| {
        let stop = SetOnDrop::new(&is_over);
        let chaos = scope.spawn(|| chaos.run(&cluster.server));
        let done = scope.spawn(|| work(&is_over));
        let sent = events.send(duration);
        let time = begin.elapsed();
        let faults = chaos.join().unwrap();
        drop(stop);
        let phase = Phase { sent, time, faults };
        (done.join().unwrap(), phase)
    })
}

/// Kills the proxy and starts another one, again and again. Returns the number of kills.
///
/// The API server may be unavailable at the start. The rules remain meanwhile.
fn kill_repeatedly(
    cluster: &Cluster,
    options: &Options,
    mut proxy: Proxy,
    is_over: &AtomicBool,
) -> usize {
    let mut random = Random(2);
    let mut kills = 0;
    while pause(&mut random, is_over) {
        drop(proxy);
        proxy = Proxy::start(&cluster.lab, options).unwrap();
        kills += 1;
    }
    kills
}

/// Runs the second phase, and measures the proxy.
fn survive(
    cluster: &Cluster,
    events: &mut Events<'_>,
    proxy: &Proxy,
    flushes: &[&str],
    duration: Duration,
) -> (Survivor, Phase) {
    let pid = proxy.process().pid();
    for command in flushes.iter().cycle().take(BURSTS) {
        events.send_burst(BURST);
        flush(cluster, command);
        thread::sleep(SAMPLE);
    }
    until_watching(cluster);
    let before = descriptors(pid);
    let flush_repeatedly = |is_over: &AtomicBool| {
        let mut random = Random(3);
        let mut count = 0;
        while pause(&mut random, is_over) {
            flush(cluster, flushes[count % flushes.len()]);
            count += 1;
        }
        count
    };
    let ((flushes, samples), phase) = during(cluster, events, duration, |is_over| {
        thread::scope(|scope| {
            let flushes = scope.spawn(|| flush_repeatedly(is_over));
            let samples = iter::from_fn(|| {
                thread::sleep(SAMPLE);
                (!is_over.load(Ordering::Relaxed)).then(|| memory(pid))
            });
            let samples: Vec<_> = samples.collect();
            (flushes.join().unwrap(), samples)
        })
    });
    until_watching(cluster);
    // A connection that was idle at the start may be closed.
    until("the descriptors of the start", || {
        descriptors(pid) <= before
    });
    let windows = samples.chunks_exact(samples.len() / WINDOWS);
    let survivor = Survivor {
        flushes,
        memory: windows.map(median).take(WINDOWS).collect(),
        descriptors: [before, descriptors(pid)],
    };
    (survivor, phase)
}

/// Changes the rules by a command of nft, as a program that made no earlier change.
fn flush(cluster: &Cluster, command: &str) {
    let netns = &cluster.lab.node.netns;
    netns.run(|| nft::succeeds_as_another_program(&[command]));
}

/// Waits until the proxy watches all kinds.
fn until_watching(cluster: &Cluster) {
    let kinds = ["services", "endpointslices", "nodes", "servicecidrs"];
    until("all kinds are watched", || {
        kinds.iter().all(|kind| cluster.server.watchers(kind) == 1)
    });
}

/// Waits for a random time. Returns whether the phase continues.
fn pause(random: &mut Random, is_over: &AtomicBool) -> bool {
    let (least, most) = PAUSES;
    let millis = least + random.below(most - least);
    thread::sleep(Duration::from_millis(u64::try_from(millis).unwrap()));
    !is_over.load(Ordering::Relaxed)
}

/// Returns the command line of the proxy.
fn options(cluster: &Cluster, mode: &'static str) -> Options {
    let mut options = cluster.options(Source::Api);
    options.mode = mode;
    options.flags = vec!["--iptables-min-sync-period".to_owned(), "100ms".to_owned()];
    if mode == "iptables" {
        options.flags.push("--iptables-backend=netlink".to_owned());
    }
    options
}

/// Starts requests to the cluster IPs of `web`, whose endpoints stay.
fn load(cluster: &Cluster, duration: Duration) -> Vec<(Probe, Load)> {
    let from = &cluster.lab.client.netns;
    let ports = PORTS.map(|(_, port, ..)| port);
    let probes = web_probes(&cluster.lab).filter(|probe| ports.contains(&probe.target.port()));
    let limit = duration * 2 + Duration::from_secs(300);
    let start = |probe: Probe| {
        let probe = probe.retransmitting().timeout(REQUEST_TIMEOUT);
        let load = Load::start_within(from, probe, 1, PAUSE, limit).unwrap();
        (probe, load)
    };
    probes.map(start).collect()
}

/// Makes the node drop packets to Services that no rule has changed, and adds the rules of
/// another program.
fn prepare(node: &Netns) {
    node.run(|| nft::succeeds(&["-f", "-"], OTHER_TABLE));
    for network in SERVICE_NETWORKS {
        let route = ["route", "add", "blackhole", network];
        let status = node.run(|| Command::new("ip").args(route).status());
        assert!(status.unwrap().success(), "{network}");
    }
}

/// Returns whether `kube-proxy diff` finds no difference.
fn has_no_difference(cluster: &Cluster, options: &Options) -> bool {
    let mut diff = options.command();
    let output = cluster.lab.node.netns.run(|| diff.arg("diff").output());
    output.unwrap().status.code() == Some(0)
}
