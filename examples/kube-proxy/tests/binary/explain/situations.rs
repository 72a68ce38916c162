//! A table of situations that operators meet, each in every mode that can show it: the answer
//! must name the cause.
//!
//! Modes nftables and iptables run on the kernel. Mode ipvs is a saved kernel: rules, IP sets,
//! links and routes are those of a kernel, and virtual servers are those of `render`, because
//! the kernel of the host may lack IPVS.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::{fs, thread};

use serde_json::Value;
use testkit::link;
use testkit::netns::Netns;

use super::json;
use super::kernel::{ip, set};
use crate::iptables::Node;
use crate::stage::{Outcome, Stage, service, slice};

/// The objects of all situations.
const OBJECTS: &str = include_str!("situations.yaml");

/// A client outside of the cluster, and a pod of the node.
const OUTSIDE: &str = "198.51.100.7";
const POD: &str = "10.244.1.5";

/// What is done on a node after the first sync.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// A command of `ip`.
    Ip(&'static str),
    /// A value under `/proc/sys/net`.
    Sysctl(&'static str, &'static str),
    /// A base chain of another program: its type and hook, and its rules.
    Firewall(&'static str, &'static str),
    /// A command of the shell, in the modes that `1` names.
    Shell(&'static str, &'static str),
    /// Lines that replace the last line of a saved kernel, which is evaluated then.
    Saved(&'static str),
    /// Flags of all commands.
    Flags(&'static str),
    /// The kernel of a node without any sync.
    NoSync,
    /// The running proxy reports a rejected object.
    Rejected,
}

use Act::{Firewall, Flags, Ip, NoSync, Rejected, Saved, Shell, Sysctl};

struct Situation {
    name: &'static str,
    /// First letters of the modes: `n`, `i`, `v`.
    modes: &'static str,
    acts: &'static [Act],
    line: &'static str,
    outcome: &'static str,
    /// Part of the sentence.
    cause: &'static str,
}

macro_rules! situations {
    ($($modes:literal $name:literal: $acts:expr, $line:literal => $outcome:literal, $cause:literal;)+) => {
        &[$(Situation {
            name: $name,
            modes: $modes,
            acts: &$acts,
            line: $line,
            outcome: $outcome,
            cause: $cause,
        },)+]
    };
}

const SITUATIONS: &[Situation] = situations! {
    // By the objects.
    "niv" "a Service that works": [], "tcp 10.96.0.10:80 --from 198.51.100.7"
        => "reachable", "leads to one of 2 endpoints";
    "niv" "no endpoints, as of a wrong selector": [], "tcp 10.96.0.11:80 --from 198.51.100.7"
        => "refused", "the service port has no endpoints";
    "niv" "endpoints that are not ready": [], "tcp 10.96.0.12:80 --from 198.51.100.7"
        => "refused", "its one endpoint is not ready";
    "niv" "a named port that no container has": [], "tcp 10.96.0.13:80 --from 198.51.100.7"
        => "refused", "its EndpointSlices do not have http (TCP): no container port has the name";
    "niv" "endpoints of the other family only": [], "tcp 10.96.0.14:80 --from 198.51.100.7"
        => "refused", "endpoints of the other IP family only";
    "n" "internal policy Local without an endpoint here": [], "tcp 10.96.0.15:80 --from 10.244.1.5"
        => "dropped", "internalTrafficPolicy is Local, and no usable endpoint is on this node";
    "i" "internal policy Local without an endpoint here, iptables": [], "tcp 10.96.0.15:80 --from 10.244.1.5"
        => "dropped", "internalTrafficPolicy is Local, and no usable endpoint is on this node";
    "v" "internal policy Local without an endpoint here, ipvs": [], "tcp 10.96.0.15:80 --from 10.244.1.5"
        => "refused", "internalTrafficPolicy is Local, and no usable endpoint is on this node";
    "ni" "external policy Local without an endpoint here": [], "tcp 203.0.113.16:80 --from 198.51.100.7"
        => "dropped", "externalTrafficPolicy is Local, and no usable endpoint is on this node";
    "v" "external policy Local with an endpoint on another node, ipvs": [], "tcp 203.0.113.16:80 --from 198.51.100.7"
        => "dropped", "replies do not come back through this node, and the client discards them (externalTrafficPolicy is Local";
    "niv" "source ranges": [], "tcp 203.0.113.17:80 --from 198.51.100.7"
        => "dropped", "loadBalancerSourceRanges do not contain the source: 192.0.2.0/24";
    "niv" "a node port on an address that serves none": [Flags("--nodeport-addresses 10.0.0.0/8")],
        "tcp 192.168.0.5:30010 --from 198.51.100.7"
        => "refused", "node ports are not served on 192.168.0.5";
    "nv" "a node port on a loopback address": [], "tcp 127.0.0.1:30010 --from-node"
        => "refused", "node ports are not served on 127.0.0.1";
    "niv" "a node port that nobody has": [], "tcp 192.168.0.5:30999 --from 198.51.100.7"
        => "refused", "no Service has this node port";
    "niv" "a contested address": [], "service default/rival --from 198.51.100.7"
        => "dropped", "the address belongs to default/web, which takes precedence";
    "niv" "a wrong protocol": [], "udp 10.96.0.10:80 --from 198.51.100.7"
        => "*", "serves other ports there: 80/TCP";
    "niv" "an unused port of a cluster IP": [], "tcp 10.96.0.10:81 --from 198.51.100.7"
        => "*", "serves other ports there: 80/TCP";
    "niv" "an unallocated cluster IP": [], "tcp 10.96.7.7:80 --from 198.51.100.7"
        => "dropped", "10.96.7.7 is in a ServiceCIDR, and no Service has it";
    "niv" "an external name": [], "service default/alias"
        => "dropped", "it is an alias of \"example.org\" in DNS";
    "niv" "a headless Service": [], "service default/headless"
        => "dropped", "is headless: clients use the addresses of its endpoints";
    "niv" "a Service of another proxy": [], "tcp 10.96.0.18:80 --from 198.51.100.7"
        => "dropped", "leaves Service default/other to proxy \"cilium\"";
    "niv" "a load balancer IP with ipMode Proxy": [], "tcp 203.0.113.18:80 --from 198.51.100.7"
        => "dropped", "with ipMode Proxy: the load balancer sends packets to other addresses";
    "niv" "a health check node port": [], "tcp 192.168.0.5:32016 --from 198.51.100.7"
        => "reachable", "the health check node port of Service default/away";
    "niv" "endpoints that all terminate": [], "tcp 10.96.0.19:80 --from 198.51.100.7"
        => "reachable", "leads to endpoint 10.244.1.19:8080";
    "niv" "topology hints for this zone": [], "tcp 10.96.0.20:80 --from 198.51.100.7"
        => "reachable", "leads to endpoint 10.244.1.2:8080";
    "niv" "a hairpin": [], "tcp 10.96.0.10:80 --from 10.244.1.1"
        => "reachable", "source address masqueraded for some endpoints";
    // By rules of other programs.
    "ni" "a foreign drop in forward": [Firewall("filter hook forward priority 10", "tcp dport 8080 drop")],
        "tcp 10.96.0.10:80 --from 198.51.100.7"
        => "dropped", "by a rule of another program, which the proxy does not change: forward ip firewall base";
    "v" "a foreign drop in input": [Firewall("filter hook input priority 10", "tcp dport 80 drop")],
        "tcp 10.96.0.10:80 --from 198.51.100.7"
        => "dropped", "by a rule of another program, which the proxy does not change: input ip firewall base";
    "niv" "a foreign drop in output": [Firewall("filter hook output priority 10", "tcp dport 8080 drop")],
        "tcp 10.96.0.10:80 --from-node"
        => "dropped", "by a rule of another program, which the proxy does not change: output ip firewall base";
    "niv" "a foreign drop in prerouting": [Firewall("filter hook prerouting priority -200", "ip daddr 10.96.0.10 drop")],
        "tcp 10.96.0.10:80 --from 198.51.100.7"
        => "dropped", "by a rule of another program, which the proxy does not change: prerouting ip firewall base";
    "niv" "a foreign translation": [Firewall("nat hook prerouting priority -110", "tcp dport 80 dnat to 10.244.1.250:9")],
        "tcp 10.96.0.10:80 --from 198.51.100.7"
        => "elsewhere", "leads to 10.244.1.250:9, which is no endpoint of default/web, by a rule of another program";
    "niv" "a foreign mark": [Firewall("filter hook prerouting priority -150", "meta mark set 0x00004000")],
        "tcp 10.96.0.10:80 --from 10.244.1.5"
        => "*", "A rule of another program sets the mark: prerouting ip firewall base";
    "ni" "a foreign notrack": [Firewall("filter hook prerouting priority -300", "notrack")],
        "tcp 10.96.0.10:80 --from 198.51.100.7"
        => "*", "A rule of another program changes connection tracking: prerouting ip firewall base";
    "niv" "replies that a rule drops": [Firewall("filter hook forward priority 10", "ip saddr 10.244.1.0/24 ct state established drop")],
        "tcp 10.96.0.10:80 --from 198.51.100.7"
        => "dropped", "replies are lost: a rule of another program drops them, which the proxy does not change: forward ip firewall base";
    "niv" "a rate limit": [Firewall("filter hook prerouting priority -160", "limit rate over 5/second drop")],
        "tcp 10.96.0.10:80 --from 198.51.100.7"
        => "unknown", "the result depends on a limit: prerouting ip firewall base";
    "i" "a rate limit of iptables": [
            Shell("i", "iptables-nft -I FORWARD -d 10.244.1.0/24 -j DROP; \
                        iptables-nft -I FORWARD -m limit --limit 5/s -j ACCEPT"),
        ], "tcp 10.96.0.10:80 --from 198.51.100.7"
        => "unknown", "the result depends on a limit: forward ip filter FORWARD";
    "n" "chains with equal priorities, saved": [
            Firewall("filter hook prerouting priority -150", "meta mark set 0x00000077"),
            Shell("n", "nft 'table ip later { chain base { type filter hook prerouting priority -150; meta mark 0x00000077 drop; }; }'"),
            Saved("hook ip prerouting -150 ip firewall base\nhook ip prerouting -150 ip later base\n"),
        ], "tcp 10.96.0.10:80 --from 198.51.100.7"
        => "dropped", "by a rule of another program, which the proxy does not change: prerouting ip later base";
    // By routes, links and sysctls.
    "niv" "a blackhole route to the endpoints": [Ip("route add blackhole 10.244.1.0/30")],
        "tcp 10.96.0.10:80 --from 198.51.100.7"
        => "dropped", "on the way: the route of this node to 10.244.1.1 is blackhole 10.244.1.0/30";
    "niv" "a prohibit route to the endpoints": [Ip("route add prohibit 10.244.1.0/30")],
        "tcp 10.96.0.10:80 --from 198.51.100.7"
        => "refused", "on the way: the route of this node to 10.244.1.1 is prohibit 10.244.1.0/30";
    "niv" "an unreachable route to the endpoints": [Ip("route add unreachable 10.244.1.0/30")],
        "tcp 10.96.0.10:80 --from 198.51.100.7"
        => "refused", "on the way: the route of this node to 10.244.1.1 is unreachable 10.244.1.0/30";
    "niv" "no route to an endpoint": [Ip("route del default"), Ip("route add 198.51.100.0/24 via 192.168.0.1")],
        "tcp 10.96.0.21:80 --from 198.51.100.7"
        => "dropped", "this node has no route to 10.244.9.1:8080, to which 10.96.0.21:80 leads";
    "niv" "no route back to the client": [Ip("route del default")],
        "tcp 10.96.0.10:80 --from 198.51.100.7"
        => "dropped", "this node has no route to 198.51.100.7, so that no reply";
    "niv" "a reverse path filter": [Sysctl("ipv4/conf/eth1/rp_filter", "1")],
        "tcp 10.96.0.10:80 --from 198.51.100.7 --interface eth1"
        => "dropped", "the reverse path filter of eth1";
    "niv" "a reverse path filter of another interface": [Sysctl("ipv4/conf/eth1/rp_filter", "1")],
        "tcp 10.96.0.10:80 --from 198.51.100.7"
        => "reachable", "This assumes that the packet arrives through eth0, to which the route to its source leads; the reverse path filter of eth1 would drop it";
    "niv" "rules of policy routing": [Ip("rule add from 10.244.1.0/24 lookup 100 priority 100")],
        "tcp 10.96.0.10:80 --from 198.51.100.7"
        => "reachable", "This assumes that none of the rules of policy routing on this node applies (ip rule: 100)";
    "niv" "forwarding that is off": [Sysctl("ipv4/ip_forward", "0")],
        "tcp 10.96.0.10:80 --from 198.51.100.7"
        => "dropped", "net.ipv4.ip_forward, or net.ipv4.conf.";
    "niv" "a link that is down": [Ip("link set pods down")],
        "tcp 10.96.0.10:80 --from 198.51.100.7"
        => "dropped", "link pods is down";
    "niv" "a link without carrier": [Shell("niv", "ip -n $pods link set pods-peer down")],
        "tcp 10.96.0.10:80 --from 198.51.100.7"
        => "dropped", "link pods is down";
    "niv" "a bridge whose packets pass no rules": [
            Shell("niv", "ip link add cni0 type bridge; ip link set pods master cni0; \
                          ip address del 10.244.1.254/24 dev pods; \
                          ip address add 10.244.1.254/24 dev cni0; ip link set cni0 up; \
                          for i in $(seq 100); do ip link show cni0 | grep -q 'state UP' && break; sleep 0.05; done; \
                          f=/proc/sys/net/bridge/bridge-nf-call-iptables; [ ! -e $f ] || echo 0 > $f; \
                          f=/proc/sys/net/bridge/bridge-nf-call-ip6tables; [ ! -e $f ] || echo 0 > $f"),
        ], "tcp 10.96.0.10:80 --from 10.244.1.5"
        => "dropped", "are at the same bridge, in 10.244.1.254/24: replies pass the bridge without rules";
    // By state.
    "ni" "a stale entry of connection tracking": [
            Shell("ni", "conntrack -I -p udp -s 198.51.100.7 -d 10.96.0.22 --sport 5353 --dport 53 \
                         -r 10.244.1.99 -q 198.51.100.7 --reply-port-src 53 --reply-port-dst 5353 -t 100"),
        ], "udp 10.96.0.22:53 --from 198.51.100.7"
        => "elsewhere", "packets from 198.51.100.7:5353 follow an entry of connection tracking to 10.244.1.99:53, which is no endpoint of default/dns";
    "v" "a recorded client": [Saved("ip_vs_conn TCP C6336407 0000 0A600017 0050 0AF40102 1F90 NONE 1000\n")],
        "tcp 10.96.0.23:80 --from 198.51.100.7"
        => "reachable", "which session affinity recorded for this client";
    "niv" "no rules of a proxy": [NoSync],
        "tcp 10.96.0.10:80 --from 198.51.100.7"
        => "*", "No kube-proxy in mode ";
    "n" "rules of a proxy in another mode": [
            NoSync,
            Shell("n", "printf '*nat\\n:KUBE-SERVICES - [0:0]\\nCOMMIT\\n' | iptables-nft-restore"),
        ], "tcp 10.96.0.10:80 --from 198.51.100.7"
        => "*", "has rules on this node, but one in mode iptables has";
    "n" "a missing element": [
            Shell("n", "nft delete element ip kube-proxy backends-2 '{ 10.96.0.10 . tcp . 80 . 1 }'"),
        ], "tcp 10.96.0.10:80 --from 198.51.100.7"
        => "*", "Kernel and plan disagree about 10.96.0.10:80";
    "i" "a missing rule": [
            Shell("i", "iptables-nft -t nat -F KUBE-POSTROUTING"),
        ], "tcp 10.96.0.10:80 --from 198.51.100.7"
        => "*", "Kernel and plan disagree about 10.96.0.10:80";
    "ni" "a rejected object": [Rejected], "tcp 10.96.0.10:80 --from 198.51.100.7"
        => "reachable", "The proxy retries an object rejected by the kernel";
};

/// A node with its neighbors.
struct Scene {
    node: Node,
    is_ipvs: bool,
    /// Network namespaces of the pods and of other hosts.
    pods: Netns,
    others: Netns,
}

impl Scene {
    /// Creates a node with an uplink, a second one, and a network of pods.
    fn new(mode: char) -> Self {
        let node = match mode {
            'i' => Node::with("nft", &[("objects.yaml", OBJECTS)]),
            'v' => Node::in_mode("ipvs", &[("objects.yaml", OBJECTS)]),
            _ => Node::in_mode("nftables", &[("objects.yaml", OBJECTS)]),
        };
        let (pods, others) = (Netns::new().unwrap(), Netns::new().unwrap());
        let stage = node.stage();
        for (name, address, other) in [
            ("eth0", "192.168.0.5/24", &others),
            ("eth1", "192.168.1.5/24", &others),
            ("pods", "10.244.1.254/24", &pods),
        ] {
            let peer = format!("{name}-peer");
            let net = address.parse().unwrap();
            stage.netns.run(|| {
                link::add_pair(name, &peer, other.as_fd()).unwrap();
                link::up(name).unwrap();
                link::add_address(name, net).unwrap();
            });
            other.run(|| link::up(&peer).unwrap());
        }
        stage.netns.run(|| link::up("lo").unwrap());
        ip(stage, "route add default via 192.168.0.1");
        set(stage, "ipv4/ip_forward", "1");
        Self {
            node,
            is_ipvs: mode == 'v',
            pods,
            others,
        }
    }

    fn stage(&self) -> &Stage {
        self.node.stage()
    }

    /// Runs a command with the name of the pods' namespace in `$pods`.
    fn shell(&self, line: &str) {
        let mut command = self.stage().command("nsenter");
        let pods = format!("--net={}", self.pods.path().display());
        let outcome = match line.strip_prefix("ip -n $pods ") {
            Some(rest) => {
                command.arg(pods).arg("ip").args(rest.split(' '));
                Outcome::from(command.output().unwrap())
            }
            None => {
                let mut command = self.stage().command("sh");
                command.args(["-e", "-c", line]);
                Outcome::from(self.stage().netns.run(|| command.output()).unwrap())
            }
        };
        assert_eq!(outcome.code, 0, "{line}: {outcome:?}");
    }

    /// Programs the kernel. In mode ipvs, rules and sets only.
    fn sync(&self, flags: &str) {
        if !self.is_ipvs {
            let outcome = self.stage().run(&format!("--oneshot {flags}"));
            assert_eq!(outcome.code, 0, "{outcome:?}");
            return;
        }
        for (reader, document) in self.documents(flags) {
            // The kernel of the host may have no match `ipvs`.
            let lines = document.lines().filter(|line| !line.contains("-m ipvs "));
            let document: String = lines.map(|line| format!("{line}\n")).collect();
            let file = self.stage().folder.path().join("document");
            fs::write(&file, document).unwrap();
            let reader = match &*reader {
                "ipset restore" => "ipset restore",
                "iptables-restore --noflush" => "iptables-nft-restore --noflush",
                "ip6tables-restore --noflush" => "ip6tables-nft-restore --noflush",
                _ => continue,
            };
            self.shell(&format!("{reader} < {}", file.display()));
        }
    }

    /// Returns the documents of `render` in mode ipvs with their readers.
    fn documents(&self, flags: &str) -> Vec<(String, String)> {
        let rendered = self.stage().run(&format!("render {flags}"));
        assert_eq!(rendered.code, 0, "{rendered:?}");
        let mut documents: Vec<(String, String)> = Vec::new();
        for line in rendered.stdout.lines() {
            match (line.strip_prefix("# "), documents.last_mut()) {
                (Some(reader), _) => documents.push((reader.to_owned(), String::new())),
                (None, Some((_, text))) => writeln!(text, "{line}").unwrap(),
                (None, None) => {}
            }
        }
        documents
    }

    /// Saves the kernel, with virtual servers and their addresses in mode ipvs, and with more
    /// lines.
    fn save(&self, synced: Option<&str>, lines: &str) -> String {
        let saved = self.stage().run("save-kernel");
        assert_eq!(saved.code, 0, "{saved:?}");
        let mut text = saved.stdout.strip_suffix("# end\n").unwrap().to_owned();
        let documents = match synced.filter(|_| self.is_ipvs) {
            Some(flags) => self.documents(flags),
            None => Vec::new(),
        };
        for (reader, document) in documents {
            for line in document.lines() {
                let address = line.strip_prefix("address add ");
                let address = address.and_then(|it| it.strip_suffix(" dev kube-ipvs0"));
                match (&*reader, address) {
                    ("ipset restore", _) => {
                        writeln!(text, "ipset-save {line}").unwrap();
                    }
                    ("ipvsadm -R", _) => writeln!(text, "ipvsadm-save {line}").unwrap(),
                    (_, Some(address)) => {
                        writeln!(text, "address {address} 99 kube-ipvs0").unwrap();
                    }
                    _ => {}
                }
            }
        }
        text + lines + "# end\n"
    }

    /// Prepares a situation and explains its line.
    fn explain(&self, situation: &Situation, mode: char) -> Value {
        let acts = situation.acts;
        let mut flags = acts.iter().filter_map(|act| match act {
            Flags(flags) => Some(*flags),
            _ => None,
        });
        let flags = flags.next().unwrap_or("");
        let is_synced = !acts.iter().any(|act| matches!(act, NoSync));
        let synced = is_synced.then_some(flags);
        if is_synced {
            self.sync(flags);
        }
        let (mut saved, mut server) = (None, None);
        for act in acts {
            match *act {
                Ip(line) => ip(self.stage(), line),
                Sysctl(path, value) => set(self.stage(), path, value),
                Firewall(chain, rules) => self.stage().load(&format!(
                    "table ip firewall {{\nchain base {{\ntype {chain}\n{rules}\n}}\n}}\n"
                )),
                Shell(modes, line) if modes.contains(mode) => self.shell(line),
                Shell(..) | NoSync | Flags(_) => {}
                Saved(lines) => saved = Some(lines),
                Rejected => server = Some(self.serve_rejected(mode)),
            }
        }
        let mut line = format!("explain {} {flags} -o json", situation.line);
        if self.is_ipvs {
            saved = saved.or(Some(""));
        }
        if let Some(lines) = saved {
            let file = self.stage().folder.path().join("kernel");
            fs::write(&file, self.save(synced, lines)).unwrap();
            line += &format!(" --kernel-dump {}", file.display());
        }
        let outcome = self.stage().run(&line);
        let answer = match outcome.stdout.is_empty() {
            true => serde_json::json!({"outcome": "error", "sentence": outcome.stderr}),
            false => json(&outcome),
        };
        if let Some(server) = server {
            server.join().unwrap();
        }
        answer
    }

    /// Serves the page of rejected objects once, as the running proxy does.
    fn serve_rejected(&self, mode: char) -> thread::JoinHandle<()> {
        let listener = self
            .stage()
            .netns
            .run(|| TcpListener::bind("127.0.0.1:10249"))
            .unwrap();
        let mode = if mode == 'n' { "nftables" } else { "iptables" };
        let page = format!(
            "{{\"mode\": \"{mode}\", \"node\": \"node-1\", \"objects\": [{{\"ipFamily\": \"IPv4\", \
             \"servicePort\": \"default/web\", \"object\": \"set x\", \"isRemoval\": false, \
             \"errno\": 12, \"reason\": \"out of memory\"}}]}}"
        );
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).unwrap();
            let head = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n";
            stream
                .write_all(format!("{head}{page}").as_bytes())
                .unwrap();
        })
    }
}

/// Returns what is wrong with the answer in a mode.
fn fault(situation: &Situation, mode: char) -> Option<String> {
    let scene = Scene::new(mode);
    let answer = scene.explain(situation, mode);
    let (sentence, outcome) = (answer["sentence"].as_str()?, answer["outcome"].as_str()?);
    let is_expected = sentence.contains(situation.cause)
        && ["*", outcome].contains(&situation.outcome)
        && !sentence.contains("contradicts");
    let Situation { name, cause, .. } = situation;
    let expected = format!("expected {} with {cause:?}", situation.outcome);
    (!is_expected).then(|| format!("{name}, {mode}: {expected}\n    {outcome}: {sentence}"))
}

/// Checks the situations of a mode.
fn check(mode: char) {
    let shown: Vec<_> = SITUATIONS
        .iter()
        .filter(|it| it.modes.contains(mode))
        .collect();
    let faults: Vec<_> = shown.iter().filter_map(|it| fault(it, mode)).collect();
    testkit::figures!(
        "{} situations in mode {mode}, {} faults",
        shown.len(),
        faults.len()
    );
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn each_situation_is_explained_by_its_cause_in_mode_nftables() {
    check('n');
}

#[test]
fn each_situation_is_explained_by_its_cause_in_mode_iptables() {
    check('i');
}

#[test]
fn each_situation_is_explained_by_its_cause_in_mode_ipvs() {
    check('v');
}

#[test]
fn the_table_has_more_than_35_situations() {
    assert!(SITUATIONS.len() >= 35, "{}", SITUATIONS.len());
}

#[test]
fn a_probe_names_endpoints_that_refuse_and_is_off_by_default() {
    let scene = Scene::new('n');
    scene.sync("");
    let address = |text: &str| link::add_address("pods-peer", text.parse().unwrap()).unwrap();
    scene.pods.run(|| {
        ["10.244.1.1/24", "10.244.1.2/24"]
            .into_iter()
            .for_each(address);
        link::up("lo").unwrap();
        link::add_route(
            "0.0.0.0/0".parse().unwrap(),
            link::Hop::Via([10, 244, 1, 254].into()),
            "pods-peer",
        )
        .unwrap();
    });
    let line = format!("explain tcp 10.96.0.10:80 --from {POD} -o json");
    let without = json(&scene.stage().run(&line));
    assert_eq!(without["outcome"], "reachable", "{without:#}");
    assert_eq!(without["probes"], serde_json::json!([]));

    // No container listens on the target port.
    let listener = |addr: &str| scene.pods.run(|| TcpListener::bind(addr)).unwrap();
    let first = listener("10.244.1.1:8080");
    let wrong = listener("10.244.1.2:9090");
    let answer = json(&scene.stage().run(&format!("{line} --probe")));
    assert_eq!(answer["outcome"], "refused", "{answer:#}");
    assert_eq!(answer["field"], "spec.ports[].targetPort");
    let sentence = answer["sentence"].as_str().unwrap();
    let begin = "Does not work for 1 of 2 endpoints: from this node, 10.244.1.2:8080 \
                 refuses connections; nothing listens on that port there";
    assert!(sentence.starts_with(begin), "{sentence}");
    let probes = answer["probes"].as_array().unwrap();
    let result = |address: &str| {
        let mut probes = probes.iter();
        let probe = probes.find(|it| it["address"] == address).unwrap();
        probe["result"].as_str().unwrap().to_owned()
    };
    assert_eq!(result("10.244.1.1:8080"), "accepts", "{answer:#}");
    assert_eq!(result("10.244.1.2:8080"), "refuses", "{answer:#}");

    drop(wrong);
    let second = listener("10.244.1.2:8080");
    let works = json(&scene.stage().run(&format!("{line} --probe")));
    assert_eq!(works["outcome"], "reachable", "{works:#}");
    let sentence = works["sentence"].as_str().unwrap();
    assert!(sentence.ends_with("10.96.0.10:80 accepts."), "{sentence}");
    drop((first, second));

    let udp = json(&scene.stage().run(&format!(
        "explain udp 10.96.0.22:53 --from {POD} --probe -o json"
    )));
    let sentence = udp["sentence"].as_str().unwrap();
    assert!(sentence.contains("UDP is not probed"), "{sentence}");
    // The namespace of the other hosts keeps the uplinks.
    drop(scene.others);
}

#[test]
fn a_probe_says_how_many_addresses_it_left_out() {
    let scene = Scene::new('n');
    let many = service("many", "10.96.0.99") + &slice("many", 1, 70);
    scene.stage().write("many.yaml", &many);
    scene.sync("");
    scene.pods.run(|| {
        for last in 1..=70 {
            let address = format!("10.244.1.{last}/24");
            link::add_address("pods-peer", address.parse().unwrap()).unwrap();
        }
        link::up("lo").unwrap();
        link::add_route(
            "0.0.0.0/0".parse().unwrap(),
            link::Hop::Via([10, 244, 1, 254].into()),
            "pods-peer",
        )
        .unwrap();
    });
    let probe = || {
        let line = format!("explain tcp 10.96.0.99:80 --from {POD} -o json --probe");
        let answer = json(&scene.stage().run(&line));
        let mut results = std::collections::BTreeMap::<String, usize>::new();
        for probe in answer["probes"].as_array().unwrap() {
            let result = probe["result"].as_str().unwrap().to_owned();
            *results.entry(result).or_default() += 1;
        }
        (answer, results)
    };
    let left = " 7 of 71 addresses are not probed: at most 64 are.";
    let count = |result: &str, count| (result.to_owned(), count);

    let listener = scene.pods.run(|| TcpListener::bind("0.0.0.0:8080"));
    let (answer, results) = probe();
    let expected = [count("accepts", 64), count("is not probed", 7)];
    assert_eq!(results, expected.into());
    let sentence = answer["sentence"].as_str().unwrap();
    let end = format!(" The probe from this node: 10.96.0.99:80 accepts.{left}");
    assert!(sentence.ends_with(&end), "{sentence}");

    drop(listener);
    let (answer, results) = probe();
    let expected = [count("is not probed", 7), count("refuses", 64)];
    assert_eq!(results, expected.into());
    let sentence = answer["sentence"].as_str().unwrap();
    let begin = "Does not work for 63 of 63 probed endpoints: from this node, ";
    assert!(sentence.starts_with(begin), "{sentence}");
    assert!(sentence.ends_with(left), "{sentence}");
    drop(scene.others);
}

#[test]
fn without_flags_mode_and_node_are_those_of_the_running_proxy_or_of_the_rules() {
    let scene = Scene::new('n');
    let stage = scene.stage();
    let explain = |flags: &str| {
        let mut command = stage.command("timeout");
        command.args(["60", crate::stage::BINARY, "explain"]);
        command
            .args(format!("tcp 10.96.0.10:80 --from {OUTSIDE} -o json {flags}").split_whitespace());
        command.arg("--manifests").arg(stage.manifests());
        json(&Outcome::from(
            stage.netns.run(|| command.output()).unwrap(),
        ))
    };
    let assumed = |answer: &Value| answer["assumed"].to_string();

    let proxy = stage.start();
    let answer = explain("");
    assert_eq!(
        (&answer["mode"], &answer["node"]),
        (&"nftables".into(), &"node-1".into())
    );
    assert_eq!(answer["agrees"], true, "{answer:#}");
    let source = "those of the running proxy (http://127.0.0.1:10249/configz)";
    assert!(assumed(&answer).contains(source), "{answer:#}");
    // Flags precede.
    let answer = explain("--hostname-override node-9");
    assert_eq!(
        (&answer["mode"], &answer["node"]),
        (&"nftables".into(), &"node-9".into())
    );

    drop(proxy);
    let answer = explain("");
    assert_eq!(answer["mode"], "nftables", "{answer:#}");
    let text = assumed(&answer);
    assert!(
        text.contains("mode nftables: the kernel has its rules"),
        "{text}"
    );
    assert!(text.contains("the name of this host"), "{text}");
    let answer = explain("--proxy-mode nftables --hostname-override node-1");
    assert_eq!(assumed(&answer), "[]");
}
