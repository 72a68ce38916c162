//! Histories with a kernel that temporarily rejects random objects.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proxy_core::backend::{iptables, ipvs, nftables};
use proxy_core::{Context, Event, Family};
use testworld::Change;
use vipline_reconcile::{Atomicity, Edit, Keyed, diff};
use vipline_service_model::api;
use vipline_service_model::arbitrary::Dice;

use crate::costs::Mode;
use crate::decode::decode;
use crate::history::{Verdict, check, history};
use crate::laws::{Position, Run};
use crate::memory::ModePlanner;

/// `ENOENT`, `E2BIG`, `ENOMEM`, `EBUSY`, `EEXIST`, `EINVAL` and `ENOSPC`.
const ERRNOS: [i32; 7] = [2, 7, 12, 16, 17, 22, 28];

/// Number of histories. Each mode applies one third.
const HISTORIES: u64 = 1_000;

/// A time after which every rejected object has been retried.
const RETRY_TIME: Duration = Duration::from_secs(11 * 60);

/// Seconds for which the kernel rejects objects after the last change.
const BACKOFF_TIME: u32 = 64;

/// The cluster IP of a Service that does not occur in histories.
const OTHER_ADDRESS: &str = "172.31.255.1";

/// Objects that the kernel rejects and their error numbers, by family.
type Rejected<T> = [Vec<(T, i32)>; 2];

/// The keys of all base objects of a run, as text.
#[derive(Default)]
struct Base {
    contexts: Option<[Context; 2]>,
    keys: HashSet<String>,
}

impl Base {
    /// Adds the keys of the current base objects, which depend on the contexts only.
    fn add<P: Mode>(&mut self, run: &Run<P>)
    where
        P::Object: Send + Sync + 'static,
    {
        let contexts = Some(run.contexts());
        if contexts != self.contexts {
            let base = run.base();
            let keys = base.iter().map(|object| format!("{:?}", object.key()));
            self.keys.extend(keys);
            self.contexts = contexts;
        }
    }
}

/// Applies a history. Returns all objects of Services that were edited, by family and
/// key.
fn edited<P: Mode>(events: &[Event]) -> Result<[BTreeMap<String, P::Object>; 2], String>
where
    P::Object: Send + Sync + 'static,
{
    let mut run = Run::<P>::start_with([])?;
    let mut edited = [BTreeMap::new(), BTreeMap::new()];
    let mut base = Base::default();
    for event in events {
        run.engine.apply(event.clone());
        run.sync()?;
        base.add(&run);
    }
    for (family, edited) in Family::ALL.into_iter().zip(&mut edited) {
        let edits = std::mem::take(&mut run.kernels.of(family).get().edits);
        let objects = edits.iter().map(|edit| edit.object().clone());
        edited.extend(objects.map(|object| (format!("{:?}", object.key()), object)));
        edited.retain(|key, _| !base.keys.contains(key));
    }
    Ok(edited)
}

/// Chooses up to three objects of each family, each with an error number.
fn choose<T: Clone>(edited: &[BTreeMap<String, T>; 2], dice: &mut Dice) -> Rejected<T> {
    let mut of_family = |objects: &BTreeMap<String, T>| {
        let count = match objects.is_empty() {
            true => 0,
            false => 1 + dice.roll(3),
        };
        let chosen = (0..count).filter_map(|_| {
            let place = usize::from(dice.roll(u8::MAX)) % objects.len();
            let object = objects.values().nth(place)?;
            Some((object.clone(), dice.pick(&ERRNOS)))
        });
        chosen.collect()
    };
    [of_family(&edited[0]), of_family(&edited[1])]
}

/// A run with kernels that reject objects, and a run with kernels that accept all
/// objects.
struct RejectingRun<P: ModePlanner> {
    run: Run<P>,
    plan: Run<P>,
    rejected: Rejected<P::Object>,
}

impl<P: Mode> RejectingRun<P>
where
    P::Object: Send + Sync + 'static,
{
    fn start(rejected: Rejected<P::Object>, atomicity: Atomicity) -> Result<Self, String> {
        let run = Run::<P>::start_with([])?;
        for family in Family::ALL {
            let mut kernel = run.kernels.of(family).get();
            kernel.memory.set_atomicity(atomicity);
        }
        let plan = Run::<P>::start_with([])?;
        Ok(Self {
            run,
            plan,
            rejected,
        })
    }

    /// Makes the kernels reject the objects, which may be installed already.
    fn reject(&self) {
        for (family, rejected) in Family::ALL.into_iter().zip(&self.rejected) {
            let mut kernel = self.run.kernels.of(family).get();
            for (object, errno) in rejected {
                kernel.memory.reject(object.clone(), *errno);
            }
        }
    }

    /// Applies an event to both runs.
    fn apply(&mut self, event: Event) {
        self.plan.engine.apply(event.clone());
        self.run.engine.apply(event);
    }

    /// Syncs. Every edited object except rejected ones must match the plan, with a
    /// limited number of messages in each sync.
    fn sync(&mut self) -> Verdict {
        self.plan.sync()?;
        let rejected = Family::ALL.map(|family| self.rejected_of(family).len());
        self.run
            .sync_and(|run, before| check_messages(run, before, rejected))?;
        for family in Family::ALL {
            let take = |run: &Run<P>| std::mem::take(&mut run.kernels.of(family).get().edits);
            let (edits, planned) = (take(&self.run), take(&self.plan));
            self.check_edited(family, edits.iter().chain(&planned))?;
        }
        Ok(())
    }

    fn rejected_of(&self, family: Family) -> &[(P::Object, i32)] {
        &self.rejected[usize::from(family == Family::V6)]
    }

    /// Checks that edited objects match the plan, except rejected ones. Commits do not
    /// change other objects, and [`check_all`](Self::check_all) compares all at the end.
    fn check_edited<'a>(
        &self,
        family: Family,
        edits: impl Iterator<Item = &'a Edit<P::Object>>,
    ) -> Verdict {
        let plan = self.plan.kernels.of(family).get();
        let kernel = self.run.kernels.of(family).get();
        for object in edits.map(Edit::object) {
            match (kernel.memory.get(object), plan.memory.get(object)) {
                (None, None) => {}
                (Some(old), Some(new)) if old.is_equivalent(new) => {}
                (old, new) => {
                    let edit = Edit::between(old.cloned(), new.cloned());
                    self.check_exceptions(family, edit)?;
                }
            }
        }
        Ok(())
    }

    /// Checks that all objects match the plan, except rejected ones.
    fn check_all(&self) -> Verdict {
        for family in Family::ALL {
            let plan = self.plan.kernels.of(family).get();
            let desired: Vec<_> = plan.memory.objects().cloned().collect();
            let kernel = self.run.kernels.of(family).get();
            let installed = kernel.memory.objects().cloned();
            self.check_exceptions(family, diff(installed, &desired))?;
        }
        Ok(())
    }

    /// Checks that the edits which would lead to the plan are of rejected objects.
    fn check_exceptions(
        &self,
        family: Family,
        edits: impl IntoIterator<Item = Edit<P::Object>>,
    ) -> Verdict {
        for edit in edits {
            let key = edit.key();
            let mut rejected = self.rejected_of(family).iter();
            let is_rejected = rejected.any(|(object, _)| object.key() == key);
            if !is_rejected && !P::is_removal_delayed(edit.object()) {
                return Err(format!("{family}: {key:?} is not as planned"));
            }
        }
        Ok(())
    }

    /// Returns the number of rejections of each object.
    fn rejections(&self) -> Vec<usize> {
        let families = Family::ALL.into_iter().zip(&self.rejected);
        let all = families.flat_map(|(family, rejected)| {
            let kernel = self.run.kernels.of(family).get();
            let objects = rejected.iter();
            let counts = objects.map(|(object, _)| kernel.memory.rejections(object));
            counts.collect::<Vec<_>>()
        });
        all.collect()
    }

    /// Checks that rejected objects are resent no more often than their backoff allows
    /// while another Service changes.
    fn check_backoff(&mut self) -> Verdict {
        self.apply(other_service(BACKOFF_TIME));
        self.sync()?;
        let before = self.rejections();
        for second in 0..BACKOFF_TIME {
            self.apply(other_service(second));
            self.sync()?;
        }
        // A search may resend an object with each half of the batch.
        let most = 8 * usize::try_from(BACKOFF_TIME.ilog2() + 1).unwrap();
        for (before, after) in before.into_iter().zip(self.rejections()) {
            let times = after - before;
            if times > most {
                return Err(format!(
                    "an object was sent {times} times in {BACKOFF_TIME} s"
                ));
            }
        }
        Ok(())
    }

    /// Makes the kernels accept all objects, and waits until every object has been
    /// retried.
    fn accept(&mut self) -> Verdict {
        for (family, rejected) in Family::ALL.into_iter().zip(&self.rejected) {
            let mut kernel = self.run.kernels.of(family).get();
            for (object, _) in rejected {
                kernel.memory.accept(object);
            }
        }
        for run in [&mut self.run, &mut self.plan] {
            run.now += RETRY_TIME;
            run.sync()?;
        }
        let left: usize = Family::ALL
            .map(|family| self.run.engine.rejected_count(family))
            .iter()
            .sum();
        match left {
            0 => self.run.check_in_sync(),
            left => Err(format!("{left} objects still count as rejected")),
        }
    }
}

/// Checks that a sync that began at these positions sent few messages, although the kernels
/// reject these numbers of objects.
fn check_messages<P: Mode>(run: &Run<P>, before: [Position; 2], rejected: [usize; 2]) -> Verdict
where
    P::Object: Send + Sync + 'static,
{
    let families = Family::ALL.into_iter().zip(before).zip(rejected);
    for ((family, before), rejected) in families {
        let after = run.position(family);
        // A rejected object is sent as well, and not among the edits.
        let edits = after.edits - before.edits + rejected;
        // A search halves the batch for each rejected object. The search is repeated if the
        // kernel is dumped after a conflict.
        let depth = usize::BITS - edits.leading_zeros();
        let of_search = 1 + rejected * (2 + 2 * usize::try_from(depth).unwrap());
        let attempts = after.attempts - before.attempts;
        if attempts > 2 * of_search {
            return Err(format!("{family}: {attempts} messages for {edits} edits"));
        }
    }
    Ok(())
}

/// Returns the event of a Service that does not occur in histories, with a port that
/// depends on `number`.
fn other_service(number: u32) -> Event {
    let mut service = api::Service::default();
    service.metadata.name = "other".into();
    service.metadata.namespace = "other".into();
    service.spec.cluster_ip = OTHER_ADDRESS.into();
    service.spec.ports = vec![api::ServicePortSpec {
        port: u16::try_from(1_000 + number).unwrap(),
        ..api::ServicePortSpec::default()
    }];
    service.into()
}

/// Applies a history. Returns whether the kernel rejected an object.
fn check_history<P: Mode>(
    seed: u64,
    changes: &[Change],
    atomicity: Atomicity,
) -> Result<bool, String>
where
    P::Object: PartialEq + Send + Sync + 'static,
{
    let mut dice = Dice::from_seed(seed);
    let events: Vec<_> = changes.iter().filter_map(decode).collect();
    let rejected = choose(&edited::<P>(&events)?, &mut dice);
    let mut rejecting = RejectingRun::<P>::start(rejected, atomicity)?;
    let first = usize::from(dice.roll(u8::MAX)) % events.len().max(1);
    for (number, event) in events.into_iter().enumerate() {
        if number == first {
            rejecting.reject();
        }
        rejecting.apply(event);
        rejecting.sync()?;
    }
    rejecting.check_all()?;
    rejecting.check_backoff()?;
    rejecting.check_all()?;
    let has_rejected = rejecting.rejections().iter().any(|count| *count > 0);
    rejecting.accept()?;
    let RejectingRun { run, plan, .. } = rejecting;
    match run.kernels.installed::<P>() == plan.kernels.installed::<P>() {
        true => Ok(has_rejected),
        false => Err("the final state differs from a run without rejections".into()),
    }
}

#[test]
fn rejected_objects_do_not_affect_others_in_any_history() {
    let rejecting = AtomicU64::new(0);
    check(
        HISTORIES,
        |seed| history((3 << 32) + seed, 12, u8::MAX),
        |seed, changes| {
            let batches = match (seed / 3) % 3 {
                0 => Atomicity::NamesFirst,
                1 => Atomicity::NamesAll,
                _ => Atomicity::NamesNone,
            };
            let has_rejected = match seed % 3 {
                0 => check_history::<nftables::Planner>(seed, changes, batches),
                1 => check_history::<iptables::Planner>(seed, changes, batches),
                _ => check_history::<ipvs::Planner>(seed, changes, Atomicity::Single),
            };
            rejecting.fetch_add(u64::from(has_rejected?), Ordering::Relaxed);
            Ok(())
        },
    );
    let rejecting = rejecting.into_inner();
    assert!(rejecting >= HISTORIES / 2, "{rejecting}");
}
