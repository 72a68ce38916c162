//! Figures of deleting few of many conntrack entries, compared with `conntrack -D`.
//!
//! Measurements alternate. Runs in network namespaces, and needs root and the program
//! `conntrack`.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Command as Program, ExitCode, Stdio};
use std::time::Duration;

use benches::figure::{Figures, conclude, ms, percentile};
use benches::time::Time;
use testkit::netns::Netns;
use vipline_conntrack::{Client, Family, Filter, Flow, Protocol, Tuple, TupleFilter};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Number of entries.
const FLOWS: u32 = 100_000;

/// One of this number of entries is deleted.
const ONE_OF: u32 = 100;

/// Number of rounds.
const ROUNDS: usize = 11;

/// Destination ports of deleted and of other entries.
const PORTS: [u16; 2] = [53, 5353];

fn main() -> ExitCode {
    conclude(figures())
}

/// Measures all figures, and returns the number of exceeded limits.
fn figures() -> Outcome<usize> {
    let mut figures = Figures::new()?;
    delete(&mut figures)?;
    Ok(figures.finish("conntrack")?)
}

/// Times to delete the same entries.
struct Round {
    /// Time of a filtered dump and deletions of single entries.
    found: Duration,
    /// Time of a filtered flush.
    flushed: Duration,
    theirs: Duration,
}

impl Round {
    fn run(netns: &Netns, client: &mut Client) -> Outcome<Self> {
        let found = timed(client, |client| {
            let mut keys = Vec::new();
            client
                .dump(&filter(), |flow| keys.push(flow.key()))
                .map(drop)?;
            client.delete_all(keys)?;
            Ok(())
        })?;
        let flushed = timed(client, |client| {
            let _ = client.flush(&filter())?;
            Ok(())
        })?;
        let theirs = timed(client, |_| {
            let arguments = ["-D", "-f", "ipv4", "-p", "udp", "--orig-port-dst", "53"];
            let mut program = Program::new("conntrack");
            program
                .args(arguments)
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            match netns.run(|| program.status())? {
                status if status.success() => Ok(()),
                status => Err(format!("conntrack -D: {status}").into()),
            }
        })?;
        Ok(Self {
            found,
            flushed,
            theirs,
        })
    }
}

/// Measures repeated deletions.
fn delete(figures: &mut Figures) -> Outcome<()> {
    let netns = Netns::new()?;
    let mut client = netns.run(Client::open)?;
    client.create_all((0..FLOWS).filter(|number| !is_deleted(*number)).map(flow))?;
    let rounds = (0..ROUNDS).map(|_| Round::run(&netns, &mut client));
    let rounds: Vec<Round> = rounds.collect::<Outcome<_>>()?;

    let theirs: Vec<Duration> = rounds.iter().map(|round| round.theirs).collect();
    let theirs = (ms(percentile(&theirs, 50)), "ms");
    figures.push("conntrack: floor, conntrack -D", FLOWS, theirs, None)?;
    let mut push = |measure: &str, of: fn(&Round) -> Duration| {
        let times: Vec<Duration> = rounds.iter().map(of).collect();
        figures.push(measure, FLOWS, (ms(percentile(&times, 50)), "ms"), None)?;
        let ratio = |round: &Round| of(round).as_secs_f64() / round.theirs.as_secs_f64();
        let mut ratios: Vec<f64> = rounds.iter().map(ratio).collect();
        ratios.sort_by(f64::total_cmp);
        let median = (ratios[ROUNDS / 2], "x conntrack -D");
        figures.push(measure, FLOWS, median, 0.2)
    };
    push("conntrack: 1 % found and deleted", |round| round.found)?;
    push("conntrack: 1 % flushed", |round| round.flushed)?;
    Ok(())
}

/// Creates the entries to delete, and returns the time of their deletion.
fn timed(
    client: &mut Client,
    delete: impl FnOnce(&mut Client) -> Outcome<()>,
) -> Outcome<Duration> {
    client.create_all((0..FLOWS).filter(|number| is_deleted(*number)).map(flow))?;
    let (time, done) = Time::of(|| delete(client));
    done?;
    let left = client.usage()?.entries;
    match left == FLOWS - FLOWS / ONE_OF {
        true => Ok(time.wall),
        false => Err(format!("{left} flows are left").into()),
    }
}

fn filter() -> Filter {
    let [port, _] = PORTS;
    Filter::new()
        .with_family(Family::V4)
        .with_protocol(Protocol::UDP)
        .with_original(TupleFilter::new().with_destination_port(port))
}

fn is_deleted(number: u32) -> bool {
    number.is_multiple_of(ONE_OF)
}

/// Returns an entry with a unique address.
fn flow(number: u32) -> Flow {
    let host = IpAddr::V4(Ipv4Addr::from_bits(
        Ipv4Addr::new(10, 8, 0, 0).to_bits() + number,
    ));
    let server = IpAddr::V4(Ipv4Addr::new(10, 96, 0, 10));
    let port = PORTS[usize::from(!is_deleted(number))];
    let tuple = Tuple::ports(Protocol::UDP, (host, 40_000), (server, port));
    let mut flow = Flow::new(tuple, tuple.inverted());
    flow.timeout = Some(3600);
    flow
}
