//! The figures of performance: measured on the real kernel, and asserted.
//!
//! Everything happens in network namespaces made for it, so this needs root.
//! Ratios are taken side by side in one run; times are for illustration unless
//! they have a limit.

use std::error::Error;
use std::process::{Command, ExitCode};
use std::time::Duration;
use std::{env, fs, thread};

use benches::cluster::{self, Size};
use benches::figure::{Figures, ms, percentile};
use benches::floor;
use benches::proxy::{Proxy, Traffic};
use benches::time::Time;
use proxy_core::Event;
use testkit::netns::Netns;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const TYPICAL: Size = Size::new(10_000, 5);
const SMALL: Size = Size::new(1_000, 1);
const LARGE: Size = Size::new(100_000, 1);

/// How a process of this program is asked for the memory of one proxy.
const MEMORY: &str = "--memory";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let outcome = match arguments.iter().position(|argument| argument == MEMORY) {
        Some(place) => memory_of(&arguments[place + 1..]).map(|()| 0),
        None => figures(),
    };
    match outcome {
        Ok(0) => ExitCode::SUCCESS,
        Ok(missed) => {
            eprintln!("{missed} figures are missed");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Takes all figures, and returns how many exceed their limit.
fn figures() -> Outcome<usize> {
    let mut figures = Figures::new()?;
    full_load(&mut figures)?;
    scale(&mut figures)?;
    changes(&mut figures)?;
    memory(&mut figures)?;
    Ok(figures.finish("figures")?)
}

/// A proxy in a namespace of its own.
struct Cell {
    proxy: Proxy,
    netns: Netns,
}

impl Cell {
    /// Starts a proxy that knows all objects, but not yet that these are all.
    fn start(size: Size, records: bool) -> Outcome<Self> {
        let netns = Netns::new()?;
        let proxy = netns.run(|| Proxy::start(size.events(), records))?;
        Ok(Self { proxy, netns })
    }

    /// Starts a proxy and lets it load everything.
    fn loaded(size: Size) -> Outcome<Self> {
        let mut cell = Self::start(size, false)?;
        cell.proxy.change(Event::Synced);
        Ok(cell)
    }
}

/// What a full load of an empty namespace costs, beside its floor.
struct Load {
    time: Time,
    floor: Time,
    longest_commit: Duration,
}

impl Load {
    fn measure(size: Size) -> Outcome<Self> {
        let mut cell = Cell::start(size, true)?;
        let (time, _) = cell.proxy.change(Event::Synced);
        let transactions = cell.proxy.recorded();
        let longest_commit = cell.proxy.commits().into_iter().max().unwrap_or_default();
        drop(cell);
        settle();
        let batches: Vec<_> = transactions
            .iter()
            .map(|transaction| transaction.encode(1, None).bytes().to_vec())
            .collect();
        let netns = Netns::new()?;
        let floor = netns.run(|| floor::replay(&batches))?;
        drop(netns);
        settle();
        Ok(Self {
            time,
            floor,
            longest_commit,
        })
    }

    fn ratio(&self) -> f64 {
        self.time.wall.as_secs_f64() / self.floor.wall.as_secs_f64()
    }
}

/// Waits while the kernel clears up behind a namespace.
fn settle() {
    thread::sleep(Duration::from_millis(200));
}

fn full_load(figures: &mut Figures) -> Outcome<()> {
    const ROUNDS: usize = 7;
    let mut loads: Vec<_> = (0..ROUNDS)
        .map(|_| Load::measure(TYPICAL))
        .collect::<Result<_, _>>()?;
    loads.sort_by(|one, other| one.ratio().total_cmp(&other.ratio()));
    let median = &loads[ROUNDS / 2];
    let name = "nftables: full load";
    figures.push(name, TYPICAL, (median.ratio(), "x floor"), 1.5)?;
    figures.push(name, TYPICAL, (ms(median.time.wall), "ms"), None)?;
    figures.push(
        "nftables: full load, floor",
        TYPICAL,
        (ms(median.floor.wall), "ms"),
        None,
    )?;
    let processor = |time: fn(&Load) -> Time| loads.iter().map(|load| time(load).processor).min();
    let [time, floor] = [processor(|load| load.time), processor(|load| load.floor)]
        .map(|time| time.unwrap_or_default().as_secs_f64());
    let name = "nftables: full load, processor time";
    figures.push(name, TYPICAL, (time / floor, "x floor"), None)?;
    figures.push(name, TYPICAL, (time * 1e3, "ms"), None)?;
    let longest = loads
        .iter()
        .map(|load| load.longest_commit)
        .min()
        .unwrap_or_default();
    figures.push(
        "nftables: full load, longest commit",
        TYPICAL,
        (ms(longest), "ms"),
        None,
    )?;
    Ok(())
}

/// The cost of things at 100,000 Services as a multiple of that at 1,000.
fn scale(figures: &mut Figures) -> Outcome<()> {
    const ROUNDS: usize = 3;
    const CHANGES: u32 = 500;
    let (mut small, mut large) = (Duration::MAX, Duration::MAX);
    for _ in 0..ROUNDS {
        small = small.min(Load::measure(SMALL)?.time.wall);
        large = large.min(Load::measure(LARGE)?.time.wall);
    }
    let per_service = |time: Duration, size: Size| time.as_secs_f64() / size.services as f64;
    let ratio = per_service(large, LARGE) / per_service(small, SMALL);
    let name = "nftables: full load, time per Service";
    figures.push(name, LARGE, (ratio, "x that at 1k"), 1.5)?;
    figures.push("nftables: full load", SMALL, (ms(small), "ms"), None)?;
    figures.push("nftables: full load", LARGE, (ms(large), "ms"), None)?;

    let (mut small, mut large) = (Cell::loaded(SMALL)?, Cell::loaded(LARGE)?);
    let (mut in_small, mut in_large) = (Vec::new(), Vec::new());
    let (mut of_small, mut of_large) = (SMALL.slices(100), LARGE.slices(100));
    for number in 0..CHANGES {
        in_small.push(replace_one(&mut small.proxy, &mut of_small, number));
        in_large.push(replace_one(&mut large.proxy, &mut of_large, number));
    }
    let medians = [&in_small, &in_large].map(|samples| percentile(samples, 50));
    let ratio = medians[1].as_secs_f64() / medians[0].as_secs_f64();
    let name = "nftables: one endpoint replaced";
    figures.push(name, LARGE, (ratio, "x that at 1k"), 2.0)?;
    figures.push(
        "nftables: one endpoint replaced, median",
        SMALL,
        (ms(medians[0]), "ms"),
        None,
    )?;
    figures.push(
        "nftables: one endpoint replaced, median",
        LARGE,
        (ms(medians[1]), "ms"),
        None,
    )?;

    five_to_six(figures, &mut large.proxy, LARGE, 100, 20.0)
}

fn changes(figures: &mut Figures) -> Outcome<()> {
    const CHANGES: u32 = 2000;
    let mut cell = Cell::loaded(TYPICAL)?;
    let mut slices = TYPICAL.slices(100);
    let before = cell.proxy.traffic();
    let times: Vec<_> = (0..CHANGES)
        .map(|number| replace_one(&mut cell.proxy, &mut slices, number))
        .collect();
    let name = "nftables: one endpoint replaced";
    let p99 = ms(percentile(&times, 99));
    figures.push(&format!("{name}, p99"), TYPICAL, (p99, "ms"), 1.0)?;
    let median = ms(percentile(&times, 50));
    figures.push(&format!("{name}, median"), TYPICAL, (median, "ms"), None)?;
    let after = cell.proxy.traffic();
    let each =
        |count: fn(Traffic) -> u64| (count(after) - count(before)) as f64 / f64::from(CHANGES);
    figures.push(
        name,
        TYPICAL,
        (each(|traffic| traffic.sends_v4), "sendmsg IPv4"),
        1.0,
    )?;
    figures.push(
        name,
        TYPICAL,
        (each(|traffic| traffic.sends_v6), "sendmsg IPv6"),
        0.0,
    )?;
    // The one datagram is the acknowledgement: a dump would be more.
    figures.push(
        name,
        TYPICAL,
        (each(|traffic| traffic.receives), "datagrams back"),
        1.0,
    )?;

    five_to_six(figures, &mut cell.proxy, TYPICAL, 500, 1.0)?;
    restart(figures)
}

/// Replaces one endpoint of one of the slices, and tells how long that took.
fn replace_one(
    proxy: &mut Proxy,
    slices: &mut [vipline_service_model::api::EndpointSlice],
    number: u32,
) -> Duration {
    let place = number as usize % slices.len();
    let round = number as usize / slices.len();
    let slice = &mut slices[place];
    cluster::replace(slice, round, number);
    let (time, report) = proxy.change(slice.clone());
    assert_eq!(report.ports, 1);
    time.wall
}

/// Lets a Service have five endpoints, six, and five again.
fn five_to_six(
    figures: &mut Figures,
    proxy: &mut Proxy,
    size: Size,
    rounds: u32,
    limit: f64,
) -> Outcome<()> {
    const FIRST: u32 = 1 << 16;
    let mut slice = size.slices(1).swap_remove(0);
    slice.endpoints.clear();
    for number in 0..5 {
        cluster::add(&mut slice, FIRST + number);
    }
    proxy.change(slice.clone());
    let mut times = Vec::new();
    for number in 0..rounds {
        let mut six = slice.clone();
        cluster::add(&mut six, FIRST + 5 + number);
        times.push(proxy.change(six).0.wall);
        times.push(proxy.change(slice.clone()).0.wall);
    }
    let name = "nftables: endpoints 5 to 6 to 5";
    let p99 = ms(percentile(&times, 99));
    figures.push(&format!("{name}, p99"), size, (p99, "ms"), limit)?;
    let median = ms(percentile(&times, 50));
    figures.push(&format!("{name}, median"), size, (median, "ms"), None)?;
    Ok(())
}

/// Starts a second proxy where the first has left everything as it has to be.
fn restart(figures: &mut Figures) -> Outcome<()> {
    let Cell { proxy, netns } = Cell::loaded(TYPICAL)?;
    drop(proxy);
    let mut second = netns.run(|| Proxy::start(TYPICAL.events(), false))?;
    let (time, report) = second.change(Event::Synced);
    let mut edits = 0;
    for done in report.families {
        edits += done.outcome?.edits;
    }
    let name = "nftables: restart with nothing changed";
    figures.push(name, TYPICAL, (edits as f64, "edits"), 0.0)?;
    figures.push(
        name,
        TYPICAL,
        (second.commits().len() as f64, "commits"),
        0.0,
    )?;
    figures.push(name, TYPICAL, (ms(time.wall), "ms"), None)?;
    Ok(())
}

/// Measures how much memory a proxy needs, each in a process of its own.
fn memory(figures: &mut Figures) -> Outcome<()> {
    for (size, limit) in [(TYPICAL, 60.0), (LARGE, 250.0)] {
        let output = Command::new(env::current_exe()?)
            .arg(MEMORY)
            .args([size.services, size.endpoints].map(|number| number.to_string()))
            .output()?;
        let answer = String::from_utf8(output.stdout)?;
        let mut numbers = answer.split_whitespace().map(str::parse::<f64>);
        let (Some(Ok(resident)), Some(Ok(peak))) = (numbers.next(), numbers.next()) else {
            let words = String::from_utf8_lossy(&output.stderr);
            return Err(format!("no figure of memory: {words}").into());
        };
        figures.push("nftables: memory, resident", size, (resident, "MiB"), limit)?;
        figures.push("nftables: memory, peak", size, (peak, "MiB"), None)?;
    }
    Ok(())
}

/// Loads everything, changes something, and prints this process' memory in MiB.
fn memory_of(size: &[String]) -> Outcome<()> {
    let [services, endpoints] = size else {
        return Err("a size is two numbers".into());
    };
    let size = Size::new(services.parse()?, endpoints.parse()?);
    let mut cell = Cell::loaded(size)?;
    let mut slices = size.slices(10);
    for number in 0..100 {
        replace_one(&mut cell.proxy, &mut slices, number);
    }
    let status = fs::read_to_string("/proc/self/status")?;
    let mib = |field: &str| -> Outcome<f64> {
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let number = line.and_then(|line| line.split_whitespace().next());
        Ok(number.ok_or("no such field")?.parse::<f64>()? / 1024.0)
    };
    #[allow(
        clippy::print_stdout,
        reason = "the process that started this one reads it"
    )]
    {
        println!("{} {}", mib("VmRSS:")?, mib("VmHWM:")?);
    }
    Ok(())
}
