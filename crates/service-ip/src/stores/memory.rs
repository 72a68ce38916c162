//! A store in the memory of one process.

use std::sync::{Arc, Mutex, MutexGuard};

use crate::{
    AllocationError, Change, CommitError, Draft, Pool, Reservations, Snapshot, Store, StoreError,
    Version,
};

/// A store in the memory of this process.
///
/// A clone is another handle for the same store, for use in another thread.
///
/// Threads that change the store continuously should share one
/// [`Registry`](crate::Registry) behind a lock, or use a
/// [backoff](crate::Registry::with_backoff). Otherwise the fastest thread may starve
/// all others.
#[derive(Debug)]
pub struct Memory<P: Pool> {
    shared: Arc<Mutex<Snapshot<P>>>,
}

impl<P: Pool> Memory<P> {
    /// Returns a store with the allocated items of a pool, without owners.
    #[must_use]
    pub fn new(pool: P) -> Self {
        Self {
            shared: Arc::new(Mutex::new(Snapshot::new(pool, Version(1)))),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Snapshot<P>> {
        self.shared
            .lock()
            .expect("no thread panics while it holds the lock")
    }
}

impl<P: Pool> Clone for Memory<P> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<P: Pool + Clone> Store<P> for Memory<P> {
    fn load(&mut self) -> Result<Snapshot<P>, StoreError> {
        Ok(self.lock().clone())
    }

    fn commit(
        &mut self,
        base: Version,
        change: &Change<P::Item>,
        _: &Snapshot<P>,
    ) -> Result<Version, CommitError<P>> {
        let mut snapshot = self.lock();
        if snapshot.version != base {
            let now = Some(Box::new(snapshot.clone()));
            return Err(CommitError::Conflict { now });
        }
        let none = Reservations::new();
        let mut draft = Draft::new(&mut snapshot, &none);
        if let Err((item, error)) = make(&mut draft, change) {
            draft.undo();
            return Err(CommitError::Failed(StoreError::Unavailable {
                operation: "allocate",
                object: item.to_string().into(),
                source: error.into(),
            }));
        }
        snapshot.version.0 += 1;
        Ok(snapshot.version)
    }
}

/// Applies a change, up to the first item that cannot be allocated.
fn make<P: Pool>(
    draft: &mut Draft<'_, P>,
    change: &Change<P::Item>,
) -> Result<(), (P::Item, AllocationError)> {
    for item in change.freed.keys() {
        draft.free(*item);
    }
    for (item, owner) in &change.taken {
        draft
            .reserve(*item, owner)
            .map_err(|error| (*item, error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::{AddressRange, Allocator, Error, OwnerRef, Range, Registry};

    /// A range with a static and a dynamic band.
    const NETWORK: &str = "10.0.0.0/26";

    fn store() -> Memory<Allocator<AddressRange>> {
        Memory::new(Allocator::new(NETWORK.parse().unwrap()))
    }

    /// Returns a generator of random numbers.
    fn random(seed: u64) -> impl FnMut() -> u64 {
        let mut state = seed;
        move || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb)
        }
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "the test sleeps")]
    fn threads_never_allocate_the_same_item() {
        let store = store();
        let range: AddressRange = NETWORK.parse().unwrap();
        let held: Vec<AtomicBool> = (0..range.len()).map(|_| AtomicBool::new(false)).collect();
        let done = AtomicUsize::new(0);
        thread::scope(|scope| {
            for thread in 0..4 {
                let (store, held, done) = (store.clone(), &held, &done);
                scope.spawn(move || {
                    let owner = OwnerRef::service("default", &format!("service-{thread}"));
                    // Without a backoff, one thread starves the others.
                    let pause = move |attempts: usize| {
                        let micros = (20 + 7 * thread) << attempts.min(8);
                        thread::sleep(Duration::from_micros(micros));
                    };
                    let mut registry = Registry::new(store).with_backoff(pause);
                    let mut random = random(thread);
                    let mut mine = Vec::new();
                    for _ in 0..2_000 {
                        let free =
                            mine.len() > 20 || (!mine.is_empty() && random().is_multiple_of(2));
                        let outcome = if free {
                            let item = mine.swap_remove(random() as usize % mine.len());
                            let number = range.number(item).unwrap() as usize;
                            assert!(held[number].swap(false, Ordering::SeqCst), "{item}");
                            registry.release(item, &owner).map(|freed| assert!(freed))
                        } else {
                            registry.allocate(&owner, &mut random).map(|item| {
                                let number = range.number(item).unwrap() as usize;
                                assert!(!held[number].swap(true, Ordering::SeqCst), "{item} twice");
                                mine.push(item);
                            })
                        };
                        match outcome {
                            Ok(()) => _ = done.fetch_add(1, Ordering::SeqCst),
                            Err(Error::Allocation(error)) => assert!(error.is_full()),
                            Err(error) => panic!("{error}"),
                        }
                    }
                });
            }
        });
        let held = held.iter().filter(|held| held.load(Ordering::SeqCst));
        assert_eq!(store.lock().pool.used(), held.count() as u128);
        assert!(done.load(Ordering::SeqCst) > 4_000);
    }

    #[test]
    fn the_second_change_of_a_version_conflicts() {
        let mut store = store();
        let base = store.load().unwrap();
        let owner = OwnerRef::service("default", "web");
        let take = |item: &str| Change {
            taken: [(item.parse().unwrap(), owner.clone())].into(),
            ..Change::default()
        };
        let first = store
            .commit(base.version, &take("10.0.0.1"), &base)
            .unwrap();
        assert!(first > base.version);
        let second = store.commit(base.version, &take("10.0.0.2"), &base);
        let Err(CommitError::Conflict { now: Some(now) }) = second else {
            panic!("{second:?}");
        };
        assert_eq!(now.version, first);
        assert_eq!(now.owners, take("10.0.0.1").taken);
        assert_eq!(now.pool.used(), 1);
    }

    #[test]
    fn a_failed_change_is_rolled_back() {
        let mut store = store();
        let owner = OwnerRef::service("default", "web");
        let mut registry = Registry::new(store.clone());
        let [first, second] = ["10.0.0.1", "10.0.0.2"].map(|text| text.parse().unwrap());
        registry.reserve(first, &owner).unwrap();
        registry.reserve(second, &owner).unwrap();
        let before = store.load().unwrap();
        let change = Change {
            freed: [(first, None)].into(),
            taken: [(second, OwnerRef::service("default", "other"))].into(),
        };
        let Err(CommitError::Failed(error)) = store.commit(before.version, &change, &before) else {
            panic!("the item is allocated");
        };
        assert_eq!(error.to_string(), "allocate 10.0.0.2");
        let after = store.load().unwrap();
        assert_eq!(after.version, before.version);
        assert_eq!(after.owners, before.owners);
        assert!(after.pool.items().eq([first, second]));
    }
}
