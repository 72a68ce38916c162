//! One mode, shown.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use testkit::lab::{Host, Lab};
use testkit::leftovers::Directory;
use testkit::proxy::{Options, Proxy};
use testkit::traffic::{Answers, Ask, Protocol, Server};

use super::expect::{Expected, Place};
use super::manifests::{self, Frontend, Kind};
use super::rollout;
use super::table::{Outcome, Row, Table, Tally};

/// How often each address is asked by each who asks.
const QUESTIONS: usize = 100;
/// How often an address is asked that must not answer, and with what patience.
const VAIN_QUESTIONS: usize = 10;
const VAIN_PATIENCE: Duration = Duration::from_millis(300);
/// How long the proxy may take to start.
const START: Duration = Duration::from_secs(15);
/// Three backends, and three to replace them.
const BACKENDS: usize = 6;

/// Everything that is there while a mode is shown.
pub(super) struct Stage {
    /// The mode.
    pub(super) mode: &'static str,
    /// The lab.
    pub(super) lab: Lab,
    /// The folder that the proxy watches.
    pub(super) folder: Directory,
    /// What the Services of the demo are reached by.
    pub(super) frontends: Vec<Frontend>,
    /// The servers by where they listen.
    pub(super) servers: BTreeMap<(Protocol, SocketAddr), Server>,
}

/// Shows a mode and adds what is seen to the table.
pub(super) fn run(
    mode: &'static str,
    program: &Path,
    folder: &Path,
    table: &mut Table,
) -> Result<()> {
    eprintln!("{mode}: making a lab, and traffic in it");
    let manifests = manifests::read(folder)?;
    let mut stage = Stage {
        mode,
        lab: Lab::with_backends(BACKENDS).context("make a lab")?,
        folder: Directory::new()?,
        frontends: manifests::frontends(&manifests)?,
        servers: BTreeMap::new(),
    };
    for manifest in &manifests {
        stage.folder.write(&manifest.name, &manifest.text)?;
    }
    for frontend in stage.frontends.clone() {
        for endpoint in frontend.endpoints {
            stage.serve(frontend.protocol, endpoint.at)?;
        }
    }
    let mut proxy = Proxy::start(
        &stage.lab,
        &Options::new(program, mode, stage.folder.path()),
    )?;
    stage.wait_for(&mut proxy)?;
    let world = stage.world()?;
    for frontends in stage.frontends.chunk_by(Frontend::differs_by_address) {
        stage.ask(frontends, "", table);
    }
    stage.hairpin(table);
    eprintln!("{mode}: replacing endpoints under load");
    rollout::run(&mut stage, &manifests, table)?;
    drop(world);
    proxy.stop().context("stop the proxy")
}

impl Stage {
    /// Starts a server for an endpoint, in the pod that has its address.
    pub(super) fn serve(&mut self, protocol: Protocol, at: SocketAddr) -> Result<()> {
        if !self.servers.contains_key(&(protocol, at)) {
            let host = self.host(at)?;
            let server = Server::start(&host.netns, protocol, at, &host.name)
                .with_context(|| format!("serve {protocol} at {at}"))?;
            self.servers.insert((protocol, at), server);
        }
        Ok(())
    }

    /// Waits until the client gets an answer wherever it should.
    fn wait_for(&self, proxy: &mut Proxy) -> Result<()> {
        let (host, place) = (&self.lab.client, Place::Outside);
        for frontend in &self.frontends {
            let expected = self.expected(frontend, Asker { host, place });
            if let Expected::All(_) | Expected::One(_) = expected {
                let ask = Ask::new(frontend.protocol, frontend.address);
                proxy.wait_for(&host.netns, ask, START)?;
            }
        }
        Ok(())
    }

    /// Lets the world answer what the node should have kept.
    fn world(&self) -> Result<Vec<Server>> {
        let ports: BTreeSet<_> = self
            .frontends
            .iter()
            .map(|frontend| (frontend.protocol, frontend.address.port()))
            .collect();
        let serve = |(protocol, port)| {
            // This one listens to IPv4 as well.
            let any = (Ipv6Addr::UNSPECIFIED, port).into();
            Server::start(&self.lab.world.netns, protocol, any, "world")
                .with_context(|| format!("serve {protocol} {port} in the world"))
        };
        ports.into_iter().map(serve).collect()
    }

    /// Asks addresses that differ by nothing else, from everywhere.
    ///
    /// Those who are to get the same answers share a row, which tells `when`.
    pub(super) fn ask(&self, frontends: &[Frontend], when: &str, table: &mut Table) {
        let lab = &self.lab;
        let mut rows: Vec<(Vec<Expected>, Vec<Asker<'_>>)> = Vec::new();
        for (host, place) in [
            (&lab.client, Place::Outside),
            (&lab.neighbor, Place::Outside),
            (&lab.pod, Place::Pod),
            (&lab.node, Place::Node),
        ] {
            let asker = Asker { host, place };
            if !frontends.iter().all(|it| it.is_for(place)) {
                continue;
            }
            let expected = frontends.iter();
            let expected = expected.map(|it| self.expected(it, asker)).collect();
            match rows.iter_mut().find(|(other, _)| *other == expected) {
                Some((_, askers)) => askers.push(asker),
                None => rows.push((expected, vec![asker])),
            }
        }
        for (expected, askers) in rows {
            let mut tally = Tally::default();
            for (frontend, expected) in frontends.iter().zip(&expected) {
                for asker in &askers {
                    let answers = question(frontend, expected, asker.host);
                    let verdict = expected
                        .judge(&answers)
                        .and_then(|()| asker.recognized(frontend, &answers));
                    let who = format!("{} at {}", asker.host.name, frontend.address);
                    tally.add(who, answers, verdict);
                }
            }
            let from: Vec<_> = askers.iter().map(|it| &*it.host.name).collect();
            let note = note(&frontends[0], &expected[0], askers[0].place);
            let outcome = tally.outcome(note.to_owned());
            let from = from.join(", ") + when;
            table.add(self.row(frontends, &from, outcome));
        }
    }

    /// Lets an endpoint ask its own Service, which may lead back to itself.
    ///
    /// One Service of each protocol is enough.
    fn hairpin(&self, table: &mut Table) {
        let mut seen = BTreeSet::new();
        for frontends in self.frontends.chunk_by(Frontend::differs_by_address) {
            let first = &frontends[0];
            let mut endpoints = first.endpoints.iter();
            let Some(endpoint) = endpoints.find(|it| it.local && !first.sticky) else {
                continue;
            };
            let Ok(host) = self.host(endpoint.at) else {
                continue;
            };
            if seen.insert(first.protocol) {
                let mut tally = Tally::default();
                for frontend in frontends {
                    let place = Place::Pod;
                    let expected = self.expected(frontend, Asker { host, place });
                    let answers = question(frontend, &expected, host);
                    let verdict = expected.judge(&answers);
                    tally.add(frontend.address, answers, verdict);
                }
                let from = format!("{} (hairpin)", host.name);
                table.add(self.row(frontends, &from, tally.outcome(String::new())));
            }
        }
    }

    /// Makes a row about addresses that differ by nothing else.
    pub(super) fn row(&self, frontends: &[Frontend], from: &str, outcome: Outcome) -> Row {
        let Frontend {
            service,
            kind,
            protocol,
            address,
            ..
        } = &frontends[0];
        let families: BTreeSet<_> = frontends
            .iter()
            .map(|it| if it.address.is_ipv4() { "v4" } else { "v6" })
            .collect();
        let families: Vec<_> = families.into_iter().collect();
        Row {
            mode: self.mode,
            service: service.clone(),
            what: format!(
                "{kind} {}/{protocol} {}",
                address.port(),
                families.join("+")
            ),
            from: from.to_owned(),
            outcome,
        }
    }

    fn expected(&self, frontend: &Frontend, asker: Asker<'_>) -> Expected {
        frontend.expected(asker.place, asker.address(frontend), |endpoint| {
            let host = self.host(endpoint.at);
            host.map_or_else(|error| error.to_string(), |host| host.name.clone())
        })
    }

    fn host(&self, at: SocketAddr) -> Result<&Host> {
        self.lab
            .pods()
            .chain([&self.lab.remote])
            .find(|host| host.addresses().contains(&at.ip()))
            .with_context(|| format!("no pod of the lab has the address {at}"))
    }
}

/// Somebody who asks.
#[derive(Clone, Copy)]
struct Asker<'a> {
    host: &'a Host,
    place: Place,
}

impl Asker<'_> {
    /// Compares the addresses that endpoints saw with the asker's own.
    fn recognized(&self, frontend: &Frontend, answers: &Answers) -> Result<(), String> {
        let Some(shown) = frontend.shows_client(self.place) else {
            return Ok(());
        };
        let own = self.address(frontend);
        let mut seen = answers.clients.keys();
        seen.find(|&&it| (it == own) != shown)
            .map_or(Ok(()), |wrong| Err(format!("seen as {wrong}")))
    }

    /// Returns its address in the family of a frontend.
    fn address(&self, frontend: &Frontend) -> IpAddr {
        match frontend.address {
            SocketAddr::V4(_) => self.host.v4.into(),
            SocketAddr::V6(_) => self.host.v6.into(),
        }
    }
}

/// Asks often enough to see whether what is expected comes.
fn question(frontend: &Frontend, expected: &Expected, host: &Host) -> Answers {
    let ask = Ask::new(frontend.protocol, frontend.address);
    match expected {
        Expected::All(_) => ask.times(&host.netns, QUESTIONS),
        // Before the first answer there is nothing to remember.
        Expected::One(_) => ask
            .times(&host.netns, 1)
            .merge(ask.times(&host.netns, QUESTIONS - 1)),
        Expected::Refused => ask.times(&host.netns, VAIN_QUESTIONS),
        Expected::Dropped => ask
            .patience(VAIN_PATIENCE)
            .times(&host.netns, VAIN_QUESTIONS),
    }
}

/// Returns what to say of answers that are as they should be.
fn note(frontend: &Frontend, expected: &Expected, place: Place) -> &'static str {
    let outside = place == Place::Outside && frontend.kind != Kind::ClusterIp;
    match expected {
        Expected::All(_) if outside && frontend.local_policy => ", which saw the client's address",
        Expected::All(_) => "",
        Expected::One(_) => ", each client by one",
        Expected::Refused => "refused, as it should be",
        Expected::Dropped => "dropped, as it should be",
    }
}
