//! Figures of mode nftables, from events to the kernel, with limits.
//!
//! Runs in network namespaces, and needs root.
//! Measurements of a ratio alternate in one run. Times without a limit are only
//! informative.

use std::error::Error;
use std::process::{Command, ExitCode};
use std::time::Duration;
use std::{env, fs, iter, thread};

use benches::cluster::{self, Size};
use benches::figure::{Figures, conclude, ms, percentile};
use benches::floor;
use benches::proxy::{Proxy, Traffic};
use benches::time::Time;
use proxy_core::Event;
use testkit::netns::Netns;
use vipline_nftables::Transaction;
use vipline_service_model::api;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const TYPICAL: Size = Size::new(10_000, 5);
const SMALL: Size = Size::new(1_000, 1);
const LARGE: Size = Size::new(100_000, 1);

/// Argument with which this program measures the memory of one proxy.
const MEMORY: &str = "--memory";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let outcome = match arguments.iter().position(|argument| argument == MEMORY) {
        Some(place) => memory_of(&arguments[place + 1..]).map(|()| 0),
        None => figures(),
    };
    conclude(outcome)
}

/// Measures all figures, and returns the number of exceeded limits.
fn figures() -> Outcome<usize> {
    let mut figures = Figures::new()?;
    full_load(&mut figures)?;
    scale(&mut figures)?;
    changes(&mut figures)?;
    memory(&mut figures)?;
    Ok(figures.finish("figures")?)
}

/// A proxy in a separate namespace.
struct Cell {
    proxy: Proxy,
    netns: Netns,
}

impl Cell {
    /// Starts a proxy with all objects, before [`Event::Synced`].
    fn start(size: Size) -> Outcome<Self> {
        let netns = Netns::new()?;
        let proxy = netns.run(|| Proxy::start(size.events()))?;
        Ok(Self { proxy, netns })
    }

    /// Starts a proxy and loads all objects.
    fn loaded(size: Size) -> Outcome<Self> {
        let mut cell = Self::start(size)?;
        cell.proxy.change(Event::Synced);
        Ok(cell)
    }
}

/// Cost of a full load of an empty namespace, and of its floor.
struct Load {
    time: Time,
    floor: Time,
    /// Longest time of one transaction in the kernel.
    longest: Duration,
}

impl Load {
    fn measure(size: Size) -> Outcome<Self> {
        let mut cell = Cell::start(size)?;
        cell.proxy.record();
        let (time, _) = cell.proxy.change(Event::Synced);
        let transactions = cell.proxy.transactions();
        drop(cell);
        settle();
        let netns = Netns::new()?;
        let mut each = Vec::new();
        for transactions in transactions {
            let batches = encoded(&transactions);
            each.extend(netns.run(|| floor::replay(&batches))?);
        }
        drop(netns);
        settle();
        Ok(Self {
            time,
            floor: each.iter().copied().sum(),
            longest: each.iter().map(|time| time.wall).max().unwrap_or_default(),
        })
    }

    fn ratio(&self) -> f64 {
        ratio(self.time.wall, self.floor.wall)
    }
}

fn encoded(transactions: &[Transaction]) -> Vec<Vec<u8>> {
    let batches = transactions
        .iter()
        .map(|transaction| transaction.encode(1, None));
    batches.map(|batch| batch.bytes().to_vec()).collect()
}

/// Waits until the kernel has removed a namespace.
fn settle() {
    thread::sleep(Duration::from_millis(200));
}

fn full_load(figures: &mut Figures) -> Outcome<()> {
    const ROUNDS: usize = 11;
    let loads: Vec<_> = (0..ROUNDS)
        .map(|_| Load::measure(TYPICAL))
        .collect::<Result<_, _>>()?;
    let quietest = |figure: fn(&Load) -> Duration| {
        let times = loads.iter().map(figure);
        times.min().unwrap_or_default()
    };
    let median = |figure: fn(&Load) -> Duration| {
        let times: Vec<_> = loads.iter().map(figure).collect();
        percentile(&times, 50)
    };
    let mut row = |measure, value, limit| figures.push(measure, TYPICAL, value, limit);
    let name = "nftables: full load";
    // Loads and replays alternate, because other processes slow down single rounds.
    let mut ratios: Vec<_> = loads.iter().map(Load::ratio).collect();
    ratios.sort_by(f64::total_cmp);
    row(name, (ratios[ROUNDS / 2], "x floor"), Some(1.5))?;
    let ratio = ratio(
        quietest(|load| load.time.wall),
        quietest(|load| load.floor.wall),
    );
    let quietest = "nftables: full load, quickest of rounds";
    row(quietest, (ratio, "x floor"), Some(1.5))?;
    row(name, (ms(median(|load| load.time.wall)), "ms"), None)?;
    let floor = ms(median(|load| load.floor.wall));
    row("nftables: full load, floor", (floor, "ms"), None)?;
    let longest = ms(median(|load| load.longest));
    row(
        "nftables: full load, longest transaction",
        (longest, "ms"),
        None,
    )?;
    Ok(())
}

/// Measures the ratio of costs at 100,000 Services to costs at 1,000.
fn scale(figures: &mut Figures) -> Outcome<()> {
    const ROUNDS: usize = 3;
    const CHANGES: u32 = 500;
    let (mut small, mut large) = (Duration::MAX, Duration::MAX);
    for _ in 0..ROUNDS {
        small = small.min(Load::measure(SMALL)?.time.wall);
        large = large.min(Load::measure(LARGE)?.time.wall);
    }
    let name = "nftables: full load, time per Service";
    let more = LARGE.services as f64 / SMALL.services as f64;
    figures.push(
        name,
        LARGE,
        (ratio(large, small) / more, "x that at 1k"),
        1.5,
    )?;
    for (size, time) in [(SMALL, small), (LARGE, large)] {
        figures.push("nftables: full load", size, (ms(time), "ms"), None)?;
    }

    let (mut small, mut large) = (Cell::loaded(SMALL)?, Cell::loaded(LARGE)?);
    let (mut in_small, mut in_large) = (Vec::new(), Vec::new());
    let (mut of_small, mut of_large) = (SMALL.slices(100), LARGE.slices(100));
    for number in 0..CHANGES {
        in_small.push(replace_one(&mut small.proxy, &mut of_small, number));
        in_large.push(replace_one(&mut large.proxy, &mut of_large, number));
    }
    let [small, median] = [&in_small, &in_large].map(|samples| percentile(samples, 50));
    let name = "nftables: one endpoint replaced";
    figures.push(name, LARGE, (ratio(median, small), "x that at 1k"), 2.0)?;
    for (size, time) in [(SMALL, small), (LARGE, median)] {
        figures.push(&format!("{name}, median"), size, (ms(time), "ms"), None)?;
    }
    five_to_six(figures, &mut large, LARGE, 20.0)
}

fn changes(figures: &mut Figures) -> Outcome<()> {
    const CHANGES: u32 = 2000;
    let mut cell = Cell::loaded(TYPICAL)?;
    let mut slices = TYPICAL.slices(100);
    let before = cell.proxy.traffic();
    let times: Vec<_> = (0..CHANGES)
        .map(|number| replace_one(&mut cell.proxy, &mut slices, number))
        .collect();
    let after = cell.proxy.traffic();
    let each = |count: fn(Traffic) -> u64| {
        let changes = f64::from(CHANGES);
        (count(after) - count(before)) as f64 / changes
    };
    let (v4, v6) = (each(|it| it.sends_v4), each(|it| it.sends_v6));
    // The only received datagram is the acknowledgment. A dump would need more.
    let receives = each(|it| it.receives);
    let name = "nftables: one endpoint replaced";
    let mut row = |measure, value, limit| figures.push(measure, TYPICAL, value, limit);
    let p99 = ms(quietest_p99(&times));
    row(
        "nftables: one endpoint replaced, p99",
        (p99, "ms"),
        Some(1.0),
    )?;
    let median = ms(percentile(&times, 50));
    row(
        "nftables: one endpoint replaced, median",
        (median, "ms"),
        None,
    )?;
    row(name, (v4, "sendmsg IPv4"), Some(1.0))?;
    row(name, (v6, "sendmsg IPv6"), Some(0.0))?;
    row(name, (receives, "datagrams back"), Some(1.0))?;

    five_to_six(figures, &mut cell, TYPICAL, 1.0)?;
    restart(figures)
}

/// Replaces one endpoint of a slice, and returns the elapsed time.
fn replace_one(proxy: &mut Proxy, slices: &mut [api::EndpointSlice], number: u32) -> Duration {
    let place = number as usize % slices.len();
    let round = number as usize / slices.len();
    let slice = &mut slices[place];
    cluster::replace(slice, round, number);
    let (time, report) = proxy.change(slice.clone());
    assert_eq!(report.ports, 1);
    time.wall
}

/// Measures a Service whose endpoints change from five to six and back.
fn five_to_six(figures: &mut Figures, cell: &mut Cell, size: Size, limit: f64) -> Outcome<()> {
    const FIRST: u32 = 1 << 16;
    const ROUNDS: usize = 100;
    let mut slice = size.slices(1).swap_remove(0);
    slice.endpoints.clear();
    for number in 0..5 {
        cluster::add(&mut slice, FIRST + number);
    }
    let mut six = slice.clone();
    cluster::add(&mut six, FIRST + 5);
    // The first changes create the chains for five and six endpoints.
    for _ in 0..2 {
        cell.proxy.change(slice.clone());
        cell.proxy.change(six.clone());
    }
    cell.proxy.record();
    cell.proxy.change(slice.clone());
    cell.proxy.change(six.clone());
    let [batches, _] = cell.proxy.transactions().map(|it| encoded(&it));
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        times.push(cell.proxy.change(slice.clone()).0.wall);
        times.push(cell.proxy.change(six.clone()).0.wall);
    }
    // Uses one socket for all batches: the first batch on a new socket takes longer.
    let batches: Vec<_> = iter::repeat_n(batches, ROUNDS).flatten().collect();
    let floor = cell.netns.run(|| floor::replay(&batches))?;
    let floor: Vec<_> = floor.into_iter().map(|time| time.wall).collect();
    let name = "nftables: endpoints 5 to 6 to 5";
    let p99 = ms(quietest_p99(&times));
    figures.push(&format!("{name}, p99"), size, (p99, "ms"), limit)?;
    let p99 = ms(quietest_p99(&floor));
    figures.push(&format!("{name}, floor, p99"), size, (p99, "ms"), None)?;
    let [median, floor] = [&times, &floor].map(|samples| percentile(samples, 50));
    figures.push(name, size, (ratio(median, floor), "x floor"), None)?;
    figures.push(&format!("{name}, median"), size, (ms(median), "ms"), None)?;
    Ok(())
}

/// Returns the lowest 99th percentile of five groups of samples.
fn quietest_p99(samples: &[Duration]) -> Duration {
    let parts = samples.chunks(samples.len().div_ceil(5));
    let p99 = parts.map(|part| percentile(part, 99));
    p99.min().unwrap_or_default()
}

fn ratio(one: Duration, other: Duration) -> f64 {
    one.as_secs_f64() / other.as_secs_f64()
}

/// Starts a second proxy on the state of the first, which needs no changes.
fn restart(figures: &mut Figures) -> Outcome<()> {
    let Cell { proxy, netns } = Cell::loaded(TYPICAL)?;
    drop(proxy);
    let mut second = netns.run(|| Proxy::start(TYPICAL.events()))?;
    let (time, report) = second.change(Event::Synced);
    let mut edits = 0;
    for done in report.families {
        edits += done.outcome?.edits;
    }
    let name = "nftables: restart with nothing changed";
    figures.push(name, TYPICAL, (edits as f64, "edits"), 0.0)?;
    figures.push(name, TYPICAL, (second.commits() as f64, "commits"), 0.0)?;
    figures.push(name, TYPICAL, (ms(time.wall), "ms"), None)?;
    Ok(())
}

/// Measures the memory of proxies, each in a separate process.
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

/// Loads all objects, applies changes, and prints the memory of this process in MiB.
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
