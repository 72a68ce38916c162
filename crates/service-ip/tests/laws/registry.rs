//! Compares registries of one store with a map of owners.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;

use proptest::collection::vec;
use proptest::prelude::*;
use vipline_service_ip::{
    AddressRange, AllocationError, Allocator, Draft, Error, OwnerRef, Pool, Registry, Snapshot,
};

use crate::faulty::{Fault, Faulty};

/// 30 addresses, of which the first 16 are the static band.
const RANGE: &str = "10.0.0.0/27";

type Addresses = Allocator<AddressRange>;

/// Owners of items. `None` if unknown.
type Model = BTreeMap<IpAddr, Option<OwnerRef>>;

/// A change by one of two processes that share the store.
#[derive(Clone, Debug)]
struct Step {
    is_second: bool,
    owner: u8,
    asks: Vec<Ask>,
    is_dry: bool,
    /// Faults of the commits.
    faults: Vec<Fault>,
    /// Addresses that another process allocates or releases just before.
    meanwhile: Option<u8>,
    seed: u64,
}

#[derive(Clone, Copy, Debug)]
enum Ask {
    Reserve(u8),
    Allocate,
    Release(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let ask = prop_oneof![
        2 => (0_u8..34).prop_map(Ask::Reserve),
        4 => Just(Ask::Allocate),
        2 => (0_u8..34).prop_map(Ask::Release),
    ];
    let conflict = any::<bool>().prop_map(|is_told| Fault::Conflict { is_told });
    let last = prop_oneof![
        6 => Just(Fault::None),
        1 => Just(Fault::Failed),
        1 => any::<bool>().prop_map(|is_made| Fault::Unknown { is_made }),
    ];
    let faults = (vec(conflict, 0..3), last).prop_map(|(mut faults, last)| {
        faults.push(last);
        faults
    });
    let meanwhile = prop::option::weighted(0.3, 1_u8..31);
    let (asks, is_dry) = (vec(ask, 1..5), prop::bool::weighted(0.2));
    (
        any::<bool>(),
        0_u8..3,
        asks,
        is_dry,
        faults,
        meanwhile,
        any::<u64>(),
    )
        .prop_map(
            |(is_second, owner, asks, is_dry, faults, meanwhile, seed)| Step {
                is_second,
                owner,
                asks,
                is_dry,
                faults,
                meanwhile,
                seed,
            },
        )
}

fn ip(number: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, number).into()
}

/// Errors of the model.
#[derive(Debug, PartialEq)]
enum ModelError {
    Full,
    Allocated,
    NotInRange,
    OtherOwner,
}

impl ModelError {
    fn from_error(error: &AllocationError) -> Option<Self> {
        Some(match error {
            AllocationError::Full { .. } => Self::Full,
            AllocationError::Allocated { .. } => Self::Allocated,
            AllocationError::NotInRange { .. } => Self::NotInRange,
            AllocationError::OtherOwner { .. } => Self::OtherOwner,
            _ => return None,
        })
    }
}

/// Applies a request to a draft, and records allocated items.
fn ask(
    draft: &mut Draft<'_, Addresses>,
    step: &Step,
    owner: &OwnerRef,
    given: &mut Vec<IpAddr>,
) -> Result<(), AllocationError> {
    given.clear();
    for ask in &step.asks {
        match *ask {
            Ask::Reserve(number) => draft.reserve(ip(number), owner)?,
            Ask::Allocate => given.push(draft.allocate(owner, &mut || step.seed)?),
            Ask::Release(number) => {
                draft.release(ip(number), owner)?;
            }
        }
    }
    Ok(())
}

/// Returns the expected model after a request with the allocated items.
fn expected(
    model: &Model,
    asks: &[Ask],
    owner: &OwnerRef,
    given: &[IpAddr],
) -> Result<Result<Model, ModelError>, TestCaseError> {
    let (mut model, mut given) = (model.clone(), given.iter());
    for ask in asks {
        match *ask {
            Ask::Reserve(number) if !(1..31).contains(&number) => {
                return Ok(Err(ModelError::NotInRange));
            }
            Ask::Reserve(number) => {
                if model.insert(ip(number), Some(owner.clone())).is_some() {
                    return Ok(Err(ModelError::Allocated));
                }
            }
            Ask::Allocate => {
                let in_upper = model.range(ip(17)..).count();
                if model.len() == 30 {
                    return Ok(Err(ModelError::Full));
                }
                let item = given.next();
                prop_assert!(item.is_some(), "not full");
                let item = *item.unwrap();
                prop_assert!(
                    item >= ip(17) || in_upper == 14,
                    "{} in the static band",
                    item
                );
                let former = model.insert(item, Some(owner.clone()));
                prop_assert_eq!(former, None, "{} twice", item);
            }
            Ask::Release(number) => {
                if let Some(Some(other)) = model.get(&ip(number))
                    && other != owner
                {
                    return Ok(Err(ModelError::OtherOwner));
                }
                model.remove(&ip(number));
            }
        }
    }
    Ok(Ok(model))
}

/// Allocates an address without owner, or releases it.
fn toggle(number: u8, snapshot: &mut Snapshot<Addresses>) {
    let item = ip(number);
    if !snapshot.owners.contains_key(&item) && !snapshot.pool.release(item) {
        snapshot.pool.reserve(item).unwrap();
    }
}

fn toggle_model(number: u8, model: &mut Model) {
    match model.get(&ip(number)) {
        Some(Some(_)) => {}
        Some(None) => {
            model.remove(&ip(number));
        }
        None => {
            model.insert(ip(number), None);
        }
    }
}

/// A shared store with its expected state.
struct Cluster {
    store: Faulty<Addresses>,
    registries: [Registry<Addresses, Faulty<Addresses>>; 2],
    model: Model,
    /// Changes by another process before the next commit.
    pending: Option<(u8, Rc<Cell<bool>>)>,
}

impl Cluster {
    fn new() -> Self {
        let range: AddressRange = RANGE.parse().unwrap();
        let store = Faulty::new(Allocator::new(range));
        Self {
            registries: [(); 2].map(|()| Registry::new(store.clone())),
            store,
            model: Model::new(),
            pending: None,
        }
    }

    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        let owner = OwnerRef::service("default", &step.owner.to_string());
        self.store.fail(step.faults.iter().copied());
        if let Some(number) = step.meanwhile.filter(|_| self.pending.is_none()) {
            let was_done = Rc::new(Cell::new(false));
            self.pending = Some((number, Rc::clone(&was_done)));
            self.store.meanwhile(move |snapshot| {
                toggle(number, snapshot);
                was_done.set(true);
            });
        }
        let commits = self.store.commits();
        let registry = &mut self.registries[usize::from(step.is_second)];
        let mut given = Vec::new();
        let plan = |draft: &mut Draft<'_, Addresses>| ask(draft, step, &owner, &mut given);
        let done = match step.is_dry {
            true => registry.dry_run(plan),
            false => registry.change(plan),
        };
        if let Some((number, _)) = self.pending.take_if(|(_, was_done)| was_done.get()) {
            toggle_model(number, &mut self.model);
        }
        // The items of a plan that was not committed may be older than the model.
        let expected = || expected(&self.model, &step.asks, &owner, &given);
        match done {
            Ok(()) => {
                let model = expected()?;
                prop_assert!(model.is_ok(), "{:?}", model);
                let model = model.unwrap();
                if !step.is_dry {
                    self.model = model;
                }
            }
            Err(Error::Allocation(error)) => {
                prop_assert_eq!(
                    expected()?.err(),
                    ModelError::from_error(&error),
                    "{}",
                    error
                );
            }
            Err(Error::Store(_)) => {
                let has_failed = matches!(step.faults.last(), Some(Fault::Failed));
                prop_assert!(has_failed, "{:?}", step.faults);
            }
            Err(Error::Unknown(_)) => match step.faults.last() {
                Some(Fault::Unknown { is_made: true }) => {
                    self.model = expected()?.unwrap();
                }
                Some(Fault::Unknown { is_made: false }) => {}
                _ => prop_assert!(false, "{:?}", step.faults),
            },
            Err(error) => prop_assert!(false, "{}", error),
        }
        if step.is_dry {
            prop_assert_eq!(self.store.commits(), commits);
        }
        self.check_state()
    }

    fn check_state(&self) -> Result<(), TestCaseError> {
        let truth = self.store.look();
        prop_assert!(truth.pool.items().eq(self.model.keys().copied()));
        let owned = self.model.iter();
        let owned = owned.filter_map(|(item, owner)| Some((*item, owner.clone()?)));
        prop_assert_eq!(&truth.owners, &owned.collect::<BTreeMap<_, _>>());
        prop_assert_eq!(truth.pool.used() + truth.pool.free(), 30);
        Ok(())
    }
}

proptest! {
    #[test]
    fn conflicts_and_failures_never_allocate_an_item_twice_or_lose_one(
        steps in vec(step(), 0..40),
    ) {
        let mut cluster = Cluster::new();
        for step in steps {
            cluster.step(&step)?;
        }
        for registry in &mut cluster.registries {
            let last = registry.refresh().unwrap();
            prop_assert!(last.pool.items().eq(cluster.model.keys().copied()));
        }
    }
}

#[test]
fn a_change_fails_after_too_many_conflicts() {
    let mut cluster = Cluster::new();
    cluster
        .store
        .fail([Fault::Conflict { is_told: true }; 1000]);
    let owner = OwnerRef::service("default", "a");
    let error = cluster.registries[0].reserve(ip(1), &owner).unwrap_err();
    assert!(matches!(error, Error::Contended { .. }), "{error}");
    cluster.check_state().unwrap();
}
