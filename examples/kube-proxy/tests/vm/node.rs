//! Node settings and objects of a single sync, and their removal by `--cleanup`.

use std::fs;

use clap::Parser;
use kube_proxy::cli::Cli;
use proxy_core::interfaces::{self, Scope};
use testkit::netns::Netns;
use testkit::scoped::Directory;

use crate::shell;

const WEB: &str = "apiVersion: v1
kind: Service
metadata: {name: web}
spec: {clusterIP: 10.96.0.10, ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{port: 8080}]
endpoints: [{addresses: [10.244.1.1]}]
";

/// Name, initial value and required value of each sysctl.
const SYSCTLS: [(&str, &str, &str); 6] = [
    ("net/ipv4/vs/conntrack", "0", "1"),
    ("net/ipv4/vs/expire_nodest_conn", "0", "1"),
    ("net/ipv4/vs/expire_quiescent_template", "0", "1"),
    ("net/ipv4/ip_forward", "0", "1"),
    ("net/ipv4/conf/all/arp_ignore", "0", "1"),
    ("net/ipv4/conf/all/arp_announce", "0", "2"),
];

/// A network namespace and a directory of manifests.
struct Stage {
    netns: Netns,
    folder: Directory,
}

impl Stage {
    fn new() -> Self {
        let (netns, folder) = (Netns::new().unwrap(), Directory::new().unwrap());
        folder.write("web.yaml", WEB).unwrap();
        Self { netns, folder }
    }

    /// Runs the program in this process, with the arguments in `line` and flags for
    /// these manifests. The run must succeed.
    #[track_caller]
    fn succeeds(&self, line: &str) {
        let common_flags = "--hostname-override node-1 --cluster-cidr 10.244.0.0/16 --manifests";
        let folder = self.folder.path().display();
        let line = format!("kube-proxy --proxy-mode ipvs {line} {common_flags} {folder}");
        let cli = Cli::try_parse_from(line.split_whitespace()).unwrap();
        let code = self.netns.run(|| kube_proxy::start(&cli));
        let success = std::process::ExitCode::SUCCESS;
        assert_eq!(format!("{code:?}"), format!("{success:?}"), "{line}");
    }

    #[track_caller]
    fn shell(&self, line: &str) -> String {
        shell(&self.netns, line)
    }

    fn servers(&self) -> Vec<String> {
        let saved = self.shell("ipvsadm -Sn");
        saved.lines().map(|line| line.trim().to_owned()).collect()
    }

    fn sysctls(&self) -> Vec<String> {
        let read = |name| fs::read_to_string(format!("/proc/sys/{name}")).unwrap();
        let values = || SYSCTLS.map(|(name, ..)| read(name).trim().to_owned());
        self.netns.run(values).into()
    }
}

#[test]
fn init_only_oneshot_and_cleanup_change_only_their_part_of_the_node() {
    let stage = Stage::new();
    let foreign = "-A -t 203.0.113.77:80 -s wrr";
    stage.shell(&format!("ipvsadm {foreign}"));
    for (name, before, _) in SYSCTLS {
        stage.shell(&format!("echo {before} > /proc/sys/{name}"));
    }
    stage.succeeds("--init-only");
    let mut expected = SYSCTLS.map(|(_, _, value)| value);
    expected[4..].fill("0");
    assert_eq!(stage.sysctls(), expected, "strict ARP is not enabled yet");
    assert_eq!(stage.servers(), [foreign]);

    stage.succeeds("--oneshot --ipvs-strict-arp --ipvs-tcp-timeout 77s --ipvs-scheduler lc");
    assert_eq!(stage.sysctls(), SYSCTLS.map(|(_, _, value)| value));
    let timeouts = stage.shell("ipvsadm -Ln --timeout");
    assert!(timeouts.contains(": 77 120 300"), "{timeouts}");
    let served = [
        "-A -t 10.96.0.10:80 -s lc",
        "-a -t 10.96.0.10:80 -r 10.244.1.1:8080 -m -w 1",
    ];
    let servers = stage.servers();
    assert_eq!(servers.len(), 3, "{servers:?}");
    for line in served.iter().chain([&foreign]) {
        assert!(servers.iter().any(|server| server == line), "{servers:?}");
    }
    let addresses = stage
        .netns
        .run(|| interfaces::addresses(Scope::All))
        .unwrap();
    assert!(
        !addresses.contains(&[10, 96, 0, 10].into()),
        "{addresses:?}"
    );

    stage.succeeds("--cleanup");
    assert_eq!(stage.servers(), [foreign]);
    let left = stage.shell("ipset save; iptables-save; ip6tables-save; ip link");
    assert!(!left.contains("KUBE-"), "{left}");
    assert!(!left.contains("kube-ipvs0"), "{left}");
}

#[test]
fn cleanup_keeps_virtual_servers_in_excluded_networks() {
    let stage = Stage::new();
    stage.succeeds("--oneshot");
    let servers = stage.servers();
    stage.succeeds("--cleanup --ipvs-exclude-cidrs 10.96.0.0/12");
    assert_eq!(stage.servers(), servers);
    assert_eq!(servers.len(), 2, "{servers:?}");
}
