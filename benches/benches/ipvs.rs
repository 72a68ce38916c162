//! Figures of mode ipvs: loads compared with the programs `ipset`, `ipvsadm` and `ip`,
//! and the cost of changes.
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
use benches::time::Time;
use proxy_core::backend::ipvs::{Kernel as Ipvs, Object, Planner};
use proxy_core::{Config, Engine, Event, Family, Mode};
use testkit::netns::Netns;
use testkit::scoped::Directory;
use vipline_reconcile::{Edit, Rejection, Target};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const TYPICAL: Size = Size::new(10_000, 5);

/// Number of loads by the engine and by the programs.
const ROUNDS: usize = 3;

/// Number of measured changes.
const CHANGES: usize = 20;

/// Programs of the floor. Rules are excluded.
const PROGRAMS: [&str; 3] = ["ipset", "ipvsadm", "ip"];

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
    Config::default()
        .with_mode(Mode::Ipvs)
        .with_families(families.to_vec())
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

/// Times to load the same state, each in a separate namespace.
struct Round {
    ours: Duration,
    /// Time of each program in [`PROGRAMS`].
    theirs: [Duration; 3],
    /// Time of the iptables programs, which both loads need.
    rules: Duration,
}

impl Round {
    fn run(parts: &[Part]) -> Outcome<Self> {
        let ours = in_namespace(|| {
            let mut engine = with_objects(Engine::open(config(&Family::ALL))?);
            first_sync(&mut engine)
        })?;
        in_namespace(|| {
            let (mut theirs, mut rules) = ([Duration::ZERO; 3], Duration::ZERO);
            for part in parts {
                let time = part.run()?;
                match PROGRAMS.iter().position(|program| *program == part.program) {
                    Some(place) => theirs[place] += time,
                    None => rules += time,
                }
            }
            let mut engine = complete(Engine::open(config(&Family::ALL))?);
            match engine.difference()?.edits {
                0 => Ok(Self {
                    ours,
                    theirs,
                    rules,
                }),
                edits => Err(format!("the programs left {edits} edits to be made").into()),
            }
        })
    }

    fn floor(&self) -> Duration {
        self.theirs.iter().sum()
    }

    fn ratio(&self) -> f64 {
        self.ours.as_secs_f64() / self.floor().as_secs_f64()
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
            let script = complete(Engine::plan_only(config(&[family]))?).desired();
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
    let rounds = (0..ROUNDS).map(|_| Round::run(&parts));
    let rounds: Vec<Round> = rounds.collect::<Outcome<_>>()?;
    let median = |of: &dyn Fn(&Round) -> Duration| {
        let times: Vec<Duration> = rounds.iter().map(of).collect();
        percentile(&times, 50).as_secs_f64()
    };
    let mut push = |value, unit: &str, limit: Option<f64>| {
        figures.push("ipvs: full load", TYPICAL, (value, unit), limit)
    };
    push(median(&|round| round.ours), "s", None)?;
    push(median(&Round::floor), "s, programs", None)?;
    for (place, program) in PROGRAMS.iter().enumerate() {
        push(
            median(&|round| round.theirs[place]),
            &format!("s, {program}"),
            None,
        )?;
    }
    push(median(&|round| round.rules), "s, iptables", None)?;
    let mut ratios: Vec<f64> = rounds.iter().map(Round::ratio).collect();
    ratios.sort_by(f64::total_cmp);
    Ok(push(ratios[ROUNDS / 2], "x programs", Some(1.2))?)
}

/// Measures a start on existing state, and replacements of single endpoints.
fn change(figures: &mut Figures) -> Outcome<()> {
    let seen = Netns::new()?.run(|| {
        first_sync(&mut with_objects(Engine::open(config(&Family::ALL))?))?;
        let kernels = [Watched::open(Family::V4)?, Watched::open(Family::V6)?];
        let mut engine = Engine::with_kernels::<Planner, _>(config(&Family::ALL), |family| {
            kernels[usize::from(family == Family::V6)].clone()
        });
        engine = with_objects(engine);
        Seen::of(engine, &kernels)
    })?;
    let restart = "ipvs: restart with nothing changed";
    figures.push(restart, TYPICAL, (seen.restart.as_secs_f64(), "s"), None)?;
    figures.push(restart, TYPICAL, (seen.commits, "commits"), 0.0)?;
    let replaced = "ipvs: one endpoint replaced";
    let median = ms(percentile(&seen.times, 50));
    figures.push(replaced, TYPICAL, (median, "ms, median"), None)?;
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
            commits: sum(kernels, |state| state.commits),
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

/// The counting kernel of one family. Clones share their state.
#[derive(Clone)]
struct Watched(Arc<Mutex<State>>);

struct State {
    kernel: Ipvs,
    dumps: u64,
    commits: u64,
}

impl Watched {
    fn open(family: Family) -> Outcome<Self> {
        Ok(Self(Arc::new(Mutex::new(State {
            kernel: Ipvs::open(family, &config(&[family]).ipvs)?,
            dumps: 0,
            commits: 0,
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
        state.commits += 1;
        state.kernel.commit(edits)
    }
}
