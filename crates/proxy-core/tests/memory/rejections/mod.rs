//! Objects that the kernel rejects. All other objects are programmed in every mode.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod known;

use std::collections::BTreeSet;
use std::time::Duration;

use proxy_core::backend::{iptables, ipvs, nftables};
use proxy_core::{Engine, Error, Event, Family, Planner, Report};
use vipline_nftables::Object as Nft;
use vipline_reconcile::{Atomicity, Cause, Keyed, diff};

use crate::fixtures::{self, MemoryKernels, ModePlanner, apply, web_with};
use crate::good_and_bad::{PAUSE, config, plan, service};

/// Error numbers of rejected single objects: `ENOENT`, `E2BIG`, `ENOMEM`, `EBUSY`,
/// `EEXIST`, `EINVAL` and `ENOSPC`.
const ERRNOS: [i32; 7] = [2, 7, 12, 16, 17, 22, 28];

const EINVAL: i32 = 22;

/// An engine of a mode over in-memory kernels.
struct Proxy<P: Planner> {
    kernels: MemoryKernels<P::Object>,
    engine: Engine,
    now: Duration,
}

impl<P> Proxy<P>
where
    P: ModePlanner,
    P::Object: Send + Sync,
{
    fn start(events: impl IntoIterator<Item = Event>) -> Self {
        Self::over(MemoryKernels::default(), events)
    }

    /// Creates an engine over kernels in their current state.
    fn over(kernels: MemoryKernels<P::Object>, events: impl IntoIterator<Item = Event>) -> Self {
        let mut engine = kernels.engine_of::<P>(config());
        apply(&mut engine, events);
        engine.apply(Event::Synced);
        let now = Duration::ZERO;
        Self {
            kernels,
            engine,
            now,
        }
    }

    /// Advances the clock by the pause and syncs if a sync is due.
    fn poll(&mut self) -> Option<Report> {
        let first = self.engine.poll(self.now);
        self.now += PAUSE;
        first.or_else(|| self.engine.poll(self.now))
    }

    /// Advances the clock until a sync is done.
    fn sync(&mut self) -> Report {
        let report = (0..3).find_map(|_| {
            self.now += Duration::from_secs(60);
            self.engine.poll(self.now)
        });
        report.unwrap()
    }

    fn installed(&self) -> Vec<P::Object> {
        let kernel = self.kernels.v4.get();
        kernel.memory.objects().cloned().collect()
    }

    fn attempts(&self, object: &P::Object) -> usize {
        self.kernels.v4.get().memory.rejections(object)
    }

    /// Returns the keys of the objects in which the kernel differs from a plan.
    fn difference(&self, plan: &[P::Object]) -> BTreeSet<String> {
        let kernel = self.kernels.v4.get();
        let edits = diff(kernel.memory.objects().cloned(), plan);
        edits
            .iter()
            .map(|edit| format!("{:?}", edit.key()))
            .collect()
    }
}

/// Asserts that an object that the kernel rejects does not affect other objects.
fn assert_isolated<P>(errno: i32, atomicity: Atomicity)
where
    P: ModePlanner,
    P::Object: Send + Sync + std::fmt::Debug,
{
    let [good, bad] = [service("good", 1, 3), service("bad", 2, 3)];
    let all = || [good.events(), bad.events()].concat();
    let plan_of_good = plan::<P>(good.events());
    let plan_of_all = plan::<P>(all());
    let of_bad = diff(plan_of_good, &plan_of_all);
    for edit in &of_bad {
        let object = edit.object();
        let mut proxy = Proxy::<P>::start(all());
        {
            let mut kernel = proxy.kernels.v4.get();
            kernel.memory.set_atomicity(atomicity);
            kernel.memory.reject(object.clone(), errno);
        }
        let report = proxy.engine.poll(proxy.now).unwrap();
        assert!(report.is_success(), "{errno}, {object:?}: {report}");
        let missing = BTreeSet::from([format!("{:?}", object.key())]);
        assert_eq!(proxy.difference(&plan_of_all), missing, "{errno}");
        let [rejected] = &*report.families[0].rejected else {
            panic!("one object: {report:?}");
        };
        let reason = (
            rejected.reason.errno,
            rejected.reason.cause == Cause::Conflict,
        );
        assert_eq!(reason, (Some(errno), matches!(errno, 2 | 17)));
        if let Some(owner) = &rejected.owner {
            assert_eq!(&*owner.service, "bad");
        }
        assert_eq!(proxy.engine.rejected_count(Family::V4), 1);

        // A change of another Service does not resend the object.
        let sent = proxy.attempts(object);
        apply(&mut proxy.engine, service("good", 1, 2).events());
        proxy.poll().unwrap();
        assert!(proxy.now < Duration::from_secs(1));
        assert_eq!(proxy.attempts(object), sent);

        // The object is resent after the backoff and reported once.
        let mut times = 0;
        while proxy.now < Duration::from_secs(60) {
            let before = proxy.attempts(object);
            if let Some(report) = proxy.poll() {
                assert!(report.is_success());
                assert!(
                    report.families[0].rejected.is_empty(),
                    "the rejection was reported before"
                );
            }
            times += usize::from(proxy.attempts(object) > before);
        }
        assert!((3..=6).contains(&times), "{times} attempts in a minute");

        // When the kernel accepts the object, nothing is missing.
        proxy.kernels.v4.get().memory.accept(object);
        let next = proxy.engine.next_deadline().unwrap();
        proxy.now = next.max(proxy.now);
        proxy.poll();
        let now = plan::<P>([service("good", 1, 2).events(), bad.events()].concat());
        assert_eq!(proxy.difference(&now), BTreeSet::new());
        assert_eq!(proxy.engine.rejected_count(Family::V4), 0);
    }
}

#[test]
fn one_rejected_object_does_not_affect_others_in_mode_nftables() {
    for errno in ERRNOS {
        assert_isolated::<nftables::Planner>(errno, Atomicity::NamesFirst);
    }
    assert_isolated::<nftables::Planner>(EINVAL, Atomicity::NamesNone);
}

#[test]
fn one_rejected_object_does_not_affect_others_in_mode_iptables() {
    for errno in ERRNOS {
        assert_isolated::<iptables::Planner>(errno, Atomicity::NamesFirst);
    }
    assert_isolated::<iptables::Planner>(EINVAL, Atomicity::NamesNone);
}

#[test]
fn one_rejected_object_does_not_affect_others_in_mode_ipvs() {
    for errno in ERRNOS {
        assert_isolated::<ipvs::Planner>(errno, Atomicity::Single);
    }
}

/// Returns the real server of the last endpoint of Service `bad`.
fn endpoint_of_bad() -> vipline_ipvs::Object {
    let objects = plan::<ipvs::Planner>(service("bad", 2, 3).events());
    let reals = objects.into_iter().filter_map(|object| match object {
        ipvs::Object::Server(real @ vipline_ipvs::Object::Destination(..)) => Some(real),
        _ => None,
    });
    reals.last().unwrap()
}

#[test]
fn a_change_of_a_service_resends_its_rejected_objects_at_once() {
    let bad: ipvs::Object = endpoint_of_bad().into();
    let events = [
        service("good", 1, 1).events(),
        service("bad", 2, 3).events(),
    ];
    let mut proxy = Proxy::<ipvs::Planner>::start(events.concat());
    proxy.kernels.v4.get().memory.reject(bad.clone(), EINVAL);
    proxy.engine.poll(proxy.now);
    for _ in 0..100 {
        proxy.poll();
    }
    // Without a change of the Service the next attempt is far in the future.
    assert!(proxy.engine.next_deadline().unwrap() > proxy.now + PAUSE);
    let sent = proxy.attempts(&bad);
    apply(&mut proxy.engine, service("good", 1, 2).events());
    proxy.poll().unwrap();
    assert_eq!(proxy.attempts(&bad), sent);
    let with_another = service("bad", 2, 3).endpoint([10, 1, 9, 9].into(), fixtures::OTHER_NODE);
    apply(&mut proxy.engine, with_another.events());
    proxy.poll().unwrap();
    assert_eq!(proxy.attempts(&bad), sent + 1);

    // Without the endpoint nothing is rejected any more.
    apply(&mut proxy.engine, service("bad", 2, 1).events());
    let report = proxy.poll().unwrap();
    assert!(report.is_success());
    assert_eq!(proxy.engine.rejected_count(Family::V4), 0);
    assert!(proxy.engine.poll(proxy.now).is_none());
    let next = proxy.engine.next_deadline();
    assert!(
        next.is_none_or(|next| next > proxy.now + 2 * PAUSE),
        "{next:?}"
    );
}

#[test]
fn a_rejected_base_object_fails_every_sync() {
    let base = plan::<nftables::Planner>([]);
    let is_base_chain = |object: &&Nft| matches!(object, Nft::Chain(chain) if chain.base.is_some());
    let chain = base.iter().find(is_base_chain).unwrap();
    let mut proxy = Proxy::<nftables::Planner>::start(service("good", 1, 1).events());
    proxy.kernels.v4.get().memory.reject(chain.clone(), EINVAL);
    for _ in 0..3 {
        let report = proxy.poll().unwrap();
        let (_, error) = report.errors().next().unwrap();
        assert!(matches!(error, Error::Rejected { .. }), "{error}");
        assert!(!report.is_success());
        assert!(proxy.engine.poll(proxy.now).is_none());
        proxy.now += Duration::from_secs(60);
    }
    proxy.kernels.v4.get().memory.accept(chain);
    assert!(proxy.poll().unwrap().is_success());
}

#[test]
fn a_rejection_names_its_service_and_its_object() {
    let bad: ipvs::Object = {
        let objects = plan::<ipvs::Planner>(web_with("10.96.0.10", 1).events());
        let is_real = |object: &&ipvs::Object| {
            matches!(
                object,
                ipvs::Object::Server(vipline_ipvs::Object::Destination(..))
            )
        };
        objects.iter().find(is_real).unwrap().clone()
    };
    let mut proxy = Proxy::<ipvs::Planner>::start(web_with("10.96.0.10", 1).events());
    proxy.kernels.v4.get().memory.reject(bad, EINVAL);
    let report = proxy.engine.poll(proxy.now).unwrap();
    let text = report.families[0].rejected[0].to_string();
    assert!(
        text.starts_with("default/web:tcp-80: -a -t 10.96.0.10:80 -r 10.1.0.1:8080"),
        "{text}"
    );
}
