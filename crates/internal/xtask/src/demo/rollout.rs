//! Replaces endpoints one after another, under load.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use testkit::commits::CommitMonitor;
use testkit::traffic::{Answers, Connection, Load, Probe, Protocol};

use super::expect::all_answer;
use super::manifests::{Frontend, Manifest, frontends};
use super::mode::Stage;
use super::table::{Outcome, Row, Table, Tally};

/// Clients per address, and their pause between requests.
const CLIENTS: usize = 3;
const PAUSE: Duration = Duration::from_millis(5);
/// Time limit for a change to reach the kernel.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time without a commit after which a change is complete.
const QUIET: Duration = Duration::from_millis(300);
/// Time between changes; longer than the proxy's minimum sync period.
const BETWEEN: Duration = Duration::from_millis(1200);

/// Replaces endpoints in the manifests while clients send requests to their Services.
pub(super) fn run(stage: &mut Stage, manifests: &[Manifest], table: &mut Table) -> Result<()> {
    let removed = stage.lab.backends[0].addresses();
    let mut asked = stage.frontends.clone();
    asked.retain(|it| it.endpoints.iter().any(|at| removed.contains(&at.at.ip())));
    let mut connections = open_connections(stage, &asked)?;
    let mut loads = Vec::new();
    for frontend in &asked {
        let probe = Probe::new(frontend.protocol, frontend.address).retransmitting();
        loads.push(Load::start(&stage.lab.client.netns, probe, CLIENTS, PAUSE)?);
    }
    let mut manifests = manifests.to_vec();
    let mut times = Vec::new();
    for replaced in 0..stage.length.replaced() {
        times.extend(replace(stage, &mut manifests, replaced)?);
    }
    thread::sleep(BETWEEN);
    stage.frontends = frontends(&manifests)?;

    let answers: Vec<_> = loads.into_iter().map(Load::stop).collect();
    judge(stage, &asked, answers, table);
    for frontends in stage.frontends.chunk_by(Frontend::differs_by_address) {
        if frontends[0].sticky {
            stage.probe(frontends, ", later", table);
        }
    }
    for connection in &mut connections {
        connection
            .exchange("still there?")
            .context("a connection to the remaining endpoint")?;
    }
    table.add(&figure(
        stage,
        "open connections",
        format!(
            "{0} of {0} to the remaining endpoint survived",
            connections.len()
        ),
    ));
    times.sort_unstable();
    let ms = |time: Option<&Duration>| time.map_or(0.0, |time| time.as_secs_f64() * 1000.0);
    let (middle, last) = (ms(times.get(times.len() / 2)), ms(times.last()));
    table.add(&figure(
        stage,
        "manifest to kernel",
        format!(
            "median {middle:.1} ms, maximum {last:.1} ms, {} changes",
            times.len()
        ),
    ));
    Ok(())
}

/// Adds the results under load: no request may fail, and all new endpoints must answer.
///
/// With session affinity one endpoint is enough, because all clients share an address.
fn judge(stage: &Stage, asked: &[Frontend], answers: Vec<Answers>, table: &mut Table) {
    let fresh = stage.lab.backends[stage.length.replaced()..].iter().take(3);
    let fresh: Vec<String> = fresh.map(|host| host.name.clone()).collect();
    let mut answers = answers.into_iter();
    for frontends in asked.chunk_by(Frontend::differs_by_address) {
        let mut tally = Tally::default();
        for (frontend, answers) in frontends.iter().zip(&mut answers) {
            let by = if frontend.sticky { &[] } else { &*fresh };
            let verdict = all_answer(&answers, by);
            tally.add(frontend.address, answers, verdict);
        }
        let outcome = tally.outcome(String::new());
        table.add(&stage.row(frontends, "client, endpoints replaced", outcome));
    }
}

/// Replaces one backend by another, in one manifest after another.
///
/// Returns the time from the change of each manifest to the commit.
fn replace(stage: &mut Stage, manifests: &mut [Manifest], number: usize) -> Result<Vec<Duration>> {
    let old = stage.lab.backends[number].addresses();
    let new = stage.lab.backends[number + 3].addresses();
    let removed: Vec<(Protocol, SocketAddr)> = stage
        .servers
        .keys()
        .filter(|(_, at)| old.contains(&at.ip()))
        .copied()
        .collect();
    for (protocol, at) in &removed {
        let family = usize::from(at.is_ipv6());
        stage.serve(*protocol, (new[family], at.port()).into())?;
    }
    let mut times = Vec::new();
    for manifest in &mut *manifests {
        let text = old
            .iter()
            .zip(new)
            .fold(manifest.text.clone(), |text, (old, new)| {
                text.replace(&old.to_string(), &new.to_string())
            });
        if text != manifest.text {
            thread::sleep(BETWEEN);
            let commits = CommitMonitor::open(&stage.lab.node.netns)?;
            let start = Instant::now();
            stage.folder.write(&manifest.name, &text)?;
            let seen = commits
                .last_commit(start + COMMIT_TIMEOUT, QUIET)?
                .with_context(|| format!("{} did not reach the kernel", manifest.name))?;
            times.push(seen - start);
            manifest.text = text;
        }
    }
    let current = frontends(manifests)?;
    let gone = |at: &SocketAddr| {
        let mut endpoints = current.iter().flat_map(|each| &each.endpoints);
        endpoints.all(|endpoint| endpoint.at != *at)
    };
    ensure!(
        removed.iter().all(|(_, at)| gone(at)),
        "a manifest still contains a replaced address"
    );
    // The old servers had the time QUIET to finish open requests.
    stage.servers.retain(|key, _| !removed.contains(key));
    Ok(times)
}

/// Opens a connection to the remaining endpoint through each TCP frontend.
fn open_connections(stage: &Stage, asked: &[Frontend]) -> Result<Vec<Connection>> {
    let remaining = &stage.lab.backends[stage.length.replaced()].name;
    let mut connections = Vec::new();
    for frontend in asked {
        if frontend.protocol != Protocol::Tcp || frontend.sticky {
            continue;
        }
        let probe = Probe::new(frontend.protocol, frontend.address);
        let found = (0..100).find_map(|_| {
            let connection = Connection::open(&stage.lab.client.netns, probe).ok()?;
            (connection.server() == remaining).then_some(connection)
        });
        connections.push(found.with_context(|| format!("{remaining} never answers"))?);
    }
    Ok(connections)
}

fn figure(stage: &Stage, what: &str, words: String) -> Row {
    Row {
        mode: stage.mode,
        service: "all".to_owned(),
        what: what.to_owned(),
        from: String::new(),
        outcome: Outcome::Figure(words),
    }
}
