//! The laws, checked with in-memory kernels.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use proxy_core::backend::{iptables, ipvs, nftables};
use proxy_core::{Config, Context, Engine, Event, Family, Planner};
use testworld::{Change, Id, Verb};
use vipline_reconcile::{Edit, Keyed};
use vipline_service_model::arbitrary::NODE;
use vipline_service_model::{Kind, Store};

use crate::affected::{
    Affected, Plan, Tracker, contexts, crosses_size_limit, size, unexpected_edits,
    unexplained_edits,
};
use crate::cached::Cached;
use crate::costs::{Cost, Mode};
use crate::decode::decode;
use crate::history::{Verdict, check, deletions, history, shuffled};
use crate::memory::{Installed, Kernels, ModePlanner};
use crate::replay::config;

/// Number of histories. Each mode applies one third.
const HISTORIES: u64 = 10_000;

/// Minimum number of changes in all histories.
const CHANGES: usize = 75_000;

/// Syncs after which a change must be complete.
const MAX_SYNCS: usize = 1_000;

/// An engine over in-memory kernels.
pub(crate) struct Run<P: ModePlanner> {
    pub(crate) kernels: Kernels<P::Object>,
    pub(crate) engine: Engine,
    config: Config,
    tracker: Tracker,
    pub(crate) now: Duration,
    /// The plan after the last step.
    plan: Option<Plan>,
    /// Costs of the last change, by family.
    pub(crate) costs: [Cost; 2],
}

/// What a kernel got so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Position {
    /// Number of messages, also rejected ones.
    pub(crate) attempts: usize,
    /// Number of messages that it applied.
    pub(crate) commits: usize,
    /// Number of edits in these.
    pub(crate) edits: usize,
}

impl<P: Mode> Run<P>
where
    P::Object: Send + Sync + 'static,
{
    /// Creates a run in a cluster after these events, and syncs once.
    pub(crate) fn start_with(events: impl IntoIterator<Item = Event>) -> Result<Self, String> {
        let kernels = Kernels::default();
        let config = config();
        let mut engine = kernels.engine::<Cached<P>>(config.clone());
        for event in events {
            engine.apply(event);
        }
        engine.apply(Event::Synced);
        let mut run = Self {
            kernels,
            engine,
            config,
            tracker: Tracker::default(),
            now: Duration::ZERO,
            plan: None,
            costs: [Cost::default(); 2],
        };
        run.sync()?;
        for family in Family::ALL {
            run.kernels.of(family).get().edits.clear();
        }
        Ok(run)
    }

    /// Syncs if a sync is due, until all changes are complete. Returns the number of syncs. A
    /// failed sync is an error.
    ///
    /// A large change is spread over several syncs. The edits of all of them belong to that
    /// change, and not to the next one.
    pub(crate) fn sync(&mut self) -> Result<usize, String> {
        self.sync_and(|_, _| Ok(()))
    }

    /// Syncs, and calls `check` after each sync, with the positions of both families before.
    pub(crate) fn sync_and(
        &mut self,
        check: impl Fn(&Self, [Position; 2]) -> Verdict,
    ) -> Result<usize, String> {
        self.now += Duration::from_secs(1);
        for syncs in 0..MAX_SYNCS {
            let before = Family::ALL.map(|family| self.position(family));
            let Some(report) = self.engine.poll(self.now) else {
                return Ok(syncs);
            };
            if !report.is_success() {
                return Err(format!("a sync failed: {report}"));
            }
            check(self, before)?;
            if report.is_complete {
                return Ok(syncs + 1);
            }
        }
        Err(format!("a change is not complete after {MAX_SYNCS} syncs"))
    }

    /// Returns the position of a kernel.
    pub(crate) fn position(&self, family: Family) -> Position {
        let kernel = self.kernels.of(family).get();
        Position {
            attempts: kernel.memory.attempts(),
            commits: kernel.memory.commits(),
            edits: kernel.edits.len(),
        }
    }

    /// Checks that a sync that began at these positions committed at most once for each
    /// family, and nothing needless.
    ///
    /// Objects that several Services share may change in several syncs of a large change, so
    /// that each commit is minimal, but not always their sum.
    fn check_commits(&self, before: [Position; 2]) -> Verdict {
        for (family, before) in Family::ALL.into_iter().zip(before) {
            let kernel = self.kernels.of(family).get();
            let edits = &kernel.edits[before.edits..];
            let commits = kernel.memory.commits() - before.commits;
            if commits != usize::from(!edits.is_empty()) {
                let edits = edits.len();
                return Err(format!("{family}: {commits} commits of {edits} edits"));
            }
            check_minimal(family, edits)?;
        }
        Ok(())
    }

    /// Applies an event and syncs. Checks the cost and the edited objects.
    pub(crate) fn step(&mut self, event: Event) -> Verdict {
        self.costs = [Cost::default(); 2];
        let affected = self.tracker.affected(&event);
        let dumps = Family::ALL.map(|family| self.dumps(family));
        let plan_before = self.plan.take().unwrap_or_else(|| self.current_plan());
        self.engine.apply(event);
        let syncs = self.sync_and(Self::check_commits)?;
        let plan = self.current_plan();
        let mut all_edits = 0;
        for (family, dumps) in Family::ALL.into_iter().zip(dumps) {
            let edits = std::mem::take(&mut self.kernels.of(family).get().edits);
            all_edits += edits.len();
            if self.dumps(family) != dumps {
                return Err(format!("{family}: a change dumped the kernel"));
            }
            if edits.is_empty() {
                continue;
            }
            let plans = [&plan_before, &plan];
            let cost = P::cost(family, &edits);
            cost.check_limit(size(family, plans, &affected))?;
            self.costs[usize::from(family == Family::V6)] = cost;
            let edited: Vec<_> = edits.iter().map(|edit| edit.object().clone()).collect();
            let affected = match crosses_size_limit(plans, family) {
                true => &Affected::All,
                false => &affected,
            };
            let unexpected_edits = match affected {
                Affected::Cluster => unexplained_edits::<P>(family, plans, &edits),
                affected => unexpected_edits::<P>(family, plans, affected, &edited),
            };
            if !unexpected_edits.is_empty() {
                return Err(format!(
                    "{family}: {affected:?} edited {unexpected_edits:#?}"
                ));
            }
        }
        // A sync that is not the last one has a quarter of its edits at least.
        if syncs > 1 + all_edits / (P::EDITS_PER_SYNC / 4) {
            return Err(format!("{all_edits} edits took {syncs} syncs"));
        }
        self.plan = Some(plan);
        Ok(())
    }

    fn current_plan(&self) -> Plan {
        Plan::of(self.engine.store(), &self.config)
    }

    /// Returns the current contexts of both families.
    pub(crate) fn contexts(&self) -> [Context; 2] {
        contexts(self.engine.store(), &self.config)
    }

    /// Returns the current base objects of both families, which belong to no Service.
    pub(crate) fn base(&self) -> Vec<P::Object> {
        let planner = Cached::<P>::from(&self.config);
        let contexts = self.contexts();
        contexts.iter().flat_map(|cx| planner.base(cx)).collect()
    }

    fn dumps(&self, family: Family) -> usize {
        self.kernels.of(family).get().memory.dumps()
    }

    /// Checks that the kernels match the plan.
    pub(crate) fn check_in_sync(&mut self) -> Verdict {
        let difference = self
            .engine
            .difference()
            .map_err(|error| error.to_string())?;
        match difference.edits {
            0 => Ok(()),
            _ => Err(format!("the kernel differs:\n{}", difference.script)),
        }
    }
}

/// Checks that a commit edits each object at most once, and that each edit changes its
/// object.
fn check_minimal<T: Keyed>(family: Family, edits: &[Edit<T>]) -> Verdict {
    let mut keys = HashSet::new();
    for edit in edits {
        let is_idle = matches!(edit, Edit::Change { old, new } if old.is_equivalent(new));
        if is_idle || !keys.insert(edit.key()) {
            return Err(format!("{family}: needless edit of {:?}", edit.key()));
        }
    }
    Ok(())
}

/// Applies a history change by change and checks all laws. Returns the number of changes
/// with those that delete every object at the end.
fn check_laws<P: Mode>(seed: u64, changes: &[Change]) -> Result<usize, String>
where
    P::Object: PartialEq + Send + Sync + 'static,
{
    let events: Vec<_> = changes.iter().map(decode).collect();
    let mut run = Run::<P>::start_with([])?;
    let empty = run.kernels.installed::<P>();
    for event in events.iter().flatten() {
        run.step(event.clone())?;
    }
    run.check_in_sync()?;
    let shuffled = Run::<P>::start_with(last_events(changes, &events, seed))?;
    let installed = run.kernels.installed::<P>();
    check_equal::<P>(
        "another order leads to another state",
        &installed,
        &shuffled.kernels.installed::<P>(),
    )?;
    let deletions = deletions(changes, seed);
    for event in deletions.iter().filter_map(decode) {
        run.step(event)?;
    }
    run.check_in_sync()?;
    // A proxy keeps the addresses and labels of a deleted Node.
    let is_node = |event: &&Event| matches!(event, Event::NodeApplied(_));
    let mut nodes = events.iter().flatten().filter(is_node).peekable();
    let expected = match nodes.peek() {
        None => empty,
        Some(_) => base_of::<P>(nodes.cloned()),
    };
    let left = run.kernels.installed::<P>();
    check_equal::<P>("deleted objects leave state", &left, &expected)?;
    Ok(changes.len() + deletions.len())
}

/// Returns the state in a cluster without Services, after events of Nodes.
fn base_of<P: Mode>(nodes: impl Iterator<Item = Event>) -> Installed<P::Object> {
    let mut store = Store::new(vipline_service_model::Config::new(NODE));
    for event in nodes {
        store.apply(event);
    }
    let planner = Cached::<P>::from(&config());
    Installed(contexts(&store, &config()).map(|cx| planner.base(&cx)))
}

/// Checks that two states are equal.
fn check_equal<P: Mode>(
    law: &str,
    one: &Installed<P::Object>,
    other: &Installed<P::Object>,
) -> Verdict
where
    P::Object: PartialEq,
{
    match one == other {
        true => Ok(()),
        false => {
            let difference = first_difference(&one.text::<P>(), &other.text::<P>());
            Err(format!("{law}: {difference}"))
        }
    }
}

/// Returns the last event of each object, in a random order. `events` are those of
/// `changes`.
///
/// A proxy keeps the addresses and labels of a deleted Node, so the deletion of a Node
/// does not count.
fn last_events(changes: &[Change], events: &[Option<Event>], seed: u64) -> Vec<Event> {
    let counts = |change: &Change| change.kind != Kind::Node || change.verb != Verb::Deleted;
    let both = changes.iter().zip(events);
    let counting = both.filter(|(change, _)| counts(change));
    let last: BTreeMap<Id, _> = counting
        .map(|(change, event)| (change.id(), event))
        .collect();
    let last = shuffled(last.into_values(), seed).into_iter();
    last.flatten().cloned().collect()
}

fn first_difference(one: &str, other: &str) -> String {
    let only = |one: &str, other: &str| {
        let known: HashSet<_> = other.lines().collect();
        let lines = one.lines().filter(|line| !known.contains(line)).take(5);
        lines.collect::<Vec<_>>().join("\n")
    };
    format!(
        "only here:\n{}\nonly there:\n{}",
        only(one, other),
        only(other, one)
    )
}

/// Checks the laws in the mode that the seed selects. Returns the number of changes.
fn check_laws_in_mode_of_seed(seed: u64, changes: &[Change]) -> Result<usize, String> {
    match seed % 3 {
        0 => check_laws::<nftables::Planner>(seed, changes),
        1 => check_laws::<iptables::Planner>(seed, changes),
        _ => check_laws::<ipvs::Planner>(seed, changes),
    }
}

#[test]
fn all_histories_obey_the_laws() {
    let changes = AtomicUsize::new(0);
    let law = |seed, history: &[Change]| {
        let count = check_laws_in_mode_of_seed(seed, history)?;
        changes.fetch_add(count, Ordering::Relaxed);
        Ok(())
    };
    check(HISTORIES, |seed| history(seed, 12, u8::MAX), law);
    let changes = changes.into_inner();
    testkit::figures!("all modes: {changes} changes in {HISTORIES} histories obey the laws");
    assert!(changes >= CHANGES, "{changes}");
}

#[test]
fn histories_with_objects_of_maximal_size_obey_the_laws() {
    let history = |seed| history((1 << 32) + seed, 3, 2);
    let law = |seed, history: &[Change]| check_laws_in_mode_of_seed(seed, history).map(drop);
    check(30, history, law);
}
