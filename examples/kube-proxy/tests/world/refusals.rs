//! Histories over a kernel that refuses random objects for a while.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proxy_core::backend::{iptables, ipvs, nftables};
use proxy_core::{Event, Family, Planner};
use testworld::Change;
use vipline_reconcile::{Atomicity, Keyed, diff};
use vipline_service_model::api;
use vipline_service_model::arbitrary::Dice;

use crate::costs::Mode;
use crate::decode::decode;
use crate::history::{Verdict, check, history};
use crate::laws::Run;

/// `ENOENT`, `E2BIG`, `ENOMEM`, `EBUSY`, `EEXIST`, `EINVAL` and `ENOSPC`.
const ERRNOS: [i32; 7] = [2, 7, 12, 16, 17, 22, 28];

/// Number of histories. Each mode plays one third.
const HISTORIES: u64 = 1_000;

/// A time after which every rejected object was tried again.
const LONG: Duration = Duration::from_secs(11 * 60);

/// Seconds for which the kernel goes on to refuse after the last change.
const REST: u32 = 64;

/// The cluster IP of a Service of no history.
const OTHER_ADDRESS: &str = "172.31.255.1";

/// Objects that the kernel refuses, by family.
type Refused<T> = [Vec<(T, i32)>; 2];

/// Plays a history, and returns all objects of Services that were ever edited, by family
/// and key.
fn edited<P: Mode>(changes: &[Change]) -> Result<[BTreeMap<String, P::Object>; 2], String>
where
    P::Object: Send + Sync + 'static,
{
    let mut run = Run::<P>::start_with(&[])?;
    let mut edited = [BTreeMap::new(), BTreeMap::new()];
    let mut base = HashSet::new();
    for event in changes.iter().filter_map(decode) {
        run.engine.apply(event);
        run.sync()?;
        base.extend(
            run.base()
                .iter()
                .map(|object| format!("{:?}", object.key())),
        );
    }
    for (family, edited) in Family::ALL.into_iter().zip(&mut edited) {
        let edits = std::mem::take(&mut run.kernels.of(family).get().edits);
        let objects = edits.iter().map(|edit| edit.object().clone());
        edited.extend(objects.map(|object| (format!("{:?}", object.key()), object)));
        edited.retain(|key, _| !base.contains(key));
    }
    Ok(edited)
}

/// Chooses up to three objects of each family, with an error number each.
fn choose<T: Clone>(edited: &[BTreeMap<String, T>; 2], dice: &mut Dice) -> Refused<T> {
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

/// A run over kernels that refuse objects, beside one over kernels that take all.
struct Refusing<P: Planner> {
    run: Run<P>,
    plan: Run<P>,
    refused: Refused<P::Object>,
}

impl<P: Mode> Refusing<P>
where
    P::Object: Send + Sync + 'static,
{
    fn start(refused: Refused<P::Object>, atomicity: Atomicity) -> Result<Self, String> {
        let run = Run::<P>::start_with(&[])?;
        for family in Family::ALL {
            let mut noted = run.kernels.of(family).get();
            noted.memory.set_atomicity(atomicity);
        }
        let plan = Run::<P>::start_with(&[])?;
        Ok(Self { run, plan, refused })
    }

    /// Begins to refuse objects; some of them may be installed.
    fn refuse(&self) {
        for (family, refused) in Family::ALL.into_iter().zip(&self.refused) {
            let mut noted = self.run.kernels.of(family).get();
            for (object, errno) in refused {
                noted.memory.reject(object.clone(), *errno);
            }
        }
    }

    /// Takes in an event.
    fn apply(&mut self, event: Event) {
        self.plan.engine.apply(event.clone());
        self.run.engine.apply(event);
    }

    /// Syncs. Everything but refused objects must be as planned, with few messages.
    fn sync(&mut self) -> Verdict {
        self.plan.sync()?;
        let before = Family::ALL.map(|family| self.attempts(family));
        self.run.sync()?;
        for (family, before) in Family::ALL.into_iter().zip(before) {
            let noted = &mut *self.run.kernels.of(family).get();
            let edits = std::mem::take(&mut noted.edits).len();
            let refused = self.refused[usize::from(family == Family::V6)].len();
            // A search halves the batch for each refused object, and does so twice if the
            // kernel is dumped after a contradiction.
            let depth = usize::BITS - edits.leading_zeros();
            let most = 2 * (1 + refused * (2 + 2 * usize::try_from(depth).unwrap()));
            let attempts = noted.memory.attempts() - before;
            if attempts > most {
                return Err(format!("{family}: {attempts} messages for {edits} edits"));
            }
        }
        self.only_refused_objects_differ()
    }

    fn attempts(&self, family: Family) -> usize {
        self.run.kernels.of(family).get().memory.attempts()
    }

    fn only_refused_objects_differ(&self) -> Verdict {
        for (family, refused) in Family::ALL.into_iter().zip(&self.refused) {
            let plan = self.plan.kernels.of(family).get();
            let desired: Vec<_> = plan.memory.objects().cloned().collect();
            let noted = self.run.kernels.of(family).get();
            let installed = noted.memory.objects().cloned();
            for edit in diff(installed, &desired) {
                let key = edit.key();
                let is_refused = refused.iter().any(|(object, _)| object.key() == key);
                if !is_refused && !P::is_removal_delayed(edit.object()) {
                    return Err(format!("{family}: {key:?} is not as planned"));
                }
            }
        }
        Ok(())
    }

    /// Returns how often each object was refused.
    fn rejections(&self) -> Vec<usize> {
        let families = Family::ALL.into_iter().zip(&self.refused);
        let all = families.flat_map(|(family, refused)| {
            let noted = self.run.kernels.of(family).get();
            let objects = refused.iter();
            let counts = objects.map(|(object, _)| noted.memory.rejections(object));
            counts.collect::<Vec<_>>()
        });
        all.collect()
    }

    /// Fails if refused objects are sent more often than their backoff allows while
    /// another Service changes.
    fn rests(&mut self) -> Verdict {
        self.apply(other_service(REST));
        self.sync()?;
        let before = self.rejections();
        for second in 0..REST {
            self.apply(other_service(second));
            self.sync()?;
        }
        // A search may send an object again with each half of the batch.
        let most = 8 * usize::try_from(REST.ilog2() + 1).unwrap();
        for (before, after) in before.into_iter().zip(self.rejections()) {
            let times = after - before;
            if times > most {
                return Err(format!("an object was sent {times} times in {REST} s"));
            }
        }
        Ok(())
    }

    /// Ends the refusals, and waits until every object was tried again.
    fn accept(&mut self) -> Verdict {
        for (family, refused) in Family::ALL.into_iter().zip(&self.refused) {
            let mut noted = self.run.kernels.of(family).get();
            for (object, _) in refused {
                noted.memory.accept(object);
            }
        }
        for run in [&mut self.run, &mut self.plan] {
            run.now += LONG;
            run.sync()?;
        }
        let left: usize = Family::ALL
            .map(|family| self.run.engine.rejected_count(family))
            .iter()
            .sum();
        match left {
            0 => self.run.is_in_step(),
            left => Err(format!("{left} objects still count as rejected")),
        }
    }
}

/// Returns the event of a Service of no history, with another port at each number.
fn other_service(number: u32) -> Event {
    let mut service = api::Service::default();
    service.metadata.name = "other".into();
    service.metadata.namespace = "other".into();
    service.spec.cluster_ip = OTHER_ADDRESS.into();
    service.spec.ports = vec![api::ServicePort {
        port: u16::try_from(1_000 + number).unwrap(),
        ..api::ServicePort::default()
    }];
    service.into()
}

/// Plays a history; returns whether the kernel refused something.
fn obey<P: Mode>(seed: u64, changes: &[Change], atomicity: Atomicity) -> Result<bool, String>
where
    P::Object: Send + Sync + 'static,
{
    let mut dice = Dice::from_seed(seed);
    let refused = choose(&edited::<P>(changes)?, &mut dice);
    let mut refusing = Refusing::<P>::start(refused, atomicity)?;
    let events: Vec<_> = changes.iter().filter_map(decode).collect();
    let first = usize::from(dice.roll(u8::MAX)) % events.len().max(1);
    for (number, event) in events.into_iter().enumerate() {
        if number == first {
            refusing.refuse();
        }
        refusing.apply(event);
        refusing.sync()?;
    }
    refusing.rests()?;
    let has_refused = refusing.rejections().iter().any(|count| *count > 0);
    refusing.accept()?;
    let Refusing { run, plan, .. } = refusing;
    match run.kernels.held::<P>() == plan.kernels.held::<P>() {
        true => Ok(has_refused),
        false => Err("the end is another one than without refusals".into()),
    }
}

#[test]
fn refused_objects_leave_all_others_alone_in_any_history() {
    let refusing = AtomicU64::new(0);
    check(
        HISTORIES,
        |seed| history((3 << 32) + seed, 12, u8::MAX),
        |seed, changes| {
            let batches = match (seed / 3) % 3 {
                0 => Atomicity::NamesFirst,
                1 => Atomicity::NamesAll,
                _ => Atomicity::NamesNone,
            };
            let has_refused = match seed % 3 {
                0 => obey::<nftables::Planner>(seed, changes, batches),
                1 => obey::<iptables::Planner>(seed, changes, batches),
                _ => obey::<ipvs::Planner>(seed, changes, Atomicity::Single),
            };
            refusing.fetch_add(u64::from(has_refused?), Ordering::Relaxed);
            Ok(())
        },
    );
    let refusing = refusing.into_inner();
    assert!(refusing >= HISTORIES / 2, "{refusing}");
}
