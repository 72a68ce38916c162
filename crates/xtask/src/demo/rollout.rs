//! Endpoints replaced one after the other, under load.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use testkit::commits::Commits;
use testkit::traffic::{Ask, Conversation, Load, Protocol};

use super::manifests::{Manifest, frontends};
use super::mode::Stage;
use super::table::{Outcome, Row};

/// Clients of each address, and the pause of each after an answer.
const CLIENTS: usize = 4;
const PAUSE: Duration = Duration::from_millis(4);
/// How long a change may take to reach the kernel.
const PATIENCE: Duration = Duration::from_secs(10);
/// When nothing more is committed for so long, a change is through.
const QUIET: Duration = Duration::from_millis(300);
/// The time between changes, longer than the interval of the proxy's syncs.
const BETWEEN: Duration = Duration::from_millis(1200);
/// Of three endpoints two are replaced and one stays.
const REPLACED: usize = 2;

/// Replaces endpoints in the manifests while all addresses are asked.
pub(super) fn run(stage: &mut Stage, manifests: &[Manifest]) -> Result<Vec<Row>> {
    let asked: Vec<_> = stage
        .frontends
        .iter()
        .filter(|frontend| !frontend.endpoints.is_empty())
        .cloned()
        .collect();
    let mut talks = talks(stage)?;
    let mut loads = Vec::new();
    for frontend in &asked {
        let ask = Ask::new(frontend.protocol, frontend.address);
        loads.push(Load::start(&stage.lab.client.netns, ask, CLIENTS, PAUSE)?);
    }
    let mut manifests = manifests.to_vec();
    let mut times = Vec::new();
    for replaced in 0..REPLACED {
        times.extend(replace(stage, &mut manifests, replaced)?);
    }
    thread::sleep(BETWEEN);

    let mut rows = Vec::new();
    let fresh = stage.lab.backends[REPLACED..].iter().take(3);
    let expected: Vec<String> = fresh.map(|host| host.name.clone()).collect();
    for (frontend, load) in asked.iter().zip(loads) {
        let outcome = Outcome::of(load.stop(), &expected);
        rows.push(stage.row(frontend, "client, endpoints replaced", outcome));
    }
    for talk in &mut talks {
        talk.say("still there?")
            .context("a connection to an endpoint that stays")?;
    }
    rows.push(figure(
        stage,
        "connections kept to the endpoint that stays",
        format!("{} of {}", talks.len(), talks.len()),
    ));
    let times: Vec<String> = times
        .iter()
        .map(|time| format!("{:.1}", time.as_secs_f64() * 1000.0))
        .collect();
    rows.push(figure(
        stage,
        "from manifest change to kernel",
        format!("{} ms", times.join(", ")),
    ));
    Ok(rows)
}

/// Replaces one backend by another, in one manifest after the other.
///
/// Returns how long it took from each manifest to the kernel.
fn replace(stage: &mut Stage, manifests: &mut [Manifest], number: usize) -> Result<Vec<Duration>> {
    let old = stage.lab.backends[number].addresses();
    let new = stage.lab.backends[number + 3].addresses();
    let leaving: Vec<(Protocol, SocketAddr)> = stage
        .servers
        .keys()
        .filter(|(_, at)| old.contains(&at.ip()))
        .copied()
        .collect();
    for (protocol, at) in &leaving {
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
            let commits = Commits::listen(&stage.lab.node.netns)?;
            let start = Instant::now();
            stage.folder.write(&manifest.name, &text)?;
            let seen = commits
                .last(start + PATIENCE, QUIET)?
                .with_context(|| format!("{} did not reach the kernel", manifest.name))?;
            times.push(seen - start);
            manifest.text = text;
        }
    }
    let known = frontends(manifests)?;
    let gone = |at: &SocketAddr| known.iter().all(|each| !each.endpoints.contains(at));
    ensure!(leaving.iter().all(|(_, at)| gone(at)), "an address stayed");
    // The old servers had the time of QUIET to finish what they were asked.
    stage.servers.retain(|key, _| !leaving.contains(key));
    Ok(times)
}

/// Opens a connection to the endpoint that stays, for each TCP address.
fn talks(stage: &Stage) -> Result<Vec<Conversation>> {
    let stays = &stage.lab.backends[REPLACED].name;
    let mut talks = Vec::new();
    for frontend in &stage.frontends {
        if frontend.protocol != Protocol::Tcp || frontend.endpoints.is_empty() {
            continue;
        }
        let ask = Ask::new(frontend.protocol, frontend.address);
        let found = (0..100).find_map(|_| {
            let talk = Conversation::open(&stage.lab.client.netns, ask).ok()?;
            (talk.server() == stays).then_some(talk)
        });
        talks.push(found.with_context(|| format!("{stays} never answers"))?);
    }
    Ok(talks)
}

fn figure(stage: &Stage, what: &str, words: String) -> Row {
    Row {
        mode: stage.mode,
        what: what.to_owned(),
        outcome: Outcome::Figure(words),
    }
}
