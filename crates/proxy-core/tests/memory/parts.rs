//! Large changes are spread over several syncs, and small changes precede them.

use std::collections::{BTreeMap, HashSet};
use std::net::Ipv4Addr;
use std::time::Duration;

use proxy_core::backend::{iptables, ipvs, nftables};
use proxy_core::{Config, Context, Engine, Event, Family, Intervals, Planner, PortObjects, Report};
use vipline_reconcile::Edit;
use vipline_service_model::arbitrary::Dice;
use vipline_service_model::{ObjectName, ServicePort, api};

use crate::fixtures::{self, MemoryKernels, ModePlanner, apply, web, with_endpoints};

/// Maximum number of syncs of a change.
const MAX_SYNCS: usize = 200;

/// Returns the maximum cost of a sync in edits. A small Service and the last part of a large
/// one may exceed the limit, and objects that addresses share are not counted.
fn max_cost<P: Planner>() -> f64 {
    2.0 * f64::from(u32::try_from(P::EDITS_PER_SYNC).expect("a few thousand"))
}

/// Returns the address 203.0.113.0 + `number`.
fn address(number: u32) -> String {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(203, 0, 113, 0)) + number).to_string()
}

/// Returns Service `default/big` with external IPs and TCP ports from 1000 on.
fn big(addresses: impl Iterator<Item = u32>, ports: u16) -> api::Service {
    let mut service = web("10.97.0.77").service();
    service.metadata.name = "big".into();
    service.spec.external_ips = addresses.map(address).collect();
    let of = service.spec.ports[0].clone();
    let ports = (0..ports).map(|number| api::ServicePortSpec {
        name: format!("p{number}"),
        port: 1000 + number,
        ..of.clone()
    });
    service.spec.ports = ports.collect();
    service
}

/// Returns the slice of `default/big` for ports from 1000 on.
fn slice_of_big(endpoints: &[&str], ports: u16) -> Event {
    let mut slice = with_endpoints(web("10.97.0.77"), endpoints)
        .slices()
        .remove(0);
    slice.metadata.name = "big-1".into();
    let label = api::EndpointSlice::SERVICE_NAME_LABEL.to_owned();
    slice.metadata.labels.insert(label, "big".into());
    let of = slice.ports[0].clone();
    let ports = (0..ports).map(|number| api::EndpointPort {
        name: Some(format!("p{number}")),
        ..of.clone()
    });
    slice.ports = ports.collect();
    slice.into()
}

fn remove_big() -> Vec<Event> {
    vec![
        Event::ServiceDeleted(ObjectName::new("default", "big")),
        Event::SliceDeleted(ObjectName::new("default", "big-1")),
    ]
}

/// An engine after its first sync, with its kernels.
struct Stage<P: Planner> {
    kernels: MemoryKernels<P::Object>,
    engine: Engine,
    now: Duration,
    /// Number of changes of Service `default/web`.
    changes: usize,
}

impl<P: ModePlanner> Stage<P>
where
    P::Object: Send + Sync + 'static,
{
    fn new() -> Self {
        Self::with(fixtures::config())
    }

    fn with(config: Config) -> Self {
        let kernels = MemoryKernels::<P::Object>::default();
        let mut engine = kernels.engine_of::<P>(config);
        apply(&mut engine, front("10.1.0.1"));
        engine.apply(Event::Synced);
        let now = Duration::ZERO;
        let mut stage = Self {
            kernels,
            engine,
            now,
            changes: 0,
        };
        assert!(stage.poll().is_complete);
        stage
    }

    /// Runs the next sync, which must be due after the pause.
    fn poll(&mut self) -> Report {
        if self.engine.next_deadline() != Some(Duration::ZERO) {
            self.now += Duration::from_secs(60);
        }
        let report = self.poll_now();
        report.expect("a sync is due")
    }

    fn poll_now(&mut self) -> Option<Report> {
        // The first poll after a sync starts the pause.
        let report = self.engine.poll(self.now).or_else(|| {
            self.now += Duration::from_secs(60);
            self.engine.poll(self.now)
        });
        assert!(report.as_ref().is_none_or(Report::is_success));
        report
    }

    /// Returns the number of edits of the last commit.
    fn last_edits(&self) -> usize {
        self.kernels.v4.get().last_edits.len()
    }

    /// Returns what the edits of the last commit cost, in edits.
    fn last_cost(&self) -> f64 {
        let kernel = self.kernels.v4.get();
        let per_edit = kernel.last_edits.iter().map(|edit| match edit {
            Edit::Remove(object) => P::removals_per_edit(object),
            Edit::Add(object) => P::additions_per_edit(object),
            Edit::Change { .. } => 1,
        });
        per_edit
            .map(|count| f64::from(u32::try_from(count).expect("a few")).recip())
            .sum()
    }

    /// Returns the edits of the last commit as text.
    fn last_script(&self) -> String {
        let kernel = self.kernels.v4.get();
        P::script(
            Family::V4,
            kernel.last_edits.clone(),
            kernel.memory.objects(),
        )
    }

    /// Returns the objects of IPv4 as text.
    fn installed(&self) -> Vec<String> {
        let kernel = self.kernels.v4.get();
        let mut texts: Vec<_> = kernel.memory.objects().map(P::text).collect();
        texts.sort_unstable();
        texts
    }

    fn listing(&self) -> String {
        let families = [Family::V4, Family::V6].into_iter();
        let listing = |family: Family| {
            let kernel = self.kernels.of(family).get();
            let objects = kernel.memory.objects();
            let objects: Vec<_> = objects.filter(|it| !P::is_removal_delayed(it)).collect();
            P::listing(family, objects.into_iter())
        };
        families.map(listing).collect()
    }

    /// Syncs until nothing is left, and changes another Service before each sync. Asserts that
    /// each sync includes the other change, that only every second one has a part of a large
    /// change, and that the number of edits is bounded. Returns the number of syncs.
    fn play_beside_others(&mut self, what: &str) -> usize {
        let limit = max_cost::<P>();
        for sync in 1..MAX_SYNCS {
            self.changes += 1;
            let endpoint = format!("10.1.{}.{}", 1 + self.changes / 200, self.changes % 200);
            apply(&mut self.engine, front(&endpoint));
            let report = self.poll();
            assert!(
                self.last_script().contains(&endpoint),
                "{what}: sync {sync} leaves the change of another Service out"
            );
            let cost = self.last_cost();
            assert!(cost <= limit, "{what}: {cost} edits in one sync");
            // One Service with one endpoint has fewer objects than any part.
            assert!(
                sync.is_multiple_of(2) || report.is_complete || self.last_edits() < 32,
                "{what}: sync {sync} has a part of a large change, as the one before"
            );
            if report.is_complete {
                return sync;
            }
            assert!(self.engine.is_queued(), "{what}: the rest is pending");
            let deadline = self.engine.next_deadline();
            assert_eq!(deadline, Some(Duration::ZERO), "{what}: the rest is due");
        }
        panic!("{what}: the change does not end");
    }
}

/// Returns the events of Service `default/web` with one endpoint.
fn front(endpoint: &str) -> Vec<Event> {
    with_endpoints(web("10.97.0.1"), &[endpoint]).events()
}

/// Adds, changes and removes a Service beside another one.
fn assert_bounded<P: ModePlanner>(addresses: u32, ports: u16)
where
    P::Object: Send + Sync + 'static,
{
    let mut stage = Stage::<P>::new();
    let before = stage.installed().len();
    let mut syncs = Vec::new();
    let start = || 0..addresses;
    let slice = |endpoint| slice_of_big(&[endpoint], ports);
    let changes = [
        (
            "addition",
            vec![big(start(), ports).into(), slice("10.2.0.1")],
        ),
        ("other endpoint", vec![slice("10.2.0.2")]),
        (
            "fewer addresses",
            vec![big(start().step_by(3), ports).into()],
        ),
        ("more addresses", vec![big(start(), ports).into()]),
        ("removal", remove_big()),
    ];
    let mut most = 0;
    for (what, events) in changes {
        apply(&mut stage.engine, events);
        syncs.push(stage.play_beside_others(what));
        most = most.max(stage.installed().len());
        let desired = stage.engine.difference().expect("a dump");
        assert_eq!(desired.edits, 0, "{what}: {}", desired.script);
    }
    testkit::figures!("{addresses} x {ports}: {syncs:?} syncs, at most {most} objects");
    // Unused chains stay for a while.
    assert!(stage.installed().len() <= before + 64);
    // The limit of one Service, twice per pair and once per network of an address.
    assert!(most < 4 * 16_384 + 10_000, "{most} objects");
}

#[test]
fn other_services_do_not_wait_for_a_thousand_addresses_at_a_thousand_ports() {
    assert_bounded::<nftables::Planner>(1000, 1000);
    assert_bounded::<iptables::Planner>(1000, 1000);
    assert_bounded::<ipvs::Planner>(1000, 300);
}

#[test]
fn other_services_do_not_wait_for_sixteen_thousand_addresses() {
    assert_bounded::<nftables::Planner>(20_000, 1);
    assert_bounded::<iptables::Planner>(4_000, 1);
    assert_bounded::<ipvs::Planner>(4_000, 1);
}

/// Each rewrite of the chain that all Services share costs something for each rule that stays.
#[test]
fn a_service_at_the_limit_leaves_the_chain_of_all_services_in_one_sync() {
    let mut stage = Stage::<iptables::Planner>::new();
    apply(
        &mut stage.engine,
        [big(0..1000, 16).into(), slice_of_big(&["10.2.0.1"], 16)],
    );
    stage.play_beside_others("addition");
    apply(&mut stage.engine, remove_big());
    // The change of the other Service comes first, and alone.
    assert_eq!(stage.play_beside_others("removal"), 2);
    assert!(stage.last_edits() > 16_000, "{}", stage.last_edits());
}

#[test]
fn other_services_do_not_wait_for_many_addresses_on_windows_nodes() {
    assert_bounded::<proxy_kernelspace::Planner>(2_000, 1);
}

#[test]
fn many_small_changes_are_spread_over_syncs_and_leave_a_share_to_a_large_one() {
    let mut stage = Stage::<nftables::Planner>::new();
    apply(
        &mut stage.engine,
        [big(0..16_000, 1).into(), slice_of_big(&["10.2.0.1"], 1)],
    );
    let small = |number: u16| {
        let [high, low] = number.to_be_bytes();
        let mut service = big(0..0, 1);
        service.metadata.name = format!("small-{number}");
        service.spec.cluster_ip = format!("10.98.{high}.{low}");
        service.spec.cluster_ips = vec![service.spec.cluster_ip.clone()];
        Event::from(service)
    };
    apply(&mut stage.engine, (0..6_000).map(small));
    let mut left = Vec::new();
    loop {
        let report = stage.poll();
        let installed = stage.installed();
        let of_big = installed
            .iter()
            .filter(|text| text.contains(" 203.0."))
            .count();
        left.push((report.ports, of_big));
        assert!(stage.last_cost() <= max_cost::<nftables::Planner>());
        if report.is_complete {
            break;
        }
        assert!(left.len() < MAX_SYNCS);
    }
    assert!(left.len() > 3, "{left:?}");
    assert!(left[0].0 > 1000, "small ones come first: {left:?}");
    assert_eq!(left[0].1, 0, "the large Service waits once: {left:?}");
    let of_big: Vec<_> = left.iter().take(4).map(|(_, of_big)| *of_big).collect();
    assert!(
        of_big[1] > 300 && of_big[3] > of_big[2],
        "then it gets a share: {left:?}"
    );
}

#[test]
fn a_failed_commit_leaves_the_rest_to_the_retry() {
    let mut stage = Stage::<nftables::Planner>::new();
    apply(
        &mut stage.engine,
        [big(0..16_000, 1).into(), slice_of_big(&["10.2.0.1"], 1)],
    );
    assert!(!stage.poll().is_complete);
    stage.kernels.v4.get().memory.fail_after(10);
    let failed = stage.engine.poll(stage.now).expect("the rest is due");
    assert!(!failed.is_success());
    assert_eq!(
        stage.engine.poll(stage.now).map(drop),
        None,
        "a pause follows"
    );
    assert!(stage.engine.next_deadline() > Some(stage.now));
    let syncs = (0..MAX_SYNCS)
        .take_while(|_| !stage.poll().is_complete)
        .count();
    assert!(syncs > 0 && syncs < MAX_SYNCS, "{syncs}");
    assert_eq!(stage.engine.difference().expect("a dump").edits, 0);
}

#[test]
fn the_first_sync_includes_everything() {
    let kernels = MemoryKernels::default();
    let mut engine = kernels.engine_of::<nftables::Planner>(fixtures::config());
    apply(
        &mut engine,
        [big(0..16_000, 1).into(), slice_of_big(&["10.2.0.1"], 1)],
    );
    engine.apply(Event::Synced);
    let report = engine.poll(Duration::ZERO).expect("a sync is due");
    assert!(report.is_complete);
    assert_eq!(engine.difference().expect("a dump").edits, 0);
    let objects = kernels.v4.get().memory.objects().count();
    assert!(objects > 32_000, "{objects}");
}

/// The planner of a mode with small parts.
#[derive(Clone, PartialEq)]
struct InParts<P>(P);

impl<P: ModePlanner> ModePlanner for InParts<P> {
    fn of(config: &Config) -> Self {
        Self(P::of(config))
    }
}

impl<P: Planner> Planner for InParts<P> {
    type Object = P::Object;

    const EDITS_PER_SYNC: usize = 600;

    fn base(&self, cx: &Context) -> Vec<Self::Object> {
        self.0.base(cx)
    }

    fn requires_replan(&self, before: &Context, after: &Context) -> bool {
        self.0.requires_replan(before, after)
    }

    fn port(&self, cx: &Context, port: &ServicePort) -> PortObjects<Self::Object> {
        self.0.port(cx, port)
    }

    fn is_removal_delayed(object: &Self::Object) -> bool {
        P::is_removal_delayed(object)
    }

    fn tolerates_unused(object: &Self::Object) -> bool {
        P::tolerates_unused(object)
    }

    fn text(object: &Self::Object) -> String {
        P::text(object)
    }

    fn script<'a>(
        family: Family,
        edits: Vec<Edit<Self::Object>>,
        desired: impl Iterator<Item = &'a Self::Object>,
    ) -> String
    where
        Self::Object: 'a,
    {
        P::script(family, edits, desired)
    }

    fn listing<'a>(family: Family, objects: impl Iterator<Item = &'a Self::Object>) -> String
    where
        Self::Object: 'a,
    {
        P::listing(family, objects)
    }
}

/// Returns the sets of objects of each external address, by the text of the address.
fn by_address(installed: &[String]) -> BTreeMap<String, Vec<String>> {
    let mut by_address: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for text in installed {
        let is_part_of_address = |c: char| c.is_ascii_digit() || c == '.';
        let mut words = text.split(|c: char| !is_part_of_address(c));
        if let Some(word) =
            words.find(|it| it.starts_with("203.0.") && it.parse::<Ipv4Addr>().is_ok())
        {
            by_address
                .entry(word.to_owned())
                .or_default()
                .push(text.clone());
        }
    }
    by_address
}

/// Asserts that each address has all of its objects before the change or all of those after
/// it, or both while its port number changes.
fn assert_whole_addresses(
    before: &BTreeMap<String, Vec<String>>,
    during: &BTreeMap<String, Vec<String>>,
    after: &BTreeMap<String, Vec<String>>,
) {
    for address in before.keys().chain(during.keys()).chain(after.keys()) {
        let [before, during, after] = [before, during, after].map(|it| it.get(address));
        let mut both: Vec<_> = before.into_iter().chain(after).flatten().cloned().collect();
        both.sort_unstable();
        both.dedup();
        assert!(
            during == before || during == after || during == Some(&both),
            "{address}: {before:#?} to {after:#?}: {during:#?}"
        );
    }
}

/// Asserts that rules jump only to chains that exist, in the modes with rules.
fn assert_targets_exist(listing: &str) {
    let words = |line: &str| {
        line.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let mut chains = HashSet::new();
    let mut targets = HashSet::new();
    for line in listing.lines().map(words) {
        if let Some(chain) = line.first().and_then(|word| word.strip_prefix(':')) {
            chains.insert(chain.to_owned());
        }
        let jumps = line
            .windows(2)
            .filter(|pair| matches!(&*pair[0], "-j" | "-g"));
        targets.extend(jumps.map(|pair| pair[1].clone()));
    }
    let is_ours = |name: &&String| name.starts_with("KUBE-");
    for target in targets.iter().filter(is_ours) {
        assert!(chains.contains(target), "{target} does not exist");
    }
}

#[test]
fn an_address_changes_as_a_whole_while_others_wait() {
    fn check<P: ModePlanner>()
    where
        P::Object: Send + Sync + 'static,
    {
        let mut stage = Stage::<InParts<P>>::new();
        let endpoints = ["10.2.0.1", "10.2.0.2"];
        let mut exposed = big(0..3000, 1);
        exposed.spec.kind = api::ServiceType::LoadBalancer;
        exposed.spec.ports[0].node_port = 30_080;
        let ingress = (2_900..3_000).map(|number| api::Ingress {
            ip: address(number),
            ..api::Ingress::default()
        });
        exposed.status.load_balancer.ingress = ingress.collect();
        let mut restricted = exposed.clone();
        restricted.spec.load_balancer_source_ranges = vec!["192.0.2.0/24".into()];
        restricted.spec.external_ips.drain(..1000);
        let mut moved = restricted.clone();
        moved.spec.ports[0].port = 81;
        let changes: [Vec<Event>; 6] = [
            vec![exposed.into(), slice_of_big(&endpoints, 1)],
            vec![slice_of_big(&endpoints[..1], 1)],
            vec![restricted.into(), slice_of_big(&endpoints, 1)],
            vec![moved.into()],
            vec![slice_of_big(&[], 1)],
            remove_big(),
        ];
        let mut syncs = 0;
        for events in changes {
            let before = by_address(&stage.installed());
            apply(&mut stage.engine, events);
            let mut states = Vec::new();
            loop {
                let report = stage.poll();
                states.push(by_address(&stage.installed()));
                assert_targets_exist(&stage.listing());
                if report.is_complete {
                    break;
                }
                assert!(states.len() < MAX_SYNCS);
            }
            syncs += states.len();
            let after = states.pop().expect("at least one sync");
            for during in &states {
                assert_whole_addresses(&before, during, &after);
            }
        }
        assert!(syncs > 12, "{syncs} syncs");
    }
    check::<iptables::Planner>();
    check::<nftables::Planner>();
}

/// Applies random changes of a large Service and of others, with random numbers of syncs in
/// between, and compares the result with a plan without a history.
fn play<P: ModePlanner>(seed: u64)
where
    P::Object: Send + Sync + 'static,
{
    let config = || {
        let min = Duration::ZERO;
        fixtures::config().with_intervals(Intervals {
            min,
            ..Intervals::default()
        })
    };
    let mut dice = Dice::from_seed(seed);
    let mut stage = Stage::<InParts<P>>::with(config());
    let mut events = front("10.1.0.1");
    for _ in 0..12 {
        let first = u32::from(dice.roll(8)) * 300;
        let count = u32::from(dice.roll(6)) * 400;
        let endpoints = ["10.2.0.1", "10.2.0.2", "10.2.0.3"];
        let endpoints = &endpoints[..usize::from(dice.roll(4))];
        let mut service = big(first..first + count, 1 + u16::from(dice.roll(3)));
        if dice.roll(3) == 0 {
            service.spec.kind = api::ServiceType::LoadBalancer;
            let addresses = std::mem::take(&mut service.spec.external_ips).into_iter();
            let ingress = addresses.map(|ip| api::Ingress {
                ip,
                ..api::Ingress::default()
            });
            service.status.load_balancer.ingress = ingress.collect();
            if dice.roll(2) == 0 {
                service.spec.load_balancer_source_ranges = vec!["192.0.2.0/24".into()];
            }
        }
        if dice.roll(4) == 0 {
            service.spec.session_affinity = api::Affinity::ClientIp;
        }
        if dice.roll(4) == 0 {
            service.spec.ports[0].port = 900;
        }
        // A rival of the same addresses.
        if dice.roll(3) == 0 {
            service.metadata.name = "rival".into();
            service.spec.cluster_ip = "10.97.0.78".into();
            service.spec.cluster_ips = vec![service.spec.cluster_ip.clone()];
        }
        let new = match dice.roll(6) {
            0 => remove_big(),
            1 => vec![slice_of_big(endpoints, 2)],
            2 => front(&format!("10.1.0.{}", 1 + dice.roll(100))),
            _ => vec![service.into(), slice_of_big(endpoints, 2)],
        };
        events.extend(new.iter().cloned());
        apply(&mut stage.engine, new);
        for _ in 0..dice.roll(4) {
            drop(stage.poll_now());
        }
        if dice.roll(8) == 0 {
            stage.engine.request_resync();
        }
    }
    for _ in 0..MAX_SYNCS {
        if stage.poll_now().is_none_or(|report| report.is_complete) {
            break;
        }
    }
    let difference = stage.engine.difference().expect("a dump");
    assert_eq!(difference.edits, 0, "seed {seed}: {}", difference.script);
    let kernels = MemoryKernels::<P::Object>::default();
    let mut engine = kernels.engine_of::<InParts<P>>(config());
    apply(&mut engine, events);
    engine.apply(Event::Synced);
    let now = Duration::ZERO;
    let mut fresh = Stage::<InParts<P>> {
        kernels,
        engine,
        now,
        changes: 0,
    };
    assert!(fresh.poll().is_complete);
    assert!(
        stage.listing() == fresh.listing(),
        "seed {seed}: not the plan from scratch"
    );
}

#[test]
fn any_history_of_large_changes_ends_in_the_plan_from_scratch() {
    for seed in 0..6 {
        play::<nftables::Planner>(seed);
        play::<iptables::Planner>(seed);
        play::<ipvs::Planner>(seed);
    }
}
