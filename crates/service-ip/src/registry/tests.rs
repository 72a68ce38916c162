//! Tests of conflicts and retries.

use std::future;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use super::*;
use crate::{AddressRange, Allocator, AsyncStore, Change, CommitError, Memory, Version};

type Addresses = Allocator<AddressRange>;

/// A store that another process changes before each of the first commits.
struct Busy {
    store: Memory<Addresses>,
    conflicts: usize,
    loads: Arc<Mutex<usize>>,
}

impl Store<Addresses> for Busy {
    fn load(&mut self) -> Result<Snapshot<Addresses>, StoreError> {
        *self.loads.lock().unwrap() += 1;
        self.store.load()
    }

    fn commit(
        &mut self,
        base: Version,
        change: &Change<<Addresses as Pool>::Item>,
        after: &Snapshot<Addresses>,
    ) -> Result<Version, CommitError<Addresses>> {
        if self.conflicts > 0 {
            self.conflicts -= 1;
            let mut other = Registry::new(self.store.clone());
            let allocated = other.allocate(&OwnerRef::service("other", "other"), &mut || 0);
            allocated.expect("the range is not full");
        }
        self.store.commit(base, change, after)
    }
}

impl AsyncStore<Addresses> for Busy {
    fn load(&mut self) -> impl Future<Output = Result<Snapshot<Addresses>, StoreError>> + Send {
        future::ready(Store::load(self))
    }

    fn commit(
        &mut self,
        base: Version,
        change: &Change<<Addresses as Pool>::Item>,
        after: &Snapshot<Addresses>,
    ) -> impl Future<Output = Result<Version, CommitError<Addresses>>> + Send {
        future::ready(Store::commit(self, base, change, after))
    }
}

/// Returns the result of a future that never waits.
fn at_once<T>(future: impl Future<Output = T> + Send) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the future waits"),
    }
}

fn busy(network: &str, conflicts: usize) -> (Registry<Addresses, Busy>, Arc<Mutex<usize>>) {
    let loads = Arc::new(Mutex::new(0));
    let store = Busy {
        store: Memory::new(Allocator::new(network.parse().unwrap())),
        conflicts,
        loads: Arc::clone(&loads),
    };
    (Registry::new(store), loads)
}

#[test]
fn the_snapshot_of_a_conflict_is_used_without_another_load() {
    let owner = OwnerRef::service("default", "web");
    let (mut registry, loads) = busy("10.0.0.0/29", 3);
    let address = registry.allocate(&owner, &mut || 0).unwrap();
    assert_eq!(
        address.to_string(),
        "10.0.0.4",
        "other processes allocated 3"
    );
    assert_eq!(*loads.lock().unwrap(), 1);
    // An exhausted range in the snapshot is final as well.
    let (mut registry, loads) = busy("10.0.0.0/30", 0);
    registry.refresh().unwrap();
    registry.store.conflicts = 2;
    let error = registry.allocate(&owner, &mut || 0).unwrap_err();
    assert!(matches!(
        error,
        Error::Allocation(AllocationError::Full { .. })
    ));
    assert_eq!(*loads.lock().unwrap(), 1);
}

/// A store that returns given snapshots for the first conflicts.
struct Partial(Memory<Addresses>, Vec<Snapshot<Addresses>>);

impl Store<Addresses> for Partial {
    fn load(&mut self) -> Result<Snapshot<Addresses>, StoreError> {
        self.0.load()
    }

    fn commit(
        &mut self,
        base: Version,
        change: &Change<<Addresses as Pool>::Item>,
        after: &Snapshot<Addresses>,
    ) -> Result<Version, CommitError<Addresses>> {
        match self.1.pop() {
            Some(now) => Err(CommitError::Conflict {
                now: Some(Box::new(now)),
            }),
            None => self.0.commit(base, change, after),
        }
    }
}

#[test]
fn a_rejection_by_an_old_snapshot_is_verified_with_a_fresh_one() {
    let owner = OwnerRef::service("default", "web");
    let mut store = Memory::new(Addresses::new("10.0.0.0/30".parse().unwrap()));
    let mut known = store.load().unwrap();
    for _ in 0..2 {
        known.pool.allocate(&mut || 0).unwrap();
    }
    let mut registry = Registry::new(Partial(store, vec![known]));
    // Both addresses were allocated, but one has been released meanwhile.
    let address = registry.allocate(&owner, &mut || 0).unwrap();
    assert_eq!(address.to_string(), "10.0.0.1");
}

#[test]
fn the_backoff_receives_the_number_of_attempts() {
    let owner = OwnerRef::service("default", "web");
    let (registry, loads) = busy("10.0.0.0/24", 3);
    let pauses = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&pauses);
    let mut registry = registry.with_backoff(move |attempts| noted.lock().unwrap().push(attempts));
    registry.allocate(&owner, &mut || 0).unwrap();
    assert_eq!(*pauses.lock().unwrap(), [1, 2, 3]);
    // The store is read again after each wait.
    assert_eq!(*loads.lock().unwrap(), 4);
}

#[test]
fn a_change_that_always_conflicts_fails_without_effect() {
    let owner = OwnerRef::service("default", "web");
    let (mut registry, _) = busy("10.0.0.0/24", usize::MAX);
    let error = registry.allocate(&owner, &mut || 0).unwrap_err();
    assert!(matches!(error, Error::Contended { attempts: 100 }));
    let snapshot = registry.refresh().unwrap();
    assert!(!snapshot.owners.values().any(|other| *other == owner));
    assert_eq!(snapshot.pool.used(), 100);
}

#[test]
fn async_changes_are_planned_again_after_conflicts() {
    let owner = OwnerRef::service("default", "web");
    let (mut registry, loads) = busy("10.0.0.0/29", 3);
    let address = at_once(registry.allocate_async(&owner, || 0)).unwrap();
    assert_eq!(address.to_string(), "10.0.0.4");
    assert_eq!(*loads.lock().unwrap(), 1);
    let error = at_once(registry.reserve_async(address, &owner)).unwrap_err();
    assert_eq!(error.to_string(), "10.0.0.4 is already allocated");
    assert_eq!(*loads.lock().unwrap(), 2, "decided on a fresh snapshot");
    assert!(at_once(registry.release_async(address, &owner)).unwrap());
    let snapshot = at_once(registry.refresh_async()).unwrap();
    assert_eq!(snapshot.pool.used(), 3);
}
