//! A lab with an API server and a proxy on its node.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use apiserver::ApiServer;
use testkit::lab::Lab;
use testkit::nft;
use testkit::proxy::{Options, Proxy};
use testkit::scoped::Directory;
use testkit::traffic::{Connection, Load, Probe, Server};

use crate::objects::{Generation, PORTS, node, web, web_probes};
use crate::program::program;

/// Time limit of all waits; twice the proxy's longest backoff.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(180);

/// Pause of clients between requests.
pub(crate) const PAUSE: Duration = Duration::from_millis(40);

/// A lab in which all backends serve `web`.
pub(crate) struct Cluster {
    pub(crate) lab: Lab,
    pub(crate) server: ApiServer,
    folder: Directory,
    _servers: Vec<Server>,
}

/// Source of the proxy's objects.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Source {
    Api,
    Manifests,
}

impl Cluster {
    pub(crate) fn new() -> Self {
        let lab = Lab::new().unwrap();
        let server = lab.node.netns.run(ApiServer::start);
        server.apply(node(&lab));
        server.apply_all(web(&lab));
        let folder = Directory::new().unwrap();
        folder.write("kubeconfig", &server.kubeconfig()).unwrap();
        fs::create_dir(folder.path().join("manifests")).unwrap();
        let manifest: Vec<_> = web(&lab)
            .iter()
            .map(|object| format!("---\n{object:#}\n"))
            .collect();
        let file = folder.path().join("manifests/web.yaml");
        fs::write(file, manifest.concat()).unwrap();
        let servers = lab.backends.iter().flat_map(|host| {
            let each = PORTS.iter().flat_map(|&(protocol, _, _, port)| {
                host.addresses()
                    .map(|address| (protocol, (address, port).into()))
            });
            each.map(|(protocol, at)| Server::start(&host.netns, protocol, at, &host.name).unwrap())
        });
        Self {
            _servers: servers.collect(),
            lab,
            server,
            folder,
        }
    }

    pub(crate) fn options(&self, source: Source) -> Options {
        let folder = self.folder.path();
        match source {
            Source::Api => {
                Options::with_kubeconfig(program(), "nftables", &folder.join("kubeconfig"))
            }
            Source::Manifests => Options::new(program(), "nftables", &folder.join("manifests")),
        }
    }

    /// Starts the proxy, and waits until it has synced and `web` answers.
    pub(crate) fn start(&self, options: &Options) -> Proxy {
        let mut proxy = Proxy::start(&self.lab, options).unwrap();
        until("the first sync", || {
            proxy.process().output().matches("synced").count() >= 2
        });
        for probe in web_probes(&self.lab) {
            let from = &self.lab.client.netns;
            let answer = proxy.wait_for(from, probe, TIMEOUT);
            assert!(answer.is_ok(), "{}", answer.unwrap_err());
        }
        proxy
    }

    /// Starts the servers of an endpoint of `rolling`.
    pub(crate) fn serve(&self, generation: Generation) -> Vec<Server> {
        let host = &self.lab.backends[generation.backend()];
        let at = (host.v4, generation.port()).into();
        let protocols = PORTS.map(|(protocol, ..)| protocol);
        let servers = protocols.map(|each| Server::start(&host.netns, each, at, &host.name));
        servers.map(Result::unwrap).into()
    }

    /// Lists the rules of the proxy.
    pub(crate) fn rules(&self) -> String {
        let list = |family| {
            let table = ["list", "table", family, "kube-proxy"];
            self.lab.node.netns.run(|| nft::succeeds(&table, ""))
        };
        list("ip") + &list("ip6")
    }

    /// Opens a connection to each frontend of `web`.
    pub(crate) fn connect(&self) -> Vec<Connection> {
        let open =
            web_probes(&self.lab).map(|probe| Connection::open(&self.lab.client.netns, probe));
        open.map(Result::unwrap).collect()
    }

    /// Starts a load for each request.
    pub(crate) fn load(&self, probes: impl Iterator<Item = Probe>) -> Vec<Load> {
        probes
            .map(|probe| Load::start(&self.lab.client.netns, probe, 1, PAUSE).unwrap())
            .collect()
    }
}

/// Waits until a condition holds.
#[track_caller]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !holds() {
        assert!(Instant::now() < deadline, "not within {TIMEOUT:?}: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until each load has sent `more` requests.
pub(crate) fn go_on(loads: &[Load], more: usize) {
    let before: Vec<usize> = loads.iter().map(Load::requests).collect();
    until("the load continues", || {
        let asked = loads.iter().map(Load::requests);
        asked.zip(&before).all(|(now, before)| now >= before + more)
    });
}

/// Stops loads, checks that no request failed, and returns the number of requests.
pub(crate) fn stop(loads: Vec<Load>) -> usize {
    let answers = loads.into_iter().map(Load::stop);
    let asked = answers.map(|answers| {
        assert!(answers.failures.is_empty(), "{answers}");
        answers.requests()
    });
    asked.sum()
}
