//! The engine with the kernel's nf_tables. Each test has its own network namespace.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use proxy_core::backend::nftables::{Kernel as Nftables, Planner};
use proxy_core::{Config, Engine, Event, Family, Report};
use testkit::generate::{Stack, cluster};
use testkit::netns::Netns;
use testkit::nft;
use vipline_netlink::Counters;
use vipline_nftables::{Error, Object};
use vipline_reconcile::{Edit, Rejection, Target};
use vipline_service_model::arbitrary::Dice;

use crate::fixtures::{self, apply, config, sync, web, web_with, with_endpoints};

/// An nf_tables kernel that an engine and the test share.
#[derive(Clone)]
struct SharedKernel(Arc<Mutex<Nftables>>);

impl SharedKernel {
    fn open(family: Family) -> Self {
        let kernel = Nftables::open(family).expect("the kernel has nf_tables");
        Self(Arc::new(Mutex::new(kernel)))
    }

    fn counters(&self) -> Counters {
        self.0
            .lock()
            .expect("no test continues after a panic")
            .counters()
    }
}

impl Target for SharedKernel {
    type Object = Object;
    type Error = Error;

    fn dump(&mut self) -> Result<Vec<Object>, Error> {
        self.0
            .lock()
            .expect("no test continues after a panic")
            .dump()
    }

    fn commit(&mut self, edits: &[Edit<Object>]) -> Result<Vec<Rejection>, Error> {
        self.0
            .lock()
            .expect("no test continues after a panic")
            .commit(edits)
    }
}

/// An engine in a network namespace, with its two kernels and a clock.
struct Proxy {
    engine: Engine,
    kernels: [SharedKernel; 2],
    now: Duration,
}

impl Proxy {
    /// Starts an engine in the namespace of the calling thread.
    fn start(config: Config, events: impl IntoIterator<Item = Event>) -> Self {
        let kernels = Family::ALL.map(SharedKernel::open);
        let mut engine = Engine::with_kernels(config.engine, Planner, |family| match family {
            Family::V4 => kernels[0].clone(),
            Family::V6 => kernels[1].clone(),
        });
        apply(&mut engine, events);
        engine.apply(Event::Synced);
        let now = Duration::ZERO;
        Self {
            engine,
            kernels,
            now,
        }
    }

    /// Syncs. The sync must succeed.
    fn sync(&mut self) -> Report {
        let report = sync(&mut self.engine, &mut self.now);
        assert!(report.is_success(), "{report}");
        report
    }

    /// Applies events and syncs. Returns the number of messages and bytes sent in each
    /// family.
    fn change(&mut self, events: impl IntoIterator<Item = Event>) -> [(u64, u64); 2] {
        self.engine.poll(self.now);
        self.now += Duration::from_secs(5);
        let before = self.kernels.each_ref().map(SharedKernel::counters);
        apply(&mut self.engine, events);
        let report = self.engine.poll(self.now).expect("a change is due");
        assert!(report.is_success(), "{report}");
        let after = self.kernels.each_ref().map(SharedKernel::counters);
        [0, 1].map(|family| {
            let (before, after) = (before[family], after[family]);
            (
                after.sends - before.sends,
                after.bytes_sent - before.bytes_sent,
            )
        })
    }
}

/// Asserts that a new engine finds no difference and writes nothing in either family.
fn assert_restart_writes_nothing(config: &Config, events: &[Event]) {
    let mut proxy = Proxy::start(config.clone(), events.iter().cloned());
    let difference = proxy.engine.difference().expect("a dump");
    assert_eq!(difference.script, "");
    for done in proxy.sync().families {
        let outcome = done.outcome.expect("nothing to do");
        assert_eq!(
            (outcome.edits, outcome.dumped),
            (0, true),
            "{}",
            done.family
        );
    }
}

#[test]
fn nft_lists_the_programmed_rules_and_loads_the_rendered_plan() {
    for fixture in fixtures::all() {
        let [programmed, rendered, reloaded] = [(); 3].map(|()| Netns::new().unwrap());
        let (listing, plan) = programmed.run(|| {
            let mut proxy = Proxy::start(fixture.config.clone(), fixture.events.clone());
            proxy.sync();
            // nft prints a note that it has no JSON for rules that update a map.
            assert!(nft::run(&["-j", "list", "ruleset"], "").status.success());
            (
                nft::succeeds(&["list", "ruleset"], ""),
                proxy.engine.desired(),
            )
        });
        programmed.run(|| assert_restart_writes_nothing(&fixture.config, &fixture.events));
        // nft 1.0.6 aborts when it loads such a rule.
        let learns_v6 = |line: &str| line.contains("update @") && line.contains("ip6");
        if plan.lines().any(learns_v6) {
            continue;
        }
        rendered.run(|| {
            nft::succeeds(&["-f", "-"], &plan);
            let loaded = nft::succeeds(&["list", "ruleset"], "");
            assert_eq!(
                nft::blocks(&loaded),
                nft::blocks(&listing),
                "{}",
                fixture.name
            );
            assert_restart_writes_nothing(&fixture.config, &fixture.events);
        });
        reloaded.run(|| {
            nft::succeeds(&["-f", "-"], &listing);
            assert_restart_writes_nothing(&fixture.config, &fixture.events);
        });
    }
}

#[test]
fn a_difference_is_a_script_that_nft_applies() {
    Netns::new().unwrap().run(|| {
        let fixture = fixtures::all().swap_remove(0);
        let mut proxy = Proxy::start(fixture.config.clone(), fixture.events.clone());
        let difference = proxy.engine.difference().unwrap();
        assert!(difference.edits > 0);
        nft::succeeds(&["-f", "-"], &difference.script);
        assert_restart_writes_nothing(&fixture.config, &fixture.events);
        nft::succeeds(
            &[
                "delete",
                "element",
                "ip",
                "kube-proxy",
                "active-cluster-ips",
                "{",
                "10.96.0.10",
                "}",
            ],
            "",
        );
        let difference = proxy.engine.difference().unwrap();
        assert_eq!(difference.edits, 1);
        nft::succeeds(&["-f", "-"], &difference.script);
        assert_restart_writes_nothing(&fixture.config, &fixture.events);
    });
}

#[test]
fn a_difference_with_a_changed_number_of_endpoints_applies() {
    Netns::new().unwrap().run(|| {
        let events = |endpoints: &[&str]| with_endpoints(web("10.96.0.10"), endpoints).events();
        let [two, four] = [
            events(&["10.1.0.1", "10.1.0.2"]),
            events(&["10.1.0.1", "10.1.0.2", "10.1.0.3", "10.1.0.4"]),
        ];
        Proxy::start(config(), two).sync();
        let mut proxy = Proxy::start(config(), four.iter().cloned());
        let script = proxy.engine.difference().unwrap().script;
        nft::succeeds(&["-f", "-"], &script);
        assert_restart_writes_nothing(&config(), &four);
    });
}

#[test]
fn a_set_with_different_properties_is_replaced_while_rules_use_it() {
    Netns::new().unwrap().run(|| {
        let events = small_cluster();
        let mut proxy = Proxy::start(config(), events.iter().cloned());
        let set = "set active-cluster-ips {\n\t\ttype ipv4_addr\n";
        let plan = proxy.engine.desired();
        assert!(plan.contains(set), "{plan}");
        let sized = plan.replace(set, &format!("{set}\t\tsize 70\n"));
        for by_script in [true, false] {
            nft::succeeds(&["flush", "ruleset"], "");
            nft::succeeds(&["-f", "-"], &sized);
            let mut proxy = Proxy::start(config(), events.iter().cloned());
            if by_script {
                let script = proxy.engine.difference().unwrap().script;
                nft::succeeds(&["-f", "-"], &script);
            } else {
                proxy.sync();
            }
            assert_restart_writes_nothing(&config(), &events);
        }
    });
}

#[test]
fn replacing_an_endpoint_sends_one_message_of_a_size_independent_of_the_cluster() {
    let sent = [10, 1_000].map(|services| {
        Netns::new().unwrap().run(|| {
            let others = cluster(services, 5, Stack::Dual).flat_map(|builder| builder.events());
            let endpoints = |last| {
                let builder = web("10.97.0.1").cluster_ip("fd00:97::1".parse().unwrap());
                let v4 = with_endpoints(builder, &["10.1.0.1", "10.1.0.2", last]);
                with_endpoints(v4, &["fd00:1::1", "fd00:1::2"]).events()
            };
            let mut proxy = Proxy::start(config(), others.chain(endpoints("10.1.0.3")));
            proxy.sync();
            proxy.change(endpoints("10.1.0.4"))
        })
    });
    let [[(v4_sends, v4_bytes), v6], large] = sent;
    assert_eq!((v4_sends, v6), (1, (0, 0)));
    assert!(v4_bytes < 1024, "{v4_bytes}");
    assert_eq!(large, [(v4_sends, v4_bytes), v6]);
}

#[test]
fn both_families_are_updated_with_one_message_each() {
    Netns::new().unwrap().run(|| {
        let builder = || web("10.96.0.10").cluster_ip("fd00:96::10".parse().unwrap());
        let endpoints = |last: [&str; 2]| with_endpoints(builder(), &last).events();
        let mut proxy = Proxy::start(config(), endpoints(["10.1.0.1", "fd00:1::1"]));
        proxy.sync();
        let sent = proxy.change(endpoints(["10.1.0.2", "fd00:1::2"]));
        assert_eq!(sent.map(|(sends, _)| sends), [1, 1]);
    });
}

/// States that an interrupted process or another process may leave.
const STATES: &[&str] = &[
    "",
    "add table ip kube-proxy",
    "add table ip kube-proxy { flags dormant; }",
    "create table ip x; delete table ip x; add table ip6 kube-proxy { flags dormant; }",
    "add table ip kube-proxy { comment \"another\"; }; add chain ip kube-proxy services",
    "delete table ip6 kube-proxy",
    "delete table ip kube-proxy",
    "flush chain ip kube-proxy services",
    "flush chain ip kube-proxy nat-prerouting",
    "add rule ip kube-proxy services counter drop",
    "insert rule ip6 kube-proxy masquerading accept",
    "add chain ip kube-proxy lb-77 { drop; }",
    "add chain ip kube-proxy stray; add rule ip kube-proxy stray jump services",
    "add chain ip kube-proxy hooked { type filter hook input priority 5; policy drop; }",
    "flush map ip kube-proxy backends-2",
    "flush set ip kube-proxy service-networks",
    "add element ip kube-proxy external-networks { 203.0.112.0 }",
    "add element ip kube-proxy backends-3 { 10.96.0.10 . tcp . 80 . 0 : 10.1.0.1 . 8080 }",
    "flush set ip kube-proxy active-cluster-ips",
    "delete element ip kube-proxy backends-2 { 10.96.0.10 . tcp . 80 . 1 }",
    "add element ip kube-proxy backends { 10.96.0.99 . tcp . 80 . 0 : 10.1.0.1 . 80 }",
    "add element ip kube-proxy active-cluster-ips { 10.96.0.99 }",
    "add element ip kube-proxy no-endpoints { 10.96.0.10 . tcp . 80 }",
    "add element ip kube-proxy service-cidrs { 10.200.0.0/16 }",
    "delete element ip kube-proxy service-cidrs { 10.96.0.0/16 }",
    "add set ip kube-proxy stray { type ipv4_addr; elements = { 10.0.0.1 }; }",
    "delete element ip kube-proxy backends-2 { 10.96.0.10 . tcp . 80 . 0 }; \
     add chain ip kube-proxy other; \
     add element ip kube-proxy dispatch-ips { 10.96.0.10 . tcp . 80 : goto other }",
    "add element ip kube-proxy dispatch-ips { 10.96.0.10 . tcp . 80 : drop }",
    "delete chain ip kube-proxy filter-forward; \
     add chain ip kube-proxy filter-forward { type filter hook forward priority 7; }",
];

fn small_cluster() -> Vec<Event> {
    let builder = with_endpoints(web("10.96.0.10"), &["10.1.0.1", "10.1.0.2"]);
    let mut events = builder.events();
    events.push(fixtures::service_cidr(&["10.96.0.0/16", "fd00:96::/112"]));
    events
}

#[test]
fn a_start_reaches_the_plan_from_any_state_and_a_restart_writes_nothing() {
    for state in STATES {
        let netns = Netns::new().unwrap();
        netns.run(|| {
            let fresh = state.is_empty() || state.starts_with("add table");
            if !fresh {
                Proxy::start(config(), small_cluster()).sync();
            }
            nft::succeeds(&["-f", "-"], state);
            let report = Proxy::start(config(), small_cluster()).sync();
            let edits = |done: &proxy_core::FamilyReport| done.outcome.as_ref().unwrap().edits;
            assert!(
                report.families.iter().map(edits).sum::<usize>() > 0,
                "{state}"
            );
            assert_restart_writes_nothing(&config(), &small_cluster());
        });
    }
}

/// Number of random damages.
const DAMAGES: u64 = 40;

/// Returns edits that remove a random part of a state.
fn damage(state: Vec<Object>, dice: &mut Dice) -> Vec<Edit<Object>> {
    let mut edits = Vec::new();
    for object in state {
        match &object {
            Object::Element(_) if dice.once_in(2) => edits.push(Edit::Remove(object)),
            Object::Chain(chain) if !chain.rules.is_empty() && dice.once_in(2) => {
                let rules = chain.rules.iter().skip(usize::from(dice.roll(2))).cloned();
                let kept: Vec<_> = rules.take(usize::from(dice.roll(2))).collect();
                let new = chain.clone().with_rules(kept).into();
                edits.push(Edit::Change { old: object, new });
            }
            _ => {}
        }
    }
    edits
}

#[test]
fn a_start_completes_a_partly_programmed_plan() {
    for seed in 0..DAMAGES {
        let mut dice = Dice::from_seed(seed);
        Netns::new().unwrap().run(|| {
            Proxy::start(config(), small_cluster()).sync();
            for family in Family::ALL {
                let mut kernel = Nftables::open(family).unwrap();
                let edits = damage(kernel.dump().unwrap(), &mut dice);
                kernel.commit(&edits).unwrap();
            }
            Proxy::start(config(), small_cluster()).sync();
            assert_restart_writes_nothing(&config(), &small_cluster());
        });
    }
    testkit::figures!("mode nftables: a start completes {DAMAGES} damaged plans");
}

#[test]
fn foreign_tables_are_left_unchanged() {
    let foreign = "
        table ip other {
            map backends { type ipv4_addr : verdict; elements = { 10.0.0.1 : drop }; }
            chain services { ip daddr vmap @backends; }
            chain input { type filter hook input priority 0; policy accept; jump services; }
        }
        table inet kube-proxy {
            chain lb-9 { counter drop; }
        }
        table ip6 kube-proxy-2 {
            set cluster-ips { type ipv6_addr; elements = { fd00::1 }; }
        }
    ";
    Netns::new().unwrap().run(|| {
        nft::succeeds(&["-f", "-"], foreign);
        let list = || {
            let tables = [
                ["ip", "other"],
                ["inet", "kube-proxy"],
                ["ip6", "kube-proxy-2"],
            ];
            tables.map(|[family, table]| nft::succeeds(&["list", "table", family, table], ""))
        };
        let before = list();
        let mut proxy = Proxy::start(config(), small_cluster());
        proxy.sync();
        assert_eq!(list(), before);
        proxy.change([Event::ServiceDeleted(
            web("10.96.0.10").service().metadata.object_name(),
        )]);
        proxy.engine.request_resync();
        proxy.now += Duration::from_secs(5);
        proxy.sync();
        assert_eq!(list(), before);
    });
}

#[test]
fn objects_left_by_upstream_are_replaced() {
    let upstream = r#"
        table ip kube-proxy {
            comment "rules for kube-proxy"
            set cluster-ips { type ipv4_addr; comment "Active ClusterIPs"; elements = { 10.96.0.10, 10.96.0.20 }; }
            set affinity-AAAA-default/web/tcp/__10.1.0.1/8080 { type ipv4_addr; flags dynamic,timeout; timeout 3h; }
            set hairpin-connections { type ipv4_addr . ipv4_addr . inet_proto . inet_service; }
            map no-endpoint-services { type ipv4_addr . inet_proto . inet_service : verdict; }
            map service-ips { type ipv4_addr . inet_proto . inet_service : verdict; }
            chain nat-prerouting { type nat hook prerouting priority -100; policy accept; }
            chain services { }
            chain endpoint-AAAA-default/web/tcp/__10.1.0.1/8080 { }
            chain service-BBBB-default/web/tcp/ { }
            chain reject-chain { reject; }
        }
        add rule ip kube-proxy nat-prerouting jump services
        add rule ip kube-proxy services ip daddr . meta l4proto . th dport vmap @service-ips
        add rule ip kube-proxy endpoint-AAAA-default/web/tcp/__10.1.0.1/8080 update @affinity-AAAA-default/web/tcp/__10.1.0.1/8080 { ip saddr }
        add rule ip kube-proxy endpoint-AAAA-default/web/tcp/__10.1.0.1/8080 meta l4proto tcp dnat to 10.1.0.1:8080
        add rule ip kube-proxy service-BBBB-default/web/tcp/ numgen random mod 1 vmap { 0 : goto endpoint-AAAA-default/web/tcp/__10.1.0.1/8080 }
        add element ip kube-proxy service-ips { 10.96.0.10 . tcp . 80 : goto service-BBBB-default/web/tcp/ }
        add element ip kube-proxy no-endpoint-services { 10.96.0.20 . tcp . 80 : goto reject-chain }
    "#;
    Netns::new().unwrap().run(|| {
        nft::succeeds(&["-f", "-"], upstream);
        Proxy::start(config(), small_cluster()).sync();
        let listing = nft::succeeds(&["list", "ruleset"], "");
        for removed in [
            "default/web",
            "reject-chain",
            "no-endpoint-services",
            "10.96.0.20",
        ] {
            assert!(!listing.contains(removed), "{listing}");
        }
        assert_restart_writes_nothing(&config(), &small_cluster());
    });
}

#[test]
fn unused_chains_are_removed_by_the_next_start() {
    Netns::new().unwrap().run(|| {
        let events = |endpoints| web_with("10.96.0.10", endpoints).events();
        let mut proxy = Proxy::start(config(), events(10));
        proxy.sync();
        let [(sends, _), _] = proxy.change(events(9));
        assert_eq!(sends, 1);
        let chains = || nft::succeeds(&["list", "chains", "ip"], "");
        assert!(chains().contains("chain lb-9 ") && chains().contains("chain lb-10 "));
        Proxy::start(config(), events(9)).sync();
        assert!(chains().contains("chain lb-9 ") && !chains().contains("chain lb-10 "));
        assert_restart_writes_nothing(&config(), &events(9));
    });
}

#[test]
fn seventy_thousand_elements_and_a_service_of_300_endpoints_are_programmed() {
    let addresses: Vec<_> = (0..300)
        .map(|n| format!("10.1.{}.{}", n / 250, n % 250))
        .collect();
    let addresses: Vec<_> = addresses.iter().map(String::as_str).collect();
    let large = with_endpoints(web("10.97.0.1"), &addresses);
    let events: Vec<_> = cluster(14_000, 5, Stack::V4)
        .chain([large])
        .flat_map(|builder| builder.events())
        .collect();
    Netns::new().unwrap().run(|| {
        Proxy::start(config(), events.clone()).sync();
        assert_restart_writes_nothing(&config(), &events);
        let chain = nft::succeeds(&["list", "chain", "ip", "kube-proxy", "lb-300"], "");
        assert!(chain.contains("numgen random mod 300"), "{chain}");
    });
}
