//! The first transaction of upstream kube-proxy 1.36 in mode nftables.
//!
//! The transaction is the command text that upstream passes to `nft -f -`.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::net::{IpAddr, SocketAddr};

use proxy_core::Family;
use testkit::nft;

/// Commands that do not depend on Services.
///
/// Placeholders in capitals: `FAMILY`, `ADDR` (address type), `CIDR` (cluster IPs),
/// `PODS` (cluster CIDR), and those of node ports.
const START: &str = include_str!("start.nft");

/// The base chains: name, type, hook and priority.
pub(crate) const BASE_CHAINS: [(&str, &str, &str, i32); 8] = [
    ("filter-prerouting-pre-dnat", "filter", "prerouting", -110),
    ("filter-output-pre-dnat", "filter", "output", -110),
    ("filter-input", "filter", "input", 0),
    ("filter-forward", "filter", "forward", 0),
    ("filter-output", "filter", "output", 0),
    ("nat-prerouting", "nat", "prerouting", -100),
    ("nat-output", "nat", "output", -100),
    ("nat-postrouting", "nat", "postrouting", 100),
];

/// The addresses on which upstream serves node ports.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NodePorts {
    /// The node's own address: the default.
    Primary,
    /// All local addresses.
    All,
}

fn base_chains(commands: fn(&(&str, &str, &str, i32)) -> String) -> String {
    BASE_CHAINS.iter().map(commands).collect()
}

/// Returns the commands that delete a base chain regardless of its properties.
fn recreate((name, ..): &(&str, &str, &str, i32)) -> String {
    format!("add chain FAMILY kube-proxy {name}\ndelete chain FAMILY kube-proxy {name}\n")
}

fn create((name, kind, hook, priority): &(&str, &str, &str, i32)) -> String {
    let base = format!("{{ type {kind} hook {hook} priority {priority} ; }}");
    format!("add chain FAMILY kube-proxy {name} {base}\nflush chain FAMILY kube-proxy {name}\n")
}

/// The first transaction of upstream kube-proxy 1.36 in a family.
pub(crate) struct Upstream {
    pub(crate) family: &'static str,
    addr: &'static str,
    pub(crate) script: String,
}

impl Upstream {
    /// Returns the first transaction of upstream without Services.
    ///
    pub(crate) fn new(family: Family, node_ports: NodePorts) -> Self {
        let (family, addr, cidr, pods, localhost, node) = match family {
            Family::V4 => (
                "ip",
                "ipv4_addr",
                "10.96.0.0/12",
                "10.0.0.0/8",
                "127.0.0.0/8",
                "192.0.2.1",
            ),
            Family::V6 => (
                "ip6",
                "ipv6_addr",
                "fd00:10:96::/112",
                "fd00::/16",
                "::1",
                "2001:db8::1",
            ),
        };
        let set = format!("set {family} kube-proxy nodeport-ips");
        let element = format!("add element {family} kube-proxy nodeport-ips {{ {node} }}");
        let [fill, local, to_node_ports] = match node_ports {
            NodePorts::Primary => [
                format!("flush {set}\n{element}"),
                String::new(),
                "FAMILY daddr @nodeport-ips".to_owned(),
            ],
            NodePorts::All => [
                format!("delete {set}"),
                "fib daddr type local".to_owned(),
                format!("FAMILY daddr != {localhost}"),
            ],
        };
        let script = START
            .replace("RECREATE", &base_chains(recreate))
            .replace("BASE", &base_chains(create))
            .replace("NODEPORT_IPS", &fill)
            .replace("LOCAL", &local)
            .replace("TO_NODEPORTS", &to_node_ports);
        let words = [
            ("FAMILY", family),
            ("ADDR", addr),
            ("CIDR", cidr),
            ("PODS", pods),
        ];
        let replace = |script: String, (word, value): (&str, &str)| script.replace(word, value);
        Self {
            family,
            addr,
            script: words.into_iter().fold(script, replace),
        }
    }

    fn add(&mut self, kind: &str, words: impl Display) {
        let family = self.family;
        writeln!(self.script, "add {kind} {family} kube-proxy {words}")
            .expect("writing to a String succeeds");
    }

    /// Adds a Service at port 80 with endpoints at port 8080.
    ///
    /// The `number` selects additional features: affinity, a node port with or without
    /// endpoints, or source ranges.
    pub(crate) fn service(&mut self, number: usize, vip: IpAddr, endpoints: &[IpAddr]) {
        let name = format!("{number:08}-default/service-{number}/tcp/http");
        let [service, external] = ["service", "external"].map(|kind| format!("{kind}-{name}"));
        let at = format!("{vip} . tcp . 80");
        self.add("element", format!("cluster-ips {{ {vip} }}"));
        let Some(first) = endpoints.first() else {
            let element = format!("{{ {at} comment \"default/web\" : goto reject-chain }}");
            return self.add("element", format!("no-endpoint-services {element}"));
        };
        self.add(
            "element",
            format!("hairpin-connections {{ {first} . {first} . tcp . 8080 }}"),
        );
        self.add("chain", &service);
        match number % 8 {
            1 => self.balance_with_affinity(&name, &service, endpoints),
            _ => self.balance(&service, endpoints),
        }
        self.add(
            "element",
            format!("service-ips {{ {at} : goto {service} }}"),
        );
        self.add("chain", &external);
        self.add(
            "rule",
            format!("{external} meta mark set meta mark | 0x00004000"),
        );
        self.add("rule", format!("{external} goto {service}"));
        let node_port = format!("tcp . {}", 30_000 + number % 2_768);
        match number % 8 {
            2 => self.add(
                "element",
                format!("service-nodeports {{ {node_port} : goto {external} }}"),
            ),
            3 => self.add(
                "element",
                format!("no-endpoint-nodeports {{ {node_port} : drop }}"),
            ),
            4 => {
                let (family, firewall) = (self.family, format!("firewall-{name}"));
                self.add("chain", &firewall);
                self.add(
                    "rule",
                    format!("{firewall} {family} saddr != {{ {vip} }} drop"),
                );
                self.add(
                    "element",
                    format!("firewall-ips {{ {at} : goto {firewall} }}"),
                );
            }
            _ => {}
        }
    }

    fn balance(&mut self, service: &str, endpoints: &[IpAddr]) {
        let slots = endpoints.iter().enumerate();
        let slots: Vec<_> = slots
            .map(|(slot, addr)| format!("{slot} : {addr} . 8080"))
            .collect();
        let (family, count) = (self.family, endpoints.len());
        let map = format!("numgen random mod {count} map {{ {} }}", slots.join(", "));
        let rule = format!("meta l4proto tcp dnat {family} addr . port to {map}");
        self.add("rule", format!("{service} {rule}"));
    }

    fn balance_with_affinity(&mut self, name: &str, service: &str, endpoints: &[IpAddr]) {
        let (family, addr, count) = (self.family, self.addr, endpoints.len());
        let mut slots = Vec::new();
        for (slot, endpoint) in endpoints.iter().enumerate() {
            let endpoint_name = format!("{name}__{endpoint}/8080").replace(':', ".");
            let [chain, set] =
                ["endpoint", "affinity"].map(|kind| format!("{kind}-{endpoint_name}"));
            let schema = format!("{{ type {addr}; flags dynamic,timeout; timeout 10800s; }}");
            self.add("set", format!("{set} {schema}"));
            self.add("chain", &chain);
            self.add(
                "rule",
                format!("{chain} update @{set} {{ {family} saddr }}"),
            );
            let to = SocketAddr::new(*endpoint, 8080);
            self.add("rule", format!("{chain} meta l4proto tcp dnat to {to}"));
            self.add(
                "rule",
                format!("{service} {family} saddr @{set} goto {chain}"),
            );
            slots.push(format!("{slot} : goto {chain}"));
        }
        let map = format!("vmap {{ {} }}", slots.join(", "));
        self.add("rule", format!("{service} numgen random mod {count} {map}"));
    }

    /// Adds the commands for existing objects and loads the script. Upstream deletes
    /// unknown affinity sets and flushes unknown chains of endpoints and Services.
    pub(crate) fn take_over(&mut self) {
        let listing = nft::succeeds(&["list", "table", self.family, "kube-proxy"], "");
        let blocks = blocks(&listing);
        let named = |kind: &'static str| {
            let blocks = blocks.iter().filter(move |block| block.kind == kind);
            blocks.map(|block| block.name)
        };
        let family = self.family;
        for set in named("set").filter(|name| name.starts_with("affinity-")) {
            self.script += &format!("delete set {family} kube-proxy {set}\n");
        }
        for chain in named("chain").filter(|name| name.contains('/')) {
            self.script += &format!("flush chain {family} kube-proxy {chain}\n");
        }
        self.load();
    }

    /// Loads the script in the namespace of the calling thread, as one transaction like
    /// upstream.
    pub(crate) fn load(&self) {
        nft::succeeds(&["-f", "-"], &self.script);
    }
}

/// A set, a map or a chain in a listing.
struct Block<'a> {
    kind: &'a str,
    name: &'a str,
    text: &'a str,
}

/// Returns the objects of a table that nft lists.
fn blocks(listing: &str) -> Vec<Block<'_>> {
    let blocks = listing.split("\n\t}\n").filter_map(|block| {
        let at = block.find(" {\n\t\t")?;
        let (head, text) = block.split_at(at);
        let (kind, name) = head.rsplit_once('\t')?.1.split_once(' ')?;
        Some(Block { kind, name, text })
    });
    blocks.collect()
}

/// Returns the chains that packets reach from a hook, with their rules as text.
pub(crate) fn reachable(listing: &str) -> BTreeMap<&str, &str> {
    let blocks = blocks(listing);
    let is_base = |block: &&Block<'_>| block.kind == "chain" && block.text.contains(" hook ");
    let mut next: Vec<_> = blocks.iter().filter(is_base).collect();
    let mut reached = BTreeMap::new();
    while let Some(block) = next.pop() {
        if reached.insert(block.name, block.text).is_some() {
            continue;
        }
        let words: Vec<_> = block.text.split_whitespace().collect();
        for pair in words.windows(2) {
            let [word, name] = [pair[0], pair[1].trim_end_matches(',')];
            let (kind, name) = match word {
                "jump" | "goto" => ("chain", name),
                "vmap" => ("map", name.trim_start_matches('@')),
                _ => continue,
            };
            next.extend(
                blocks
                    .iter()
                    .filter(|it| (it.kind, it.name) == (kind, name)),
            );
        }
    }
    reached
}
