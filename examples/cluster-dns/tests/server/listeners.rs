//! Addresses of the listeners.

use std::process::Command;

use testkit::netns::Netns;
use testkit::scoped::Directory;

use crate::stage::{FLAGS, Stage, command, headless, service};

/// Runs a command in a namespace, and returns its output.
fn run(netns: &Netns, words: &str) -> String {
    let mut words = words.split_whitespace();
    let mut command = Command::new(words.next().unwrap());
    let output = netns.run(|| command.args(words).output()).unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns a namespace with addresses: loopback, link-local and others.
fn namespace() -> Netns {
    let netns = Netns::new().unwrap();
    for address in ["10.0.0.1/32", "fd00::7/128", "169.254.1.1/32", "fe80::7/64"] {
        run(&netns, &format!("ip address add {address} dev lo nodad"));
    }
    netns
}

#[test]
fn name_servers_have_the_addresses_of_the_interfaces_of_wildcard_listeners() {
    let web = service("web", "10.96.0.10");
    let only_v4 = "--listen 0.0.0.0:53";
    let both = "--listen :53,127.0.0.1:5353";
    for (listen, v6) in [("", "fd00::7\n"), (only_v4, ""), (both, "fd00::7\n")] {
        let flags = FLAGS.replace("--listen 127.0.0.1:53,[::1]:53", listen);
        let stage = Stage::start_in(namespace(), &[("web.yaml", &web)], &flags);
        let short = |question: &str| stage.dig(&format!("+short {question}"));
        let specific = if listen == both { "127.0.0.1\n" } else { "" };
        assert_eq!(short("NS cluster.local"), "ns.dns.cluster.local.\n");
        let mut v4 = short("ns.dns.cluster.local");
        v4 = v4.replacen(specific, "", 1);
        assert_eq!(v4, "10.0.0.1\n", "{listen}");
        assert_eq!(short("AAAA ns.dns.cluster.local"), v6, "{listen}");
        stage.files.write("dns.yaml", &headless("dns", 1)).unwrap();
        let server = "10-0-0-1.dns.shop.svc.cluster.local.\n";
        stage.until("the Service of this server", || {
            short("NS cluster.local") == server
        });
    }
}

/// Returns flags for node-local addresses on `lo`. Many kernels lack dummy links.
fn node_local(files: &Directory) -> String {
    let web = service("web", "10.96.0.10");
    files.write("web.yaml", &web).unwrap();
    let config = "nodeLocal: {interface: lo}\n";
    files.write("config.yml", config).unwrap();
    let path = files.path().display();
    format!(
        "--manifests {path}/web.yaml --config {path}/config.yml --node-local 169.254.20.10 \
         --forward none --metrics 127.0.0.1:9153 --lame-duck 0s"
    )
}

#[test]
fn a_failed_start_leaves_no_node_local_addresses_and_rules() {
    let (netns, files) = (Netns::new().unwrap(), Directory::new().unwrap());
    let before = run(&netns, "ip -brief address");
    let flags = node_local(&files) + " --listen 192.0.2.1:53";
    let output = netns.run(|| command(&flags, &[]).output()).unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("node-local addresses added"), "{text}");
    assert!(text.contains("192.0.2.1:53"), "{text}");
    assert_eq!(run(&netns, "ip -brief address"), before, "{text}");
    assert_eq!(run(&netns, "nft list tables"), "", "{text}");
}

/// Every step of the start fails with one of the limits.
#[test]
fn a_lack_of_descriptors_leaves_no_node_local_addresses_and_rules() {
    let mut netns = Netns::new().unwrap();
    let before = run(&netns, "ip -brief address");
    let mut failures_with_addresses = 0;
    for limit in 8..=64 {
        let files = Directory::new().unwrap();
        let flags = node_local(&files);
        let prefix = ["prlimit", &*format!("--nofile={limit}:{limit}")];
        let mut stage = Stage::run(netns, files, &flags, &prefix);
        let Err(output) = stage.wait_until_started() else {
            assert!(failures_with_addresses > 2, "{failures_with_addresses}");
            return;
        };
        netns = stage.netns;
        if output.contains("node-local addresses added") {
            failures_with_addresses += 1;
        }
        assert_eq!(
            run(&netns, "ip -brief address"),
            before,
            "{limit}: {output}"
        );
        assert_eq!(run(&netns, "nft list tables"), "", "{limit}: {output}");
    }
    panic!("a limit of 64 is too small");
}
