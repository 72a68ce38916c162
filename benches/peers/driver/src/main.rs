//! Measures the same jobs by our crates, by other published crates and by programs.
//!
//! `cargo xtask bench peers` runs it; `--cold` also measures builds of the crates, which takes
//! minutes. All work in the kernel happens in network namespaces that the program creates. It
//! needs root. What is not installed, or cannot be built, is a line of the table.
#![forbid(unsafe_code)]

mod crates;

mod files;

mod measure;

use std::collections::BTreeMap;
use std::env;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use jobs::Outcome;
use testkit::netns::Netns;
use vipline_conntrack::{Flow, Protocol, Tuple};
use vipline_nftables::{Client, Family, Name, Object, TableId};

use crates::{CONNTRACK, NFTABLES, NLINK, PEERS, Peer, RUSTABLES, VIPLINE};
use files::Files;
use measure::{Measured, Missing};

/// Number of runs of each program. They take turns.
const ROUNDS: usize = 5;

fn main() -> ExitCode {
    let mut arguments = env::args().skip(1);
    let done = match arguments.next().as_deref() {
        Some(measure::ARGUMENT) => measure::child(arguments),
        Some("--cold") => compare(true),
        Some(other) => Err(format!("{other}: the only argument is --cold").into()),
        None => compare(false),
    };
    done.unwrap_or_else(|error| {
        eprintln!("{error}");
        ExitCode::FAILURE
    })
}

/// A job, and the programs that do it.
struct Job {
    title: String,
    /// What the namespace must have.
    prepare: fn(&Files) -> Outcome<()>,
    /// Checks the namespace after each run. A job that only reads checks itself what it found.
    check: Option<fn() -> Outcome<()>>,
    programs: Vec<Program>,
}

/// A program that does a job.
struct Program {
    name: String,
    /// The peer, if it is not a program of the system.
    peer: Option<Peer>,
    command: Vec<String>,
}

/// Measures all jobs and prints the tables.
fn compare(cold: bool) -> Outcome<ExitCode> {
    let mut builds = BTreeMap::new();
    for peer in PEERS {
        eprintln!("building {}", peer.program);
        builds.insert(peer.program, peer.build()?);
    }
    let files = Files::new()?;
    println!(
        "{:<34} {:<24} {:>9} {:>9} {:>8} {:>9}",
        "job", "program", "ms", "cpu ms", "x ours", "peak MiB"
    );
    for job in jobs(&files)? {
        measure_job(&job, &files, &builds)?;
    }
    println!("\n{:<34} {:>8} {:>14}", "crate", "crates", "cold build s");
    for peer in PEERS {
        let is_built = builds.get(peer.program).is_some_and(Option::is_none);
        let seconds = match cold && is_built {
            true => format!("{:.0}", peer.cold_build()?.as_secs_f64()),
            false => "-".to_owned(),
        };
        for name in peer.crates {
            println!("{name:<34} {:>8} {seconds:>14}", crates::tree(name)?);
        }
    }
    if cold {
        println!("The cold build of our crates is that of all four together.");
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the folder of the programs.
fn folder() -> Outcome<PathBuf> {
    Ok(env::current_exe()?
        .parent()
        .ok_or("no folder of programs")?
        .to_owned())
}

/// Returns all jobs.
fn jobs(files: &Files) -> Outcome<Vec<Job>> {
    let folder = folder()?;
    let file = |name: &str| files.path(name).display().to_string();
    let peer = |peer: Peer, job: &str| Program {
        name: peer
            .crates
            .first()
            .copied()
            .unwrap_or(peer.program)
            .to_owned(),
        peer: Some(peer),
        command: vec![
            folder.join(peer.program).display().to_string(),
            job.to_owned(),
        ],
    };
    let ours = |name: &str, job: &str| Program {
        name: name.to_owned(),
        ..peer(VIPLINE, job)
    };
    let program = |command: &[&str], input: Option<&str>| {
        let mut words: Vec<String> = command.iter().map(|&word| word.to_owned()).collect();
        let name = words.join(" ");
        words.extend(input.map(&file));
        Program {
            name,
            peer: None,
            command: words,
        }
    };
    let nft = |title: String, job: &str, prepare, check, command: &[&str], input| Job {
        title,
        prepare,
        check,
        programs: vec![
            ours("vipline-nftables", job),
            peer(NLINK, job),
            peer(RUSTABLES, job),
            peer(NFTABLES, job),
            program(command, input),
        ],
    };
    let flows = |title: String, job: &str, command: &[&str]| Job {
        title,
        prepare: add_flows,
        check: None,
        programs: vec![
            ours("vipline-conntrack", job),
            peer(NLINK, job),
            peer(CONNTRACK, job),
            program(command, None),
        ],
    };
    let mut parse = ours("vipline-iptables", jobs::PARSE_SAVE);
    parse.command.push(file(files::SAVE));
    let port = jobs::PORT.to_string();
    let filter = [
        "conntrack",
        "-L",
        "-f",
        "ipv4",
        "-p",
        "udp",
        "--orig-port-dst",
        &port,
    ];
    Ok(vec![
        nft(
            format!("{} set elements added", jobs::ELEMENTS),
            jobs::ADD_ELEMENTS,
            add_table,
            Some(has_elements),
            &["nft", "-f"],
            Some(files::ELEMENTS),
        ),
        nft(
            format!("{} rules added", jobs::RULES),
            jobs::ADD_RULES,
            add_table,
            Some(has_rules),
            &["nft", "-f"],
            Some(files::RULES),
        ),
        nft(
            format!("{} rules read", jobs::RULES),
            jobs::READ_RULES,
            add_rules,
            None,
            &["nft", "-j", "list", "ruleset"],
            None,
        ),
        flows(
            format!("{} flows listed", jobs::FLOWS),
            jobs::LIST_FLOWS,
            &["conntrack", "-L"],
        ),
        flows(
            format!(
                "{} of {} flows listed",
                jobs::FLOWS / jobs::ONE_OF,
                jobs::FLOWS
            ),
            jobs::FILTER_FLOWS,
            &filter,
        ),
        Job {
            title: format!("{} entries of an IP set added", jobs::ELEMENTS),
            prepare: |_| Ok(()),
            check: Some(has_entries),
            programs: vec![
                ours("vipline-ipset", jobs::ADD_ENTRIES),
                program(&["ipset", "restore", "-file"], Some(files::ENTRIES)),
            ],
        },
        Job {
            title: format!("{} lines of a save parsed", jobs::LINES),
            prepare: |_| Ok(()),
            check: None,
            programs: vec![
                parse,
                program(&["iptables-restore", "--test"], Some(files::SAVE)),
            ],
        },
    ])
}

/// Measures a job, and prints a line for each program. The first program is ours.
fn measure_job(job: &Job, files: &Files, builds: &BTreeMap<&str, Option<String>>) -> Outcome<()> {
    let missing = |program: &Program| match program.peer {
        Some(peer) => builds.get(peer.program).cloned().flatten(),
        None => (!is_installed(&program.command)).then(|| "not installed".to_owned()),
    };
    let mut reasons: Vec<_> = job.programs.iter().map(missing).collect();
    let mut runs: Vec<Vec<Measured>> = vec![Vec::new(); job.programs.len()];
    // Reads share the objects that they read.
    let shared = match job.check {
        None => Some(prepared(job, files)?),
        Some(_) => None,
    };
    for _ in 0..ROUNDS {
        for ((program, reason), runs) in job.programs.iter().zip(&mut reasons).zip(&mut runs) {
            if reason.is_some() {
                continue;
            }
            let fresh = match &shared {
                Some(_) => None,
                None => Some(prepared(job, files)?),
            };
            let netns = fresh.as_ref().or(shared.as_ref()).ok_or("no namespace")?;
            *reason = match measure::run(netns, &program.command)? {
                Ok(measured) => {
                    runs.push(measured);
                    let checked = job.check.map_or(Ok(()), |check| netns.run(check));
                    checked.err().map(|error| error.to_string())
                }
                Err(Missing::Cannot) => Some("has no function for it".to_owned()),
                Err(Missing::Failed(reason)) => Some(reason),
            };
        }
    }
    // Ratios are those of processor time, on which other processes have little influence.
    let processor = |runs: &[Measured]| median(runs, |run| run.processor);
    let ours = runs.first().and_then(|runs| processor(runs));
    for ((program, reason), runs) in job.programs.iter().zip(reasons).zip(&runs) {
        let times = median(runs, |run| run.time).zip(processor(runs)).zip(ours);
        let line = match (reason, times) {
            (None, Some(((time, processor), ours))) => {
                let peak = runs
                    .iter()
                    .map(|run| run.kibibytes)
                    .max()
                    .unwrap_or_default();
                let (ms, peak) = (
                    |time: Duration| time.as_secs_f64() * 1e3,
                    peak as f64 / 1024.0,
                );
                let ratio = processor.as_secs_f64() / ours.as_secs_f64();
                let (time, processor) = (ms(time), ms(processor));
                format!("{time:>9.1} {processor:>9.1} {ratio:>8.2} {peak:>9.1}")
            }
            (reason, _) => reason.unwrap_or_default(),
        };
        println!("{:<34} {:<24} {line}", job.title, program.name);
    }
    Ok(())
}

/// Creates a namespace with what a job needs.
fn prepared(job: &Job, files: &Files) -> Outcome<Netns> {
    let netns = Netns::new()?;
    netns.run(|| (job.prepare)(files))?;
    Ok(netns)
}

fn median(runs: &[Measured], of: fn(&Measured) -> Duration) -> Option<Duration> {
    let mut times: Vec<_> = runs.iter().map(of).collect();
    times.sort();
    times.get(times.len() / 2).copied()
}

fn is_installed(command: &[String]) -> bool {
    let folders = env::var_os("PATH").unwrap_or_default();
    let program = command.first().map_or("", String::as_str);
    env::split_paths(&folders).any(|folder| folder.join(program).exists())
}

/// Runs a program of the system in the namespace of the thread.
fn system(command: &mut Command) -> Outcome<String> {
    let output = command.output()?;
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout)?),
        false => Err(String::from_utf8_lossy(&output.stderr).into()),
    }
}

fn table() -> Outcome<TableId> {
    Ok(TableId::new(Family::Ip, Name::new(jobs::TABLE)?))
}

fn add_table(_: &Files) -> Outcome<()> {
    Ok(Client::open()?.add(vipline_nftables::Table::new(table()?))?)
}

fn add_rules(files: &Files) -> Outcome<()> {
    add_table(files)?;
    let program = folder()?.join(VIPLINE.program);
    system(Command::new(program).arg(jobs::ADD_RULES)).map(drop)
}

fn add_flows(_: &Files) -> Outcome<()> {
    let server = IpAddr::V4(Ipv4Addr::new(10, 96, 0, 10));
    let flow = |number: u32| {
        let host = Ipv4Addr::from_bits(Ipv4Addr::new(10, 8, 0, 0).to_bits() + number);
        let port = match number.is_multiple_of(jobs::ONE_OF) {
            true => jobs::PORT,
            false => 5353,
        };
        let tuple = Tuple::ports(Protocol::UDP, (host.into(), 40_000), (server, port));
        let mut flow = Flow::new(tuple, tuple.inverted());
        flow.timeout = Some(3600);
        flow
    };
    let mut client = vipline_conntrack::Client::open()?;
    let maximum = client.usage()?.max_entries;
    if maximum.is_some_and(|maximum| maximum < jobs::FLOWS) {
        return Err(format!("net.netfilter.nf_conntrack_max is below {}", jobs::FLOWS).into());
    }
    client.create_all((0..jobs::FLOWS).map(flow))?;
    Ok(())
}

fn has_elements() -> Outcome<()> {
    count(
        |object| matches!(object, Object::Element(_)).into(),
        jobs::ELEMENTS,
    )
}

fn has_rules() -> Outcome<()> {
    let rules = |object: &Object| match object {
        Object::Chain(chain) => chain.rules.len(),
        _ => 0,
    };
    count(rules, jobs::RULES)
}

fn count(of: impl Fn(&Object) -> usize, expected: u32) -> Outcome<()> {
    let ruleset = Client::open()?.dump(&[table()?])?;
    jobs::expect(ruleset.objects().map(|object| of(&object)).sum(), expected)
}

fn has_entries() -> Outcome<()> {
    let list = system(Command::new("ipset").args(["list", "-terse", jobs::SET]))?;
    match list.contains(&format!("Number of entries: {}", jobs::ELEMENTS)) {
        true => Ok(()),
        false => Err("entries are missing".into()),
    }
}
