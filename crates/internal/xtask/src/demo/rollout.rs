//! Endpoints replaced one after the other, under load.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use testkit::commits::Commits;
use testkit::traffic::{Answers, Ask, Conversation, Load, Protocol};

use super::expect::all_answer;
use super::manifests::{Frontend, Manifest, frontends};
use super::mode::Stage;
use super::table::{Outcome, Row, Table, Tally};

/// Clients of each address, and the pause of each after an answer.
const CLIENTS: usize = 3;
const PAUSE: Duration = Duration::from_millis(5);
/// How long a change may take to reach the kernel.
const PATIENCE: Duration = Duration::from_secs(10);
/// When nothing more is committed for so long, a change is through.
const QUIET: Duration = Duration::from_millis(300);
/// The time between changes, longer than the interval of the proxy's syncs.
const BETWEEN: Duration = Duration::from_millis(1200);
/// Of three endpoints two are replaced and one stays.
const REPLACED: usize = 2;

/// Replaces endpoints in the manifests while their Services are asked.
pub(super) fn run(stage: &mut Stage, manifests: &[Manifest], table: &mut Table) -> Result<()> {
    let leaves = stage.lab.backends[0].addresses();
    let mut asked = stage.frontends.clone();
    asked.retain(|it| it.endpoints.iter().any(|at| leaves.contains(&at.at.ip())));
    let mut talks = talks(stage, &asked)?;
    let mut loads = Vec::new();
    for frontend in &asked {
        let ask = Ask::new(frontend.protocol, frontend.address).resending();
        loads.push(Load::start(&stage.lab.client.netns, ask, CLIENTS, PAUSE)?);
    }
    let mut manifests = manifests.to_vec();
    let mut times = Vec::new();
    for replaced in 0..REPLACED {
        times.extend(replace(stage, &mut manifests, replaced)?);
    }
    thread::sleep(BETWEEN);
    stage.frontends = frontends(&manifests)?;

    let answers: Vec<_> = loads.into_iter().map(Load::stop).collect();
    judge(stage, &asked, answers, table);
    for frontends in stage.frontends.chunk_by(Frontend::differs_by_address) {
        if frontends[0].sticky {
            stage.ask(frontends, ", later", table);
        }
    }
    for talk in &mut talks {
        talk.say("still there?")
            .context("a connection to an endpoint that stays")?;
    }
    table.add(figure(
        stage,
        "open connections",
        format!("{0} of {0} kept to the endpoint that stays", talks.len()),
    ));
    times.sort_unstable();
    let ms = |time: Option<&Duration>| time.map_or(0.0, |time| time.as_secs_f64() * 1000.0);
    let (middle, last) = (ms(times.get(times.len() / 2)), ms(times.last()));
    table.add(figure(
        stage,
        "manifest to kernel",
        format!(
            "{middle:.1} ms, at most {last:.1}, in {} changes",
            times.len()
        ),
    ));
    Ok(())
}

/// Adds what came back under load: nothing failed, and all new ones answered.
///
/// Where clients stay with their endpoint one is enough: all have one address.
fn judge(stage: &Stage, asked: &[Frontend], answers: Vec<Answers>, table: &mut Table) {
    let fresh = stage.lab.backends[REPLACED..].iter().take(3);
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
        table.add(stage.row(frontends, "client, endpoints replaced", outcome));
    }
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
    let gone = |at: &SocketAddr| {
        let mut endpoints = known.iter().flat_map(|each| &each.endpoints);
        endpoints.all(|endpoint| endpoint.at != *at)
    };
    ensure!(leaving.iter().all(|(_, at)| gone(at)), "an address stayed");
    // The old servers had the time of QUIET to finish what they were asked.
    stage.servers.retain(|key, _| !leaving.contains(key));
    Ok(times)
}

/// Opens a connection to the endpoint that stays, for each TCP address.
fn talks(stage: &Stage, asked: &[Frontend]) -> Result<Vec<Conversation>> {
    let stays = &stage.lab.backends[REPLACED].name;
    let mut talks = Vec::new();
    for frontend in asked {
        if frontend.protocol != Protocol::Tcp || frontend.sticky {
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
        service: "all".to_owned(),
        what: what.to_owned(),
        from: String::new(),
        outcome: Outcome::Figure(words),
    }
}
