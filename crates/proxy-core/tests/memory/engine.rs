//! When the engine syncs, the reports of syncs, and the handling of failures.

use std::net::IpAddr;
use std::time::Duration;

use proxy_core::backend::{ipvs, nftables};
use proxy_core::{Context, Engine, Event, Family, Planner, PortObjects, Report, Trigger};
use testkit::generate::ServiceBuilder;
use vipline_nftables::Object;
use vipline_reconcile::{Edit, Keyed, Memory};
use vipline_service_model::{NodePortAddresses, ObjectName, Scheduler, ServicePort, api};

use crate::fixtures::{Kernels, MemoryKernels, apply, config, service_cidr, web, with_endpoints};

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Returns an engine that has synced one Service with one endpoint at 100 s.
fn synced(kernels: &Kernels) -> Engine {
    let mut engine = kernels.engine(config());
    apply(
        &mut engine,
        with_endpoints(web("10.96.0.10"), &["10.1.0.1"]).events(),
    );
    engine.apply(Event::Synced);
    assert!(
        engine
            .poll(secs(100))
            .is_some_and(|report| report.is_success())
    );
    assert!(engine.poll(secs(100)).is_none());
    engine
}

/// Removes the element of a cluster IP from the IPv4 kernel without the engine.
fn interfere(kernels: &Kernels) {
    let mut kernel = kernels.v4.get();
    let is_cluster_ip = |object: &&Object| match object {
        Object::Element(element) => element.set().name.as_str() == "active-cluster-ips",
        _ => false,
    };
    let victim = kernel.memory.objects().find(is_cluster_ip).cloned();
    let victim = victim.expect("a cluster IP is programmed");
    kernel
        .memory
        .edit_externally(Edit::Remove(victim))
        .expect("the object exists");
}

/// Returns the number of IPv4 edits, and whether the sync dumped the kernel state.
fn outcome(report: &Report) -> (usize, bool) {
    let outcome = report.families[0].outcome.as_ref().expect("a success");
    (outcome.edits, outcome.dumped)
}

#[test]
fn the_kernel_is_compared_with_the_plan_after_the_maximum_interval() {
    let kernels = Kernels::default();
    let mut engine = synced(&kernels);
    interfere(&kernels);
    assert_eq!(engine.next_deadline(), Some(secs(3700)));
    assert!(engine.poll(secs(3699)).is_none());
    let report = engine.poll(secs(3700)).expect("the timer is due");
    assert_eq!(
        (report.trigger, outcome(&report)),
        (Trigger::Timer, (1, true))
    );
    assert_eq!(engine.difference().unwrap().edits, 0);
}

#[test]
fn a_planner_with_other_settings_changes_the_rules_of_all_services() {
    let kernels = MemoryKernels::default();
    let mut engine = kernels.engine_of::<ipvs::Planner>(config());
    let events = with_endpoints(web("10.96.0.10"), &["10.1.0.1"]).events();
    apply(&mut engine, events);
    engine.apply(Event::Synced);
    let report = engine.poll(secs(100)).expect("the first sync");
    assert!(report.is_success(), "{report}");
    let mut changed = config();
    // The same settings change nothing, and no other engine has this planner.
    assert!(engine.set_planner(ipvs::Planner::from(&changed)));
    assert!(!engine.is_queued());
    assert!(!engine.set_planner(nftables::Planner));
    changed.ipvs.scheduler = Scheduler::SourceHash;
    assert!(engine.set_planner(ipvs::Planner::from(&changed)));
    assert!(engine.poll(secs(101)).is_none());
    let report = engine.poll(secs(200)).expect("a sync was requested");
    assert!(outcome(&report).0 > 0, "{report}");
    assert!(engine.desired().contains("-A -t 10.96.0.10:80 -s sh"));
}

#[test]
fn the_kernel_is_compared_after_the_maximum_interval_also_if_services_change_more_often() {
    let kernels = Kernels::default();
    let mut engine = synced(&kernels);
    interfere(&kernels);
    let endpoints = ["10.1.0.2", "10.1.0.1"];
    for (number, at) in [600, 1_800, 3_000, 3_699].into_iter().enumerate() {
        apply(
            &mut engine,
            with_endpoints(web("10.96.0.10"), &endpoints[number % 2..][..1]).events(),
        );
        let report = engine.poll(secs(at)).expect("a change is due");
        assert_eq!(report.trigger, Trigger::Change);
        assert!(!outcome(&report).1, "{at}: {report}");
        // Starts the pause.
        assert!(engine.poll(secs(at)).is_none());
    }
    apply(
        &mut engine,
        with_endpoints(web("10.96.0.10"), &endpoints).events(),
    );
    let report = engine.poll(secs(3_701)).expect("a change is due");
    assert_eq!(report.trigger, Trigger::Change);
    assert!(outcome(&report).1, "{report}");
    assert!(engine.poll(secs(3_701)).is_none());
    assert_eq!(engine.difference().unwrap().edits, 0);
    // The next interval began with that sync.
    apply(
        &mut engine,
        with_endpoints(web("10.96.0.10"), &["10.1.0.1"]).events(),
    );
    let report = engine.poll(secs(7_300)).expect("a change is due");
    assert!(!outcome(&report).1, "{report}");
}

#[test]
fn a_requested_resync_compares_the_kernel_with_the_plan_at_once() {
    let kernels = Kernels::default();
    let mut engine = synced(&kernels);
    interfere(&kernels);
    engine.request_resync();
    let report = engine.poll(secs(101)).expect("a sync was requested");
    assert_eq!(
        (report.trigger, outcome(&report)),
        (Trigger::Change, (1, true))
    );
}

#[test]
fn a_failed_sync_is_retried_and_does_not_block_the_other_family() {
    let kernels = Kernels::default();
    let mut engine = synced(&kernels);
    kernels.v4.get().memory.fail_after(1);
    let builder = || web("10.96.0.10").cluster_ip("fd00:96::10".parse().unwrap());
    apply(
        &mut engine,
        with_endpoints(builder(), &["10.1.0.2", "10.1.0.3", "fd00:1::1"]).events(),
    );
    let report = engine.poll(secs(101)).expect("a change is due");
    assert!(!report.is_success());
    let errors: Vec<_> = report.errors().map(|(family, _)| family).collect();
    assert_eq!(errors, [Family::V4]);
    assert_eq!(
        report.to_string(),
        "IPv4: in-memory kernel: injected failure\nIPv6: 3 edits, 74 objects, without a dump"
    );
    assert!(engine.poll(secs(101)).is_none());
    assert_eq!(engine.next_deadline(), Some(secs(131)));
    let report = engine.poll(secs(131)).expect("a retry is due");
    assert_eq!(report.trigger, Trigger::Retry);
    assert!(report.is_success() && outcome(&report).1, "{report}");
    assert_eq!(engine.difference().unwrap().edits, 0);
}

/// A planner whose objects are its arguments as text.
#[derive(Clone, PartialEq)]
struct Show;

/// The text of a context and a service port.
#[derive(Clone, Debug, PartialEq)]
struct Shown(String);

impl Keyed for Shown {
    type Key<'a> = &'a str;

    fn key(&self) -> &str {
        &self.0
    }

    fn is_equivalent(&self, _: &Self) -> bool {
        true
    }
}

impl Planner for Show {
    type Object = Shown;

    fn base(&self, _: &Context) -> Vec<Shown> {
        Vec::new()
    }

    fn requires_replan(&self, before: &Context, after: &Context) -> bool {
        before != after
    }

    fn port(&self, cx: &Context, port: &ServicePort) -> PortObjects<Shown> {
        let text = format!("{} {port} {:?}", cx.family, cx.service_cidrs);
        vec![Shown(text)].into()
    }

    fn script<'a>(
        _: Family,
        edits: Vec<Edit<Shown>>,
        _: impl Iterator<Item = &'a Shown>,
    ) -> String {
        format!("{edits:?}")
    }

    fn listing<'a>(_: Family, objects: impl Iterator<Item = &'a Shown>) -> String {
        objects.map(|shown| &*shown.0).collect()
    }
}

#[test]
fn ports_are_replanned_when_their_context_changes() {
    let families = vec![Family::V4];
    let config = config().with_families(families);
    let mut engine = Engine::with_kernels(config.engine, Show, |_| Memory::new());
    apply(&mut engine, web("10.96.0.10").events());
    engine.apply(Event::Synced);
    assert_eq!(engine.desired(), "IPv4 10.96.0.10:80/TCP []");
    engine.apply(service_cidr(&["10.96.0.0/16"]));
    assert_eq!(engine.desired(), "IPv4 10.96.0.10:80/TCP [10.96.0.0/16]");
}

#[test]
fn no_sync_runs_before_the_initial_list_is_complete() {
    let kernels = Kernels::default();
    let mut engine = kernels.engine(config());
    apply(
        &mut engine,
        with_endpoints(web("10.96.0.10"), &["10.1.0.1"]).events(),
    );
    assert!(engine.poll(secs(100)).is_none());
    assert_eq!(engine.next_deadline(), None);
    engine.apply(Event::Synced);
    assert_eq!(engine.next_deadline(), Some(Duration::ZERO));
    let report = engine.poll(secs(100)).unwrap();
    assert_eq!((report.trigger, report.ports), (Trigger::Change, 1));
    let lines = [
        "IPv4: 74 edits, 74 objects, after a dump",
        "IPv6: 71 edits, 71 objects, after a dump",
    ];
    assert_eq!(report.to_string(), lines.join("\n"));
}

#[test]
fn a_pending_change_is_reported_as_queued() {
    let kernels = Kernels::default();
    let mut engine = kernels.engine(config());
    apply(&mut engine, web("10.96.0.10").events());
    assert!(!engine.is_queued(), "the initial list is not complete");
    engine.apply(Event::Synced);
    assert!(engine.is_queued());
    engine.poll(secs(100));
    assert!(!engine.is_queued());
    assert!(engine.poll(secs(100)).is_none());
    apply(&mut engine, web("10.96.0.10").events());
    assert!(!engine.is_queued(), "the applied objects are unchanged");
    apply(&mut engine, web("10.96.0.11").events());
    assert!(engine.is_queued());
}

#[test]
fn ipv6_link_local_addresses_trigger_a_sync_only_if_a_node_port_network_contains_them() {
    fn parsed(texts: &[&str]) -> Vec<IpAddr> {
        let texts = texts.iter();
        texts
            .map(|text| text.parse().expect("an address"))
            .collect()
    }
    let network = "fe80::/64".parse().expect("a network");
    for (node_port_addresses, expected) in [
        (NodePortAddresses::All, false),
        (NodePortAddresses::Within(vec![network]), true),
    ] {
        let mut engine =
            Kernels::default().engine(config().with_node_port_addresses(node_port_addresses));
        engine.set_addresses(parsed(&["192.0.2.1", "2001:db8::1"]));
        engine.apply(Event::Synced);
        engine.poll(secs(100));
        let with_link = ["fe80::1", "192.0.2.1", "2001:db8::1"];
        engine.set_addresses(parsed(&with_link));
        assert_eq!(engine.is_queued(), expected);
        // IPv4 link-local addresses count like any other address of the node.
        engine.set_addresses(parsed(&["169.254.20.10"]));
        assert!(engine.is_queued());
    }
}

#[test]
fn contested_addresses_are_counted_until_a_claiming_service_is_deleted() {
    let kernels = Kernels::default();
    let mut engine = synced(&kernels);
    let rival = ServiceBuilder::new("rival")
        .cluster_ip("10.96.0.10".parse().expect("an address"))
        .port(api::TransportProtocol::Tcp, 80, 8080);
    assert_eq!(engine.contested_count(), 0);
    apply(&mut engine, rival.events());
    assert!(engine.poll(secs(102)).is_some());
    assert_eq!(engine.contested_count(), 1);
    assert!(engine.poll(secs(102)).is_none());
    engine.apply(Event::ServiceDeleted(ObjectName::new("default", "rival")));
    assert!(engine.poll(secs(104)).is_some());
    assert_eq!(engine.contested_count(), 0);
}
