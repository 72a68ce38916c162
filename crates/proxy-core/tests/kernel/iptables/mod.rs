//! The engine with both iptables variants. Each test has its own network namespace.

mod chains;

mod faults;

mod netlink;

mod rewrite;

mod watch;

use std::process::Command;
use std::time::Duration;

use proxy_core::backend::iptables::{Kernel, Planner};
use proxy_core::{Config, Engine, Event, Family, IptablesBackend, Report};
use testkit::netns::Netns;
use vipline_iptables::{Client, Variant};
use vipline_service_model::arbitrary::{self, Dice};
use vipline_service_model::{DetectLocal, NodePortAddresses, api};

use crate::fixtures::{self, Fixture, apply, sync, web_with};

use chains::{assert_programmed, chains, save, sorted};

const VARIANTS: [Variant; 2] = [Variant::Nft, Variant::Legacy];

/// How an engine accesses the tables.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Access {
    Programs(Variant),
    Netlink,
}

impl Access {
    const ALL: [Self; 3] = [
        Self::Programs(Variant::Nft),
        Self::Programs(Variant::Legacy),
        Self::Netlink,
    ];

    /// Returns the variant whose programs show the rules.
    fn variant(self) -> Variant {
        match self {
            Self::Programs(variant) => variant,
            Self::Netlink => Variant::Nft,
        }
    }

    fn kernel(self, family: Family) -> Kernel {
        match self {
            Self::Programs(variant) => {
                let client = Client::open_variant(family, variant);
                let client = client.expect("both are installed");
                Kernel::with_client(client, family)
            }
            Self::Netlink => Kernel::open_with(family, IptablesBackend::Netlink)
                .expect("the kernel has nfnetlink"),
        }
    }
}

/// An engine of one variant in the namespace of the calling thread.
struct Proxy {
    engine: Engine,
    now: Duration,
}

impl Proxy {
    fn start(config: Config, access: Access, events: impl IntoIterator<Item = Event>) -> Self {
        Self::start_with_kernels(config, events, |family| access.kernel(family))
    }

    fn start_with_kernels(
        config: Config,
        events: impl IntoIterator<Item = Event>,
        kernel: impl Fn(Family) -> Kernel,
    ) -> Self {
        let planner = Planner::from(&config);
        let mut engine = Engine::with_kernels(config.engine, planner, kernel);
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

fn without_nfacct(mut fixture: Fixture) -> Fixture {
    // Only `Config::open` creates the nfacct counters.
    fixture.config.iptables.nfacct = false;
    fixture
}

#[test]
fn saved_rules_match_the_plan() {
    for access in Access::ALL {
        let variant = access.variant();
        for fixture in fixtures::all().into_iter().map(without_nfacct) {
            let Fixture {
                name,
                config,
                events,
            } = fixture;
            Netns::new().expect("a network namespace").run(|| {
                let mut proxy = Proxy::start(config.clone(), access, events.clone());
                proxy.sync();
                assert_programmed(&mut proxy.engine, variant, name);
                let mut restarted = Proxy::start(config, access, events);
                let report = restarted.sync();
                for done in &report.families {
                    let outcome = done.outcome.as_ref().expect("the sync succeeds");
                    assert_eq!(outcome.edits, 0, "{name} {access:?}: {report}");
                }
            });
        }
    }
}

/// Asserts that a new engine finds no difference.
#[track_caller]
fn assert_restart_writes_nothing(config: &Config, access: Access, events: &[Event]) {
    let mut proxy = Proxy::start(config.clone(), access, events.iter().cloned());
    let difference = proxy.engine.difference().expect("a dump");
    assert_eq!(difference.edits, 0, "{access:?}: {}", difference.script);
}

/// Returns a random configuration for random events.
fn random_config(dice: &mut Dice) -> Config {
    let pods = ["10.0.0.0/8", "fd00::/16"].map(|text| text.parse().expect("a network"));
    let mut config = Config::new(arbitrary::NODE)
        .with_detect_local(DetectLocal::ClusterCidr(pods.to_vec()))
        .with_node_port_addresses(dice.pick(&[NodePortAddresses::All, NodePortAddresses::Primary]))
        .with_masquerade_all(dice.once_in(4));
    config.iptables.nfacct = false;
    config.iptables.localhost_node_ports = dice.once_in(2);
    config
}

/// Number of random histories, and of their steps.
const HISTORIES: u64 = 3;
const STEPS: usize = 12;

#[test]
fn each_step_of_a_random_history_is_programmed() {
    for access in Access::ALL {
        let variant = access.variant();
        for seed in 0..HISTORIES {
            let mut dice = Dice::from_seed(seed);
            let config = random_config(&mut dice);
            Netns::new().expect("a network namespace").run(|| {
                let mut events = Vec::new();
                let mut proxy = Proxy::start(config.clone(), access, []);
                proxy.sync();
                for step in 0..STEPS {
                    let mut new_events: Vec<_> = (0..=dice.roll(6)).map(|_| dice.event()).collect();
                    for _ in 0..3 {
                        new_events.extend(fixtures::random_service(&mut dice));
                    }
                    events.extend(new_events.iter().cloned());
                    if let Some(report) = proxy.change(new_events) {
                        assert!(
                            report.is_success(),
                            "{access:?}, seed {seed}, step {step}: {report}"
                        );
                        let dumped = |done: &proxy_core::FamilyReport| done.was_state_known;
                        assert!(report.families.iter().all(dumped), "{report}");
                    }
                    assert_programmed(&mut proxy.engine, variant, &format!("{seed} {step}"));
                }
                assert_restart_writes_nothing(&config, access, &events);
            });
        }
        testkit::figures!(
            "{access:?}: {HISTORIES} histories of {STEPS} steps, seeds 0 to {}: the kernel has \
             the plan after each step, and a restart writes nothing",
            HISTORIES - 1
        );
    }
}

#[test]
fn an_address_that_is_both_external_ip_and_load_balancer_ip_has_the_rules_of_both() {
    let builder = web_with("10.96.0.10", 1);
    let mut service = builder.service();
    service.spec.kind = api::ServiceType::LoadBalancer;
    service.spec.external_traffic_policy = api::TrafficPolicy::Local;
    service.spec.external_ips = vec!["203.0.113.9".into()];
    service.status.load_balancer.ingress = vec![api::Ingress {
        ip: "203.0.113.9".into(),
        ..api::Ingress::default()
    }];
    let slices = builder.slices().into_iter().map(Event::from);
    let events: Vec<_> = [service.into()].into_iter().chain(slices).collect();
    let mut config = fixtures::config();
    config.iptables.nfacct = false;
    for access in Access::ALL {
        let variant = access.variant();
        Netns::new().expect("a network namespace").run(|| {
            let mut proxy = Proxy::start(config.clone(), access, events.clone());
            proxy.sync();
            let saved = save(variant, Family::V4);
            let is_drop =
                |line: &&str| line.contains("-d 203.0.113.9/32") && line.ends_with("DROP");
            assert_eq!(saved.lines().filter(is_drop).count(), 2, "{saved}");
            assert_restart_writes_nothing(&config, access, &events);
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
    for access in Access::ALL {
        let variant = access.variant();
        for fixture in fixtures::all().into_iter().map(without_nfacct).step_by(3) {
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
                let mut proxy = Proxy::start(config.clone(), access, events.clone());
                proxy.sync();
                foreign.iter().for_each(|command| run(variant, command));
                let saved_chains = || sorted(chains(&save(variant, Family::V4)));
                let before = saved_chains();
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
                        "{name} {access:?} {damage}: {report}"
                    );
                    assert_eq!(saved_chains(), before, "{name} {access:?} {damage}");
                }
            });
        }
    }
}

#[test]
fn rules_written_by_upstream_are_adopted_unchanged() {
    let upstream = include_str!("upstream.restore");
    let overall = fixtures::all().into_iter().find(|it| it.name == "overall");
    let Fixture { config, events, .. } = overall.map(without_nfacct).expect("the fixture exists");
    for access in Access::ALL {
        let variant = access.variant();
        Netns::new().expect("a network namespace").run(|| {
            for jump in include_str!("upstream.jumps").lines() {
                let words: Vec<&str> = jump.split('|').collect();
                let mut program = Command::new(format!("iptables-{variant}"));
                let output = program
                    .args(&words)
                    .output()
                    .expect("the program is installed");
                assert!(output.status.success(), "{jump}: {output:?}");
            }
            let mut client = Client::open_variant(Family::V4, variant).expect("both are installed");
            client.restore(&upstream).expect("the document is valid");
            let config = config.clone().with_families(vec![Family::V4]);
            let before = save(variant, Family::V4);
            let mut proxy = Proxy::start(config, access, events.clone());
            let difference = proxy.engine.difference().expect("a dump");
            // The canary chains, which upstream creates separately.
            assert_eq!(difference.edits, 3, "{access:?}: {}", difference.script);
            proxy.sync();
            let mut after = chains(&save(variant, Family::V4));
            after.retain(|(_, chain), _| chain != "KUBE-PROXY-CANARY");
            assert_eq!(after, chains(&before), "{access:?}");
        });
    }
}
