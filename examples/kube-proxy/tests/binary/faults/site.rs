//! A running proxy whose rules alternate between two states.

use std::thread;

use testkit::nft;
use testkit::scoped::Process;

use super::tracer::{Threads, Tracer};
use crate::iptables::{Node, web};
use crate::stage::{Stage, wait_until};

/// Flags of proxies that send netlink messages. A failed sync is retried soon.
const NETLINK: &str = "--iptables-sync-period 50ms";

/// Flags of proxies that run programs.
const PROGRAMS: &str = "--iptables-sync-period 300ms";

/// Endpoint that only one of the states has.
const ENDPOINTS: [&str; 2] = ["10.244.1.3", "10.244.9.3"];

/// A node with a proxy.
pub(super) struct Site {
    host: Host,
    flags: &'static str,
    pub(super) proxy: Process,
    /// Rules of both states.
    expected: [String; 2],
    /// Position of the current state.
    state: usize,
}

enum Host {
    Nftables(Stage),
    Iptables(Node),
}

impl Site {
    /// Creates a node and starts a proxy. `backend` is `nftables`, or a backend of mode
    /// iptables.
    pub(super) fn new(backend: &'static str) -> Self {
        let (host, flags) = match backend {
            "nftables" => (Host::Nftables(Stage::new()), NETLINK),
            "netlink" => (Host::Iptables(Node::with(backend, &[])), NETLINK),
            backend => (Host::Iptables(Node::with(backend, &[])), PROGRAMS),
        };
        let mut site = Self {
            proxy: host.start(flags),
            host,
            flags,
            expected: Default::default(),
            state: 0,
        };
        for state in [1, 0] {
            site.write(state);
            let endpoint = ENDPOINTS[state];
            wait_until("the endpoint", || site.host.rules().contains(endpoint));
            site.expected[state] = site.host.rules();
        }
        site
    }

    pub(super) fn stage(&self) -> &Stage {
        self.host.stage()
    }

    /// Attaches a tracer to the proxy.
    pub(super) fn inject(&self, threads: Threads, injection: &str) -> Tracer {
        Tracer::attach(&self.stage().netns, &self.proxy, threads, injection)
    }

    /// Returns the number of calls of the main thread in a turn without a fault.
    pub(super) fn calls_per_turn(&mut self, call: &str) -> usize {
        let tracer = self.inject(Threads::Main, &format!("{call}:delay_exit=1"));
        self.turn();
        wait_until("a turn without a fault", || self.has_converged());
        let calls = tracer.calls();
        tracer.detach();
        calls
    }

    /// Removes an object of the rules, and replaces an endpoint. The proxy then dumps the
    /// rules and commits the difference.
    pub(super) fn turn(&mut self) {
        self.interfere();
        self.write(1 - self.state);
    }

    /// Removes an object of the rules as another program.
    fn interfere(&self) {
        match &self.host {
            Host::Nftables(_) => {
                self.nft("delete element ip kube-proxy active-cluster-ips { 10.96.0.10 }");
            }
            Host::Iptables(node) if node.variant() == "legacy" => {
                node.shell("iptables-legacy -w -t mangle -X KUBE-PROXY-CANARY");
            }
            Host::Iptables(_) => self.nft("flush chain ip nat KUBE-SERVICES"),
        }
    }

    /// Flushes a chain in nf_tables as another program.
    pub(super) fn flush_chain(&self) {
        match &self.host {
            Host::Nftables(_) => self.nft("flush chain ip kube-proxy nat-prerouting"),
            Host::Iptables(_) => self.nft("flush chain ip nat KUBE-POSTROUTING"),
        }
    }

    /// Changes rules as a program that made no earlier change, so that the proxy repairs them
    /// at once.
    fn nft(&self, command: &str) {
        let netns = &self.stage().netns;
        netns.run(|| nft::succeeds_as_another_program(&[command]));
    }

    fn write(&mut self, state: usize) {
        self.state = state;
        let endpoint = |state: usize| format!("[{}]\n", ENDPOINTS[state]);
        let text = web(20).replace(&endpoint(0), &endpoint(state));
        self.stage().write("web.yaml", &text);
    }

    /// Returns whether the rules are those of the current state.
    pub(super) fn has_converged(&self) -> bool {
        self.host.rules() == self.expected[self.state]
    }

    /// Returns the number of failed syncs of the running proxy.
    pub(super) fn failures(&self) -> usize {
        self.proxy.output().matches("sync failed").count()
    }

    /// Waits until the proxy is killed, and starts another one. Returns the number of edits
    /// of its first sync.
    pub(super) fn restart(&mut self) -> u64 {
        wait_until("the end of the proxy", || {
            self.proxy.try_wait().unwrap().is_some()
        });
        self.proxy = self.host.start(self.flags);
        let output = self.proxy.output();
        let words = output.split_whitespace();
        let edits = words.filter_map(|word| word.strip_prefix("edits="));
        edits.map(|edits| edits.parse::<u64>().unwrap()).sum()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if thread::panicking() {
            let (status, output) = (self.proxy.try_wait(), self.proxy.output());
            println!("proxy: {status:?}\n{output}");
        }
    }
}

impl Host {
    /// Starts a proxy and waits until it has synced both families.
    fn start(&self, flags: &str) -> Process {
        let proxy = self.stage().start_with(flags);
        wait_until("both families", || {
            proxy.output().matches(" synced ").count() >= 2
        });
        proxy
    }

    fn stage(&self) -> &Stage {
        match self {
            Self::Nftables(stage) => stage,
            Self::Iptables(node) => node.stage(),
        }
    }

    fn rules(&self) -> String {
        match self {
            Self::Nftables(stage) => stage.ruleset(),
            Self::Iptables(node) => node.sorted_rules().join("\n"),
        }
    }
}
