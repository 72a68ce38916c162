//! One fault at each step of the syncs of random histories, in all modes.
#![allow(clippy::print_stdout, reason = "a test prints its table")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proxy_core::backend::{iptables, ipvs, nftables};
use proxy_core::{Engine, Event, Family, Report};
use vipline_reconcile::{Edit, Keyed, MemoryError, Rejection, Target, diff};
use vipline_service_model::arbitrary::Dice;

use super::config;
use super::histories::installed;
use crate::fixtures::{MemoryKernels, ModePlanner, SharedKernel, apply, random_service, sync};

/// Number of histories.
const HISTORIES: u64 = 2;

/// Number of syncs of a history.
const SYNCS: usize = 3;

/// Maximum number of edits of a sync in which a fault occurs at every edit.
const ALL_POSITIONS: usize = 6;

/// Number of syncs after a fault in which the kernel must converge.
const MAX_SYNCS: usize = 2;

/// Error numbers of rejections: ENOMEM, EBUSY, ENOSPC, and the conflicts EEXIST and ENOENT.
const ERRNOS: [i32; 5] = [12, 16, 28, 17, 2];

/// A fault of the IPv4 kernel during one sync.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fault {
    /// The dump fails, because a reply is lost or truncated, or because changes interrupt
    /// each attempt.
    Dump,
    /// The commit fails after this number of edits. After the last edit only the
    /// acknowledgment is lost.
    Commit(usize),
    /// The kernel rejects the edit at this position once, with this error number.
    Rejection(usize, i32),
    /// Another program makes the edit at this position impossible before the commit.
    EditedObject(usize),
    /// Another program removes an object that the commit does not edit.
    OtherObject,
}

/// A fault in one sync of a history.
#[derive(Clone, Copy, Debug)]
struct Case {
    /// Position of the sync, from 0.
    sync: usize,
    /// Whether the sync begins with a dump.
    is_resync: bool,
    fault: Fault,
    /// Whether the process is killed by the fault and restarted.
    is_killed: bool,
}

/// Number of cases, and maximum number of syncs from a fault to convergence.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    cases: usize,
    syncs: usize,
}

/// A kernel in memory at which a fault is scheduled.
struct FaultyKernel<T: Keyed> {
    kernel: SharedKernel<T>,
    fault: Scheduled,
}

/// The next fault.
type Scheduled = Arc<Mutex<Option<Fault>>>;

impl<T: Keyed> FaultyKernel<T> {
    /// Makes `fault` occur in the commit of `edits`.
    fn begin(&self, fault: Fault, edits: &[Edit<T>]) {
        let memory = &mut self.kernel.get().memory;
        let foreign = match fault {
            Fault::Dump => unreachable!("the sync begins with a dump"),
            Fault::Commit(applied) => return memory.fail_after(applied),
            Fault::Rejection(at, errno) => {
                return memory.reject(edits[at].object().clone(), errno);
            }
            Fault::EditedObject(at) => match &edits[at] {
                Edit::Add(new) => Edit::Add(new.clone()),
                Edit::Change { old, .. } | Edit::Remove(old) => Edit::Remove(old.clone()),
            },
            Fault::OtherObject => {
                let is_other = |it: &&T| edits.iter().all(|edit| edit.key() != it.key());
                let objects = memory.objects().filter(is_other);
                let victim = objects.min_by_key(|object| format!("{:?}", object.key()));
                Edit::Remove(victim.expect("base objects are installed").clone())
            }
        };
        memory
            .edit_externally(foreign)
            .expect("the state is as before the edit");
    }
}

impl<T: Keyed> Target for FaultyKernel<T> {
    type Object = T;
    type Error = MemoryError;

    fn dump(&mut self) -> Result<Vec<T>, MemoryError> {
        let mut fault = self.fault.lock().expect("no test continues after a panic");
        if fault.take_if(|it| *it == Fault::Dump).is_some() {
            return Err(MemoryError::Injected);
        }
        self.kernel.dump()
    }

    fn commit(&mut self, edits: &[Edit<T>]) -> Result<Vec<Rejection>, MemoryError> {
        let fault = self
            .fault
            .lock()
            .expect("no test continues after a panic")
            .take();
        if let Some(fault) = fault {
            self.begin(fault, edits);
        }
        let done = self.kernel.commit(edits);
        if let Some(Fault::Rejection(at, _)) = fault {
            self.kernel.get().memory.accept(edits[at].object());
        }
        done
    }
}

/// The kernels and the process of one case.
struct Stage<'a, P: ModePlanner> {
    history: &'a [Vec<Event>],
    kernels: MemoryKernels<P::Object>,
    fault: Scheduled,
    engine: Engine,
    now: Duration,
}

impl<'a, P: ModePlanner> Stage<'a, P>
where
    P::Object: Send + Sync + 'static,
{
    /// Starts a process without objects.
    fn new(history: &'a [Vec<Event>]) -> Self {
        let (kernels, fault) = (MemoryKernels::default(), Scheduled::default());
        let mut engine = open::<P>(&kernels, &fault);
        engine.apply(Event::Synced);
        Self {
            history,
            kernels,
            fault,
            engine,
            now: Duration::ZERO,
        }
    }

    /// Applies the events before the sync at this position.
    fn change(&mut self, at: usize) {
        apply(&mut self.engine, self.history[at].iter().cloned());
    }

    fn sync(&mut self) -> Report {
        sync(&mut self.engine, &mut self.now)
    }

    /// Starts a new process after the events before the sync at this position, and syncs.
    /// The sync writes only the difference.
    fn restart(&mut self, at: usize) {
        self.engine = open::<P>(&self.kernels, &self.fault);
        let events = self.history[..=at].iter().flatten().cloned();
        apply(&mut self.engine, events);
        self.engine.apply(Event::Synced);
        let before = self.objects();
        let report = self.sync();
        let outcome = report.families[0].outcome.as_ref().expect("no fault");
        assert_eq!(outcome.edits, diff(before, &self.objects()).len());
    }

    /// Returns the objects of the IPv4 kernel.
    fn objects(&self) -> Vec<P::Object> {
        let kernel = self.kernels.of(Family::V4).get();
        kernel.memory.objects().cloned().collect()
    }

    fn has_converged(&mut self) -> bool {
        installed::<P>(&self.kernels) == self.engine.desired()
    }
}

fn open<P: ModePlanner>(kernels: &MemoryKernels<P::Object>, fault: &Scheduled) -> Engine
where
    P::Object: Send + Sync + 'static,
{
    Engine::with_kernels(config().engine, P::of(&config()), |family| FaultyKernel {
        kernel: kernels.of(family).clone(),
        fault: match family {
            Family::V4 => Arc::clone(fault),
            Family::V6 => Scheduled::default(),
        },
    })
}

/// Returns the number of IPv4 edits of each sync of a history without faults.
fn rehearse<P: ModePlanner>(history: &[Vec<Event>]) -> Vec<usize>
where
    P::Object: Send + Sync + 'static,
{
    let mut stage = Stage::<P>::new(history);
    let edits = (0..SYNCS).map(|at| {
        stage.change(at);
        let report = stage.sync();
        report.families[0].outcome.as_ref().expect("no fault").edits
    });
    edits.collect()
}

/// Returns the faults of a sync with `edits` edits.
fn faults(edits: usize) -> Vec<Fault> {
    let positions: Vec<usize> = match edits {
        0..=ALL_POSITIONS => (0..edits).collect(),
        _ => vec![0, 1, edits / 2, edits - 1],
    };
    let commits = positions.iter().copied().chain([edits]).map(Fault::Commit);
    let others = positions.iter().zip(ERRNOS.iter().cycle());
    let others =
        others.flat_map(|(&at, &errno)| [Fault::Rejection(at, errno), Fault::EditedObject(at)]);
    commits.chain(others).collect()
}

/// Returns all cases of a history.
fn cases(edits: &[usize]) -> Vec<Case> {
    let mut cases = Vec::new();
    for (sync, &edits) in edits.iter().enumerate() {
        let mut add = |is_resync, fault, is_killed| {
            cases.push(Case {
                sync,
                is_resync,
                fault,
                is_killed,
            });
        };
        for is_killed in [false, true] {
            add(true, Fault::Dump, is_killed);
        }
        // A sync without edits has no other step.
        for fault in faults(edits).into_iter().filter(|_| edits > 0) {
            add(true, fault, false);
            add(false, fault, false);
            if let Fault::Commit(_) = fault {
                add(true, fault, true);
                add(false, fault, true);
            }
        }
        if sync > 0 && edits > 0 {
            add(true, Fault::OtherObject, false);
            add(false, Fault::OtherObject, false);
        }
    }
    cases
}

/// Plays a case and returns the number of syncs after the fault until the kernel converged.
fn play<P: ModePlanner>(history: &[Vec<Event>], case: Case) -> usize
where
    P::Object: Send + Sync + 'static,
{
    let mut stage = Stage::<P>::new(history);
    for at in 0..case.sync {
        stage.change(at);
        assert!(stage.sync().is_success());
    }
    stage.change(case.sync);
    if case.is_resync {
        stage.engine.request_resync();
    }
    *stage.fault.lock().expect("no panic") = Some(case.fault);
    let report = stage.sync();
    let fault = *stage.fault.lock().expect("no panic");
    assert_eq!(fault, None, "{case:?} did not occur");
    if let Fault::Dump | Fault::Commit(_) = case.fault {
        assert!(!report.is_success(), "{case:?}: {report}");
    }
    if case.is_killed {
        stage.restart(case.sync);
    }
    if case.fault == Fault::OtherObject {
        // The watch of a real kernel requests it.
        stage.engine.request_resync();
    }
    let mut syncs = usize::from(case.is_killed);
    while !stage.has_converged() {
        assert!(syncs < MAX_SYNCS, "{case:?} does not converge");
        stage.sync();
        syncs += 1;
    }
    for at in case.sync + 1..SYNCS {
        stage.change(at);
        assert!(stage.sync().is_success());
    }
    assert!(stage.has_converged(), "{case:?}: later syncs diverge");
    stage.restart(SYNCS - 1);
    syncs
}

/// Plays all cases of several histories, and prints the table of faults.
fn play_all<P: ModePlanner>(mode: &str)
where
    P::Object: Send + Sync + 'static,
{
    let mut table: BTreeMap<String, Tally> = BTreeMap::new();
    for seed in 0..HISTORIES {
        let mut dice = Dice::from_seed(seed);
        let history: Vec<Vec<Event>> = (0..SYNCS).map(|_| random_service(&mut dice)).collect();
        let edits = rehearse::<P>(&history);
        for case in cases(&edits) {
            let syncs = play::<P>(&history, case);
            let tally = table.entry(case.name(edits[case.sync])).or_default();
            tally.cases += 1;
            tally.syncs = tally.syncs.max(syncs);
        }
    }
    for (fault, Tally { cases, syncs }) in &table {
        testkit::figures!(
            "| {fault} | {mode} | {cases} cases | converged after {syncs} syncs at most |"
        );
    }
    assert_eq!(table.len(), 15, "{table:?}");
}

impl Case {
    /// Returns the name of a fault in a sync with `edits` edits.
    fn name(&self, edits: usize) -> String {
        let step = match self.fault {
            Fault::Dump => "dump",
            Fault::Commit(0) => "before the commit",
            Fault::Commit(applied) if applied == edits => "acknowledgment",
            Fault::Commit(_) => "in the commit",
            Fault::Rejection(_, errno) => return format!("edit rejected with errno {errno}"),
            Fault::EditedObject(_) => return "foreign change of an edited object".to_owned(),
            Fault::OtherObject => return "foreign removal of another object".to_owned(),
        };
        let what = if self.is_killed { "killed" } else { "failure" };
        format!("{what}: {step}")
    }
}

#[test]
fn a_kernel_converges_after_a_fault_at_any_step_in_mode_nftables() {
    play_all::<nftables::Planner>("nftables");
}

#[test]
fn a_kernel_converges_after_a_fault_at_any_step_in_mode_iptables() {
    play_all::<iptables::Planner>("iptables");
}

#[test]
fn a_kernel_converges_after_a_fault_at_any_step_in_mode_ipvs() {
    play_all::<ipvs::Planner>("ipvs");
}
