//! The engine with both iptables variants. Each test has its own network namespace.
#![cfg(feature = "iptables")]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "iptables-save shows the programmed rules"
)]

mod fixtures;

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use fixtures::{Fixture, apply, sync, web_with};
use proxy_core::backend::iptables::{Kernel, Planner};
use proxy_core::{Config, Engine, Event, Family, Mode, Report};
use testkit::iptables::Programs;
use testkit::leftovers::Directory;
use testkit::netns::Netns;
use vipline_iptables::{self as iptables, Client, Variant};
use vipline_service_model::arbitrary::{self, Dice};
use vipline_service_model::{DetectLocal, NodePortAddresses, api};

const VARIANTS: [Variant; 2] = [Variant::Nft, Variant::Legacy];

/// The tables that contain chains of the proxy.
const TABLES: [&str; 3] = ["filter", "mangle", "nat"];

/// An engine of one variant in the namespace of the calling thread.
struct Proxy {
    engine: Engine,
    now: Duration,
}

impl Proxy {
    fn start(config: Config, variant: Variant, events: impl IntoIterator<Item = Event>) -> Self {
        Self::start_with_clients(config, events, |family| {
            Client::open_variant(family, variant).expect("both are installed")
        })
    }

    fn start_with_clients(
        config: Config,
        events: impl IntoIterator<Item = Event>,
        client: impl Fn(iptables::Family) -> Client,
    ) -> Self {
        let mut engine = Engine::with_kernels::<Planner, _>(config, |family| {
            let named = match family {
                Family::V4 => iptables::Family::V4,
                Family::V6 => iptables::Family::V6,
            };
            Kernel::with_client(client(named), family)
        });
        apply(&mut engine, events);
        engine.apply(Event::Synced);
        let now = Duration::ZERO;
        Self { engine, now }
    }

    /// Syncs. The sync must succeed.
    fn sync(&mut self) -> Report {
        let report = sync(&mut self.engine, &mut self.now);
        assert!(report.is_success(), "{report}");
        report
    }

    /// Applies events and syncs if a sync is due.
    fn change(&mut self, events: impl IntoIterator<Item = Event>) -> Option<Report> {
        // The minimum interval starts with the first poll after a sync.
        self.engine.poll(self.now);
        apply(&mut self.engine, events);
        self.now += Duration::from_secs(60);
        self.engine.poll(self.now)
    }
}

/// Returns the saved rules of a variant and a family.
fn save(variant: Variant, family: Family) -> String {
    let base = match family {
        Family::V4 => "iptables",
        Family::V6 => "ip6tables",
    };
    let mut text = String::new();
    for table in TABLES {
        let mut command = Command::new(format!("{base}-{variant}-save"));
        let output = command
            .args(["-t", table])
            .output()
            .expect("the program is installed");
        assert!(output.status.success(), "{output:?}");
        text += &String::from_utf8(output.stdout).expect("rules are text");
    }
    text
}

/// The rules of each chain of each table, in their order.
type Chains = BTreeMap<(String, String), Vec<String>>;

/// Parses saved rules, or a plan in restore format.
fn chains(text: &str) -> Chains {
    let mut chains = Chains::new();
    let mut table = String::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('*') {
            table = name.to_owned();
        } else if let Some(name) = line.strip_prefix(':') {
            let name = name.split(' ').next().expect("a line has a word");
            chains.insert((table.clone(), name.to_owned()), Vec::new());
        } else if let Some((verb @ ("-A" | "-I"), rule)) = line.split_once(' ') {
            let (chain, rule) = rule.split_once(' ').expect("a rule follows its chain");
            let rules = chains.entry((table.clone(), chain.to_owned())).or_default();
            match verb {
                "-A" => rules.push(rule.to_owned()),
                _ => rules.insert(0, rule.to_owned()),
            }
        }
    }
    chains.retain(|(_, chain), rules| chain.starts_with("KUBE-") || !rules.is_empty());
    // The order of Services varies.
    for ((_, chain), rules) in &mut chains {
        let shared = ["-SERVICES", "KUBE-NODEPORTS", "KUBE-PROXY-FIREWALL"];
        if shared.iter().any(|end| chain.ends_with(end)) {
            let is_last = |rule: &String| rule.ends_with("-j KUBE-NODEPORTS");
            let is_behind = |pair: &[String]| is_last(&pair[0]) && !is_last(&pair[1]);
            assert!(!rules.windows(2).any(is_behind), "{chain}: {rules:#?}");
            rules.sort_by_key(|rule| (is_last(rule), rule.clone()));
        }
    }
    chains
}

/// Returns the part of a plan for a family.
fn plan_of(family: Family, plan: &str) -> &str {
    let (v4, v6) = plan
        .split_once("# ip6tables-restore")
        .expect("a plan of both families");
    match family {
        Family::V4 => v4,
        Family::V6 => v6,
    }
}

#[track_caller]
fn assert_programmed(engine: &mut Engine, variant: Variant, name: &str) {
    let plan = engine.desired();
    for family in Family::ALL {
        let saved = chains(&save(variant, family));
        let planned = chains(plan_of(family, &plan));
        for (chain, rules) in &planned {
            assert_eq!(
                saved.get(chain),
                Some(rules),
                "{name} {variant} {family} {chain:?}"
            );
        }
        assert_eq!(saved.len(), planned.len(), "{name} {variant} {family}");
    }
}

fn with_nfacct(mut fixture: Fixture) -> Fixture {
    // Only `Engine::open` creates the nfacct counters.
    fixture.config.iptables.nfacct = false;
    fixture
}

#[test]
fn saved_rules_match_the_plan() {
    for variant in VARIANTS {
        for fixture in fixtures::all().into_iter().map(with_nfacct) {
            let Fixture {
                name,
                config,
                events,
            } = fixture;
            Netns::new().expect("a network namespace").run(|| {
                let mut proxy = Proxy::start(config.clone(), variant, events.clone());
                proxy.sync();
                assert_programmed(&mut proxy.engine, variant, name);
                let mut restarted = Proxy::start(config, variant, events);
                let report = restarted.sync();
                for done in &report.families {
                    let outcome = done.outcome.as_ref().expect("the sync succeeds");
                    assert_eq!(outcome.edits, 0, "{name} {variant}: {report}");
                }
            });
        }
    }
}

/// Asserts that a new engine finds no difference.
#[track_caller]
fn assert_restart_writes_nothing(config: &Config, variant: Variant, events: &[Event]) {
    let mut proxy = Proxy::start(config.clone(), variant, events.iter().cloned());
    let difference = proxy.engine.difference().expect("a dump");
    assert_eq!(difference.edits, 0, "{variant}: {}", difference.script);
}

/// Returns a random configuration for random events.
fn random_config(dice: &mut Dice) -> Config {
    let pods = ["10.0.0.0/8", "fd00::/16"].map(|text| text.parse().expect("a network"));
    let mut config = Config {
        node_name: arbitrary::NODE.into(),
        detect_local: DetectLocal::ClusterCidr(pods.to_vec()),
        node_port_addresses: dice.pick(&[NodePortAddresses::All, NodePortAddresses::Primary]),
        masquerade_all: dice.once_in(4),
        ..Config::default()
    };
    config.iptables.nfacct = false;
    config.iptables.localhost_node_ports = dice.once_in(2);
    config
}

#[test]
fn each_step_of_a_random_history_is_programmed() {
    for variant in VARIANTS {
        for seed in 0..3 {
            let mut dice = Dice::from_seed(seed);
            let config = random_config(&mut dice);
            Netns::new().expect("a network namespace").run(|| {
                let mut events = Vec::new();
                let mut proxy = Proxy::start(config.clone(), variant, []);
                proxy.sync();
                for step in 0..12 {
                    let mut new_events: Vec<_> = (0..=dice.roll(6)).map(|_| dice.event()).collect();
                    for _ in 0..3 {
                        new_events.extend(fixtures::random_service(&mut dice));
                    }
                    events.extend(new_events.iter().cloned());
                    if let Some(report) = proxy.change(new_events) {
                        assert!(report.is_success(), "seed {seed}, step {step}: {report}");
                        let dumped = |done: &proxy_core::FamilyReport| done.was_state_known;
                        assert!(report.families.iter().all(dumped), "{report}");
                    }
                    assert_programmed(&mut proxy.engine, variant, &format!("{seed} {step}"));
                }
                assert_restart_writes_nothing(&config, variant, &events);
            });
        }
    }
}

#[test]
fn an_address_that_is_both_external_ip_and_load_balancer_ip_has_the_rules_of_both() {
    let plan = web_with("10.96.0.10", 1);
    let mut service = plan.service();
    service.spec.kind = api::ServiceType::LoadBalancer;
    service.spec.external_traffic_policy = api::TrafficPolicy::Local;
    service.spec.external_ips = vec!["203.0.113.9".into()];
    service.status.load_balancer.ingress = vec![api::Ingress {
        ip: "203.0.113.9".into(),
        ..api::Ingress::default()
    }];
    let slices = plan.slices().into_iter().map(Event::from);
    let events: Vec<_> = [service.into()].into_iter().chain(slices).collect();
    let mut config = fixtures::config();
    config.iptables.nfacct = false;
    for variant in VARIANTS {
        Netns::new().expect("a network namespace").run(|| {
            let mut proxy = Proxy::start(config.clone(), variant, events.clone());
            proxy.sync();
            let saved = save(variant, Family::V4);
            let is_drop =
                |line: &&str| line.contains("-d 203.0.113.9/32") && line.ends_with("DROP");
            assert_eq!(saved.lines().filter(is_drop).count(), 2, "{saved}");
            assert_restart_writes_nothing(&config, variant, &events);
        });
    }
}

/// Runs an iptables command, which must succeed.
#[track_caller]
fn run(variant: Variant, command: &str) {
    let words = command.split(' ');
    let mut program = Command::new(format!("iptables-{variant}"));
    let output = program
        .args(words)
        .output()
        .expect("the program is installed");
    assert!(output.status.success(), "{command}: {output:?}");
}

#[test]
fn damaged_rules_are_repaired_and_foreign_rules_are_kept() {
    for variant in VARIANTS {
        for fixture in fixtures::all().into_iter().map(with_nfacct).step_by(3) {
            let Fixture {
                name,
                config,
                events,
            } = fixture;
            Netns::new().expect("a network namespace").run(|| {
                let foreign = [
                    "-t nat -N MINE",
                    "-t nat -A MINE -j RETURN",
                    "-t nat -A POSTROUTING -s 10.9.0.0/16 -j MINE",
                    "-t filter -A INPUT -p tcp -m tcp --dport 22 -j ACCEPT",
                    // A foreign rule that jumps to one of our chains.
                    "-t nat -A OUTPUT -d 10.9.0.1 -j KUBE-MARK-MASQ",
                ];
                let mut proxy = Proxy::start(config.clone(), variant, events.clone());
                proxy.sync();
                foreign.iter().for_each(|command| run(variant, command));
                let before = save(variant, Family::V4);
                for damage in [
                    "-t nat -F KUBE-SERVICES",
                    "-t nat -I KUBE-SERVICES -j RETURN",
                    // The same rule twice.
                    "-t nat -I KUBE-SERVICES -j ACCEPT|-t nat -A KUBE-SERVICES -j ACCEPT",
                    "-t nat -A KUBE-SERVICES -d 10.99.0.1 -j RETURN",
                    "-t nat -D PREROUTING 1",
                    "-t filter -F KUBE-FORWARD",
                    "-t filter -D FORWARD 2",
                    "-t nat -A KUBE-MARK-MASQ -j ACCEPT",
                    "-t nat -N KUBE-SVC-AAAAAAAAAAAAAAAA",
                    "-t nat -D KUBE-POSTROUTING 2",
                    "-t mangle -X KUBE-PROXY-CANARY",
                ] {
                    damage.split('|').for_each(|each| run(variant, each));
                    proxy.engine.request_resync();
                    let report = proxy.sync();
                    let outcome = report.families[0]
                        .outcome
                        .as_ref()
                        .expect("the sync succeeds");
                    assert!(
                        outcome.edits > 0 && outcome.dumped,
                        "{name} {damage}: {report}"
                    );
                    let after = save(variant, Family::V4);
                    let rules = |text| -> Chains { chains(text) };
                    assert_eq!(
                        sorted(rules(&after)),
                        sorted(rules(&before)),
                        "{name} {damage}"
                    );
                }
            });
        }
    }
}

/// Sorts the jumps in the built-in chains, whose order depends on the time of
/// insertion.
fn sorted(mut chains: Chains) -> Chains {
    for ((_, chain), rules) in &mut chains {
        if !chain.starts_with("KUBE-") {
            rules.sort();
        }
    }
    chains
}

/// Wrappers of the programs of a variant. The restore program can be made to fail.
struct FaultyPrograms {
    programs: Programs,
    variant: Variant,
    fault: Directory,
}

impl FaultyPrograms {
    fn new(variant: Variant) -> Self {
        Self {
            programs: Programs::new().expect("a temporary directory"),
            variant,
            fault: Directory::new().expect("a temporary directory"),
        }
    }

    /// Returns a client that runs the wrappers of a family.
    fn client(&self, family: iptables::Family) -> Client {
        let name = format!("{family}-{}", self.variant);
        let programs = &self.programs;
        let [save, restore] = programs.variant(&name).expect("the directory is writable");
        let fault = self.fault.path().join("fault");
        let script = format!(
            "NAME={}; if [ -e {fault} ] && [ \"$1\" != --version ]; then . {fault}; fi\n\
             exec $NAME \"$@\"",
            restore.display(),
            fault = fault.display(),
        );
        let restore = programs.script(&format!("faulty-{name}"), &script);
        Client::open_at(save, restore.expect("the directory is writable"))
            .expect("the program prints its version")
    }

    /// Makes the restore program run a shell fragment first.
    fn begin(&self, fault: &str) {
        self.fault
            .write("fault", fault)
            .expect("the directory is writable");
    }

    /// Makes the restore program work normally again.
    fn end(&self) {
        let fault = self.fault.path().join("fault");
        std::fs::remove_file(fault).expect("the object exists");
    }
}

#[test]
fn a_failed_restore_is_repaired_by_the_next_sync() {
    let faults = [
        // The program is killed before it reads its input.
        "kill -9 $$",
        // Only the first of several tables is written.
        "sed '/^COMMIT/q' | $NAME \"$@\"; exit 4",
        // A rule in the last table is rejected.
        "sed '$s/^COMMIT$/-A NO-SUCH-CHAIN -j ACCEPT\\nCOMMIT/' | $NAME \"$@\"; exit $?",
        // The program is killed while it writes.
        "head -c 300 | $NAME \"$@\"; kill -9 $$",
    ];
    for variant in VARIANTS {
        for fault in faults {
            let faulty = FaultyPrograms::new(variant);
            let plan = web_with("10.96.0.10", 3);
            let mut config = fixtures::config();
            config.iptables.nfacct = false;
            Netns::new().expect("a network namespace").run(|| {
                let client = |family| faulty.client(family);
                let mut proxy = Proxy::start_with_clients(config.clone(), [], client);
                proxy.sync();
                faulty.begin(fault);
                let report = proxy.change(plan.events()).expect("a change is due");
                // Rejected rules are isolated. Every other error is a failure.
                let is_isolated = !report.families[0].rejected.is_empty();
                let errors = report.errors().count();
                assert_eq!(errors, usize::from(!is_isolated), "{fault}: {report}");
                assert_eq!(is_isolated, fault.contains("NO-SUCH-CHAIN"), "{report}");
                faulty.end();
                let report = proxy.sync();
                let outcome = report.families[0]
                    .outcome
                    .as_ref()
                    .expect("the sync succeeds");
                assert!(outcome.dumped, "{report}");
                assert_programmed(&mut proxy.engine, variant, fault);
                assert_restart_writes_nothing(&config, variant, &plan.events());
            });
        }
    }
}

#[test]
fn a_change_that_times_out_on_the_xtables_lock_is_applied_later() {
    let faulty = FaultyPrograms::new(Variant::Legacy);
    let plan = web_with("10.96.0.10", 3);
    let mut config = fixtures::config();
    config.iptables.nfacct = false;
    Netns::new().expect("a network namespace").run(|| {
        let client = |family| {
            let mut client = faulty.client(family);
            client.set_wait(1);
            client
        };
        let mut proxy = Proxy::start_with_clients(config.clone(), [], client);
        proxy.sync();
        let lock = std::fs::File::open(faulty.programs.lock()).expect("the object exists");
        let operation = rustix::fs::FlockOperation::LockExclusive;
        rustix::fs::flock(&lock, operation).expect("the lock is free");
        let report = proxy.change(plan.events()).expect("a change is due");
        let (_, error) = report.errors().next().expect("the lock is held");
        assert!(error.to_string().contains("lock"), "{error}");
        drop(lock);
        proxy.sync();
        assert_programmed(&mut proxy.engine, Variant::Legacy, "lock");
    });
}

#[test]
fn chains_that_cannot_be_edited_are_rewritten() {
    // The restore program rejects every deletion of a rule.
    let fault = "doc=$(cat); case \"$doc\" in *'\n-D '*) exit 2;; esac; \
                   case \"$doc\" in *-D*) exit 2;; esac; printf '%s\\n' \"$doc\" | $NAME \"$@\"; exit $?";
    for variant in VARIANTS {
        let faulty = FaultyPrograms::new(variant);
        let plan = web_with("10.96.0.10", 3);
        let mut config = fixtures::config();
        config.iptables.nfacct = false;
        Netns::new().expect("a network namespace").run(|| {
            let client = |family| faulty.client(family);
            let mut proxy = Proxy::start_with_clients(config.clone(), plan.events(), client);
            proxy.sync();
            faulty.begin(fault);
            let gone = Event::ServiceDeleted(plan.service().metadata.object_name());
            let mut new_events = vec![gone];
            // The first attempt edits the known state, the second one follows a dump,
            // and the third one rewrites whole chains.
            for attempt in 0..3 {
                let report = proxy.change(new_events.drain(..)).expect("a sync is due");
                assert_eq!(report.is_success(), attempt == 2, "{attempt}: {report}");
            }
            assert_programmed(&mut proxy.engine, variant, "rewritten");
        });
    }
}

/// Returns a watching engine after its first sync, with the iptables variant of the
/// machine.
fn watching_engine() -> (Engine, Duration) {
    let config = Config {
        mode: Mode::Iptables,
        ..fixtures::config()
    };
    let mut engine = Engine::open(config).expect("iptables is installed");
    apply(&mut engine, web_with("10.96.0.10", 3).events());
    engine.apply(Event::Synced);
    let mut now = Duration::ZERO;
    let report = sync(&mut engine, &mut now);
    assert!(report.is_success(), "{report}");
    engine
        .watch()
        .expect("the kernel sends nf_tables notifications");
    assert!(engine.is_watching());
    (engine, now)
}

/// Polls for up to two seconds of engine time until a sync is done.
fn next_report(engine: &mut Engine, now: &mut Duration) -> Option<Report> {
    for _ in 0..20 {
        *now += Duration::from_millis(100);
        if let Some(report) = engine.poll(*now) {
            return Some(report);
        }
        let ready = engine.fds();
        let mut fds: Vec<_> = ready
            .iter()
            .map(|fd| rustix::event::PollFd::new(fd, rustix::event::PollFlags::IN))
            .collect();
        let wait = Duration::from_millis(20)
            .try_into()
            .expect("the name is short");
        rustix::event::poll(&mut fds, Some(&wait)).expect("descriptors are open");
    }
    None
}

/// Asserts that the rules of both families use the nfacct counters.
fn assert_counters_are_used() {
    let mut counters = iptables::nfacct::Client::open().expect("the kernel has nfacct");
    let counters = counters.dump().expect("a dump");
    let used = counters.iter().map(|it| (it.name.as_str(), it.rules));
    let mut used: Vec<_> = used.collect();
    used.sort_unstable();
    let expected = [
        ("ct_state_invalid_dropped_pkts", 2),
        ("localhost_nps_accepted_pkts", 0),
    ];
    assert_eq!(used, expected);
}

#[test]
fn foreign_changes_to_our_chains_are_detected_and_repaired_at_once() {
    Netns::new().expect("a network namespace").run(|| {
        let (mut engine, mut now) = watching_engine();
        assert_counters_are_used();
        assert!(
            next_report(&mut engine, &mut now).is_none(),
            "no change happened"
        );
        // The engine's own change is not drift.
        apply(&mut engine, web_with("10.96.0.10", 4).events());
        let report = next_report(&mut engine, &mut now).expect("a change is due");
        assert!(report.is_success(), "{report}");
        assert!(
            next_report(&mut engine, &mut now).is_none(),
            "the change was the engine's own"
        );
        // Foreign chains in the same tables.
        for command in [
            "-t nat -N MINE",
            "-t nat -A MINE -j RETURN",
            "-t nat -I PREROUTING -j MINE",
            "-t nat -F MINE",
        ] {
            run(Variant::Nft, command);
        }
        assert!(
            next_report(&mut engine, &mut now).is_none(),
            "the changes concern foreign chains"
        );
        for damage in [
            "-t nat -F KUBE-SERVICES",
            "-t nat -D OUTPUT -m comment --comment PORTALS -j KUBE-SERVICES",
            "-t filter -F",
            "-t nat -F",
            "-t nat -A KUBE-MARK-MASQ -j ACCEPT",
        ] {
            let before = sorted(chains(&save(Variant::Nft, Family::V4)));
            let words = damage.split(' ').map(|word| match word {
                "PORTALS" => "kubernetes service portals",
                word => word,
            });
            let mut program = Command::new("iptables-nft");
            let output = program
                .args(words)
                .output()
                .expect("the program is installed");
            assert!(output.status.success(), "{damage}: {output:?}");
            let report = next_report(&mut engine, &mut now).expect(damage);
            assert!(report.is_success(), "{damage}: {report}");
            let drift = report.families[0]
                .drift
                .as_ref()
                .expect("the change is reported as drift");
            assert!(
                drift.changes > 0 && !drift.processes.is_empty(),
                "{damage}: {drift}"
            );
            let mut after = sorted(chains(&save(Variant::Nft, Family::V4)));
            let mut before = before;
            for chains in [&mut before, &mut after] {
                // The engine does not restore foreign rules.
                chains.retain(|_, rules| {
                    rules.retain(|rule| !rule.contains("MINE"));
                    true
                });
            }
            assert_eq!(after, before, "{damage}");
        }
    });
}

#[test]
fn rules_written_by_upstream_are_adopted_unchanged() {
    let upstream = include_str!("iptables/upstream.restore");
    let overall = fixtures::all().into_iter().find(|it| it.name == "overall");
    let Fixture { config, events, .. } = overall.map(with_nfacct).expect("the fixture exists");
    for variant in VARIANTS {
        Netns::new().expect("a network namespace").run(|| {
            for jump in include_str!("iptables/upstream.jumps").lines() {
                let words: Vec<&str> = jump.split('|').collect();
                let mut program = Command::new(format!("iptables-{variant}"));
                let output = program
                    .args(&words)
                    .output()
                    .expect("the program is installed");
                assert!(output.status.success(), "{jump}: {output:?}");
            }
            let mut client =
                Client::open_variant(iptables::Family::V4, variant).expect("both are installed");
            client.restore(&upstream).expect("the document is valid");
            let config = Config {
                families: vec![Family::V4],
                ..config.clone()
            };
            let before = save(variant, Family::V4);
            let mut proxy = Proxy::start(config, variant, events.clone());
            let difference = proxy.engine.difference().expect("a dump");
            // The canary chains, which upstream creates separately.
            assert_eq!(difference.edits, 3, "{variant}: {}", difference.script);
            proxy.sync();
            let mut after = chains(&save(variant, Family::V4));
            after.retain(|(_, chain), _| chain != "KUBE-PROXY-CANARY");
            assert_eq!(after, chains(&before), "{variant}");
        });
    }
}
