//! The laws, checked with in-memory kernels.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use proxy_core::backend::{iptables, ipvs, nftables};
use proxy_core::{Context, Engine, Event, Family, Planner};
use testworld::{Change, Id, Verb};
use vipline_reconcile::{Edit, Keyed};
use vipline_service_model::Kind;

use crate::affected::{
    Affected, Plan, Tracker, contexts, crosses_size_limit, size, unexpected_edits,
    unexplained_edits,
};
use crate::costs::{Cost, Mode};
use crate::decode::decode;
use crate::history::{Verdict, check, deletions, history, shuffled};
use crate::memory::Kernels;
use crate::replay::config;

/// Number of histories. Each mode applies one third.
const HISTORIES: u64 = 10_000;

/// Minimum number of changes in all histories.
const CHANGES: usize = 75_000;

/// An engine over in-memory kernels.
pub(crate) struct Run<P: Planner> {
    pub(crate) kernels: Kernels<P::Object>,
    pub(crate) engine: Engine,
    tracker: Tracker,
    pub(crate) now: Duration,
    plan: Plan,
    /// Costs of the last change, by family.
    pub(crate) costs: [Cost; 2],
}

impl<P: Mode> Run<P>
where
    P::Object: Send + Sync + 'static,
{
    /// Creates a run in a cluster after these changes, and syncs once.
    pub(crate) fn start_with(changes: &[Change]) -> Result<Self, String> {
        let kernels = Kernels::default();
        let mut engine = kernels.engine::<P>(config());
        for event in changes.iter().filter_map(decode) {
            engine.apply(event);
        }
        engine.apply(Event::Synced);
        let plan = Plan::of(&engine, &config());
        let mut run = Self {
            kernels,
            engine,
            tracker: Tracker::default(),
            now: Duration::ZERO,
            plan,
            costs: [Cost::default(); 2],
        };
        run.sync()?;
        for family in Family::ALL {
            run.kernels.of(family).get().edits.clear();
        }
        run.plan = Plan::of(&run.engine, &config());
        Ok(run)
    }

    /// Syncs if a sync is due. A failed sync is an error.
    pub(crate) fn sync(&mut self) -> Verdict {
        self.now += Duration::from_secs(1);
        match self.engine.poll(self.now) {
            Some(report) if !report.is_success() => Err(format!("a sync failed: {report}")),
            _ => Ok(()),
        }
    }

    /// Applies a change and syncs. Checks the cost and the edited objects.
    pub(crate) fn step(&mut self, change: &Change) -> Verdict {
        self.costs = [Cost::default(); 2];
        let Some(event) = decode(change) else {
            return Ok(());
        };
        let affected = self.tracker.affected(&event);
        let before = Family::ALL.map(|family| self.counts(family));
        self.engine.apply(event);
        self.sync()?;
        let plan = Plan::of(&self.engine, &config());
        for (family, (commits, dumps)) in Family::ALL.into_iter().zip(before) {
            let edits = std::mem::take(&mut self.kernels.of(family).get().edits);
            let (later_commits, later_dumps) = self.counts(family);
            let expected = (commits + usize::from(!edits.is_empty()), dumps);
            if (later_commits, later_dumps) != expected {
                return Err(format!(
                    "{family}: {later_commits} commits, {later_dumps} dumps"
                ));
            }
            if edits.is_empty() {
                continue;
            }
            check_minimal(family, &edits)?;
            let plans = [&self.plan, &plan];
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
        self.plan = plan;
        Ok(())
    }

    /// Returns the current contexts of both families.
    pub(crate) fn contexts(&self) -> [Context; 2] {
        contexts(&self.engine, &config())
    }

    /// Returns the current base objects of both families, which belong to no Service.
    pub(crate) fn base(&self) -> Vec<P::Object> {
        let plan = Plan::of(&self.engine, &config());
        let base = |family| plan.base::<P>(family);
        Family::ALL.into_iter().flat_map(base).collect()
    }

    /// Returns the number of commits and dumps.
    fn counts(&self, family: Family) -> (usize, usize) {
        let kernel = self.kernels.of(family).get();
        (kernel.memory.commits(), kernel.memory.dumps())
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

/// Applies a history change by change and checks all laws.
fn check_laws<P: Mode>(seed: u64, changes: &[Change]) -> Verdict
where
    P::Object: PartialEq + Send + Sync + 'static,
{
    let mut run = Run::<P>::start_with(&[])?;
    let empty = run.kernels.installed::<P>();
    for change in changes {
        run.step(change)?;
    }
    run.check_in_sync()?;
    let shuffled = Run::<P>::start_with(&last_changes(changes, seed))?;
    let (one, other) = (
        run.kernels.installed::<P>(),
        shuffled.kernels.installed::<P>(),
    );
    if one != other {
        let difference = first_difference(&one.text::<P>(), &other.text::<P>());
        return Err(format!(
            "another order leads to another state: {difference}"
        ));
    }
    for change in deletions(changes, seed) {
        run.step(&change)?;
    }
    run.check_in_sync()?;
    // A proxy keeps the addresses and labels of a deleted Node.
    let is_node = |change: &&Change| change.kind == Kind::Node && change.verb != Verb::Deleted;
    let nodes: Vec<_> = changes.iter().filter(is_node).cloned().collect();
    let expected = match nodes.is_empty() {
        true => empty,
        false => Run::<P>::start_with(&nodes)?.kernels.installed::<P>(),
    };
    let left = run.kernels.installed::<P>();
    if left != expected {
        let difference = first_difference(&left.text::<P>(), &expected.text::<P>());
        return Err(format!("deleted objects leave state: {difference}"));
    }
    Ok(())
}

/// Returns the last change of each object, in a random order.
///
/// A proxy keeps the addresses and labels of a deleted Node, so the deletion of a Node
/// does not count.
fn last_changes(changes: &[Change], seed: u64) -> Vec<Change> {
    let counts = |change: &&Change| change.kind != Kind::Node || change.verb != Verb::Deleted;
    let counting = changes.iter().filter(counts);
    let last: BTreeMap<Id, &Change> = counting.map(|each| (each.id(), each)).collect();
    shuffled(last.into_values().cloned(), seed)
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

/// Checks the laws in the mode that the seed selects.
fn check_laws_in_mode_of_seed(seed: u64, changes: &[Change]) -> Verdict {
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
        let count = history.len() + deletions(history, seed).len();
        changes.fetch_add(count, Ordering::Relaxed);
        check_laws_in_mode_of_seed(seed, history)
    };
    check(HISTORIES, |seed| history(seed, 12, u8::MAX), law);
    let changes = changes.into_inner();
    assert!(changes >= CHANGES, "{changes}");
}

#[test]
fn histories_with_objects_of_maximal_size_obey_the_laws() {
    let history = |seed| history((1 << 32) + seed, 3, 2);
    check(30, history, check_laws_in_mode_of_seed);
}
