//! The program with node-local addresses.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use hickory_proto::rr::RecordType;
use testkit::lab::Lab;
use testkit::scoped::Directory;
use vipline_conntrack::{Client, Filter};

use crate::stage::{SOON, Stage, program, run};

/// Node-local addresses.
const ADDRESSES: [&str; 3] = ["169.254.20.10", "10.96.0.10", "fd00::10"];

/// A table that enables connection tracking.
const TRACKING: &str = "table inet tracking { chain input { \
    type filter hook input priority filter; ct state invalid drop; }; }";

/// Returns the flags. `lo` replaces a dummy link, which many kernels lack.
fn flags(folder: &Directory, is_kept: bool) -> Vec<String> {
    let config = format!("nodeLocal: {{interface: lo, keep: {is_kept}}}\n");
    folder.write("config", &config).unwrap();
    let path = |name| folder.path().join(name).display().to_string();
    let (config, manifests) = (path("config"), path("manifests"));
    let addresses = ADDRESSES.join(",");
    let flags = [
        "--config",
        &config,
        "--manifests",
        &manifests,
        "--node-local",
        &addresses,
    ];
    flags.map(str::to_owned).to_vec()
}

fn nft(lab: &Lab, script: &str) -> String {
    let output = run(&lab.node.netns, Command::new("nft").arg(script));
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn entries(lab: &Lab) -> usize {
    lab.node.netns.run(|| {
        let mut client = Client::open().unwrap();
        let flows = client.flows(&Filter::new()).unwrap();
        let flows = flows.complete().unwrap();
        let is_question = |flow: &&vipline_conntrack::Flow| {
            ADDRESSES
                .iter()
                .any(|address| flow.original.destination.to_string() == *address)
        };
        flows.iter().filter(is_question).count()
    })
}

#[test]
fn questions_to_node_local_addresses_are_answered_without_conntrack_entries() {
    let stage = Stage::with_addresses(ADDRESSES[0], |lab, folder| {
        nft(lab, TRACKING);
        flags(folder, false)
    });
    // Questions before the rules made entries.
    let deadline = Instant::now() + SOON;
    while !nft(&stage.lab, "list ruleset").contains("notrack") {
        assert!(Instant::now() < deadline, "{}", stage.process.output());
        thread::sleep(Duration::from_millis(5));
    }
    stage.lab.node.netns.run(|| {
        let _ = Client::open().unwrap().flush(&Filter::new()).unwrap();
    });
    for address in ADDRESSES {
        let mut client = stage.client_of(address);
        for _ in 0..50 {
            let answer = client
                .ask("web.shop.svc.cluster.local.", RecordType::AAAA)
                .unwrap();
            assert_eq!(answer.data, ["fd00:96::20"], "{address}");
        }
        let mut dig = Command::new("dig");
        dig.args([
            &format!("@{address}"),
            "+tcp",
            "+short",
            "web.shop.svc.cluster.local",
        ]);
        let output = run(&stage.lab.pod.netns, &mut dig);
        assert_eq!(output.stdout, b"10.96.0.20\n", "{output:?}");
    }
    assert_eq!(entries(&stage.lab), 0);
    let Stage { lab, process, .. } = stage;
    assert!(process.terminate().unwrap().success());
    assert!(!nft(&lab, "list ruleset").contains("cluster-dns"));
}

#[test]
fn cleanup_removes_what_a_killed_process_left() {
    let Stage { lab, process, .. } =
        Stage::with_addresses(ADDRESSES[0], |_, folder| flags(folder, false));
    drop(process);
    assert!(nft(&lab, "list ruleset").contains("cluster-dns"));
    let addresses = || {
        let output = run(
            &lab.node.netns,
            Command::new("ip").args(["address", "show", "lo"]),
        );
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(addresses().contains("169.254.20.10/32"));
    let output = run(&lab.node.netns, program().arg("cleanup"));
    assert!(output.status.success(), "{output:?}");
    assert!(!nft(&lab, "list ruleset").contains("cluster-dns"));
    assert!(!addresses().contains("169.254.20.10/32"), "{}", addresses());
}

#[test]
fn addresses_and_rules_are_kept_on_request() {
    let Stage { lab, process, .. } =
        Stage::with_addresses(ADDRESSES[0], |_, folder| flags(folder, true));
    assert!(process.terminate().unwrap().success());
    assert!(nft(&lab, "list ruleset").contains("notrack"));
}
