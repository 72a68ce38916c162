//! Mode iptables over netlink: equality with the programs, and the choice of the backend.

use std::process::Command;
use std::time::Duration;

use proxy_core::{Event, Family, IptablesBackend, Mode};
use testkit::netns::Netns;
use vipline_iptables::Variant;

use super::chains::save;
use super::{Access, Proxy, run, without_nfacct};
use crate::fixtures::{self, Fixture};

/// Returns the lines that `iptables-nft-save` prints for both families, without
/// comments, which contain the time.
fn saved() -> Vec<String> {
    let texts = Family::ALL.map(|family| save(Variant::Nft, family));
    let lines = texts.iter().flat_map(|text| text.lines());
    // The program creates tables and built-in chains that it only reads.
    let is_rule = |line: &&str| !line.starts_with('#') && !line.starts_with(":INPUT ACCEPT");
    lines.filter(is_rule).map(str::to_owned).collect()
}

#[test]
fn both_backends_write_the_same_rules_in_the_same_order() {
    for fixture in fixtures::all().into_iter().map(without_nfacct) {
        let Fixture {
            name,
            config,
            events,
        } = fixture;
        let by = |access| {
            Netns::new().expect("a network namespace").run(|| {
                let mut proxy = Proxy::start(config.clone(), access, events.clone());
                proxy.sync();
                saved()
            })
        };
        let programs = by(Access::Programs(Variant::Nft));
        assert_eq!(by(Access::Netlink), programs, "{name}");
    }
}

#[test]
fn each_backend_adopts_the_rules_of_the_other() {
    let overall = fixtures::all().into_iter().find(|it| it.name == "overall");
    let Fixture { config, events, .. } = overall.map(without_nfacct).expect("the fixture exists");
    let (programs, netlink) = (Access::Programs(Variant::Nft), Access::Netlink);
    for (first, second) in [(programs, netlink), (netlink, programs)] {
        Netns::new().expect("a network namespace").run(|| {
            Proxy::start(config.clone(), first, events.clone()).sync();
            let mut proxy = Proxy::start(config.clone(), second, events.clone());
            let difference = proxy.engine.difference().expect("a dump");
            assert_eq!(difference.edits, 0, "{second:?}: {}", difference.script);
        });
    }
}

#[test]
fn unknown_rules_are_removed_from_our_chains_and_kept_elsewhere() {
    let overall = fixtures::all().into_iter().find(|it| it.name == "overall");
    let Fixture { config, events, .. } = overall.map(without_nfacct).expect("the fixture exists");
    Netns::new().expect("a network namespace").run(|| {
        let mut proxy = Proxy::start(config, Access::Netlink, events);
        proxy.sync();
        let before = saved();
        // Expressions without an equivalent in iptables.
        for chain in ["nat KUBE-SERVICES", "nat KUBE-MARK-MASQ", "nat POSTROUTING"] {
            let rule = format!("add rule ip {chain} ct id 7 counter accept");
            let output = Command::new("nft").arg(&rule).output();
            assert!(output.expect("nft is installed").status.success(), "{rule}");
        }
        proxy.engine.request_resync();
        proxy.sync();
        let list = |chain: &str| {
            let mut program = Command::new("nft");
            let output = program.args(["list", "chain", "ip", "nat", chain]).output();
            String::from_utf8(output.expect("nft is installed").stdout).expect("text")
        };
        assert!(!list("KUBE-SERVICES").contains("ct id 7"));
        assert!(!list("KUBE-MARK-MASQ").contains("ct id 7"));
        assert!(list("POSTROUTING").contains("ct id 7"));
        let mut program = Command::new("nft");
        let status = program
            .args(["flush", "chain", "ip", "nat", "POSTROUTING"])
            .status();
        assert!(status.expect("nft is installed").success());
        proxy.engine.request_resync();
        proxy.sync();
        let sorted = |mut lines: Vec<String>| {
            lines.sort_unstable();
            lines
        };
        assert_eq!(sorted(saved()), sorted(before));
    });
}

#[test]
fn the_chain_of_the_kubelet_and_the_installed_variant_decide() {
    let chosen = |config: &proxy_core::Config| {
        let choice = Mode::Iptables.choose_iptables_backend(config);
        let choice = choice.expect("the mode writes rules of iptables");
        (choice.backend, choice.reason)
    };
    Netns::new().expect("a network namespace").run(|| {
        let mut config = fixtures::config().with_mode(Mode::Iptables);
        let (backend, reason) = chosen(&config);
        assert_eq!(backend, IptablesBackend::Netlink, "{reason}");
        assert_eq!(&*reason, "the installed iptables is of the nft variant");
        run(Variant::Nft, "-t mangle -N KUBE-IPTABLES-HINT");
        let (backend, reason) = chosen(&config);
        assert_eq!(backend, IptablesBackend::Netlink, "{reason}");
        assert_eq!(
            &*reason,
            "nf_tables has chain KUBE-IPTABLES-HINT of the kubelet"
        );
        for backend in [IptablesBackend::Programs, IptablesBackend::Netlink] {
            config.iptables.backend = backend;
            let expected = (backend, "set by --iptables-backend".into());
            assert_eq!(chosen(&config), expected);
        }
        assert_eq!(Mode::Nftables.choose_iptables_backend(&config), None);
        let mut config = config.with_mode(Mode::Ipvs);
        for (backend, chosen) in [
            (IptablesBackend::Auto, IptablesBackend::Netlink),
            (IptablesBackend::Netlink, IptablesBackend::Netlink),
            (IptablesBackend::Programs, IptablesBackend::Programs),
        ] {
            config.iptables.backend = backend;
            let choice = Mode::Ipvs.choose_iptables_backend(&config);
            let choice = choice.map(|choice| choice.backend);
            assert_eq!(choice, cfg!(feature = "ipvs").then_some(chosen));
        }
    });
}

#[test]
fn an_engine_chooses_netlink_and_a_restart_commits_nothing() {
    let config = fixtures::config().with_mode(Mode::Iptables);
    Netns::new().expect("a network namespace").run(|| {
        let open = || {
            let mut engine = config.clone().open().expect("the kernel has nf_tables");
            fixtures::apply(&mut engine, fixtures::web_with("10.96.0.10", 3).events());
            engine.apply(Event::Synced);
            let report = engine.poll(Duration::ZERO).expect("the first sync is due");
            assert!(report.is_success(), "{report}");
        };
        let generation = || {
            let mut client = proxy_core::nftables::Client::open().expect("nfnetlink");
            client.generation().expect("nf_tables")
        };
        open();
        // One transaction for each family.
        assert_eq!(generation(), proxy_core::nftables::Generation(3));
        open();
        assert_eq!(generation(), proxy_core::nftables::Generation(3));
    });
}
