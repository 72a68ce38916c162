//! Figures of mode ipvs: loads compared with a replay of their netlink messages and with
//! the programs `ipset`, `ipvsadm` and `ip`, and the cost of changes.
//!
//! Runs in network namespaces, and needs root and a kernel with IPVS. `cargo xtask
//! bench` runs it in a guest with such a kernel.
#![allow(clippy::print_stdout, reason = "a program prints")]

use std::error::Error;
use std::fs::File;
use std::process::{Command, ExitCode};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use benches::cluster::{self, Size};
use benches::figure::{Figures, conclude, ms, percentile};
use benches::ipvs_floor::{Load, Replayed};
use benches::time::Time;
use proxy_core::backend::ipvs::{Kernel as Ipvs, Object, Planner};
use proxy_core::{Config, Engine, Event, Family, IptablesBackend, Mode};
use testkit::netns::Netns;
use testkit::scoped::Directory;
use vipline_reconcile::{Edit, Rejection, Target};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Returns the time of one subsystem.
type TimeOf = fn(&Replayed) -> Duration;

const TYPICAL: Size = Size::new(10_000, 5);

/// Number of loads by the programs.
const ROUNDS: usize = 3;

/// Number of loads by the engine and by the replay per round, alternating.
const PAIRS: usize = 2;

/// Number of measured changes.
const CHANGES: usize = 20;

/// Programs of a load. Rules are excluded.
const PROGRAMS: [&str; 3] = ["ipset", "ipvsadm", "ip"];

/// Kernel subsystems of a replay.
const SUBSYSTEMS: [(&str, TimeOf); 3] = [
    ("set messages", |replayed| replayed.sets),
    ("server messages", |replayed| replayed.servers),
    ("address messages", |replayed| replayed.addresses),
];

fn main() -> ExitCode {
    match vipline_ipvs::Client::open() {
        Err(vipline_ipvs::Error::Unsupported { .. }) => {
            println!("the kernel has no IPVS: `cargo xtask bench` runs this bench in a guest");
            ExitCode::SUCCESS
        }
        _ => conclude(figures()),
    }
}

/// Measures all figures, and returns the number of exceeded limits.
fn figures() -> Outcome<usize> {
    let mut figures = Figures::new()?;
    load(&mut figures)?;
    change(&mut figures)?;
    Ok(figures.finish("ipvs")?)
}

fn config(families: &[Family]) -> Config {
    let mut config = Config::default()
        .with_mode(Mode::Ipvs)
        .with_families(families.to_vec());
    config.iptables.backend = IptablesBackend::Netlink;
    config
}

/// Applies all events except [`Event::Synced`].
fn with_objects(mut engine: Engine) -> Engine {
    TYPICAL.events().for_each(|event| {
        engine.apply(event);
    });
    engine
}

/// Applies all events including [`Event::Synced`].
fn complete(engine: Engine) -> Engine {
    let mut engine = with_objects(engine);
    engine.apply(Event::Synced);
    engine
}

/// Runs the first sync, and returns the elapsed time.
fn first_sync(engine: &mut Engine) -> Outcome<Duration> {
    let (time, report) = Time::of(|| {
        engine.apply(Event::Synced);
        engine.poll(Duration::ZERO)
    });
    let report = report.ok_or("a first sync is due")?;
    match report.is_success() {
        true => Ok(time.wall),
        false => Err(report.to_string().into()),
    }
}

/// Times of a load by the engine and of its replay, each in a separate namespace.
struct Pair {
    ours: Duration,
    replayed: Replayed,
}

impl Pair {
    fn run(load: &Load) -> Outcome<Self> {
        let ours = in_namespace(|| {
            let mut engine = with_objects(config(&Family::ALL).open()?);
            first_sync(&mut engine)
        })?;
        let replayed = in_namespace(|| load.replay())?;
        Ok(Self { ours, replayed })
    }
}

/// Times to load the same state, each in a separate namespace.
struct Round {
    pairs: Vec<Pair>,
    /// Time of each program in [`PROGRAMS`].
    theirs: [Duration; 3],
    /// Time of the iptables programs, which load the rules.
    rules: Duration,
}

impl Round {
    fn run(parts: &[Part], load: &Load) -> Outcome<Self> {
        let pairs = (0..PAIRS).map(|_| Pair::run(load));
        let pairs = pairs.collect::<Outcome<_>>()?;
        in_namespace(|| {
            let (mut theirs, mut rules) = ([Duration::ZERO; 3], Duration::ZERO);
            for part in parts {
                let time = part.run()?;
                match PROGRAMS.iter().position(|program| *program == part.program) {
                    Some(place) => theirs[place] += time,
                    None => rules += time,
                }
            }
            let mut engine = complete(config(&Family::ALL).open()?);
            match engine.difference()?.edits {
                0 => Ok(Self {
                    pairs,
                    theirs,
                    rules,
                }),
                edits => Err(format!("the programs left {edits} edits to be made").into()),
            }
        })
    }

    fn programs(&self) -> Duration {
        self.theirs.iter().sum()
    }

    /// Returns the times of loads, each with the time of its replay. The rules, a few
    /// messages of each load, are not replayed.
    fn loads(&self) -> impl Iterator<Item = (Duration, Duration)> {
        let pairs = self.pairs.iter();
        pairs.map(|pair| (pair.ours, pair.replayed.total()))
    }
}

/// Runs `work` in a separate namespace, and empties the namespace.
///
/// Otherwise the kernel would remove its content during the next measurement.
fn in_namespace<T: Send>(work: impl FnOnce() -> Outcome<T> + Send) -> Outcome<T> {
    Netns::new()?.run(|| {
        let value = work()?;
        run("ipvsadm", &["-C"], None)?;
        run("ip", &["link", "delete", "kube-ipvs0"], None)?;
        run("ipset", &["flush"], None)?;
        Ok(value)
    })
}

/// Input of one program.
struct Part {
    program: String,
    arguments: Vec<String>,
    /// File with the input.
    name: String,
}

impl Part {
    /// Writes the inputs of the programs for the state of both families.
    fn all(folder: &Directory) -> Outcome<Vec<Self>> {
        let mut parts = Vec::new();
        for family in Family::ALL {
            let script = complete(config(&[family]).plan_only()?).desired();
            for part in script.split("# ").skip(1) {
                let (line, text) = part.split_once('\n').ok_or("a part has lines")?;
                let mut words = line.split(' ').map(str::to_owned);
                let program = words.next().ok_or("a part has a program")?;
                // Both families share the link; IPv6 has no addresses.
                if program == "ip" && family == Family::V6 {
                    continue;
                }
                let name = format!("{}-{program}", parts.len());
                folder.write(&name, text)?;
                parts.push(Self {
                    program,
                    arguments: words.collect(),
                    name: folder.path().join(name).display().to_string(),
                });
            }
        }
        Ok(parts)
    }

    /// Runs the program with the input, and returns the elapsed time.
    fn run(&self) -> Outcome<Duration> {
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        let input = File::open(&self.name)?;
        let (time, done) = Time::of(|| run(&self.program, &arguments, Some(input)));
        done.map(|()| time.wall)
    }
}

fn run(program: &str, arguments: &[&str], input: Option<File>) -> Outcome<()> {
    let mut command = Command::new(program);
    command.args(arguments);
    if let Some(input) = input {
        command.stdin(input);
    }
    let status = command.status()?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("{program} {}: {status}", arguments.join(" ")).into()),
    }
}

/// Measures repeated loads.
fn load(figures: &mut Figures) -> Outcome<()> {
    let folder = Directory::new()?;
    let parts = Part::all(&folder)?;
    let load = recorded()?;
    let rounds = (0..ROUNDS).map(|_| Round::run(&parts, &load));
    let rounds: Vec<Round> = rounds.collect::<Outcome<_>>()?;
    let loads: Vec<_> = rounds.iter().flat_map(Round::loads).collect();
    let ours: Vec<_> = loads.iter().map(|(ours, _)| *ours).collect();
    let floor: Vec<_> = loads.iter().map(|(_, floor)| *floor).collect();
    let mut push = |value, unit: &str, limit: Option<f64>| {
        figures.push("ipvs: full load", TYPICAL, (value, unit), limit)
    };
    push(median(&ours), "s", None)?;
    push(median(&floor), "s, floor", None)?;
    for (subsystem, of) in SUBSYSTEMS {
        let pairs = rounds.iter().flat_map(|round| &round.pairs);
        let times: Vec<_> = pairs.map(|pair| of(&pair.replayed)).collect();
        push(median(&times), &format!("s, {subsystem}"), None)?;
    }
    let by_round = |of: &dyn Fn(&Round) -> Duration| {
        let times: Vec<_> = rounds.iter().map(of).collect();
        median(&times)
    };
    push(by_round(&|round| round.rules), "s, iptables", None)?;
    push(by_round(&Round::programs), "s, programs", None)?;
    for (place, program) in PROGRAMS.iter().enumerate() {
        let time = by_round(&|round| round.theirs[place]);
        push(time, &format!("s, {program}"), None)?;
    }
    let ratios = loads.iter().map(|(ours, floor)| ratio(*ours, *floor));
    let ratios: Vec<_> = ratios.collect();
    push(percentile(&ratios, 50), "x floor", Some(1.3))?;
    let ratios = rounds.iter().flat_map(|round| {
        let pairs = round.pairs.iter();
        pairs.map(|pair| ratio(pair.ours, round.programs()))
    });
    let ratios: Vec<_> = ratios.collect();
    Ok(push(percentile(&ratios, 50), "x programs", Some(1.2))?)
}

/// Returns the median of times in seconds.
fn median(times: &[Duration]) -> f64 {
    percentile(times, 50).as_secs_f64()
}

fn ratio(time: Duration, floor: Duration) -> f64 {
    time.as_secs_f64() / floor.as_secs_f64()
}

/// Loads all objects, and returns the commands of the load.
fn recorded() -> Outcome<Load> {
    in_namespace(|| {
        let kernels = Watched::open_all()?;
        first_sync(&mut with_objects(Watched::engine(&kernels)))?;
        let mut load = Load::default();
        for kernel in kernels {
            let edits = std::mem::take(&mut kernel.state().committed);
            edits.iter().for_each(|edits| load.add(edits));
        }
        Ok(load)
    })
}

/// Measures a start on existing state, and replacements of single endpoints.
fn change(figures: &mut Figures) -> Outcome<()> {
    let seen = Netns::new()?.run(|| {
        first_sync(&mut with_objects(config(&Family::ALL).open()?))?;
        let kernels = Watched::open_all()?;
        Seen::of(with_objects(Watched::engine(&kernels)), &kernels)
    })?;
    let restart = "ipvs: restart with nothing changed";
    figures.push(restart, TYPICAL, (seen.restart.as_secs_f64(), "s"), None)?;
    figures.push(restart, TYPICAL, (seen.commits, "commits"), 0.0)?;
    let replaced = "ipvs: one endpoint replaced";
    let time = ms(percentile(&seen.times, 50));
    figures.push(replaced, TYPICAL, (time, "ms, median"), None)?;
    figures.push(replaced, TYPICAL, (seen.sends, "sends"), 1.0)?;
    figures.push(replaced, TYPICAL, (seen.messages, "messages"), 2.0)?;
    Ok(figures.push(replaced, TYPICAL, (seen.dumps, "dumps"), 0.0)?)
}

/// Cost of a start on existing state, and of changes after it.
#[derive(Default)]
struct Seen {
    restart: Duration,
    /// Number of commits of the start.
    commits: f64,
    /// Time of each change.
    times: Vec<Duration>,
    /// Highest cost of a change in IPVS.
    sends: f64,
    messages: f64,
    /// Number of dumps during all changes.
    dumps: f64,
}

impl Seen {
    fn of(mut engine: Engine, kernels: &[Watched]) -> Outcome<Self> {
        let mut seen = Self {
            restart: first_sync(&mut engine)?,
            commits: sum(kernels, |state| state.committed.len() as u64),
            ..Self::default()
        };
        let mut now = Duration::ZERO;
        let dumps = sum(kernels, |state| state.dumps);
        for (number, mut slice) in (0..).zip(TYPICAL.slices(CHANGES)) {
            cluster::replace(&mut slice, 2, number);
            engine.poll(now);
            now += Duration::from_secs(10);
            let sends = sum(kernels, |state| state.kernel.counters().sends);
            let messages = sum(kernels, |state| state.kernel.counters().messages);
            let (time, report) = Time::of(|| {
                engine.apply(slice.into());
                engine.poll(now)
            });
            let report = report.ok_or("a change is due")?;
            if !report.is_success() {
                return Err(report.to_string().into());
            }
            seen.times.push(time.wall);
            let sends = sum(kernels, |state| state.kernel.counters().sends) - sends;
            let messages = sum(kernels, |state| state.kernel.counters().messages) - messages;
            (seen.sends, seen.messages) = (seen.sends.max(sends), seen.messages.max(messages));
        }
        seen.dumps = sum(kernels, |state| state.dumps) - dumps;
        Ok(seen)
    }
}

#[allow(clippy::cast_precision_loss, reason = "they are few")]
fn sum(kernels: &[Watched], of: fn(&State) -> u64) -> f64 {
    let counts = kernels.iter().map(|kernel| of(&kernel.state()));
    counts.sum::<u64>() as f64
}

/// The recording kernel of one family. Clones share their state.
#[derive(Clone)]
struct Watched(Arc<Mutex<State>>);

struct State {
    kernel: Ipvs,
    dumps: u64,
    committed: Vec<Vec<Edit<Object>>>,
}

impl Watched {
    fn open_all() -> Outcome<[Self; 2]> {
        Ok([Self::open(Family::V4)?, Self::open(Family::V6)?])
    }

    fn engine(kernels: &[Self; 2]) -> Engine {
        Engine::with_kernels(
            config(&Family::ALL).engine,
            Planner::from(&config(&Family::ALL)),
            |family| kernels[usize::from(family == Family::V6)].clone(),
        )
    }

    fn open(family: Family) -> Outcome<Self> {
        Ok(Self(Arc::new(Mutex::new(State {
            kernel: Ipvs::open_with(family, IptablesBackend::Netlink, &config(&[family]).ipvs)?,
            dumps: 0,
            committed: Vec::new(),
        }))))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Target for Watched {
    type Object = Object;
    type Error = proxy_core::Error;

    fn dump(&mut self) -> Result<Vec<Object>, proxy_core::Error> {
        let mut state = self.state();
        state.dumps += 1;
        state.kernel.dump()
    }

    fn commit(&mut self, edits: &[Edit<Object>]) -> Result<Vec<Rejection>, proxy_core::Error> {
        let mut state = self.state();
        state.committed.push(edits.to_vec());
        state.kernel.commit(edits)
    }
}
