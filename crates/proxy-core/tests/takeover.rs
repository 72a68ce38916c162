//! A start where upstream's kube-proxy was before, each test in namespaces of
//! its own.
#![cfg(feature = "nftables")]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "nft loads what upstream would, and judges what is left of it"
)]

mod fixtures;

use std::fmt::{Display, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use fixtures::{apply, config, service_cidr};
use proxy_core::{Config, Engine, Event, Family, Outcome};
use testkit::generate::{Plan, Stack, cluster};
use testkit::lab::Lab;
use testkit::netns::Netns;
use testkit::nft;
use testkit::traffic::{Ask, Conversation, Protocol, Server};
use vipline_nftables::Client;
use vipline_service_model::api;

/// What upstream 1.36 has whatever Services there are.
///
/// `FAMILY` stands for the family, `ADDR` for the type of its addresses, and
/// `CIDR` for the network of cluster IPs, and `GATEWAY` for the node.
const BASE: &str = r#"
table FAMILY kube-proxy {
    comment "rules for kube-proxy"
    set hairpin-connections { type ADDR . ADDR . inet_proto . inet_service; comment "service hairpin connections"; }
    set cluster-ips { type ADDR; comment "Active ClusterIPs"; }
    set nodeport-ips { type ADDR; comment "IPs that accept NodePort traffic"; elements = { GATEWAY }; }
    map no-endpoint-services { type ADDR . inet_proto . inet_service : verdict; comment "vmap to drop or reject packets to services with no endpoints"; }
    map no-endpoint-nodeports { type inet_proto . inet_service : verdict; comment "vmap to drop or reject packets to service nodeports with no endpoints"; }
    map firewall-ips { type ADDR . inet_proto . inet_service : verdict; comment "destinations that are subject to LoadBalancerSourceRanges"; }
    map service-ips { type ADDR . inet_proto . inet_service : verdict; comment "ClusterIP, ExternalIP and LoadBalancer IP traffic"; }
    map service-nodeports { type inet_proto . inet_service : verdict; comment "NodePort traffic"; }
    chain masquerading {
        meta mark & 0x00004000 != 0 meta mark set meta mark ^ 0x00004000 masquerade fully-random
        ct status dnat FAMILY saddr . FAMILY daddr . meta l4proto . th dport @hairpin-connections masquerade fully-random
    }
    chain cluster-ips-check {
        FAMILY daddr @cluster-ips reject comment "Reject traffic to invalid ports of ClusterIPs"
        FAMILY daddr { CIDR } drop comment "Drop traffic to unallocated ClusterIPs"
    }
    chain reject-chain { comment "helper for @no-endpoint-services / @no-endpoint-nodeports"; reject; }
    chain service-endpoints-check { FAMILY daddr . meta l4proto . th dport vmap @no-endpoint-services; }
    chain nodeport-endpoints-check { FAMILY daddr @nodeport-ips meta l4proto . th dport vmap @no-endpoint-nodeports; }
    chain firewall-check { FAMILY daddr . meta l4proto . th dport vmap @firewall-ips; }
    chain services {
        FAMILY daddr @cluster-ips meta mark set meta mark | 0x00004000 comment "masquerade all clusterIP traffic"
        FAMILY daddr . meta l4proto . th dport vmap @service-ips
        FAMILY daddr @nodeport-ips meta l4proto . th dport vmap @service-nodeports
    }
    chain filter-prerouting-pre-dnat { type filter hook prerouting priority -110; ct state new jump firewall-check; }
    chain filter-output-pre-dnat { type filter hook output priority -110; ct state new jump firewall-check; }
    chain filter-input {
        type filter hook input priority 0;
        ct state new jump nodeport-endpoints-check
        ct state new jump service-endpoints-check
    }
    chain filter-forward {
        type filter hook forward priority 0;
        ct state new jump service-endpoints-check
        ct state new jump cluster-ips-check
    }
    chain filter-output {
        type filter hook output priority 0;
        ct state new jump service-endpoints-check
        ct state new jump cluster-ips-check
    }
    chain nat-output { type nat hook output priority -100; jump services; }
    chain nat-prerouting { type nat hook prerouting priority -100; jump services; }
    chain nat-postrouting { type nat hook postrouting priority 100; jump masquerading; }
}
"#;

/// What other programs may have beside upstream's table.
const OTHERS: &str = "
table ip other {
    map service-ips { type ipv4_addr : verdict; elements = { 10.0.0.1 : drop }; }
    chain input { type filter hook input priority 0; policy accept; ip daddr vmap @service-ips; }
}
table inet kube-proxy {
    chain services { counter drop; }
}
table ip6 kube-proxy {
    set cluster-ips { type ipv6_addr; elements = { fd00::1 }; }
}
";

/// The script that makes upstream's table of a family.
struct Upstream {
    family: &'static str,
    addr: &'static str,
    script: String,
}

impl Upstream {
    fn new(family: Family) -> Self {
        let (family, addr, cidr, node) = match family {
            Family::V4 => ("ip", "ipv4_addr", "10.96.0.0/12", "192.0.2.1"),
            Family::V6 => ("ip6", "ipv6_addr", "fd00:10:96::/112", "2001:db8::1"),
        };
        let words = [
            ("FAMILY", family),
            ("ADDR", addr),
            ("CIDR", cidr),
            ("GATEWAY", node),
        ];
        let script = words
            .iter()
            .fold(BASE.to_owned(), |script, (word, meaning)| {
                script.replace(word, meaning)
            });
        Self {
            family,
            addr,
            script,
        }
    }

    fn add(&mut self, what: &str, words: impl Display) {
        let family = self.family;
        writeln!(self.script, "add {what} {family} kube-proxy {words}").expect("it is text");
    }

    /// Adds a Service at port 80 with endpoints at port 8080.
    ///
    /// Its `number` decides what else it has: affinity, a node port with or
    /// without endpoints, or source ranges.
    fn service(&mut self, number: usize, vip: IpAddr, endpoints: &[IpAddr]) {
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

    /// Loads it in the namespace of the calling thread.
    fn load(&self) {
        nft::succeeds(&["-f", "-"], &self.script);
    }
}

/// Returns what upstream makes of a cluster, and the events of the cluster.
fn upstream_and_events(services: usize, family: Family) -> (Upstream, Vec<Event>) {
    let stack = match family {
        Family::V4 => Stack::V4,
        Family::V6 => Stack::Dual,
    };
    let mut upstream = Upstream::new(family);
    let mut events = vec![service_cidr(&["10.96.0.0/12", "fd00:10:96::/112"])];
    for (number, plan) in cluster(services, 5, stack).enumerate() {
        let vips = of_family(plan.service().spec.cluster_ips, family);
        let endpoints = plan.slices().into_iter().flat_map(|slice| slice.endpoints);
        let endpoints = of_family(endpoints.flat_map(|endpoint| endpoint.addresses), family);
        let reached = if number % 8 == 7 { 0 } else { endpoints.len() };
        upstream.service(number, vips[0], &endpoints[..reached]);
        events.extend(plan.events());
    }
    (upstream, events)
}

fn of_family(addresses: impl IntoIterator<Item = String>, family: Family) -> Vec<IpAddr> {
    let addresses = addresses.into_iter();
    let addresses = addresses.map(|text| text.parse().expect("an address"));
    addresses
        .filter(|&addr| Family::of(addr) == family)
        .collect()
}

/// Returns the parts of a table as nft lists it, without their order.
fn parts([family, name]: [&str; 2]) -> Vec<String> {
    let listing = nft::succeeds(&["list", "table", family, name], "");
    let parts = listing.split(['{', '}', ',', '\n']).map(str::trim);
    let mut parts: Vec<_> = parts.map(str::to_owned).collect();
    parts.sort_unstable();
    parts
}

/// Returns an engine of one family in the namespace of the calling thread.
fn engine(family: Family, events: impl IntoIterator<Item = Event>) -> Engine {
    let config = Config {
        families: vec![family],
        ..config()
    };
    let mut engine = Engine::open(config).expect("the kernel has nf_tables");
    apply(&mut engine, events);
    engine.apply(Event::Synced);
    engine
}

/// Starts an engine, and returns what it did in how many transactions.
fn start(family: Family, events: impl IntoIterator<Item = Event>) -> (Outcome, u32) {
    let mut client = Client::open().expect("the kernel has nf_tables");
    let mut engine = engine(family, events);
    let mut generation = || client.generation().expect("a generation").0;
    let before = generation();
    let report = engine.poll(Duration::ZERO).expect("a start is due");
    assert!(report.is_success(), "{report}");
    let outcome = report.families[0].outcome.as_ref().expect("a success");
    (outcome.clone(), generation().wrapping_sub(before))
}

fn assert_restart_writes_nothing(family: Family, events: Vec<Event>) {
    let (outcome, transactions) = start(family, events);
    let done = (outcome.edits, transactions, outcome.took_over);
    assert_eq!(done, (0, 0, false));
}

#[test]
fn a_table_of_upstream_is_replaced_in_one_transaction() {
    for (services, family) in [(3, Family::V4), (100, Family::V6), (1_000, Family::V4)] {
        let (upstream, events) = upstream_and_events(services, family);
        let table = [upstream.family, "kube-proxy"];
        let fresh = Netns::new().unwrap().run(|| {
            let (outcome, _) = start(family, events.clone());
            assert!(!outcome.took_over);
            parts(table)
        });
        Netns::new().unwrap().run(|| {
            upstream.load();
            let (outcome, transactions) = start(family, events.clone());
            assert!(outcome.took_over && outcome.edits > services, "{outcome}");
            assert_eq!(transactions, 1);
            assert_eq!(parts(table), fresh);
            assert_restart_writes_nothing(family, events);
        });
    }
}

#[test]
fn other_tables_stay_as_they_are() {
    let (upstream, events) = upstream_and_events(8, Family::V4);
    Netns::new().unwrap().run(|| {
        upstream.load();
        nft::succeeds(&["-f", "-"], OTHERS);
        let others = [
            ["ip", "other"],
            ["inet", "kube-proxy"],
            ["ip6", "kube-proxy"],
        ];
        let before = others.map(parts);
        assert_eq!(start(Family::V4, events).1, 1);
        assert_eq!(others.map(parts), before);
    });
}

#[test]
fn the_difference_to_upstream_is_a_script_that_nft_applies() {
    let (upstream, events) = upstream_and_events(8, Family::V4);
    Netns::new().unwrap().run(|| {
        upstream.load();
        let mut engine = engine(Family::V4, events.clone());
        let difference = engine.difference().expect("a dump");
        nft::succeeds(&["-f", "-"], &difference.script);
        assert_restart_writes_nothing(Family::V4, events);
    });
}

#[test]
fn established_connections_live_on() {
    let lab = Lab::new().expect("a lab");
    for (family, vip) in [(Family::V4, "10.96.0.10"), (Family::V6, "fd00:10:96::10")] {
        let vip: IpAddr = vip.parse().expect("an address");
        let [one, other] = [&lab.backends[0], &lab.backends[1]].map(|host| {
            let addr = host.addresses()[usize::from(family == Family::V6)];
            let server = Server::start(&host.netns, Protocol::Tcp, (addr, 8080).into(), &host.name);
            (addr, server.expect("a server"))
        });
        let mut upstream = Upstream::new(family);
        upstream.service(0, vip, &[one.0]);
        lab.node.netns.run(|| upstream.load());
        let ask = Ask::new(Protocol::Tcp, (vip, 80).into());
        let mut talk = Conversation::open(&lab.client.netns, ask).expect("upstream serves");
        assert_eq!(talk.server(), "backend-1");
        talk.say("before").expect("an echo");
        let plan = Plan::new("web").at(vip).port(api::Protocol::Tcp, 80, 8080);
        let plan = plan.endpoint(other.0, "node-2");
        let (_, transactions) = lab.node.netns.run(|| start(family, plan.events()));
        assert_eq!(transactions, 1);
        talk.say("after").expect("an echo");
        assert_eq!(ask.times(&lab.client.netns, 10).by("backend-2"), 10);
        talk.say("still").expect("an echo");
    }
}
