//! Objects that a real kernel rejects. All other objects are programmed.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use proxy_core::backend::{iptables, nftables};
use proxy_core::{Context, Engine, Event, Family, IptablesBackend, Planner, PortObjects};
use testkit::generate::ServiceBuilder;
use testkit::netns::Netns;
use vipline_iptables::{Chain, Client, Contents, Object as Rule, Variant};
use vipline_nftables::{ElementData, Name, Object as Nft, Verdict};
use vipline_reconcile::Edit;
use vipline_service_model::ServicePort;

use crate::fixtures::apply;
use crate::good_and_bad::{config, plan, service};

/// A mode that changes the objects of Service `bad` such that the kernel rejects them.
trait Spoil {
    type Mode: Planner;

    fn spoil(object: &mut <Self::Mode as Planner>::Object);
}

/// The planner of a mode with the changes of [`Spoil`].
struct Spoiled<S: Spoil>(S::Mode);

impl<S: Spoil> Clone for Spoiled<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S: Spoil> PartialEq for Spoiled<S> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<S: Spoil + 'static> Planner for Spoiled<S> {
    type Object = <S::Mode as Planner>::Object;

    fn base(&self, cx: &Context) -> Vec<Self::Object> {
        self.0.base(cx)
    }

    fn requires_replan(&self, before: &Context, after: &Context) -> bool {
        self.0.requires_replan(before, after)
    }

    fn port(&self, cx: &Context, port: &ServicePort) -> PortObjects<Self::Object> {
        let mut wants = self.0.port(cx, port);
        if &*port.name.service == "bad" {
            let claimed = wants.claims.iter_mut().flat_map(|claim| &mut claim.objects);
            wants.own.iter_mut().chain(claimed).for_each(S::spoil);
        }
        wants
    }

    fn is_removal_delayed(object: &Self::Object) -> bool {
        S::Mode::is_removal_delayed(object)
    }

    fn text(object: &Self::Object) -> String {
        S::Mode::text(object)
    }

    fn script<'a>(
        family: Family,
        edits: Vec<Edit<Self::Object>>,
        desired: impl Iterator<Item = &'a Self::Object>,
    ) -> String
    where
        Self::Object: 'a,
    {
        S::Mode::script(family, edits, desired)
    }

    fn listing<'a>(family: Family, objects: impl Iterator<Item = &'a Self::Object>) -> String
    where
        Self::Object: 'a,
    {
        S::Mode::listing(family, objects)
    }
}

/// Makes the verdicts of addresses go to a base chain.
enum ToBaseChain {}

impl Spoil for ToBaseChain {
    type Mode = nftables::Planner;

    fn spoil(object: &mut Nft) {
        let Nft::Element(element) = object else {
            return;
        };
        if matches!(element.data(), Some(ElementData::Verdict(_))) {
            let base = Name::new("nat-prerouting").unwrap();
            let spoiled = element.clone().with_verdict(Verdict::Goto(base));
            *object = spoiled.unwrap().into();
        }
    }
}

#[test]
fn all_elements_except_the_rejected_ones_are_programmed() {
    let netns = Netns::new().unwrap();
    netns.run(|| {
        // With more endpoints than the largest map `backends-N` has, the addresses are elements
        // of a verdict map.
        let events = [1, 2, 3, 4].map(|last| {
            let name = if last == 3 {
                "bad".into()
            } else {
                format!("good-{last}")
            };
            service(&name, last, 12).events()
        });
        let kernels = |family| nftables::Kernel::open(family).unwrap();
        let mut engine = Engine::with_kernels(
            config().engine,
            Spoiled::<ToBaseChain>(nftables::Planner),
            kernels,
        );
        apply(&mut engine, events.concat());
        engine.apply(Event::Synced);
        let report = engine.poll(Duration::ZERO).unwrap();
        assert!(report.is_success(), "{report}");
        let rejected = &report.families[0].rejected;
        assert_eq!(rejected.len(), 1, "{rejected:?}");
        assert_eq!(&*rejected[0].owner.as_ref().unwrap().service, "bad");
        let text = rejected[0].to_string();
        assert!(text.contains("10.96.0.3 . tcp . 80"), "{text}");
        let edits = engine.difference().unwrap();
        assert_eq!(edits.edits, 1, "{edits:#?}");
        // The rejected object disappears with its Service.
        engine.apply(Event::ServiceDeleted(
            service("bad", 3, 1).service().metadata.object_name(),
        ));
        engine.poll(Duration::ZERO);
        let report = engine.poll(Duration::from_secs(30)).unwrap();
        assert!(report.is_success(), "{report}");
        assert_eq!(
            (
                engine.rejected_count(Family::V4),
                engine.difference().unwrap().edits
            ),
            (0, 0)
        );
    });
}

/// Makes chains jump to themselves.
enum InLoops {}

impl Spoil for InLoops {
    type Mode = iptables::Planner;

    fn spoil(object: &mut Rule) {
        let Rule::Chain(Chain { name, contents, .. }) = object else {
            return;
        };
        if name.as_str().starts_with("KUBE-SVC-") {
            *contents = Contents::Rules([format!("-j {name}")].into_iter().collect());
        }
    }
}

/// The variant whose programs a kernel runs; `None` for the nft variant over netlink.
type Access = Option<Variant>;

fn kernel(access: Access, family: Family) -> iptables::Kernel {
    match access {
        Some(variant) => {
            iptables::Kernel::with_client(Client::open_variant(family, variant).unwrap(), family)
        }
        None => iptables::Kernel::open_with(family, IptablesBackend::Netlink).unwrap(),
    }
}

/// Programs two good Services and a bad one of mode iptables.
fn assert_only_the_bad_service_is_missing(access: Access) {
    let netns = Netns::new().unwrap();
    netns.run(|| {
        let names = ["good-1", "bad", "good-3"];
        let services: Vec<_> = (1..)
            .zip(names)
            .map(|(last, name)| service(name, last, 2))
            .collect();
        let kernel = |family| kernel(access, family);
        let planner = Spoiled::<InLoops>(iptables::Planner::from(&config()));
        let mut engine = Engine::with_kernels(config().engine, planner, kernel);
        apply(
            &mut engine,
            services.iter().flat_map(ServiceBuilder::events),
        );
        engine.apply(Event::Synced);
        let report = engine.poll(Duration::ZERO).unwrap();
        assert!(report.is_success(), "{access:?}: {report}");
        let rejected = &report.families[0].rejected;
        assert!(!rejected.is_empty(), "{access:?}");
        for it in rejected {
            assert_eq!(&*it.owner.as_ref().unwrap().service, "bad", "{it}");
        }
        let left = engine.difference().unwrap();
        let is_missing = |name: &str| left.script.contains(&format!("default/{name}"));
        assert_eq!(names.map(is_missing), [false, true, false], "{left}");
        // The rejected object disappears with its Service.
        engine.apply(Event::ServiceDeleted(
            services[1].service().metadata.object_name(),
        ));
        engine.poll(Duration::ZERO);
        let report = engine.poll(Duration::from_secs(30)).unwrap();
        assert!(report.is_success(), "{access:?}: {report}");
        assert_eq!(
            (
                engine.rejected_count(Family::V4),
                engine.difference().unwrap().edits
            ),
            (0, 0)
        );
    });
}

#[test]
fn iptables_programs_all_services_except_those_with_rejected_rules() {
    for access in [Some(Variant::Nft), Some(Variant::Legacy), None] {
        assert_only_the_bad_service_is_missing(access);
    }
}

#[test]
fn a_chain_that_a_foreign_rule_jumps_to_stays_and_everything_else_is_removed() {
    for (access, program) in [
        (Some(Variant::Nft), "iptables-nft"),
        (Some(Variant::Legacy), "iptables-legacy"),
        (None, "iptables-nft"),
    ] {
        let netns = Netns::new().unwrap();
        netns.run(|| {
            let kernel = |family| kernel(access, family);
            let mut engine =
                Engine::with_kernels(config().engine, iptables::Planner::from(&config()), kernel);
            let both = [
                service("good", 1, 2).events(),
                service("bad", 2, 2).events(),
            ];
            apply(&mut engine, both.concat());
            engine.apply(Event::Synced);
            assert!(engine.poll(Duration::ZERO).unwrap().is_success());
            let objects = plan::<iptables::Planner>(service("bad", 2, 2).events());
            let chain = objects.iter().find_map(|object| match object {
                Rule::Chain(chain) if chain.name.as_str().starts_with("KUBE-SVC-") => {
                    Some(chain.name.to_string())
                }
                _ => None,
            });
            let chain = chain.unwrap();
            let run = |args: &[&str]| {
                let done = std::process::Command::new(program)
                    .args(args)
                    .output()
                    .unwrap();
                assert!(done.status.success(), "{args:?}: {done:?}");
            };
            run(&["-t", "nat", "-N", "THEIRS"]);
            run(&["-t", "nat", "-A", "THEIRS", "-j", &chain]);
            engine.apply(Event::ServiceDeleted(
                service("bad", 2, 1).service().metadata.object_name(),
            ));
            apply(&mut engine, service("other", 3, 2).events());
            engine.poll(Duration::ZERO);
            let now = Duration::from_secs(10);
            let report = engine.poll(now).unwrap();
            assert!(report.is_success(), "{access:?}: {report}");
            let rejected = &report.families[0].rejected;
            assert!(rejected.iter().all(|it| it.is_removal), "{rejected:?}");
            assert!(
                rejected.iter().any(|it| it.object.contains(&chain)),
                "{rejected:?}"
            );
            // None of our rules jumps to the chain any more, and the new Service is
            // served.
            let script = engine.difference().unwrap().script;
            assert!(!script.contains("-D KUBE-SERVICES"), "{script}");
            assert!(!script.contains("default/other"), "{script}");
            run(&["-t", "nat", "-F", "THEIRS"]);
            engine.poll(now);
            let report = engine.poll(Duration::from_secs(600)).unwrap();
            assert!(report.is_success(), "{access:?}: {report}");
            assert_eq!(
                (
                    engine.rejected_count(Family::V4),
                    engine.difference().unwrap().edits
                ),
                (0, 0)
            );
        });
    }
}
