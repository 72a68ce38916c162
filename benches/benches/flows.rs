//! Figures of changes while the kernel tracks many flows of UDP Services: time to the
//! rules in the kernel, processor time of searches for stale flows, and how long a flow is
//! stale.
//!
//! Runs in network namespaces, and needs root. Raises `nf_conntrack_max` if it is lower
//! than the number of flows, and restores it.
#![allow(clippy::print_stderr, reason = "a program prints")]

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr};
use std::process::ExitCode;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use benches::cluster::{self, Size};
use benches::conntrack_table::{TableSize, flow};
use benches::figure::{Figures, conclude, ms, percentile};
use benches::time::Time;
use proxy_core::{Config, Engine, Event, FinishedFlowSearch, Intervals};
use testkit::generate::ServiceBuilder;
use testkit::netns::Netns;
use vipline_conntrack::{Client, Family, Filter, Key, Protocol};
use vipline_service_model::api;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Numbers of flows. The first is the reference of the others.
const FLOWS: [u32; 3] = [0, 100_000, 1_000_000];

/// Room in the table for flows that the benchmark adds.
const ROOM: u32 = 10_000;

/// Services over TCP, without flows.
const CLUSTER: Size = Size::new(10_000, 5);

/// Number of Services over UDP, to which all flows lead, and their endpoints.
const SERVICES: u32 = 100;
const ENDPOINTS: u32 = 5;

/// Number of replaced endpoints, and the time between two replacements.
const REPLACED: u32 = 10;
const PERIOD: Duration = Duration::from_millis(700);

/// Number of endpoints that are added after each replacement, during the search, and the
/// time between two additions.
const ADDED: u32 = 20;
const PAUSE: Duration = Duration::from_millis(10);

/// Number of endpoints that are replaced at once.
const BURST: u32 = 20;

/// Time without a due search after which all searches are done.
const IDLE: Duration = Duration::from_millis(100);

fn main() -> ExitCode {
    conclude(figures())
}

/// Measures all figures, and returns the number of exceeded limits.
fn figures() -> Outcome<usize> {
    let mut figures = Figures::new()?;
    let [.., most] = FLOWS;
    let table = TableSize::at_least(most + ROOM)?;
    let mut reference = None;
    for flows in FLOWS {
        let fits = table.maximum().saturating_sub(ROOM);
        if flows > fits {
            eprintln!("{flows} flows do not fit: nf_conntrack_max cannot be raised");
        }
        let seen = Seen::of(flows.min(fits))?;
        let reference = reference.get_or_insert(seen.rules);
        report(&mut figures, flows.min(fits), &seen, *reference)?;
    }
    Ok(figures.finish("flows")?)
}

fn report(figures: &mut Figures, flows: u32, seen: &Seen, reference: f64) -> Outcome<()> {
    let mut push = |measure: &str, value: (f64, &str), limit: Option<f64>| {
        figures.push(&format!("flows: {measure}"), flows, value, limit)
    };
    push("event to rules", (seen.rules, "ms, median"), None)?;
    let ratio = (seen.rules / reference, "x without");
    push("event to rules", ratio, Some(1.2))?;
    let replaced = "UDP endpoint replaced";
    push(replaced, (seen.udp, "ms processor"), None)?;
    push(replaced, (seen.upstream, "ms, upstream"), None)?;
    push(replaced, (seen.stale, "s stale"), Some(1.0))?;
    push("TCP endpoint replaced", (seen.tcp, "ms processor"), None)?;
    push("endpoint added", (seen.added, "dumps"), Some(0.0))?;
    // The kernel takes more than a second to return a million flows.
    let limit = (flows <= 250_000).then_some(1.0);
    let burst = format!("{BURST} UDP endpoints at once");
    Ok(push(&burst, (seen.burst, "s stale"), limit)?)
}

/// Cost of changes with a number of flows.
struct Seen {
    /// Median time from an event to its rules in the kernel, in milliseconds.
    rules: f64,
    /// Processor time of searches per replaced endpoint, in milliseconds.
    udp: f64,
    tcp: f64,
    /// Processor time of a dump of all UDP flows, in milliseconds.
    upstream: f64,
    /// Longest time for which a flow was stale, in seconds.
    stale: f64,
    burst: f64,
    /// Number of dumps after an endpoint was added.
    added: f64,
}

impl Seen {
    fn of(flows: u32) -> Outcome<Self> {
        let netns = Netns::new()?;
        netns.run(|| {
            let mut node = Node::open()?;
            node.create(flows)?;
            let added = node.added()?;
            let udp = node.replaced(true)?;
            let stale = node.longest();
            let tcp = node.replaced(false)?;
            let burst = node.burst()?;
            Ok(Self {
                rules: node.median(),
                udp,
                tcp,
                upstream: node.upstream()?,
                stale: stale.as_secs_f64(),
                burst: burst.as_secs_f64(),
                added,
            })
        })
    }
}

/// A proxy whose searches run on another thread, as in kube-proxy.
struct Node {
    engine: Engine,
    client: Client,
    start: Instant,
    search: Option<JoinHandle<(Time, FinishedFlowSearch)>>,
    /// Processor time and number of dumps of all searches.
    searched: Duration,
    dumps: usize,
    /// Stale flows, with the times of the commits.
    stale: Vec<(Instant, Key)>,
    /// Times for which flows were stale.
    deleted: Vec<Duration>,
    /// Times from an event to its rules in the kernel.
    times: Vec<Duration>,
    /// Number of addresses and flows that were created for changes.
    created: u32,
    /// Number of flows at the start.
    flows: u32,
    /// EndpointSlices of the Services over TCP.
    slices: Vec<api::EndpointSlice>,
}

impl Node {
    /// Starts a proxy with all Services, and waits for its searches.
    fn open() -> Outcome<Self> {
        let intervals = Intervals {
            min: Duration::ZERO,
            max: Duration::MAX,
            ..Intervals::default()
        };
        let mut engine = Config::default().with_intervals(intervals).open()?;
        engine.defer_flow_searches();
        let services = (0..SERVICES).flat_map(|number| service(number).events());
        for event in CLUSTER.events().chain(services) {
            engine.apply(event);
        }
        let mut node = Self {
            engine,
            client: Client::open()?,
            start: Instant::now(),
            search: None,
            searched: Duration::ZERO,
            dumps: 0,
            stale: Vec::new(),
            deleted: Vec::new(),
            times: Vec::new(),
            created: 0,
            flows: 0,
            slices: CLUSTER.slices(CLUSTER.services),
        };
        node.change([Event::Synced])?;
        node.times.clear();
        node.wait(IDLE)?;
        Ok(node)
    }

    /// Creates flows to all endpoints over UDP.
    fn create(&mut self, flows: u32) -> Outcome<()> {
        let all = (0..flows).map(|number| {
            let service = number % SERVICES;
            let place = number / SERVICES % ENDPOINTS;
            flow(number, frontend(service), server(service, place))
        });
        self.client.create_all(all)?;
        self.flows = flows;
        Ok(())
    }

    /// Applies events, syncs, and records the time.
    fn change(&mut self, events: impl IntoIterator<Item = Event>) -> Outcome<()> {
        let (time, report) = Time::of(|| {
            events.into_iter().for_each(|event| {
                self.engine.apply(event);
            });
            let report = self.engine.poll(self.start.elapsed());
            report.or_else(|| self.engine.poll(self.start.elapsed()))
        });
        let report = report.ok_or("a change is due")?;
        if !report.is_success() {
            return Err(report.to_string().into());
        }
        self.times.push(time.wall);
        Ok(())
    }

    /// Replaces an endpoint of one Service after the other, and adds others during the
    /// searches.
    /// Returns the processor time of searches per replacement, in milliseconds.
    fn replaced(&mut self, is_udp: bool) -> Outcome<f64> {
        let before = self.searched;
        for number in 0..REPLACED {
            let began = Instant::now();
            match is_udp {
                true => self.replace_udp([number])?,
                false => {
                    let mut slice = self.slice(number)?;
                    self.created += 1;
                    cluster::replace(&mut slice, 1, self.created);
                    self.change([slice.into()])?;
                }
            }
            self.add()?;
            self.wait(PERIOD.saturating_sub(began.elapsed()))?;
        }
        Ok(ms(self.searched - before) / f64::from(REPLACED))
    }

    /// Replaces an endpoint of all these Services over UDP.
    fn replace_udp(&mut self, services: impl IntoIterator<Item = u32>) -> Outcome<()> {
        let (mut events, mut keys) = (Vec::new(), Vec::new());
        for number in services {
            self.created += 1;
            let stale = flow(
                self.flows + self.created,
                frontend(number),
                server(number, 1),
            );
            self.client.create(&stale)?;
            keys.push(Key::from(stale.original));
            for mut slice in service(number).slices() {
                cluster::replace(&mut slice, 1, self.created);
                events.push(slice.into());
            }
        }
        self.change(events)?;
        let now = Instant::now();
        self.stale.extend(keys.into_iter().map(|key| (now, key)));
        Ok(())
    }

    /// Adds endpoints to Services without flows.
    fn add(&mut self) -> Outcome<()> {
        for _ in 0..ADDED {
            self.created += 1;
            // A Service that no other change concerns.
            let mut slice = self.slice(REPLACED + self.created)?;
            cluster::add(&mut slice, self.created);
            self.change([slice.into()])?;
            self.turn_for(PAUSE)?;
        }
        Ok(())
    }

    /// Returns the EndpointSlice of a Service over TCP.
    fn slice(&self, number: u32) -> Outcome<api::EndpointSlice> {
        let slice = self.slices.get(usize::try_from(number)?);
        Ok(slice.ok_or("the Service exists")?.clone())
    }

    /// Adds endpoints, and returns the number of dumps.
    fn added(&mut self) -> Outcome<f64> {
        let before = self.dumps;
        for number in 0..REPLACED {
            let mut slices = service(SERVICES - 1 - number).slices();
            self.created += 1;
            slices.push(self.slice(REPLACED + self.created)?);
            for mut slice in slices {
                self.created += 1;
                cluster::add(&mut slice, self.created);
                self.change([slice.into()])?;
            }
        }
        self.wait(IDLE)?;
        let dumps = u32::try_from(self.dumps - before)?;
        Ok(f64::from(dumps))
    }

    /// Replaces endpoints of many Services at once. Returns the longest time for which a
    /// flow was stale.
    fn burst(&mut self) -> Outcome<Duration> {
        self.deleted.clear();
        self.replace_udp(REPLACED..REPLACED + BURST)?;
        self.wait(IDLE)?;
        Ok(self.deleted.iter().copied().max().unwrap_or_default())
    }

    /// Runs searches until none is due, at least for some time.
    fn wait(&mut self, at_least: Duration) -> Outcome<()> {
        self.turn_for(at_least)?;
        while self.search.is_some() || !self.stale.is_empty() {
            self.turn_for(Duration::from_millis(5))?;
        }
        Ok(())
    }

    fn turn_for(&mut self, time: Duration) -> Outcome<()> {
        let began = Instant::now();
        loop {
            self.turn()?;
            thread::sleep(Duration::from_millis(1));
            if began.elapsed() >= time {
                return Ok(());
            }
        }
    }

    /// Ends a search that is finished, starts one that is due, and looks for stale flows.
    fn turn(&mut self) -> Outcome<()> {
        if let Some(search) = self.search.take_if(|search| search.is_finished()) {
            let (time, finished) = search.join().map_err(|_| "a search panicked")?;
            self.searched += time.processor;
            let now = self.start.elapsed();
            for (_, result) in self.engine.finish_flow_search(finished, now) {
                self.dumps += result?.dumps;
            }
        }
        if let Some(search) = self.engine.take_flow_search(self.start.elapsed()) {
            self.search = Some(thread::spawn(|| Time::of(|| search.run())));
        }
        let mut left = Vec::new();
        for (since, key) in self.stale.drain(..) {
            match self.client.flow(&key)? {
                Some(_) => left.push((since, key)),
                None => self.deleted.push(since.elapsed()),
            }
        }
        self.stale = left;
        Ok(())
    }

    /// Returns the longest time for which a flow was stale, in the best of five groups.
    fn longest(&self) -> Duration {
        let groups = self.deleted.chunks(self.deleted.len().div_ceil(5));
        let longest = groups.filter_map(|group| group.iter().max());
        longest.min().copied().unwrap_or_default()
    }

    /// Returns the lowest median of five groups of times, in milliseconds.
    fn median(&self) -> f64 {
        let groups = self.times.chunks(self.times.len().div_ceil(5));
        let medians = groups.map(|group| percentile(group, 50));
        ms(medians.min().unwrap_or_default())
    }

    /// Returns the processor time of one dump of all UDP flows, in milliseconds.
    fn upstream(&mut self) -> Outcome<f64> {
        let udp = Filter::new()
            .with_family(Family::V4)
            .with_protocol(Protocol::UDP);
        let times = (0..3).map(|_| {
            let (time, dumped) = Time::of(|| self.client.dump(&udp, |_| ()));
            dumped.map(|_| time.processor)
        });
        let times: Vec<_> = times.collect::<Result<_, _>>()?;
        Ok(ms(percentile(&times, 50)))
    }
}

/// Returns a Service over UDP.
fn service(number: u32) -> ServiceBuilder {
    let (address, port) = frontend(number);
    let builder = ServiceBuilder::new(format!("udp-{number}"))
        .cluster_ip(address)
        .port(api::TransportProtocol::Udp, port, 5353);
    (0..ENDPOINTS).fold(builder, |builder, place| {
        builder.endpoint(server(number, place).0, "node-1")
    })
}

/// Returns address and port of a Service over UDP.
fn frontend(number: u32) -> (IpAddr, u16) {
    (numbered(Ipv4Addr::new(10, 112, 0, 1), number), 53)
}

/// Returns address and port of an endpoint of a Service over UDP.
fn server(number: u32, place: u32) -> (IpAddr, u16) {
    let number = number * ENDPOINTS + place;
    (numbered(Ipv4Addr::new(10, 176, 0, 1), number), 5353)
}

fn numbered(first: Ipv4Addr, number: u32) -> IpAddr {
    Ipv4Addr::from_bits(first.to_bits() + number).into()
}
