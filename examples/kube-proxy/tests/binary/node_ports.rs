//! Node port addresses with `--nodeport-addresses primary`.

use crate::iptables::ip;
use crate::stage::{Outcome, Stage, slice};

/// The node port as printed after an address.
const PORT: &str = ":30080";

/// The Node object. The primary addresses are the first internal addresses of each
/// family.
const NODE: &str = "apiVersion: v1
kind: Node
metadata: {name: node-1}
status:
  addresses:
  - {type: ExternalIP, address: 203.0.113.7}
  - {type: Hostname, address: node-1.example}
  - {type: InternalIP, address: 192.168.0.7}
  - {type: InternalIP, address: 192.168.0.8}
  - {type: ExternalIP, address: '2001:db8:ffff::7'}
  - {type: InternalIP, address: 'fd00::7'}
  - {type: InternalIP, address: 'fd00::8'}
";

/// All addresses of the interfaces, including those of `--bind-address`.
const INTERFACES: [&str; 8] = [
    "203.0.113.7",
    "192.168.0.7",
    "192.168.0.8",
    "192.168.0.9",
    "2001:db8:ffff::7",
    "fd00::7",
    "fd00::8",
    "fd00::9",
];

fn service() -> String {
    let service = "apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: NodePort
  clusterIP: 10.96.0.10
  clusterIPs: ['10.96.0.10', 'fd00:10:96::10']
  ipFamilies: [IPv4, IPv6]
  ports: [{port: 80, nodePort: 30080}]
";
    service.to_owned() + &slice("web", 1, 1)
}

fn stage() -> Stage {
    let stage = Stage::with(&[("node.yaml", NODE), ("web.yaml", &service())]);
    for address in INTERFACES {
        let rest = if address.contains(':') {
            "/64 dev lo nodad"
        } else {
            "/24 dev lo"
        };
        ip(&stage.netns, &format!("address add {address}{rest}"));
    }
    stage
}

/// Returns the interface addresses in those lines of a text that contain all words.
fn addresses(text: &str, words: &[&str]) -> Vec<&'static str> {
    let has_words = |line: &&str| words.iter().all(|word| line.contains(word));
    let lines: Vec<_> = text.lines().filter(has_words).collect();
    let has = |address: &str| {
        let is_part = |c: char| c.is_ascii_hexdigit() || c == ':' || c == '.';
        let words = lines.iter().flat_map(|line| line.split(|c| !is_part(c)));
        let mut words = words.map(|word| word.strip_suffix(PORT).unwrap_or(word));
        words.any(|word| word == address)
    };
    INTERFACES.into_iter().filter(|it| has(it)).collect()
}

#[track_caller]
fn output(outcome: &Outcome) -> &str {
    assert_eq!(outcome.code, 0, "{outcome:?}");
    &outcome.stdout
}

/// Flags, and the addresses on which node ports are opened.
const CASES: [(&str, [&str; 2]); 3] = [
    ("", ["192.168.0.7", "fd00::7"]),
    ("--bind-address 192.168.0.9", ["192.168.0.9", "fd00::7"]),
    ("--bind-address fd00::9", ["192.168.0.7", "fd00::9"]),
];

#[test]
fn mode_nftables_opens_node_ports_on_one_address_of_each_family() {
    for (flags, expected) in CASES {
        let stage = stage();
        let line = format!("--oneshot --nodeport-addresses primary {flags}");
        output(&stage.run(&line));
        let listed = ["ip", "ip6"].map(|family| {
            let set = ["list", "set", family, "kube-proxy", "nodeport-networks"];
            stage.nft(&set).stdout
        });
        assert_eq!(addresses(&listed.concat(), &[]), expected, "{flags}");
    }
}

#[test]
fn mode_iptables_opens_node_ports_on_one_address_of_each_family() {
    for (flags, expected) in CASES {
        let stage = stage().in_mode("iptables", std::env::var("PATH").unwrap());
        let line = format!("--oneshot --nodeport-addresses primary {flags}");
        output(&stage.run(&line));
        let mut command = stage.command("sh");
        command.args(["-c", "iptables-save -t nat; ip6tables-save -t nat"]);
        let saved = Outcome::from(stage.netns.run(|| command.output()).unwrap());
        let found = addresses(&saved.stdout, &["-A KUBE-SERVICES ", "-j KUBE-NODEPORTS"]);
        assert_eq!(found, expected, "{flags}");
    }
}

#[test]
fn mode_ipvs_opens_node_ports_on_one_address_of_each_family() {
    for (flags, expected) in CASES {
        let stage = stage().in_mode("ipvs", std::env::var("PATH").unwrap());
        let line = format!("render --nodeport-addresses primary {flags}");
        let rendered = stage.run(&line);
        let servers = addresses(output(&rendered), &["-A -t ", PORT]);
        assert_eq!(servers, expected, "{flags}");
    }
}
