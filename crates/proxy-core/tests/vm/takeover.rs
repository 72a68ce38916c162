//! Takeovers between upstream and the engine in mode ipvs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proxy_core::{Engine, Event, Family, IptablesBackend};
use testkit::netns::Netns;

use crate::fixtures::{self, Fixture, apply, sync};
use crate::tools::lines;
use crate::upstream_ipvs::{LINK, Upstream, chains};
use crate::upstream_sets;
use crate::upstream_tools::succeeds;
use crate::{BACKENDS, open};

fn upstream(family: Family) -> Upstream {
    let [vip, one, other] = match family {
        Family::V4 => ["10.96.0.77", "10.1.0.77", "10.1.0.78"],
        Family::V6 => ["fd00:10:96::77", "fd00:10:1::77", "fd00:10:1::78"],
    };
    Upstream {
        family,
        vip: vip.parse().expect("an address"),
        endpoints: [one, other].map(|text| text.parse().expect("an address")),
    }
}

/// Returns an engine of one family after its first sync, with Services of all kinds.
fn synced(family: Family, backend: IptablesBackend) -> Engine {
    let fixture = fixtures::all().into_iter().find(|it| it.name == "overall");
    let Fixture { config, events, .. } = fixture.expect("the fixture exists");
    let mut config = config.with_families(vec![family]);
    config.iptables.backend = backend;
    let dual_stack = fixtures::all()
        .into_iter()
        .find(|it| it.name == "dual-stack");
    let mut engine = open(&config);
    apply(&mut engine, events);
    apply(&mut engine, dual_stack.expect("the fixture exists").events);
    engine.apply(Event::Synced);
    let report = sync(&mut engine, &mut Duration::default());
    assert!(report.is_success(), "{report}");
    assert!(report.families[0].rejected.is_empty(), "{report}");
    engine
}

/// Objects in the kernel: ipsets, rules by chain, virtual servers and addresses.
#[derive(Debug, Eq, PartialEq)]
struct State {
    sets: BTreeSet<String>,
    rules: BTreeMap<String, Vec<String>>,
    servers: BTreeSet<String>,
    addresses: BTreeSet<String>,
}

impl State {
    fn now(upstream: &Upstream) -> Self {
        let mut rules: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for table in ["nat", "filter"] {
            for line in upstream.tool().save(table).lines() {
                if let Some((chain, rule)) =
                    line.strip_prefix("-A ").and_then(|it| it.split_once(' '))
                {
                    let rules = rules.entry(format!("{table} {chain}")).or_default();
                    rules.push(rule.to_owned());
                } else if let Some(chain) = line.strip_prefix(":KUBE-") {
                    let name = chain.split(' ').next().expect("a line has a word");
                    rules.entry(format!("{table} KUBE-{name}")).or_default();
                }
            }
        }
        let sets = lines("ipset", &["save"]).into_iter();
        // The kernel chooses the hash function of each set.
        let sets = sets.filter_map(|line| line.split(" bucketsize ").next().map(str::to_owned));
        Self {
            sets: sets.collect(),
            rules,
            servers: lines("ipvsadm", &["-S", "-n"]),
            addresses: upstream.bound().into_iter().collect(),
        }
    }
}

#[test]
fn upstream_takes_over_with_its_first_sync_and_removes_all_our_objects() {
    for family in Family::ALL {
        let upstream = upstream(family);
        let alone = Netns::new().unwrap().run(|| {
            upstream.sync();
            State::now(&upstream)
        });
        for backend in BACKENDS {
            Netns::new().unwrap().run(|| {
                synced(family, backend);
                let servers = State::now(&upstream).servers;
                assert!(!servers.is_subset(&alone.servers), "{servers:?}");
                upstream.sync();
                assert_eq!(State::now(&upstream), alone, "{backend:?}");
            });
        }
    }
}

#[test]
fn the_first_sync_takes_over_from_upstream_and_removes_all_its_objects() {
    for family in Family::ALL {
        let upstream = upstream(family);
        let alone = Netns::new().unwrap().run(|| {
            synced(family, IptablesBackend::Programs);
            State::now(&upstream)
        });
        for backend in BACKENDS {
            Netns::new().unwrap().run(|| {
                upstream.sync();
                synced(family, backend);
                assert_eq!(State::now(&upstream), alone, "{backend:?}");
                let difference = synced(family, backend).difference().expect("a dump");
                assert_eq!(difference.edits, 0, "{}", difference.script);
            });
        }
    }
}

#[test]
fn upstream_in_mode_nftables_removes_everything_except_the_ipv6_sets() {
    for family in Family::ALL {
        let upstream = upstream(family);
        Netns::new().unwrap().run(|| {
            synced(family, IptablesBackend::Netlink);
            upstream.cleanup();
            let links = succeeds("ip", &["-o", "link", "show"]);
            assert!(!links.contains(LINK), "{links}");
            assert_eq!(lines("ipvsadm", &["-S", "-n"]), BTreeSet::new());
            let left: BTreeSet<_> = lines("ipset", &["list", "-n"]);
            let expected = match family {
                Family::V4 => Vec::new(),
                Family::V6 => upstream_sets::names(family),
            };
            assert_eq!(left, expected.into_iter().collect());
            for (table, chain) in chains() {
                let left = upstream.tool().chains(table);
                assert!(!left.iter().any(|name| name == chain), "{left:?}");
            }
        });
    }
}
