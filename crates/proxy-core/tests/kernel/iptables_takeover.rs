//! Takeovers between upstream and the engine in mode iptables, for both variants.

use std::collections::BTreeMap;
use std::time::Duration;

use proxy_core::backend::iptables::{Kernel, Planner};
use proxy_core::{Config, Engine, Event, Family, IptablesBackend};
use testkit::netns::Netns;
use vipline_iptables::{Client, Variant};

use crate::fixtures::{self, Fixture, apply, sync};
use crate::upstream_iptables::{self, Service, Upstream};

/// The variant whose programs the engine runs; `None` for the nft variant over netlink.
type Access = Option<Variant>;

const ACCESSES: [Access; 3] = [Some(Variant::Nft), Some(Variant::Legacy), None];

fn upstream(family: Family, variant: Variant) -> Upstream {
    let [vip, endpoints] = match family {
        Family::V4 => ["10.96.0.77", "10.180.0.7 10.180.0.8"],
        Family::V6 => ["fd00:10:96::77", "fd00:10:180::7 fd00:10:180::8"],
    };
    let endpoints = endpoints
        .split(' ')
        .map(|text| text.parse().expect("an address"));
    let services = vec![
        Service {
            name: "upstream/web:http",
            vip: vip.parse().expect("an address"),
            endpoints: endpoints.collect(),
        },
        Service {
            name: "upstream/idle:http",
            vip: vip.replace("77", "78").parse().expect("an address"),
            endpoints: Vec::new(),
        },
    ];
    Upstream {
        family,
        variant,
        services,
    }
}

/// Returns an engine of one family after its first sync, with Services of all kinds.
fn synced(family: Family, access: Access) -> Engine {
    let (config, events) = overall(family);
    let planner = Planner::from(&config);
    let mut engine = Engine::with_kernels(config.engine, planner, |_| {
        let Some(variant) = access else {
            let kernel = Kernel::open_with(family, IptablesBackend::Netlink);
            return kernel.expect("the kernel has nfnetlink");
        };
        let client = Client::open_variant(family, variant).expect("both are installed");
        Kernel::with_client(client, family)
    });
    apply(&mut engine, events);
    engine.apply(Event::Synced);
    let mut now = Duration::ZERO;
    let report = sync(&mut engine, &mut now);
    assert!(report.is_success(), "{report}");
    engine
}

fn overall(family: Family) -> (Config, Vec<Event>) {
    let fixture = fixtures::all().into_iter().find(|it| it.name == "overall");
    let Fixture { config, events, .. } = fixture.expect("the fixture exists");
    let mut config = config.with_families(vec![family]);
    // The simulated upstream uses no nfacct counters.
    config.iptables.nfacct = false;
    let dual_stack = fixtures::all()
        .into_iter()
        .find(|it| it.name == "dual-stack");
    let more = dual_stack.expect("the fixture exists").events;
    (config, events.into_iter().chain(more).collect())
}

/// The rules of each chain of each table.
type Chains = BTreeMap<(&'static str, String), Vec<String>>;

/// Returns all chains except empty built-in chains.
///
/// The order of rules is significant, except in chains that all Services share.
fn chains(upstream: &Upstream) -> Chains {
    let mut chains = Chains::new();
    for table in upstream_iptables::TABLES {
        for line in upstream.save(table).lines() {
            if let Some(chain) = line.strip_prefix(':') {
                let (name, _) = chain.split_once(' ').expect("a policy follows");
                chains.entry((table, name.to_owned())).or_default();
            } else if let Some((name, rule)) =
                line.strip_prefix("-A ").and_then(|it| it.split_once(' '))
            {
                let rules = chains.entry((table, name.to_owned())).or_default();
                rules.push(rule.to_owned());
            }
        }
    }
    let shared = ["KUBE-SERVICES", "KUBE-NODEPORTS", "KUBE-EXTERNAL-SERVICES"];
    for ((_, name), rules) in &mut chains {
        if shared.contains(&name.as_str()) {
            rules.sort_unstable();
        }
    }
    chains.retain(|(_, name), rules| name.starts_with("KUBE-") || !rules.is_empty());
    chains
}

/// Runs a test with each family, variant and access.
fn for_each_upstream(test: impl Fn(Upstream, Access)) {
    for access in ACCESSES {
        for family in Family::ALL {
            test(upstream(family, access.unwrap_or(Variant::Nft)), access);
        }
    }
}

#[test]
fn upstream_takes_over_with_its_first_sync_and_removes_all_our_rules() {
    for_each_upstream(|upstream, access| {
        let alone = Netns::new().expect("a network namespace").run(|| {
            upstream.sync();
            chains(&upstream)
        });
        Netns::new().expect("a network namespace").run(|| {
            synced(upstream.family, access);
            let ours = chains(&upstream);
            assert!(ours.keys().any(|chain| !alone.contains_key(chain)));
            upstream.sync();
            assert_eq!(chains(&upstream), alone, "{access:?}");
        });
    });
}

#[test]
fn the_first_sync_takes_over_from_upstream_and_removes_all_its_rules() {
    for_each_upstream(|upstream, access| {
        let family = upstream.family;
        let alone = Netns::new().expect("a network namespace").run(|| {
            synced(family, access);
            chains(&upstream)
        });
        Netns::new().expect("a network namespace").run(|| {
            upstream.sync();
            synced(family, access);
            assert_eq!(chains(&upstream), alone, "{access:?}");
            let mut again = synced(family, access);
            let difference = again.difference().expect("a dump");
            assert_eq!(difference.edits, 0, "{access:?}: {}", difference.script);
        });
    });
}

#[test]
fn jumps_that_exist_twice_are_inserted_once_before_the_rules_of_others() {
    const OTHERS: &str = "-p tcp -m tcp --dport 22 -j ACCEPT";
    for_each_upstream(|upstream, access| {
        let family = upstream.family;
        let alone = Netns::new().expect("a network namespace").run(|| {
            synced(family, access);
            chains(&upstream)
        });
        Netns::new().expect("a network namespace").run(|| {
            upstream.sync();
            let filter = upstream.save("filter");
            let jumps: String = filter
                .lines()
                .filter(|line| {
                    ["-A INPUT ", "-A FORWARD "]
                        .iter()
                        .any(|it| line.starts_with(it))
                })
                .map(|line| format!("{line}\n"))
                .collect();
            assert!(jumps.lines().count() > 4, "{jumps}");
            let document = format!("*filter\n-A INPUT {OTHERS}\n{jumps}COMMIT\n");
            upstream.tool().restore(&document);
            let nat = "-A OUTPUT -m comment --comment \"kubernetes service portals\" \
                       -j KUBE-SERVICES\n";
            upstream
                .tool()
                .restore(&format!("*nat\n{nat}{nat}COMMIT\n"));
            let mut again = synced(family, access);
            let mut expected = alone.clone();
            let input = expected.get_mut(&("filter", "INPUT".to_owned()));
            input.expect("jumps").push(OTHERS.to_owned());
            assert_eq!(chains(&upstream), expected, "{access:?}");
            let difference = again.difference().expect("a dump");
            assert_eq!(difference.edits, 0, "{access:?}: {}", difference.script);
        });
    });
}

#[test]
fn upstream_in_mode_nftables_removes_all_rules_except_those_of_the_kubelet() {
    for_each_upstream(|upstream, access| {
        Netns::new().expect("a network namespace").run(|| {
            synced(upstream.family, access);
            upstream.cleanup();
            let mut left = chains(&upstream);
            // Upstream leaves this chain and the two jumps to it, because the kubelet
            // uses the same chain.
            left.remove(&("filter", "KUBE-FIREWALL".to_owned()));
            let jumps = vec!["-j KUBE-FIREWALL".to_owned()];
            let expected =
                ["INPUT", "OUTPUT"].map(|chain| (("filter", chain.to_owned()), jumps.clone()));
            assert_eq!(left, Chains::from(expected), "{access:?}");
        });
    });
}

#[test]
fn a_chain_of_another_program_stays_although_its_name_begins_as_those_of_services() {
    const NAME: &str = "KUBE-SVC-MINE";
    for_each_upstream(|upstream, access| {
        Netns::new().expect("a network namespace").run(|| {
            let rule = format!("-A {NAME} -j RETURN");
            let document = format!("*nat\n:{NAME} - [0:0]\n{rule}\nCOMMIT\n");
            upstream.tool().restore(&document);
            synced(upstream.family, access);
            let saved = upstream.save("nat");
            assert!(saved.lines().any(|it| it == rule), "{access:?}: {saved}");
        });
    });
}
