//! Laws that hold for any events in any order, and limits on the number of objects and
//! edits.
#![cfg(all(feature = "ipvs", feature = "nftables"))]

mod fixtures;

use std::collections::HashSet;
use std::time::Duration;

use fixtures::{Kernels, MemoryKernels, apply, sync, web, web_with, with_endpoints};
use proptest::prelude::*;
use proxy_core::backend::{iptables, ipvs, nftables};
use proxy_core::{
    Address, Config, Context, Difference, Engine, Event, Family, FamilyReport, Intervals, Outcome,
    Planner, PortObjects, Report, Trigger,
};
use testkit::generate::{Stack, cluster};
use vipline_iptables::Restore;
use vipline_nftables::Object;
use vipline_reconcile::{Edit, Keyed};
use vipline_service_model::arbitrary::{self, Dice};
use vipline_service_model::{DetectLocal, ServicePort, api};

/// Returns the configuration of an engine that syncs on every poll.
fn config() -> Config {
    let min = Duration::ZERO;
    Config {
        node_name: arbitrary::NODE.into(),
        detect_local: DetectLocal::NodeCidr,
        intervals: Intervals {
            min,
            ..Intervals::default()
        },
        ..Config::default()
    }
}

/// Plans the base objects and all service ports without a history. Claims to one
/// address are ordered by kind, then by the age of the Service.
fn plan_from_scratch<P: Planner>(engine: &Engine, config: &Config) -> String {
    let store = engine.store();
    let mut text = String::new();
    for &family in &config.families {
        let cidrs = store.service_cidrs(family);
        let cx = Context::new(config, &store.node(), cidrs, family)
            .with_endpoints(store.endpoints(family));
        let mut objects = P::base(&cx);
        let mut claims = Vec::new();
        for port in store.ports().filter(|port| port.family == family) {
            let wants = P::port(&cx, port);
            assert_unique_keys::<P>(&wants);
            // A service port without an address may get the address at any time.
            let claimed_by_any = wants.claims.iter().flat_map(|claim| &claim.objects);
            objects.extend(
                claimed_by_any
                    .filter(|it| P::is_removal_delayed(it))
                    .cloned(),
            );
            objects.extend(wants.own);
            let ranked = wants.claims.into_iter();
            claims.extend(ranked.map(|claim| (rank(port, claim.address), &port.name, claim)));
        }
        claims.sort_by(|one, other| (one.0, one.1).cmp(&(other.0, other.1)));
        let mut claimed = HashSet::new();
        claims.retain(|(_, _, claim)| claimed.insert(claim.address));
        let claimed = claims.into_iter().flat_map(|(_, _, claim)| claim.objects);
        objects.extend(claimed);
        let mut seen = HashSet::new();
        objects.retain(|object| seen.insert(format!("{:?}", object.key())));
        text += &P::listing(family, objects.iter());
    }
    text
}

/// Returns the precedence of a claim by the kind of its address. 0 is the highest.
fn rank(port: &ServicePort, address: Address) -> usize {
    let lists = [
        &[port.cluster_ip][..],
        &port.load_balancer_ips,
        &port.external_ips,
    ];
    let at = |ip, number| {
        lists
            .iter()
            .take_while(|_| number == port.port)
            .position(|list| list.contains(&ip))
    };
    match address {
        Address::Ip(ip, _, number) => at(ip, number).unwrap_or(lists.len()),
        Address::NodePort(..) => lists.len(),
    }
}

/// Asserts that no object is in an address twice or is wanted elsewhere, because a
/// driver treats the objects of an address as a unit.
fn assert_unique_keys<P: Planner>(wants: &PortObjects<P::Object>) {
    let mut keys: HashSet<_> = wants.own.iter().map(Keyed::key).collect();
    let claimed = wants.claims.iter().flat_map(|claim| &claim.objects);
    for object in claimed.filter(|object| !P::is_removal_delayed(object)) {
        let key = format!("{:?}", object.key());
        assert!(keys.insert(object.key()), "{key} is wanted twice");
    }
}

/// Returns the objects of both kernels as text.
fn installed<P: Planner>(kernels: &MemoryKernels<P::Object>) -> String
where
    P::Object: Send + Sync + 'static,
{
    let families = Family::ALL.into_iter();
    families
        .map(|family| {
            let kernel = kernels.of(family).get();
            P::listing(family, kernel.memory.objects())
        })
        .collect()
}

/// Returns the number of installed objects, without those that persist until a restart.
fn count_required<P: Planner>(kernels: &MemoryKernels<P::Object>) -> usize
where
    P::Object: Send + Sync + 'static,
{
    let families = Family::ALL.into_iter();
    families
        .map(|family| {
            let kernel = kernels.of(family).get();
            let objects = kernel.memory.objects();
            objects
                .filter(|object| !P::is_removal_delayed(object))
                .count()
        })
        .sum()
}

/// Syncs until a sync succeeds.
fn sync_until_success(engine: &mut Engine, now: &mut Duration) -> Report {
    for _ in 0..100 {
        let report = sync(engine, now);
        if report.is_success() {
            return report;
        }
    }
    panic!("the failures do not end");
}

/// Creates an engine and applies all events before its first sync.
fn start<P: Planner + 'static>(kernels: &MemoryKernels<P::Object>, events: &[Event]) -> Engine
where
    P::Object: Send + Sync + 'static,
{
    let mut engine = kernels.engine_of::<P>(config());
    apply(&mut engine, events.iter().cloned());
    engine.apply(Event::Synced);
    engine
}

fn commits<T: Keyed + Send + Sync + 'static>(kernels: &MemoryKernels<T>) -> usize {
    let families = Family::ALL.into_iter();
    families
        .map(|family| kernels.of(family).get().memory.commits())
        .sum()
}

/// Makes the next commit of a random family fail after some edits.
fn fail_one<T: Keyed + Send + Sync + 'static>(kernels: &MemoryKernels<T>, dice: &mut Dice) {
    let family = dice.pick(&Family::ALL);
    let applied = usize::from(dice.roll(40));
    kernels.of(family).get().memory.fail_after(applied);
}

/// Removes a random object from a kernel and requests a resync.
fn interfere<T>(kernels: &MemoryKernels<T>, engine: &mut Engine, dice: &mut Dice)
where
    T: Keyed + Send + Sync + 'static,
{
    let mut kernel = kernels.of(dice.pick(&Family::ALL)).get();
    let mut objects: Vec<T> = kernel.memory.objects().cloned().collect();
    objects.sort_by_cached_key(|object| format!("{:?}", object.key()));
    let place = usize::from(dice.roll(200));
    if let Some(victim) = objects.into_iter().nth(place) {
        kernel
            .memory
            .edit_externally(Edit::Remove(victim))
            .expect("the object exists");
        drop(kernel);
        engine.request_resync();
    }
}

/// Returns random events of any objects. `roll` is below 8.
fn any(dice: &mut Dice, roll: u8) -> Vec<Event> {
    // Few random Services have endpoints.
    match roll {
        0..5 => vec![dice.event()],
        _ => fixtures::random_service(dice),
    }
}

/// Returns random events of Services, most of which claim the same addresses. `roll` is
/// below 8.
fn rivals(dice: &mut Dice, roll: u8) -> Vec<Event> {
    match roll {
        0..6 => vec![fixtures::random_contender(dice)],
        _ => fixtures::random_service(dice),
    }
}

/// Applies a random history of events, failures and interference, and checks the final
/// state.
fn play<P: Planner + 'static>(seed: u64, generate: fn(&mut Dice, u8) -> Vec<Event>)
where
    P::Object: Send + Sync + 'static,
{
    let mut dice = Dice::from_seed(seed);
    let kernels = MemoryKernels::<P::Object>::default();
    let mut engine = kernels.engine_of::<P>(config());
    let mut now = Duration::ZERO;
    let mut events = Vec::new();
    engine.apply(Event::Synced);
    for _ in 0..60 {
        match dice.roll(12) {
            roll @ 0..8 => {
                let new_events = generate(&mut dice, roll);
                events.extend(new_events.iter().cloned());
                apply(&mut engine, new_events);
            }
            8 => fail_one(&kernels, &mut dice),
            9 => interfere(&kernels, &mut engine, &mut dice),
            _ => {
                now += Duration::from_secs(1);
                drop(engine.poll(now));
            }
        }
    }
    engine.request_resync();
    sync_until_success(&mut engine, &mut now);
    assert_eq!(installed::<P>(&kernels), engine.desired());
    let difference = engine.difference().expect("a dump");
    assert_eq!(difference, Difference::default());

    // A restart removes only unused chains.
    let before = count_required::<P>(&kernels);
    let mut engine = start::<P>(&kernels, &events);
    sync_until_success(&mut engine, &mut now);
    assert_eq!(count_required::<P>(&kernels), before);
    assert_eq!(
        installed::<P>(&kernels),
        plan_from_scratch::<P>(&engine, &config())
    );

    // Another restart changes nothing.
    let before = commits(&kernels);
    let mut engine = start::<P>(&kernels, &events);
    let report = sync_until_success(&mut engine, &mut now);
    let idle = |outcome: &Outcome| outcome.edits == 0 && outcome.dumped;
    let is_idle = |done: &FamilyReport| done.outcome.as_ref().is_ok_and(idle);
    assert!(report.families.iter().all(is_idle), "{report}");
    assert_eq!(commits(&kernels), before);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_history_ends_in_the_plan_from_scratch_in_mode_nftables(seed: u64) {
        play::<nftables::Planner>(seed, any);
    }

    #[test]
    fn any_history_ends_in_the_plan_from_scratch_in_mode_iptables(seed: u64) {
        play::<iptables::Planner>(seed, any);
    }

    #[test]
    fn any_history_ends_in_the_plan_from_scratch_in_mode_ipvs(seed: u64) {
        play::<ipvs::Planner>(seed, any);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_history_of_contested_addresses_ends_in_the_plan_from_scratch(seed: u64) {
        play::<nftables::Planner>(seed, rivals);
        play::<iptables::Planner>(seed, rivals);
        play::<ipvs::Planner>(seed, rivals);
    }
}

#[test]
fn a_history_in_which_the_only_user_of_a_chain_loses_its_node_port_ends_in_the_plan() {
    play::<nftables::Planner>(3_981_756_651_219_154_296, any);
}

#[test]
fn replacing_an_endpoint_edits_only_its_service() {
    let kernels = Kernels::default();
    let mut engine = kernels.engine(config());
    let mut now = Duration::ZERO;
    for plan in cluster(20, 5, Stack::V4) {
        apply(&mut engine, plan.events());
    }
    let endpoints = ["10.1.0.1", "10.1.0.2", "10.1.0.3", "10.1.0.4", "10.1.0.5"];
    apply(
        &mut engine,
        with_endpoints(web("10.97.0.1"), &endpoints).events(),
    );
    engine.apply(Event::Synced);
    assert!(sync(&mut engine, &mut now).is_success());
    assert!(engine.poll(now).is_none());

    for (endpoints, edits) in [
        // The last endpoint in order is replaced: one slot changes.
        (
            ["10.1.0.1", "10.1.0.2", "10.1.0.3", "10.1.0.4", "10.1.0.9"],
            1,
        ),
        // The first endpoint is removed and a last one is added: all slots change.
        (
            ["10.1.0.2", "10.1.0.3", "10.1.0.4", "10.1.0.9", "10.1.0.10"],
            5,
        ),
    ] {
        let commits = kernels.v4.get().memory.commits();
        apply(
            &mut engine,
            with_endpoints(web("10.97.0.1"), &endpoints).events(),
        );
        let report = engine.poll(now).expect("a change is due");
        assert_eq!((report.trigger, report.ports), (Trigger::Change, 1));
        assert!(engine.poll(now).is_none());
        let kernel = kernels.v4.get();
        assert_eq!(kernel.memory.commits(), commits + 1);
        assert_eq!(kernel.last_edits.len(), edits);
        for edit in &kernel.last_edits {
            let Edit::Change {
                new: Object::Element(element),
                ..
            } = edit
            else {
                panic!("not a change of an element: {edit:?}");
            };
            assert_eq!(element.set().name.as_str(), "backends");
            assert!(
                element.key_bytes().starts_with(&[10, 97, 0, 1]),
                "{element}"
            );
        }
    }
    assert_eq!(kernels.v4.get().memory.dumps(), 1);
    assert_eq!(kernels.v6.get().memory.commits(), 1);
}

/// Returns the number of rules in the IPv4 table nat: in total, and written by the
/// sync.
fn nat_rules(report: &Report) -> (usize, usize) {
    let outcome = report.families[0]
        .outcome
        .as_ref()
        .expect("the sync succeeds");
    let nat = outcome.rules.iter().find(|rules| rules.table == "nat");
    let nat = nat.expect("the table has rules");
    (nat.total, nat.written)
}

#[test]
fn a_change_in_mode_iptables_writes_only_its_own_chains_in_any_cluster_size() {
    let document = |services| {
        let kernels = MemoryKernels::<vipline_iptables::Object>::default();
        let mut engine = kernels.engine_of::<iptables::Planner>(config());
        let mut now = Duration::ZERO;
        for plan in cluster(services, 5, Stack::V4) {
            apply(&mut engine, plan.events());
        }
        apply(&mut engine, web_with("10.97.0.1", 5).events());
        engine.apply(Event::Synced);
        let (loaded, written) = nat_rules(&sync(&mut engine, &mut now));
        assert_eq!(
            (loaded, written),
            (5 + (services + 1) * (2 + 3 * 5 - 1), loaded)
        );
        let endpoints = ["10.1.0.1", "10.1.0.2", "10.1.0.3", "10.1.0.4", "10.1.0.9"];
        let replaced = with_endpoints(web("10.97.0.1"), &endpoints);
        let mut documents = Vec::new();
        let moved = web_with("10.97.0.2", 5);
        for events in [replaced.events(), moved.events()] {
            apply(&mut engine, events);
            let report = sync(&mut engine, &mut now);
            let kernel = kernels.v4.get();
            let restore = Restore::from_edits(&kernel.last_edits);
            documents.push((restore.chains(), restore.to_string()));
            // A Service with a new address has as many rules as before.
            let (total, written) = nat_rules(&report);
            assert_eq!(total, loaded);
            let rules = |line: &&str| line.starts_with("-A ") || line.starts_with("-I ");
            assert_eq!(
                written,
                documents[documents.len() - 1]
                    .1
                    .lines()
                    .filter(rules)
                    .count()
            );
        }
        documents
    };
    let few = document(300);
    // The chain of the Service, that of the removed endpoint, and that of the added
    // endpoint.
    assert_eq!(few[0].0, 3, "{}", few[0].1);
    assert_eq!(few, document(10_000));
    assert!(!few[0].1.contains("KUBE-SERVICES"), "{}", few[0].1);
    // One rule is removed, and one is added.
    assert_eq!(few[1].1.matches("KUBE-SERVICES").count(), 2, "{}", few[1].1);
}

#[test]
fn a_changed_number_of_endpoints_moves_the_address_to_another_set_or_chain() {
    let kernels = Kernels::default();
    let mut engine = kernels.engine(config());
    let mut now = Duration::ZERO;
    let mut replace = |endpoints| {
        apply(&mut engine, web_with("10.97.0.1", endpoints).events());
        engine.apply(Event::Synced);
        sync(&mut engine, &mut now);
        kinds(&kernels.v4.get().last_edits)
    };
    replace(3);
    assert_eq!(
        replace(2),
        ["add slots-2", "remove backends", "remove slots-3"]
    );
    replace(9);
    assert_eq!(
        replace(10),
        ["add backends", "add lb-10", "change dispatch-ips"]
    );
    assert_eq!(
        replace(9),
        ["change dispatch-ips", "remove backends"],
        "the chain stays"
    );

    // The next start removes only the chain.
    let mut engine = kernels.engine(config());
    apply(&mut engine, web_with("10.97.0.1", 9).events());
    engine.apply(Event::Synced);
    sync(&mut engine, &mut now);
    assert_eq!(kinds(&kernels.v4.get().last_edits), ["remove lb-10"]);
}

/// Returns the kind and the object name of each edit, sorted.
fn kinds(edits: &[Edit<Object>]) -> Vec<String> {
    let mut kinds: Vec<_> = edits
        .iter()
        .map(|edit| match edit {
            Edit::Add(object) => format!("add {}", name_of(object)),
            Edit::Change { new, .. } => format!("change {}", name_of(new)),
            Edit::Remove(old) => format!("remove {}", name_of(old)),
        })
        .collect();
    kinds.sort();
    kinds
}

/// Returns the name of an object. An element has the name of its set.
fn name_of(object: &Object) -> &str {
    match object {
        Object::Element(element) => element.set().name.as_str(),
        Object::Chain(chain) => chain.name.as_str(),
        Object::Set(set) => set.name.as_str(),
        other => other.table().name.as_str(),
    }
}

#[test]
fn the_number_of_chains_and_sets_does_not_depend_on_the_number_of_services() {
    let count = |services| {
        let kernels = Kernels::default();
        // A node without endpoints has no hairpin elements.
        let mut engine = kernels.engine(Config::default());
        for plan in cluster(services, 5, Stack::V4) {
            apply(&mut engine, plan.events());
        }
        engine.apply(Event::Synced);
        let mut now = Duration::ZERO;
        assert!(sync(&mut engine, &mut now).is_success());
        let kernel = kernels.v4.get();
        let (elements, others): (Vec<_>, Vec<_>) = kernel
            .memory
            .objects()
            .partition(|object| matches!(object, Object::Element(_)));
        assert_eq!(elements.len(), services * (5 + 2));
        others.len()
    };
    assert_eq!(count(10), count(10_000));
}

#[test]
fn the_number_of_chains_and_sets_is_constant_when_services_use_every_feature() {
    let count = |services| {
        let kernels = Kernels::default();
        let mut engine = kernels.engine(config());
        let mut now = Duration::ZERO;
        for (number, plan) in (0_u16..).zip(cluster(services, 3, Stack::Dual)) {
            let mut service = plan.service();
            let spec = &mut service.spec;
            spec.kind = api::ServiceType::LoadBalancer;
            spec.ports[0].node_port = 30_000 + number;
            spec.load_balancer_source_ranges = vec!["192.168.0.0/16".into()];
            if number % 2 == 0 {
                spec.external_traffic_policy = api::TrafficPolicy::Local;
            }
            // Each Service with affinity has its own maps and chains.
            if number < 12 && number % 3 == 0 {
                spec.session_affinity = api::Affinity::ClientIp;
            }
            let [high, low] = number.to_be_bytes();
            spec.external_ips = vec![format!("198.18.{high}.{low}")];
            service.status.load_balancer.ingress = vec![api::Ingress {
                ip: format!("203.0.{high}.{low}"),
                ..api::Ingress::default()
            }];
            apply(&mut engine, [service.into()]);
            apply(&mut engine, plan.slices().into_iter().map(Event::from));
        }
        engine.apply(Event::Synced);
        assert!(sync(&mut engine, &mut now).is_success());
        let kernel = kernels.v4.get();
        let objects = kernel.memory.objects();
        objects
            .filter(|object| !matches!(object, Object::Element(_)))
            .count()
    };
    assert_eq!(count(12), count(1_200));
}

#[test]
fn the_oldest_service_that_claims_an_address_gets_it() {
    let older = with_endpoints(web("10.96.0.10"), &["10.1.0.1", "10.1.0.2"]);
    let younger = with_endpoints(
        testkit::generate::Plan::new("a-usurper")
            .at("10.96.0.10".parse().unwrap())
            .port(api::Protocol::Tcp, 80, 9090),
        &["10.2.0.1", "10.2.0.2", "10.2.0.3"],
    );
    let events = |plan: &testkit::generate::Plan, created: &str| {
        let mut service = plan.service();
        service.metadata.creation_timestamp = Some(created.into());
        let slices = plan.slices().into_iter().map(Event::from);
        [Event::from(service)]
            .into_iter()
            .chain(slices)
            .collect::<Vec<_>>()
    };
    let (older, younger) = (
        events(&older, "2025-01-01T00:00:00Z"),
        events(&younger, "2026-01-01T00:00:00Z"),
    );
    let mut plans = Vec::new();
    for events in [[older.clone(), younger.clone()], [younger, older]] {
        let mut engine = Kernels::default().engine(fixtures::config());
        apply(&mut engine, events.into_iter().flatten());
        engine.apply(Event::Synced);
        plans.push(engine.desired());
    }
    assert_eq!(plans[0], plans[1]);
    let elements = |set: &str| {
        let listed = plans[0].split(&format!("set {set} {{")).nth(1);
        let listed = listed.and_then(|rest| rest.split("\n\t}").next());
        listed.is_some_and(|listed| listed.contains("10.96.0.10 . tcp . 80"))
    };
    assert!(elements("slots-2") && !elements("slots-3"), "{}", plans[0]);
    assert!(plans[0].contains("10.96.0.10 . tcp . 80 . 0 : 10.1.0.1 . 8080"));
    assert!(!plans[0].contains("10.2.0.1"));
}

#[test]
fn a_service_with_300_endpoints_has_300_slots() {
    let addresses: Vec<_> = (0..300)
        .map(|n| format!("10.1.{}.{}", n / 250, n % 250))
        .collect();
    let addresses: Vec<_> = addresses.iter().map(String::as_str).collect();
    let mut engine = Kernels::default().engine(fixtures::config());
    apply(
        &mut engine,
        with_endpoints(web("10.96.0.10"), &addresses).events(),
    );
    engine.apply(Event::Synced);
    let plan = engine.desired();
    assert!(
        plan.contains("numgen random mod 300 map @backends"),
        "{plan}"
    );
    assert!(
        plan.contains("10.96.0.10 . tcp . 80 . 299 : 10.1.1.49 . 8080"),
        "{plan}"
    );
}

#[test]
fn the_services_that_a_cluster_depends_on_are_programmed_first() {
    let kernels = Kernels::default();
    let mut engine = kernels.engine(config());
    for (namespace, name, address) in [
        ("default", "a-shop", "10.96.0.30"),
        ("kube-system", "a-metrics-server", "10.96.0.20"),
        ("kube-system", "kube-dns", "10.96.0.10"),
        ("default", "kubernetes", "10.96.0.1"),
    ] {
        let mut service = web(address).service();
        service.metadata = api::ObjectMeta::named(namespace, name);
        engine.apply(service.into());
    }
    engine.apply(Event::Synced);
    sync(&mut engine, &mut Duration::from_secs(1));
    let kernel = kernels.v4.get();
    let addresses = kernel
        .last_edits
        .iter()
        .filter_map(|edit| match edit.object() {
            Object::Element(element) if element.set().name.as_str() == "active-cluster-ips" => {
                Some(element.to_string())
            }
            _ => None,
        });
    assert_eq!(
        addresses.collect::<Vec<_>>(),
        ["10.96.0.1", "10.96.0.10", "10.96.0.20", "10.96.0.30"]
    );
}
