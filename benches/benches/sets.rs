//! Figures of adding entries to sets, compared with `ipset restore`.
//!
//! Measurements alternate. Runs in network namespaces, and needs root and the program
//! `ipset`.

use std::error::Error;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command as Program, ExitCode};
use std::time::Duration;

use benches::figure::{Figures, conclude, ms, percentile};
use benches::time::Time;
use testkit::netns::Netns;
use testkit::scoped::Directory;
use vipline_ipset::{Client, Commands, Entry, Member, Name, Object, Port, Set, SetFamily, SetType};
use vipline_reconcile::Edit;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Number of entries.
const ENTRIES: u32 = 100_000;

/// Number of loads.
const ROUNDS: usize = 11;

/// Number of single additions.
const CHANGES: u32 = 500;

fn main() -> ExitCode {
    conclude(figures())
}

/// Measures all figures, and returns the number of exceeded limits.
fn figures() -> Outcome<usize> {
    let mut figures = Figures::new()?;
    load(&mut figures)?;
    change(&mut figures)?;
    Ok(figures.finish("sets")?)
}

/// Times to add the same entries, each in a separate namespace.
struct Round {
    ours: Duration,
    /// Time of the crate with a document.
    read: Duration,
    theirs: Duration,
}

impl Round {
    fn run(edits: &[Edit<Object>], document: &Path) -> Outcome<Self> {
        let ours = timed(|| commit(&Commands::from_edits(edits)))?;
        let read = timed(|| {
            let text = std::fs::read_to_string(document)?;
            commit(&Commands::parse(&text, &[])?)
        })?;
        let theirs = timed(|| {
            let mut restore = Program::new("ipset");
            let status = restore.arg("-file").arg(document).arg("restore").status()?;
            match status.success() {
                true => Ok(()),
                false => Err(format!("ipset restore: {status}").into()),
            }
        })?;
        Ok(Self { ours, read, theirs })
    }
}

/// Measures repeated loads.
fn load(figures: &mut Figures) -> Outcome<()> {
    let edits = edits()?;
    let folder = Directory::new()?;
    folder.write("document", &Commands::from_edits(&edits).to_string())?;
    let document = folder.path().join("document");
    let rounds = (0..ROUNDS).map(|_| Round::run(&edits, &document));
    let rounds: Vec<Round> = rounds.collect::<Outcome<_>>()?;

    let theirs: Vec<Duration> = rounds.iter().map(|round| round.theirs).collect();
    let theirs = (ms(percentile(&theirs, 50)), "ms");
    figures.push("ipset: floor, ipset restore", ENTRIES, theirs, None)?;
    let mut push = |measure: &str, of: fn(&Round) -> Duration| {
        let times: Vec<Duration> = rounds.iter().map(of).collect();
        figures.push(measure, ENTRIES, (ms(percentile(&times, 50)), "ms"), None)?;
        let ratio = |round: &Round| of(round).as_secs_f64() / round.theirs.as_secs_f64();
        let mut ratios: Vec<f64> = rounds.iter().map(ratio).collect();
        ratios.sort_by(f64::total_cmp);
        let median = (ratios[ROUNDS / 2], "x ipset restore");
        figures.push(measure, ENTRIES, median, 1.0)
    };
    push("ipset: entries added", |round| round.ours)?;
    push("ipset: document restored", |round| round.read)?;
    Ok(())
}

/// Measures additions of single entries to a large set.
fn change(figures: &mut Figures) -> Outcome<()> {
    let netns = Netns::new()?;
    let mut client = netns.run(Client::open)?;
    client.commit(&Commands::from_edits(&edits()?))?;
    let (mut times, mut sends) = (Vec::new(), 0);
    for number in 0..CHANGES {
        let edits = [Edit::Add(entry(&name()?, ENTRIES + number))];
        let before = client.counters().sends;
        let (time, done) = Time::of(|| client.commit(&Commands::from_edits(&edits)));
        done?;
        times.push(time.wall);
        sends = sends.max(client.counters().sends - before);
    }
    let median = ms(percentile(&times, 50));
    figures.push("ipset: one entry added", ENTRIES, (median, "ms"), None)?;
    #[allow(clippy::cast_precision_loss, reason = "they are few")]
    let sends = (sends as f64, "messages");
    Ok(figures.push("ipset: one entry added", ENTRIES, sends, 1.0)?)
}

/// Runs `work` in a separate namespace, and returns the elapsed time.
fn timed(work: impl FnOnce() -> Outcome<()> + Send) -> Outcome<Duration> {
    let netns = Netns::new()?;
    netns.run(|| {
        let (time, done) = Time::of(work);
        done.map(|()| time.wall)
    })
}

fn commit(commands: &Commands) -> Outcome<()> {
    Ok(Client::open()?.commit(commands)?)
}

fn name() -> Outcome<Name> {
    Ok(Name::new("cluster-ips")?)
}

/// Returns the edits that create the set with all entries.
fn edits() -> Outcome<Vec<Edit<Object>>> {
    let name = name()?;
    let set = Set::new(name.clone(), SetType::HashIpPort, SetFamily::V4).with_maxelem(2 * ENTRIES);
    let entries = (0..ENTRIES).map(|number| entry(&name, number));
    let objects = [set.into()].into_iter().chain(entries);
    Ok(objects.map(Edit::Add).collect())
}

/// Returns an entry with a unique address and port.
fn entry(name: &Name, number: u32) -> Object {
    let ip = Ipv4Addr::from_bits(Ipv4Addr::new(10, 96, 0, 0).to_bits() + number);
    Entry::new(name.clone(), Member::IpPort(ip.into(), Port::tcp(443))).into()
}
