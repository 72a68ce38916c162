//! The Services of rejected objects, and differences that omit known rejections.

use std::time::Duration;

use proxy_core::backend::{iptables, ipvs, nftables};
use proxy_core::{Event, Family, KnownRejections};
use testkit::generate::ServiceBuilder;
use vipline_reconcile::{Edit, Keyed, diff};
use vipline_service_model::api;

use super::{EINVAL, Proxy};
use crate::fixtures::{self, MemoryKernels, ModePlanner, web_with};

const EBUSY: i32 = 16;

fn other() -> ServiceBuilder {
    let builder = ServiceBuilder::new("other")
        .cluster_ip([10, 96, 0, 20].into())
        .port(api::TransportProtocol::Tcp, 80, 8080);
    builder.endpoint([10, 1, 7, 1].into(), fixtures::OTHER_NODE)
}

fn web() -> ServiceBuilder {
    web_with("10.96.0.10", 3)
}

/// Returns an engine that has synced once.
fn synced<P>(events: Vec<Event>) -> Proxy<P>
where
    P: ModePlanner,
    P::Object: Send + Sync,
{
    let mut proxy = Proxy::start(events);
    assert!(proxy.engine.poll(Duration::ZERO).unwrap().is_success());
    proxy
}

/// Asserts that each object that the kernel does not remove names its Service.
fn assert_removals_are_owned<P>()
where
    P: ModePlanner,
    P::Object: Send + Sync + std::fmt::Debug,
{
    let both = || [web().events(), other().events()].concat();
    let name = web().service().metadata.object_name();
    let mut after = synced::<P>(both());
    let before = after.installed();
    after.engine.apply(Event::ServiceDeleted(name.clone()));
    after.sync();
    let removed = diff(before, &after.installed());
    let removed: Vec<_> = removed
        .iter()
        .filter(|edit| matches!(edit, Edit::Remove(_)))
        .map(Edit::object)
        .collect();
    assert!(!removed.is_empty());
    for object in removed {
        let mut proxy = synced::<P>(both());
        proxy.kernels.v4.get().memory.reject(object.clone(), EBUSY);
        proxy.engine.apply(Event::ServiceDeleted(name.clone()));
        let report = proxy.sync();
        assert!(report.is_success(), "{report}");
        let [rejected] = &*report.families[0].rejected else {
            panic!("one object: {report:?}");
        };
        assert!(rejected.is_removal);
        let owner = rejected.owner.as_ref().map(|port| port.service_name());
        assert_eq!(owner.as_ref(), Some(&name), "{rejected}");
        let all = proxy.engine.rejected_objects();
        assert_eq!(all, [(Family::V4, rejected.clone())]);
        // The object is reported until the kernel has removed it.
        proxy.kernels.v4.get().memory.accept(object);
        proxy.sync();
        assert_eq!(proxy.engine.rejected_objects(), []);
    }
}

#[test]
fn a_rejected_removal_names_its_former_service_in_every_mode() {
    assert_removals_are_owned::<nftables::Planner>();
    assert_removals_are_owned::<iptables::Planner>();
    assert_removals_are_owned::<ipvs::Planner>();
}

/// Asserts that a difference without rejected objects still shows drift.
fn assert_difference_omits_rejections<P>()
where
    P: ModePlanner,
    P::Object: Send + Sync + std::fmt::Debug,
{
    let both = || [web().events(), other().events()].concat();
    let with_both = synced::<P>(both()).installed();
    let without = synced::<P>(other().events()).installed();
    let of_web = diff(without.clone(), &with_both);
    let is_added = |edit: &&Edit<P::Object>| matches!(edit, Edit::Add(_));
    let bad = of_web.iter().rfind(is_added).unwrap().object();
    let kernels = MemoryKernels::<P::Object>::default();
    kernels.v4.get().memory.reject(bad.clone(), EINVAL);
    let mut proxy = Proxy::<P>::over(kernels, both());
    assert!(proxy.engine.poll(Duration::ZERO).unwrap().is_success());
    let mut known = KnownRejections::default();
    for (family, rejected) in proxy.engine.rejected_objects() {
        known.insert(family, rejected.is_removal, rejected.object.clone());
    }
    // Another process compares the kernel with the plan.
    let mut other_engine = Proxy::<P>::over(proxy.kernels.clone(), both()).engine;
    let all = other_engine.difference().unwrap();
    assert_eq!((all.edits, all.rejected), (1, 0), "{all}");
    let rest = other_engine.difference_except(&known).unwrap();
    assert_eq!((rest.edits, rest.rejected), (0, 1), "{rest}");
    assert_eq!(rest.script, "");
    let lost = without.iter().find(|object| object.key() != bad.key());
    let lost = Edit::Remove(lost.unwrap().clone());
    proxy.kernels.v4.get().memory.edit_externally(lost).unwrap();
    let drift = other_engine.difference_except(&known).unwrap();
    assert_eq!((drift.edits, drift.rejected), (1, 1), "{drift}");
    // Without a known rejection the missing object is part of the difference.
    let removal = KnownRejections::default();
    let drift = other_engine.difference_except(&removal).unwrap();
    assert_eq!((drift.edits, drift.rejected), (2, 0), "{drift}");
}

#[test]
fn a_difference_omits_known_rejections_and_shows_drift_in_every_mode() {
    assert_difference_omits_rejections::<nftables::Planner>();
    assert_difference_omits_rejections::<iptables::Planner>();
    assert_difference_omits_rejections::<ipvs::Planner>();
}
