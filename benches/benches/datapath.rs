//! Cost of forwarded packets, compared with the ruleset of upstream.
//!
//! Rulesets alternate in each round, and ratios are medians of the ratios of rounds.
//! A figure is processor time per packet, which other processes influence little.
//! Runs in network namespaces, and needs root, `nft` and both
//! variants of iptables.
//!
//! `BENCH_SERVICES` is the number of Services, 10,000 by default. Arguments:
//! `--case TEXT` measures cases whose names contain the text, such
//! as `nftables, new flow`; `--rounds NUMBER` and
//! `--packets NUMBER` set the length. `--chains NUMBER` is the number of Services with
//! chains of their own in the ruleset of upstream, 10,000 by default; it must be a multiple
//! of 50.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::ExitCode;
use std::str::FromStr;
use std::{env, fmt};

use benches::datapath::lane::{Flow, Lane, flows, packets};
use benches::datapath::packet::Segment;
use benches::datapath::ruleset::{Mode, Ruleset};
use benches::datapath::services::{Kind, Services, TARGET_PORT};
use benches::datapath::upstream::CHAINS;
use benches::figure::{Figures, conclude, percentile};
use rustix::process::{getpriority_process, setpriority_process};
use vipline_iptables::Variant;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Number of flows that exist while established packets are measured.
const ESTABLISHED: u32 = 1000;

/// Nice value of the highest priority.
const HIGHEST_PRIORITY: i32 = -20;

/// Highest number of Services in mode iptables, whose programs need quadratic time.
const MOST_IN_IPTABLES: u32 = 10_000;

/// Limit of the ratio to upstream of new flows to Services.
const SERVICE_LIMIT: f64 = 0.95;

/// Limit of the ratio to upstream of new flows to Services with session affinity.
///
/// All Services share maps of clients, which makes a change of one Service cheap. A lookup
/// in a large map costs more than those in the small sets of the Service in upstream.
const AFFINITY_LIMIT: f64 = 1.0;

/// Limit of the ratio to upstream of new flows to pods.
const POD_RATIO_LIMIT: f64 = 1.0;

/// Limit of the ratio to upstream of packets of established flows, which need no lookup
/// by either ruleset. Differences are noise.
const ESTABLISHED_LIMIT: f64 = 1.05;

/// Limit of the ratio to upstream in mode iptables, in which both have the same rules.
const IPTABLES_LIMIT: f64 = 1.1;

/// Limit of the additional time of new flows to pods, compared with empty chains, in µs.
const POD_LIMIT: f64 = 0.5;

fn main() -> ExitCode {
    conclude(figures())
}

/// Measures all figures, and returns the number of exceeded limits.
fn figures() -> Outcome<usize> {
    let options = Options::read()?;
    let mut figures = Figures::new()?;
    let count = options.services;
    let uniform = Services::uniform(count);
    compare(Mode::Nftables, &uniform, &options, &mut figures)?;
    compare(
        Mode::Nftables,
        &Services::mixed(count),
        &options,
        &mut figures,
    )?;
    let uniform = Services::uniform(count.min(MOST_IN_IPTABLES));
    for variant in [Variant::Legacy, Variant::Nft] {
        compare(Mode::Iptables(variant), &uniform, &options, &mut figures)?;
    }
    Ok(figures.finish("datapath")?)
}

/// Measures all cases of a mode and a cluster.
fn compare(
    mode: Mode,
    services: &Services,
    options: &Options,
    figures: &mut Figures,
) -> Outcome<()> {
    let cases = Case::all(services).into_iter();
    let cases: Vec<_> = cases.filter(|case| options.includes(mode, *case)).collect();
    if cases.is_empty() {
        return Ok(());
    }
    let lanes = Ruleset::all(mode).into_iter();
    let lanes = lanes.map(|ruleset| Lane::new(ruleset, services, options.chains));
    let mut lanes: Vec<Lane> = lanes.collect::<Outcome<_>>()?;
    // Interruptions by other processes leave cold caches behind. Loading has the usual
    // priority, because it takes long.
    let usual = getpriority_process(None)?;
    setpriority_process(None, HIGHEST_PRIORITY)?;
    for case in cases {
        let packets = case.packets(mode, options);
        let targets = case.targets(services, options.chains);
        let samples = measure(case, &targets, &mut lanes, options.rounds, packets)?;
        report(figures, mode, case, services, &samples)?;
    }
    Ok(setpriority_process(None, usual)?)
}

/// Length and selection of the measurements.
struct Options {
    services: u32,
    chains: u32,
    case: String,
    rounds: usize,
    packets: u32,
}

impl Options {
    fn read() -> Outcome<Self> {
        let services = env::var("BENCH_SERVICES").ok();
        let arguments: Vec<String> = env::args().collect();
        let value = |name: &str| {
            let place = arguments.iter().position(|argument| argument == name)?;
            arguments.get(place + 1).cloned()
        };
        Ok(Self {
            services: number(value("--services").or(services), 10_000)?,
            chains: number(value("--chains"), CHAINS)?,
            case: value("--case").unwrap_or_default(),
            rounds: number(value("--rounds"), 11)?,
            packets: number(value("--packets"), 20_000)?,
        })
    }

    fn includes(&self, mode: Mode, case: Case) -> bool {
        format!("{mode}, {case}").contains(&self.case)
    }
}

fn number<T: FromStr>(text: Option<String>, default: T) -> Result<T, T::Err> {
    text.map_or(Ok(default), |text| text.parse())
}

/// A kind of packets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Case {
    /// First packets of flows to Services of a kind.
    Service(Kind),
    /// First packets of flows to pods.
    Pod,
    /// Packets of established flows to Services.
    Established,
    /// Large packets of one established flow to a Service.
    Long,
}

impl Case {
    /// Returns the cases of a cluster.
    fn all(services: &Services) -> Vec<Self> {
        let kinds = [1, 5, 8, 50].map(Kind::Endpoints).into_iter();
        let kinds = kinds.chain([Kind::NodePort, Kind::Affinity]);
        let kinds = kinds.filter(|kind| !services.of_kind(*kind).is_empty());
        let cases = kinds.map(Self::Service).chain([Self::Pod]);
        cases.chain([Self::Established, Self::Long]).collect()
    }

    /// Returns the destinations: Services with numbers less than `chains`, which have
    /// chains of their own in the ruleset of upstream.
    fn targets(self, services: &Services, chains: u32) -> Vec<SocketAddrV4> {
        let targets = |kind| {
            let all = services.of_kind(kind).into_iter();
            let chosen = all.filter(|service| service.number < chains);
            chosen.map(|service| service.target()).collect()
        };
        match self {
            Self::Service(kind) => targets(kind),
            Self::Established => targets(Kind::Endpoints(5)),
            Self::Long => targets(Kind::Endpoints(5)).into_iter().take(1).collect(),
            Self::Pod => pods().collect(),
        }
    }

    /// Returns the number of packets of one measurement.
    fn packets(self, mode: Mode, options: &Options) -> u32 {
        match (mode, self) {
            // A packet passes the rules of half of the Services.
            (Mode::Iptables(_), Self::Service(_) | Self::Pod) => options.packets / 10,
            _ => options.packets,
        }
    }

    /// Returns whether the router forwards the packets with a ruleset.
    fn applies(self, ruleset: Ruleset) -> bool {
        self != Self::Service(Kind::NodePort) || ruleset.serves()
    }

    /// Returns the limit of the ratio to upstream.
    ///
    /// New flows with iptables-legacy have none: their cost differs by a factor of two
    /// between two loads of the same rules.
    fn limit(self, mode: Mode) -> Option<f64> {
        match (mode, self) {
            (Mode::Iptables(Variant::Legacy), Self::Service(_) | Self::Pod) => None,
            (Mode::Iptables(_), _) => Some(IPTABLES_LIMIT),
            (_, Self::Established | Self::Long) => Some(ESTABLISHED_LIMIT),
            (_, Self::Service(Kind::Affinity)) => Some(AFFINITY_LIMIT),
            (_, Self::Service(_)) => Some(SERVICE_LIMIT),
            (_, Self::Pod) => Some(POD_RATIO_LIMIT),
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service(Kind::Endpoints(1)) => f.write_str("new flow, 1 endpoint"),
            Self::Service(Kind::Endpoints(count)) => write!(f, "new flow, {count} endpoints"),
            Self::Service(Kind::NodePort) => f.write_str("new flow, node port"),
            Self::Service(Kind::Affinity) => f.write_str("new flow, affinity"),
            Self::Pod => f.write_str("new flow, no Service"),
            Self::Established => f.write_str("established flows"),
            Self::Long => f.write_str("one long flow"),
        }
    }
}

/// Returns addresses of pods that are not endpoints.
fn pods() -> impl Iterator<Item = SocketAddrV4> {
    let first = Ipv4Addr::new(10, 180, 0, 1).to_bits();
    let addresses = (0..10_000).map(move |number| Ipv4Addr::from_bits(first + number));
    addresses.map(|address| SocketAddrV4::new(address, TARGET_PORT))
}

/// Processor time per packet of each round with a ruleset, in µs.
struct Samples {
    ruleset: Ruleset,
    rounds: Vec<f64>,
}

impl Samples {
    /// Returns the value that `percent` % of the rounds do not exceed.
    fn percentile(&self, percent: usize) -> f64 {
        percentile(&self.rounds, percent)
    }

    /// Returns the median of a function of the times of the same round.
    fn compare(&self, other: &Self, of: fn(f64, f64) -> f64) -> f64 {
        let pairs = self.rounds.iter().zip(&other.rounds);
        let values: Vec<f64> = pairs.map(|(one, other)| of(*one, *other)).collect();
        percentile(&values, 50)
    }
}

/// Measures a case with all rulesets in turn.
fn measure(
    case: Case,
    targets: &[SocketAddrV4],
    lanes: &mut [Lane],
    rounds: usize,
    packets_per_round: u32,
) -> Outcome<Vec<Samples>> {
    let (flows, shot) = match case {
        Case::Service(_) | Case::Pod => {
            let flows = flows(targets, packets_per_round);
            let shot = packets(&flows, Segment::Syn);
            (flows, shot)
        }
        Case::Established => {
            let flows = flows(targets, ESTABLISHED);
            let once = packets(&flows, Segment::Data(0));
            let shot = once.iter().cycle().take(packets_per_round as usize);
            (flows, shot.cloned().collect())
        }
        Case::Long => {
            let flows = flows(targets, 1);
            let once = packets(&flows, Segment::Data(1460));
            let shot = once.iter().cycle().take(packets_per_round as usize);
            (flows, shot.cloned().collect())
        }
    };
    let mut lanes: Vec<&mut Lane> = lanes
        .iter_mut()
        .filter(|lane| case.applies(lane.ruleset))
        .collect();
    for lane in &mut lanes {
        prepare(lane, case, &flows)?;
    }
    let samples = lanes.iter().map(|lane| Samples {
        ruleset: lane.ruleset,
        rounds: Vec::new(),
    });
    let mut samples: Vec<_> = samples.collect();
    let count = lanes.len();
    for round in 0..rounds {
        for place in (0..count).map(|step| (round + step) % count) {
            let lane = &mut lanes[place];
            if matches!(case, Case::Service(_) | Case::Pod) {
                lane.flush()?;
            }
            let time = lane.send(&shot)?.processor;
            samples[place]
                .rounds
                .push(time.as_secs_f64() * 1e6 / shot.len() as f64);
        }
    }
    for lane in &mut lanes {
        lane.flush()?;
    }
    Ok(samples)
}

/// Sends the first packets of all flows once, and checks their destinations.
fn prepare(lane: &mut Lane, case: Case, flows: &[Flow]) -> Outcome<()> {
    match case {
        Case::Service(_) | Case::Pod => {
            lane.flush()?;
            lane.send(&packets(flows, Segment::Syn))?;
        }
        Case::Established | Case::Long => lane.establish(flows)?,
    }
    let expected = match case {
        Case::Pod => 0,
        _ if lane.ruleset.serves() => flows.len(),
        _ => 0,
    };
    match lane.translated()? {
        translated if translated == expected => Ok(()),
        translated => Err(format!(
            "{case}, {}: {translated} of {expected} flows are translated",
            lane.ruleset
        )
        .into()),
    }
}

/// Adds the figures of a case.
fn report(
    figures: &mut Figures,
    mode: Mode,
    case: Case,
    services: &Services,
    samples: &[Samples],
) -> Outcome<()> {
    let measure = format!("datapath: {mode}, {case}");
    let of = |ruleset| samples.iter().find(|samples| samples.ruleset == ruleset);
    for samples in samples {
        let quartiles = [25, 75].map(|percent| samples.percentile(percent));
        let [low, high] = quartiles;
        let unit = format!("us, {} ({low:.2} to {high:.2})", samples.ruleset);
        figures.push(&measure, services, (samples.percentile(50), &unit), None)?;
    }
    if let (Some(ours), Some(upstream)) = (of(Ruleset::Ours(mode)), of(Ruleset::Upstream(mode))) {
        let ratio = ours.compare(upstream, |ours, upstream| ours / upstream);
        figures.push(&measure, services, (ratio, "x upstream"), case.limit(mode))?;
    }
    if let (Case::Pod, Some(ours), Some(hooks)) =
        (case, of(Ruleset::Ours(mode)), of(Ruleset::Hooks))
    {
        let more = ours.compare(hooks, |ours, hooks| ours - hooks);
        figures.push(
            &measure,
            services,
            (more, "us above empty hooks"),
            POD_LIMIT,
        )?;
    }
    Ok(())
}
