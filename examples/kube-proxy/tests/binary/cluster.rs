//! A network namespace with an API server and the kube-proxy binary.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use apiserver::ApiServer;
use serde_json::{Value, json};
use testkit::netns::Netns;
use testkit::scoped::{Directory, Process};

use crate::stage::{BINARY, Outcome, wait_until};

/// Timeout of a command in seconds.
const TIMEOUT_SECONDS: &str = "60";

/// Flags of all runs.
const COMMON_FLAGS: &str = "--proxy-mode nftables --hostname-override node-1 --cluster-cidr \
                     10.244.0.0/16 --iptables-min-sync-period 0s";

pub(crate) struct Cluster {
    pub(crate) server: ApiServer,
    pub(crate) netns: Netns,
    pub(crate) folder: Directory,
}

impl Cluster {
    /// Creates an empty cluster.
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

    /// Creates a cluster with a Node and other objects.
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
        let words = COMMON_FLAGS
            .split_whitespace()
            .chain(line.split_whitespace());
        let kubeconfig = self.kubeconfig().display().to_string();
        let words = words.map(str::to_owned);
        words
            .chain(["--kubeconfig".to_owned(), kubeconfig])
            .collect()
    }

    /// Runs the binary until it exits.
    pub(crate) fn run(&self, line: &str) -> Outcome {
        let mut command = Command::new("timeout");
        command
            .args([TIMEOUT_SECONDS, BINARY])
            .args(self.arguments(line));
        Outcome::from(self.netns.run(|| command.output()).unwrap())
    }

    /// Starts the binary and waits until it has synced and watches everything.
    pub(crate) fn start(&self) -> Process {
        let process = self.start_unsynced("");
        wait_until("the first sync", || process.output().contains("synced"));
        wait_until("four watches", || self.watches() == 4);
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

    /// Returns the number of watched kinds.
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
        let outcome = Outcome::from(self.netns.run(|| command.output()).unwrap());
        assert_eq!((outcome.code, &*outcome.stderr), (0, ""));
        outcome.stdout
    }

    /// Asserts that `diff` finds no difference.
    pub(crate) fn assert_in_sync(&self) {
        let outcome = self.run("diff");
        assert_eq!(
            (outcome.code, &*outcome.stdout),
            (0, ""),
            "{}",
            outcome.stderr
        );
    }
}

/// Waits until a process exits, and returns its exit code.
pub(crate) fn code(process: &mut Process) -> i32 {
    let mut status = None;
    wait_until("the exit", || {
        status = process.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap().code().unwrap_or(-1)
}

/// Time in which no unwanted change may happen.
pub(crate) const QUIET_PERIOD: Duration = Duration::from_millis(300);

pub(crate) fn node(address: &str, pod_cidr: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "node-1"},
        "spec": {"podCIDR": pod_cidr, "podCIDRs": [pod_cidr]},
        "status": {"addresses": [{"type": "InternalIP", "address": address}]},
    })
}

/// Returns a Service with TCP port 80.
pub(crate) fn service(name: &str, ip: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"clusterIP": ip, "clusterIPs": [ip], "ports": [{"port": 80}]},
    })
}

/// Returns the EndpointSlice of a Service with TCP port 8080 and endpoints 10.244.NET.1
/// and following.
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

/// Returns a Service with two endpoints.
pub(crate) fn service_with_endpoints(name: &str, ip: &str, net: u8) -> [Value; 2] {
    [service(name, ip), slice(name, net, 2)]
}
