//! One mode, shown.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use testkit::lab::{Host, Lab};
use testkit::leftovers::Directory;
use testkit::proxy::{Options, Proxy};
use testkit::traffic::{Answers, Ask, Protocol, Server};

use super::manifests::{self, Frontend};
use super::rollout;
use super::table::{Outcome, Row, Table};

/// How often each address is asked by each who asks.
const QUESTIONS: usize = 200;
/// How often an address is asked that has to refuse.
const REFUSALS: usize = 20;
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
            stage.serve(frontend.protocol, endpoint)?;
        }
    }
    let mut proxy = Proxy::start(
        &stage.lab,
        &Options::new(program, mode, stage.folder.path()),
    )?;
    for frontend in &stage.frontends {
        if !frontend.endpoints.is_empty() {
            let ask = Ask::new(frontend.protocol, frontend.address);
            proxy.wait_for(&stage.lab.client.netns, ask, START)?;
        }
    }
    for frontend in &stage.frontends {
        table.add(stage.ask(frontend));
    }
    for row in stage.hairpin() {
        table.add(row);
    }
    eprintln!("{mode}: replacing endpoints under load");
    for row in rollout::run(&mut stage, &manifests)? {
        table.add(row);
    }
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

    /// Asks an address many times, or sees that it refuses.
    fn ask(&self, frontend: &Frontend) -> Row {
        let ask = Ask::new(frontend.protocol, frontend.address);
        let refuses = frontend.endpoints.is_empty();
        let count = if refuses { REFUSALS } else { QUESTIONS };
        let answers = [&self.lab.client, &self.lab.pod, &self.lab.node]
            .map(|host| ask.times(&host.netns, count))
            .into_iter()
            .fold(Answers::default(), Answers::merge);
        let outcome = if refuses {
            refused(answers)
        } else {
            Outcome::of(answers, &self.names(&frontend.endpoints))
        };
        self.row(frontend, "client, pod and node", outcome)
    }

    /// Lets an endpoint ask its own Service, which may lead back to itself.
    ///
    /// One address of each protocol and family is enough.
    fn hairpin(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        let mut seen = BTreeSet::new();
        for frontend in &self.frontends {
            let Some(Ok(host)) = frontend.endpoints.first().map(|at| self.host(*at)) else {
                continue;
            };
            if seen.insert((frontend.protocol, frontend.address.is_ipv6())) {
                let ask = Ask::new(frontend.protocol, frontend.address);
                let expected = self.names(&frontend.endpoints);
                let outcome = Outcome::of(ask.times(&host.netns, QUESTIONS), &expected);
                rows.push(self.row(frontend, &format!("{} (hairpin)", host.name), outcome));
            }
        }
        rows
    }

    /// Makes a row about an address and who asks it.
    pub(super) fn row(&self, frontend: &Frontend, from: &str, outcome: Outcome) -> Row {
        let Frontend {
            service,
            protocol,
            address,
            ..
        } = frontend;
        Row {
            mode: self.mode,
            what: format!("{service} {protocol} {address} from {from}"),
            outcome,
        }
    }

    fn names(&self, endpoints: &[SocketAddr]) -> Vec<String> {
        endpoints
            .iter()
            .filter_map(|at| Some(self.host(*at).ok()?.name.clone()))
            .collect()
    }

    fn host(&self, at: SocketAddr) -> Result<&Host> {
        self.lab
            .pods()
            .find(|host| host.addresses().contains(&at.ip()))
            .with_context(|| format!("no pod of the lab has the address {at}"))
    }
}

fn refused(answers: Answers) -> Outcome {
    let all = answers
        .failures
        .iter()
        .all(|failure| failure.kind == ErrorKind::ConnectionRefused);
    if all && answers.answered() == 0 {
        Outcome::Refused(answers.failures.len())
    } else {
        Outcome::Wrong(answers, "should be refused".to_owned())
    }
}
