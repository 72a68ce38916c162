//! A kernel without a module that the rules need, and a node that has just booted. Runs in
//! guests only: it takes modules away from the kernel, so no other test may run beside it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use testkit::netns::Netns;
use testkit::scoped::Directory;

/// Maximum time until the kernel no longer uses a module, and the pause between attempts.
/// A network namespace that was removed uses it for a while.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(500);

/// A Service with two endpoints, and one with session affinity.
const OBJECTS: &str = "apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  clusterIP: 10.96.0.10
  ports: [{port: 80}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{port: 8080}]
endpoints: [{addresses: [10.244.1.1]}, {addresses: [10.244.1.2]}]
---
apiVersion: v1
kind: Service
metadata: {name: sticky}
spec:
  clusterIP: 10.96.0.11
  sessionAffinity: ClientIP
  ports: [{port: 80}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: sticky, labels: {kubernetes.io/service-name: sticky}}
addressType: IPv4
ports: [{port: 8080}]
endpoints: [{addresses: [10.244.1.3]}, {addresses: [10.244.1.4]}]
";

/// Makes the tests of this file run one after the other: they share the modules.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Modules that are loaded again when the value is dropped, for the suites after this one.
#[derive(Default)]
struct Unloaded(BTreeSet<String>);

impl Unloaded {
    /// Unloads a module and all that need it.
    fn unload(&mut self, name: &str) {
        let start = Instant::now();
        while is_loaded(name) {
            let loaded = fs::read_to_string("/proc/modules").unwrap();
            // Lines have name, size, number of uses, and the names of the modules that need it.
            let mut lines = loaded.lines().map(|line| line.split(' ').collect());
            let line: Vec<&str> = lines.find(|it: &Vec<&str>| it[0] == name).unwrap();
            for other in line[3].split(',').filter(|it| !["-", ""].contains(it)) {
                self.unload(other);
            }
            let status = Command::new("/sbin/modprobe").args(["-r", name]).status();
            if !status.unwrap().success() {
                assert!(start.elapsed() < RELEASE_TIMEOUT, "{name} stays in use");
                thread::sleep(PAUSE);
            }
            self.0.insert(name.to_owned());
        }
    }
}

impl Drop for Unloaded {
    fn drop(&mut self) {
        for name in &self.0 {
            let status = Command::new("/sbin/modprobe").arg(name).status();
            assert!(status.unwrap().success() || thread::panicking(), "{name}");
        }
    }
}

/// A module that the kernel cannot load until the value is dropped.
struct Withheld {
    file: PathBuf,
}

impl Withheld {
    /// Unloads a module, and hides its file.
    fn new(name: &str) -> Self {
        let start = Instant::now();
        while is_loaded(name) {
            let status = Command::new("/sbin/modprobe").args(["-r", name]).status();
            if !status.unwrap().success() {
                assert!(start.elapsed() < RELEASE_TIMEOUT, "{name} stays in use");
                thread::sleep(PAUSE);
            }
        }
        let file = find(Path::new("/lib/modules/"), &format!("{name}.ko")).expect(name);
        fs::rename(&file, hidden(&file)).unwrap();
        Self { file }
    }
}

impl Drop for Withheld {
    fn drop(&mut self) {
        fs::rename(hidden(&self.file), &self.file).unwrap();
    }
}

fn hidden(file: &Path) -> PathBuf {
    file.with_extension("hidden")
}

fn is_loaded(name: &str) -> bool {
    Path::new("/sys/module").join(name).exists()
}

/// Finds a file by its name.
fn find(folder: &Path, name: &str) -> Option<PathBuf> {
    for entry in fs::read_dir(folder).ok()?.flatten() {
        let path = entry.path();
        let is_folder = entry.file_type().is_ok_and(|it| it.is_dir());
        let found = match is_folder {
            true => find(&path, name),
            false => (entry.file_name().to_str() == Some(name)).then_some(path),
        };
        if found.is_some() {
            return found;
        }
    }
    None
}

/// Exit code and log of a command, and the rules that it left.
#[derive(Debug)]
struct Outcome {
    code: i32,
    log: String,
    rules: String,
}

/// Runs the program in a network namespace of its own.
fn run(command: &str, mode: &str) -> Outcome {
    run_in(&Netns::new().unwrap(), command, mode)
}

fn run_in(netns: &Netns, command: &str, mode: &str) -> Outcome {
    let folder = Directory::new().unwrap();
    folder.write("objects.yaml", OBJECTS).unwrap();
    let mut program = Command::new("timeout");
    program.args(["120", env!("CARGO_BIN_EXE_kube-proxy")]);
    program.args(command.split_whitespace());
    program.args(format!("--proxy-mode {mode}").split_whitespace());
    program.args([
        "--hostname-override",
        "node-1",
        "--cluster-cidr",
        "10.244.0.0/16",
    ]);
    program.arg("--manifests").arg(folder.path());
    let output = netns.run(|| program.output()).unwrap();
    let mut list = match mode {
        "nftables" => Command::new("nft"),
        _ => Command::new("iptables-nft-save"),
    };
    if mode == "nftables" {
        list.args(["list", "ruleset"]);
    }
    let saved = netns.run(|| list.output()).unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Outcome {
        code: output.status.code().unwrap_or(-1),
        log: text(output.stderr) + &text(output.stdout),
        rules: text(saved.stdout),
    }
}

/// Backends of mode iptables. The guest's programs are of the nft variant.
const NETLINK: &str = "iptables --iptables-backend netlink";
const PROGRAMS: &str = "iptables --iptables-backend programs";
const AUTO: &str = "iptables --iptables-backend auto";

/// A node that has just booted has no connection tracking: its first rule loads the module, and
/// the sysctls get the kernel's defaults then. The size of the table belongs to the first network
/// namespace, so the program runs there, too.
#[test]
fn sysctls_of_connection_tracking_are_set_before_a_rule_loads_its_module() {
    let _alone = alone();
    const MODULE: &str = "nf_conntrack";
    let sysctl = |name: &str| {
        let text = fs::read_to_string(format!("/proc/sys/net/netfilter/nf_conntrack_{name}"));
        text.ok().map(|text| text.trim().to_owned())
    };
    let value = |text: &str| Some(text.to_owned());
    let mut unloaded = Unloaded::default();
    for (command, mode) in [
        ("--init-only", "nftables"),
        ("--oneshot", "nftables"),
        ("--oneshot", NETLINK),
        ("--init-only", "ipvs"),
    ] {
        let netns = Netns::new().unwrap();
        unloaded.unload(MODULE);
        assert_eq!(netns.run(|| sysctl("max")), None, "no module is loaded");
        let outcome = run_in(&netns, command, mode);
        println!("{command} {mode}: {}", outcome.log);
        assert!(is_loaded(MODULE), "{command} {mode}");
        for (name, expected) in [
            ("tcp_timeout_established", "86400"),
            ("tcp_timeout_close_wait", "3600"),
        ] {
            let found = netns.run(|| sysctl(name));
            assert_eq!(found, value(expected), "{command} {mode} {name}");
        }
    }
    unloaded.unload(MODULE);
    let mut program = Command::new("timeout");
    program.args(["120", env!("CARGO_BIN_EXE_kube-proxy"), "--init-only"]);
    program.args(["--proxy-mode", "nftables", "--hostname-override", "node-1"]);
    let output = program.output().unwrap();
    println!("{output:?}");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(
        (sysctl("max"), sysctl("buckets")),
        (value("131072"), value("32768"))
    );
}

#[test]
fn a_missing_module_is_named_by_its_option_and_what_needs_no_module_is_served() {
    let _alone = alone();
    // Without a module that all Services need, the program ends at the start with one sentence.
    for (module, modes, option) in [
        ("nft_numgen", &["nftables"][..], "CONFIG_NFT_NUMGEN"),
        ("nft_fib_ipv4", &["nftables"], "CONFIG_NFT_FIB_IPV4"),
        ("nft_masq", &["nftables"], "CONFIG_NFT_MASQ"),
        ("nft_reject_ipv4", &["nftables"], "CONFIG_NFT_REJECT_IPV4"),
        (
            "xt_statistic",
            &[NETLINK, PROGRAMS, AUTO],
            "CONFIG_NETFILTER_XT_MATCH_STATISTIC",
        ),
        ("xt_nat", &[NETLINK], "CONFIG_NETFILTER_XT_NAT"),
    ] {
        let _withheld = Withheld::new(module);
        for mode in modes {
            for command in ["", "--oneshot", "--init-only"] {
                let outcome = run(command, mode);
                println!("{module} {mode} {command}: {}", outcome.log);
                assert_eq!(outcome.code, 1, "{module} {mode} {command}: {outcome:?}");
                let errors = outcome.log.lines().filter(|line| line.contains("ERROR"));
                let errors: Vec<_> = errors.collect();
                assert_eq!(errors.len(), 1, "{module} {mode} {command}: {outcome:?}");
                assert!(errors[0].contains(option), "{module} {mode}: {outcome:?}");
                assert!(!errors[0].contains("CONFIG_NFT_COMPAT"), "{outcome:?}");
            }
        }
    }
    // Modules that only some Services need.
    for (module, modes, served, unserved, warning) in [
        (
            "nft_hash",
            &["nftables"][..],
            &["10.244.1.2 . 8080"][..],
            Some("10.244.1.4 . 8080"),
            Some("Services with session affinity: CONFIG_NFT_HASH"),
        ),
        (
            "xt_nfacct",
            &[NETLINK, PROGRAMS],
            &["10.244.1.2:8080", "10.244.1.4:8080"],
            None,
            None,
        ),
        (
            "xt_recent",
            &[NETLINK, PROGRAMS],
            &["10.244.1.2:8080"],
            Some("10.244.1.4:8080"),
            Some("Services with session affinity: CONFIG_NETFILTER_XT_MATCH_RECENT"),
        ),
    ] {
        let _withheld = Withheld::new(module);
        for mode in modes {
            let init = run("--init-only", mode);
            assert_eq!(init.code, 0, "{module} {mode}: {init:?}");
            let outcome = run("--oneshot", mode);
            println!("{module} {mode}: {}", outcome.log);
            for address in served {
                assert!(
                    outcome.rules.contains(address),
                    "{module} {mode}: {outcome:?}"
                );
            }
            if let Some(address) = unserved {
                assert!(
                    !outcome.rules.contains(address),
                    "{module} {mode}: {outcome:?}"
                );
            }
            match warning {
                None => assert_eq!(outcome.code, 0, "{module} {mode}: {outcome:?}"),
                Some(words) => {
                    assert!(outcome.log.contains(words), "{module} {mode}: {outcome:?}");
                    assert!(init.log.contains(words), "{module} {mode}: {init:?}");
                    // The Service is named.
                    let by_name = "default/sticky";
                    assert!(
                        outcome.log.contains(by_name),
                        "{module} {mode}: {outcome:?}"
                    );
                }
            }
        }
    }
}
