//! Random histories of events, failures and interference.

use std::collections::HashSet;
use std::time::Duration;

use proptest::prelude::*;
use proxy_core::backend::{iptables, ipvs, nftables};
use proxy_core::{
    Address, Config, Context, Difference, Engine, Event, Family, FamilyReport, Mode, Outcome,
    Planner, PortObjects, Report,
};
use vipline_reconcile::{Edit, Keyed};
use vipline_service_model::ServicePort;
use vipline_service_model::arbitrary::Dice;

use super::config;
use crate::fixtures::{self, MemoryKernels, ModePlanner, apply, sync};

/// Number of histories in each mode.
const HISTORIES: u32 = 100;

/// Number of histories of contested addresses in each mode.
const CONTESTED_HISTORIES: u32 = 24;

/// Number of steps of a history: events, failures, foreign changes and syncs.
const STEPS: usize = 60;

/// Plans the base objects and all service ports without a history. Claims to one
/// address are ordered by kind, then by the age of the Service.
fn plan_from_scratch<P: ModePlanner>(engine: &Engine, config: &Config) -> String {
    let store = engine.store();
    let planner = P::of(config);
    let mut text = String::new();
    for &family in &config.engine.families {
        let cidrs = store.service_cidrs(family);
        let cx = Context::new(&config.engine, &store.node(), cidrs, family)
            .with_endpoints(store.endpoints(family));
        let mut objects = planner.base(&cx);
        let mut claims = Vec::new();
        for port in store.ports().filter(|port| port.family == family) {
            let wants = planner.port(&cx, port);
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
pub(super) fn installed<P: Planner>(kernels: &MemoryKernels<P::Object>) -> String
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
        if report.is_success() && report.is_complete {
            return report;
        }
    }
    panic!("the failures do not end");
}

/// Creates an engine and applies all events before its first sync.
fn start<P: ModePlanner>(kernels: &MemoryKernels<P::Object>, events: &[Event]) -> Engine
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
fn play<P: ModePlanner>(seed: u64, generate: fn(&mut Dice, u8) -> Vec<Event>)
where
    P::Object: Send + Sync + 'static,
{
    let mut dice = Dice::from_seed(seed);
    let kernels = MemoryKernels::<P::Object>::default();
    let mut engine = kernels.engine_of::<P>(config());
    let mut now = Duration::ZERO;
    let mut events = Vec::new();
    engine.apply(Event::Synced);
    for _ in 0..STEPS {
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

/// Plays random histories of a mode, and prints their number.
fn explore<P: ModePlanner>(mode: Mode, cases: u32, generate: fn(&mut Dice, u8) -> Vec<Event>)
where
    P::Object: Send + Sync + 'static,
{
    proptest!(ProptestConfig::with_cases(cases), |(seed: u64)| {
        play::<P>(seed, generate);
    });
    testkit::figures!(
        "mode {mode}: {cases} histories of {STEPS} steps end in the plan from scratch"
    );
}

#[test]
fn any_history_ends_in_the_plan_from_scratch_in_mode_nftables() {
    explore::<nftables::Planner>(Mode::Nftables, HISTORIES, any);
}

#[test]
fn any_history_ends_in_the_plan_from_scratch_in_mode_iptables() {
    explore::<iptables::Planner>(Mode::Iptables, HISTORIES, any);
}

#[test]
fn any_history_ends_in_the_plan_from_scratch_in_mode_ipvs() {
    explore::<ipvs::Planner>(Mode::Ipvs, HISTORIES, any);
}

#[test]
fn any_history_of_contested_addresses_ends_in_the_plan_from_scratch() {
    explore::<nftables::Planner>(Mode::Nftables, CONTESTED_HISTORIES, rivals);
    explore::<iptables::Planner>(Mode::Iptables, CONTESTED_HISTORIES, rivals);
    explore::<ipvs::Planner>(Mode::Ipvs, CONTESTED_HISTORIES, rivals);
}

#[test]
fn a_history_in_which_the_only_user_of_a_chain_loses_its_node_port_ends_in_the_plan() {
    play::<nftables::Planner>(3_981_756_651_219_154_296, any);
}
