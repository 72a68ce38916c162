//! A namespace, an API server in it, and the binary that asks it.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use apiserver::ApiServer;
use serde_json::{Value, json};
use testkit::leftovers::{Directory, Process};
use testkit::netns::Netns;

use crate::stage::{BINARY, Said, until};

/// How many seconds a command may take.
const PATIENCE: &str = "60";

/// The flags of all tests.
const USUAL: &str = "--proxy-mode nftables --hostname-override node-1 --cluster-cidr \
                     10.244.0.0/16 --iptables-min-sync-period 0s";

pub(crate) struct Cluster {
    pub(crate) server: ApiServer,
    pub(crate) netns: Netns,
    pub(crate) folder: Directory,
}

impl Cluster {
    /// A cluster with nothing in it.
    pub(crate) fn new() -> Self {
        let netns = Netns::new().unwrap();
        let server = netns.run(ApiServer::start);
        let cluster = Self {
            server,
            netns,
            folder: Directory::new().unwrap(),
        };
        fs::write(cluster.kubeconfig(), cluster.server.kubeconfig()).unwrap();
        cluster
    }

    /// A cluster with a Node and some other objects.
    pub(crate) fn with(objects: impl IntoIterator<Item = Value>) -> Self {
        let cluster = Self::new();
        cluster.server.apply(node("10.0.0.1", "10.244.1.0/24"));
        cluster.server.apply_all(objects);
        cluster
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    fn arguments(&self, line: &str) -> Vec<String> {
        let words = USUAL.split_whitespace().chain(line.split_whitespace());
        let kubeconfig = self.kubeconfig().display().to_string();
        let words = words.map(str::to_owned);
        words
            .chain(["--kubeconfig".to_owned(), kubeconfig])
            .collect()
    }

    /// Runs the binary to its end.
    pub(crate) fn say(&self, line: &str) -> Said {
        let mut command = Command::new("timeout");
        command.args([PATIENCE, BINARY]).args(self.arguments(line));
        Said::of(self.netns.run(|| command.output()).unwrap())
    }

    /// Starts the binary and waits until it has synced and watches everything.
    pub(crate) fn start(&self) -> Process {
        let process = self.start_unsynced("");
        until("the first sync", || process.output().contains("synced"));
        until("four watches", || self.watches() == 4);
        process
    }

    pub(crate) fn start_unsynced(&self, line: &str) -> Process {
        Process::start(&self.netns, &mut self.command(line)).unwrap()
    }

    /// Returns a command that starts the binary.
    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = Command::new(BINARY);
        command.args(self.arguments(line));
        command
    }

    /// Returns how many kinds are watched.
    pub(crate) fn watches(&self) -> usize {
        let kinds = ["services", "endpointslices", "nodes", "servicecidrs"];
        kinds
            .iter()
            .map(|kind| self.server.watchers(kind).min(1))
            .sum()
    }

    /// Lists all rules with nft.
    pub(crate) fn ruleset(&self) -> String {
        let mut command = Command::new("nft");
        command.args(["list", "ruleset"]);
        let said = Said::of(self.netns.run(|| command.output()).unwrap());
        assert_eq!((said.code, &*said.stderr), (0, ""));
        said.stdout
    }

    /// Asserts that the kernel is as the API now wants it.
    pub(crate) fn assert_in_step(&self) {
        let said = self.say("diff");
        assert_eq!((said.code, &*said.stdout), (0, ""), "{}", said.stderr);
    }
}

/// Waits until a process has ended, and returns its exit code.
pub(crate) fn code(process: &mut Process) -> i32 {
    let mut status = None;
    until("the end", || {
        status = process.ended().unwrap();
        status.is_some()
    });
    status.unwrap().code().unwrap_or(-1)
}

/// A moment in which something would happen that must not.
pub(crate) const MOMENT: Duration = Duration::from_millis(300);

pub(crate) fn node(address: &str, pod_cidr: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "node-1"},
        "spec": {"podCIDR": pod_cidr, "podCIDRs": [pod_cidr]},
        "status": {"addresses": [{"type": "InternalIP", "address": address}]},
    })
}

/// A Service with one TCP port, 80.
pub(crate) fn service(name: &str, ip: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"clusterIP": ip, "clusterIPs": [ip], "ports": [{"port": 80}]},
    })
}

/// A slice of the only port of a Service, with endpoints 10.244.NET.1 and so on.
pub(crate) fn slice(service: &str, net: u8, count: u8) -> Value {
    let endpoints = (1..=count).map(|host| {
        json!({
            "addresses": [format!("10.244.{net}.{host}")],
            "conditions": {"ready": true},
        })
    });
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": format!("{service}-{net}"),
            "labels": {"kubernetes.io/service-name": service},
        },
        "addressType": "IPv4",
        "ports": [{"name": "", "protocol": "TCP", "port": 8080}],
        "endpoints": endpoints.collect::<Vec<_>>(),
    })
}

/// A Service with endpoints.
pub(crate) fn served(name: &str, ip: &str, net: u8) -> [Value; 2] {
    [service(name, ip), slice(name, net, 2)]
}
