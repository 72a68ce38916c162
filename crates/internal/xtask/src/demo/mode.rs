//! Runs the demo in one proxy mode.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use testkit::lab::{Host, Lab};
use testkit::proxy::{Options, Proxy};
use testkit::scoped::Directory;
use testkit::traffic::{Answers, Probe, Protocol, Server};

use super::Length;
use super::build::Programs;
use super::expect::{Expected, Place};
use super::explain::Explanation;
use super::manifests::{self, Frontend, Kind};
use super::names;
use super::rollout;
use super::table::{Outcome, Row, Table, Tally};

/// Requests to an address that must not answer, and their timeout.
const UNANSWERED_REQUESTS: usize = 10;
const UNANSWERED_TIMEOUT: Duration = Duration::from_millis(300);
/// Time limit for the start of the proxy.
pub(super) const START_TIMEOUT: Duration = Duration::from_secs(15);
/// Three backends and three replacements.
const BACKENDS: usize = 6;

/// Environment of the demo in one mode.
pub(super) struct Stage {
    /// Length of the demo.
    pub(super) length: Length,
    /// Proxy mode.
    pub(super) mode: &'static str,
    /// Network namespaces.
    pub(super) lab: Lab,
    /// Command line of the proxy.
    options: Options,
    /// Folder of manifests that the proxy watches.
    pub(super) folder: Directory,
    /// Addresses and ports of the Services.
    pub(super) frontends: Vec<Frontend>,
    /// Servers by the address that they listen on.
    pub(super) servers: BTreeMap<(Protocol, SocketAddr), Server>,
}

/// Runs the demo in a mode and adds its results to the table.
pub(super) fn run(
    mode: &'static str,
    length: Length,
    programs: &Programs,
    folder: &Path,
    table: &mut Table,
) -> Result<()> {
    eprintln!("{mode}: creating a lab and sending traffic");
    let manifests = manifests::read(folder)?;
    let copies = Directory::new()?;
    let mut stage = Stage {
        length,
        mode,
        lab: Lab::with_backends(BACKENDS).context("create a lab")?,
        options: Options::new(&programs.kube_proxy, mode, copies.path()),
        folder: copies,
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
    let mut proxy = Proxy::start(&stage.lab, &stage.options)?;
    stage.wait_for(&mut proxy)?;
    let world = stage.world()?;
    for frontends in stage.frontends.chunk_by(Frontend::differs_by_address) {
        stage.probe(frontends, "", table);
    }
    stage.hairpin(table);
    names::run(&stage, &programs.cluster_dns, table)?;
    eprintln!("{mode}: replacing endpoints under load");
    rollout::run(&mut stage, &manifests, table)?;
    drop(world);
    proxy.stop().context("stop the proxy")
}

impl Stage {
    /// Starts a server for an endpoint, in the namespace that has its address.
    pub(super) fn serve(&mut self, protocol: Protocol, at: SocketAddr) -> Result<()> {
        if !self.servers.contains_key(&(protocol, at)) {
            let host = self.host(at)?;
            let server = Server::start(&host.netns, protocol, at, &host.name)
                .with_context(|| format!("serve {protocol} at {at}"))?;
            self.servers.insert((protocol, at), server);
        }
        Ok(())
    }

    /// Waits until the external client gets an answer from each frontend that must answer.
    fn wait_for(&self, proxy: &mut Proxy) -> Result<()> {
        let (host, place) = (&self.lab.client, Place::Outside);
        for frontend in &self.frontends {
            let expected = self.expected(frontend, Client { host, place });
            if let Expected::All(_) | Expected::One(_) = expected {
                let probe = Probe::new(frontend.protocol, frontend.address);
                proxy.wait_for(&host.netns, probe, START_TIMEOUT)?;
            }
        }
        Ok(())
    }

    /// Starts servers outside the cluster, which answer traffic that leaves the node.
    fn world(&self) -> Result<Vec<Server>> {
        let ports: BTreeSet<_> = self
            .frontends
            .iter()
            .map(|frontend| (frontend.protocol, frontend.address.port()))
            .collect();
        let serve = |(protocol, port)| {
            // Accepts IPv4 as well.
            let any = (Ipv6Addr::UNSPECIFIED, port).into();
            Server::start(&self.lab.world.netns, protocol, any, "world")
                .with_context(|| format!("serve {protocol} {port} outside the cluster"))
        };
        ports.into_iter().map(serve).collect()
    }

    /// Sends requests to frontends that differ only in their address, from all places.
    ///
    /// Clients with the same expected results share a row; `when` is added to the row.
    pub(super) fn probe(&self, frontends: &[Frontend], when: &str, table: &mut Table) {
        let lab = &self.lab;
        let mut rows: Vec<(Vec<Expected>, Vec<Client<'_>>)> = Vec::new();
        for (host, place) in [
            (&lab.client, Place::Outside),
            (&lab.neighbor, Place::Outside),
            (&lab.pod, Place::Pod),
            (&lab.node, Place::Node),
        ] {
            let client = Client { host, place };
            if !frontends.iter().all(|it| it.is_for(place)) {
                continue;
            }
            let expected = frontends.iter();
            let expected = expected.map(|it| self.expected(it, client)).collect();
            match rows.iter_mut().find(|(other, _)| *other == expected) {
                Some((_, clients)) => clients.push(client),
                None => rows.push((expected, vec![client])),
            }
        }
        for (expected, clients) in rows {
            let mut tally = Tally::default();
            for (frontend, expected) in frontends.iter().zip(&expected) {
                for client in &clients {
                    let (answers, verdict) = self.judge(frontend, expected, *client);
                    let verdict =
                        verdict.and_then(|()| client.check_source_address(frontend, &answers));
                    let source = format!("{} at {}", client.host.name, frontend.address);
                    tally.add(source, answers, verdict);
                }
            }
            let from: Vec<_> = clients.iter().map(|it| &*it.host.name).collect();
            let note = note(&frontends[0], &expected[0], clients[0].place);
            let outcome = tally.outcome(note.to_owned());
            let from = from.join(", ") + when;
            table.add_explained(&self.row(frontends, &from, outcome));
        }
    }

    /// Sends requests from the pod to the addresses of a Service that its name has.
    pub(super) fn probe_name(&self, frontends: &[Frontend], table: &mut Table) {
        let (host, place) = (&self.lab.pod, Place::Pod);
        let mut tally = Tally::default();
        let client = Client { host, place };
        for frontend in frontends {
            let expected = self.expected(frontend, client);
            let (answers, verdict) = self.judge(frontend, &expected, client);
            tally.add(frontend.address, answers, verdict);
        }
        let expected = self.expected(&frontends[0], client);
        let outcome = tally.outcome(note(&frontends[0], &expected, place).to_owned());
        let Frontend {
            service, namespace, ..
        } = &frontends[0];
        let mut row = self.row(frontends, &host.name, outcome);
        let what = row.what.strip_prefix("cluster IP").unwrap_or(&row.what);
        row.what = format!("{service}.{namespace}.svc{what}");
        table.add_explained(&row);
    }

    /// Sends as many requests as the expected result needs.
    fn send_requests(&self, frontend: &Frontend, expected: &Expected, host: &Host) -> Answers {
        let probe = Probe::new(frontend.protocol, frontend.address);
        let requests = self.length.requests();
        match expected {
            Expected::All(_) => probe.times(&host.netns, requests),
            // Affinity starts with the first answer.
            Expected::One(_) => probe
                .times(&host.netns, 1)
                .merge(probe.times(&host.netns, requests - 1)),
            Expected::Refused => probe.times(&host.netns, UNANSWERED_REQUESTS),
            Expected::Dropped => probe
                .timeout(UNANSWERED_TIMEOUT)
                .times(&host.netns, UNANSWERED_REQUESTS),
        }
    }

    /// Sends requests from an endpoint to its own Service, for one Service per protocol.
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
                    let client = Client { host, place };
                    let expected = self.expected(frontend, client);
                    let (answers, verdict) = self.judge(frontend, &expected, client);
                    tally.add(frontend.address, answers, verdict);
                }
                let from = format!("{} (hairpin)", host.name);
                table.add_explained(&self.row(frontends, &from, tally.outcome(String::new())));
            }
        }
    }

    /// Sends requests, and compares the answers with the expected result and with the
    /// explanation of kube-proxy.
    fn judge(
        &self,
        frontend: &Frontend,
        expected: &Expected,
        client: Client<'_>,
    ) -> (Answers, Result<(), String>) {
        let (node, to) = (&self.lab.node.netns, frontend.address);
        let own = (client.place != Place::Node).then(|| client.address(frontend));
        let explanation = Explanation::of(&self.options, node, frontend.protocol, to, own);
        let answers = self.send_requests(frontend, expected, client.host);
        let name = |at| {
            let host = self.host(at);
            host.map_or_else(|error| error.to_string(), |host| host.name.clone())
        };
        let verdict = expected.judge(&answers).and_then(|()| {
            let explanation = explanation.map_err(|error| format!("not explained: {error:#}"))?;
            explanation.judge(&answers, frontend.sticky, own, name)
        });
        (answers, verdict)
    }

    /// Creates a row for frontends that differ only in their address.
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

    fn expected(&self, frontend: &Frontend, client: Client<'_>) -> Expected {
        frontend.expected(client.place, client.address(frontend), |endpoint| {
            let host = self.host(endpoint.at);
            host.map_or_else(|error| error.to_string(), |host| host.name.clone())
        })
    }

    fn host(&self, at: SocketAddr) -> Result<&Host> {
        self.lab
            .pods()
            .chain([&self.lab.remote])
            .find(|host| host.addresses().contains(&at.ip()))
            .with_context(|| format!("no pod of the lab has address {at}"))
    }
}

/// A client and its location.
#[derive(Clone, Copy)]
struct Client<'a> {
    host: &'a Host,
    place: Place,
}

impl Client<'_> {
    /// Checks the source addresses that endpoints saw.
    fn check_source_address(&self, frontend: &Frontend, answers: &Answers) -> Result<(), String> {
        let Some(shown) = frontend.shows_client(self.place) else {
            return Ok(());
        };
        let own = self.address(frontend);
        let mut seen = answers.clients.keys();
        seen.find(|&&it| (it == own) != shown)
            .map_or(Ok(()), |wrong| Err(format!("seen as {wrong}")))
    }

    /// Returns the client's address in the family of a frontend.
    fn address(&self, frontend: &Frontend) -> IpAddr {
        match frontend.address {
            SocketAddr::V4(_) => self.host.v4.into(),
            SocketAddr::V6(_) => self.host.v6.into(),
        }
    }
}

/// Returns the note for a row whose results are as expected.
fn note(frontend: &Frontend, expected: &Expected, place: Place) -> &'static str {
    let outside = place == Place::Outside && frontend.kind != Kind::ClusterIp;
    match expected {
        Expected::All(_) if outside && frontend.local_policy => ", client address preserved",
        Expected::All(_) => "",
        Expected::One(_) => ", one per client",
        Expected::Refused => "rejected, as expected",
        Expected::Dropped => "dropped, as expected",
    }
}
