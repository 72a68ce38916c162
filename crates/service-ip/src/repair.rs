//! Repair: compares allocated items with the items of Services.
//!
//! An item is allocated in one object and used in another, and no transaction spans both: a
//! process may end in between. Then a Service has an address that is not allocated, and the
//! next Service may get it too; or an address is allocated that no Service has, and is lost. A
//! pass compares both, and corrects what it can: the Services are right, because traffic
//! follows them.
//!
//! For example: allocated are .1, .9 and .11; Service `a` has .1, `c` has .1 too, and `d` has
//! .7. The pass allocates .7 for `d`, reports that `c` must be recreated, and takes .9 and .11
//! for *possible* leaks, because their Services may be about to be stored. If no Service has
//! them in the third consecutive pass, they are released.
//!
//! What must stay true:
//!
//! - Services are listed *after* the allocations were read. In the other order a Service that
//!   was stored in between would look like a leak, and its address would be given away.
//! - Only a committed pass counts. A plan that is repeated after a conflict must not count
//!   twice, so [`Repair::plan`] takes `&self`, and the state changes in
//!   [`Repair::try_pass`] alone.
//! - A doubt keeps an item allocated. A leaked address costs an address, a released one in use
//!   costs two Services.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::IpAddr;
use std::{error, fmt};

use crate::{
    AllocationError, Draft, Error, OwnerRef, Pool, Registry, RepairCounters, RepairReason, Store,
    parse_address,
};

/// Number of consecutive passes without a Service after which an item is released.
///
/// An item is allocated before its Service is stored, and released after its Service
/// is deleted. In between the item has no Service, but has not leaked.
///
/// Three as in Kubernetes, whose passes are three minutes apart.
const PASSES: u8 = 3;

/// The items in the spec of a Service.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ServiceItems<I> {
    /// The Service.
    pub owner: OwnerRef,
    /// Items of the ranges to repair.
    ///
    /// With one registry per family, pass each registry the addresses of its own family.
    /// A registry reports addresses outside of its ranges.
    pub items: Vec<I>,
    /// Texts that are not items.
    pub invalid: Vec<Box<str>>,
}

impl<I> ServiceItems<I> {
    /// Returns the items of a Service, all of them valid.
    #[must_use]
    pub fn new(owner: OwnerRef, items: impl IntoIterator<Item = I>) -> Self {
        Self {
            owner,
            items: items.into_iter().collect(),
            invalid: Vec::new(),
        }
    }
}

impl ServiceItems<IpAddr> {
    /// Parses the addresses of a Service with [`parse_address`].
    #[must_use]
    pub fn parse<'a>(owner: OwnerRef, texts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut claims = Self::new(owner, []);
        for text in texts {
            match parse_address(text) {
                Some(item) => claims.items.push(item),
                None => claims.invalid.push(text.into()),
            }
        }
        claims
    }
}

/// A finding of a repair pass.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Finding<I> {
    /// The text in the Service is not an item. Recreate the Service.
    Invalid {
        /// The Service.
        owner: OwnerRef,
        /// The text.
        text: Box<str>,
    },
    /// The item of the Service cannot be allocated. Recreate the Service.
    Unallocatable {
        /// The Service.
        owner: OwnerRef,
        /// The item.
        item: I,
        /// The reason.
        error: AllocationError,
    },
    /// The item occurs in two Services, or twice in one Service. Recreate the Service.
    Duplicate {
        /// The Service.
        owner: OwnerRef,
        /// The item.
        item: I,
        /// The Service that keeps the item.
        other: OwnerRef,
    },
    /// The item of the Service was not allocated. Now it is.
    NotAllocated {
        /// The Service.
        owner: OwnerRef,
        /// The item.
        item: I,
    },
    /// The item of the Service was recorded for another Service, which does not have it.
    /// The record now names the Service.
    WrongOwner {
        /// The Service.
        owner: OwnerRef,
        /// The item.
        item: I,
        /// The former owner by the record.
        recorded: OwnerRef,
    },
    /// The Service has an item without a right to it. It stays allocated.
    Reserved {
        /// The Service.
        owner: OwnerRef,
        /// The item.
        item: I,
        /// [`AllocationError::Reserved`] or [`AllocationError::Excluded`].
        error: AllocationError,
    },
    /// No Service has the allocated item. A Service may be about to get it.
    PossibleLeak {
        /// The item.
        item: I,
        /// The owner by the record, if known.
        recorded: Option<OwnerRef>,
        /// Number of consecutive passes with this finding.
        passes: u8,
    },
    /// The store required a repair pass. The pass has written the range.
    Rewritten {
        /// Why the repair pass was required.
        reason: RepairReason,
    },
    /// No Service had the allocated item in three consecutive passes. It is released.
    Leaked {
        /// The item.
        item: I,
        /// The former owner by the record, if known.
        recorded: Option<OwnerRef>,
    },
}

impl<I> Finding<I> {
    /// Returns the value of the metric label `type` of Kubernetes, if the finding is
    /// counted.
    #[must_use]
    pub const fn label(&self) -> Option<&'static str> {
        Some(match self {
            Self::Invalid { .. } => "invalid",
            Self::Unallocatable { error, .. } => match error {
                AllocationError::NotInRange { .. } => "outOfRange",
                AllocationError::MismatchedFamily { .. } => "invalid",
                AllocationError::Full { .. } => "full",
                _ => "unknown",
            },
            Self::Duplicate { .. } => "duplicate",
            Self::NotAllocated { .. } | Self::WrongOwner { .. } => "repair",
            // A possible leak counts when it turns out to be one. The other two have no counterpart
            // in Kubernetes, and a label of ours would be new to its dashboards.
            Self::PossibleLeak { .. } | Self::Reserved { .. } | Self::Rewritten { .. } => {
                return None;
            }
            Self::Leaked { .. } => "leak",
        })
    }

    /// Returns the Service of the finding.
    #[must_use]
    pub const fn owner(&self) -> Option<&OwnerRef> {
        match self {
            Self::Invalid { owner, .. }
            | Self::Unallocatable { owner, .. }
            | Self::Duplicate { owner, .. }
            | Self::NotAllocated { owner, .. }
            | Self::Reserved { owner, .. }
            | Self::WrongOwner { owner, .. } => Some(owner),
            Self::PossibleLeak { .. } | Self::Leaked { .. } | Self::Rewritten { .. } => None,
        }
    }
}

impl<I: fmt::Display> fmt::Display for Finding<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(owner) = self.owner() {
            write!(f, "Service {owner} has ")?;
        }
        match self {
            Self::Invalid { text, .. } => write!(f, "{text:?}, which is not valid; recreate it"),
            Self::Unallocatable { item, error, .. } => {
                write!(f, "{item}: {error}; recreate it")
            }
            Self::Duplicate { owner, item, other } if owner == other => {
                write!(f, "{item} twice; recreate it")
            }
            Self::Duplicate { item, other, .. } => {
                write!(f, "{item}, which belongs to {other}; recreate it")
            }
            Self::NotAllocated { item, .. } => {
                write!(f, "{item}, which was not allocated: it is now")
            }
            Self::Reserved { item, error, .. } => write!(f, "{item}: {error}"),
            Self::WrongOwner { item, recorded, .. } => {
                write!(f, "{item}, which was recorded for {recorded}")
            }
            Self::PossibleLeak {
                item,
                recorded,
                passes,
            } => {
                write!(f, "{item}{} may have leaked: ", Recorded(recorded.as_ref()))?;
                write!(f, "no Service has it in {passes} of {PASSES} passes")
            }
            Self::Rewritten { reason } => write!(f, "{reason}; written by repair"),
            Self::Leaked { item, recorded } => {
                write!(f, "{item}{} has leaked: ", Recorded(recorded.as_ref()))?;
                write!(f, "no Service has it; released")
            }
        }
    }
}

/// Displays the recorded owner in parentheses.
struct Recorded<'a>(Option<&'a OwnerRef>);

impl fmt::Display for Recorded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |owner| write!(f, " ({owner})"))
    }
}

/// Repair of one registry, with the state between passes.
#[derive(Clone, Debug)]
pub struct Repair<I> {
    possible_leaks: BTreeMap<I, PossibleLeak>,
    counters: RepairCounters,
}

/// An item without a Service.
#[derive(Clone, Debug)]
struct PossibleLeak {
    /// The owner by the record. If it changes, the item has been allocated again.
    recorded: Option<OwnerRef>,
    /// Number of consecutive passes with this finding.
    passes: u8,
}

/// The result of a pass, and the state for the next one.
struct Pass<I> {
    findings: Vec<Finding<I>>,
    possible_leaks: BTreeMap<I, PossibleLeak>,
}

impl<I> Default for Repair<I> {
    fn default() -> Self {
        Self::new()
    }
}

impl<I> Repair<I> {
    /// Returns a repair without previous passes.
    #[must_use]
    pub fn new() -> Self {
        Self {
            possible_leaks: BTreeMap::new(),
            counters: RepairCounters::default(),
        }
    }

    /// Returns the counters.
    #[must_use]
    pub const fn counters(&self) -> &RepairCounters {
        &self.counters
    }
}

impl<I: Copy + Ord> Repair<I> {
    /// Compares allocated items with the items of Services, and corrects differences.
    ///
    /// Calls `services` after each load of the store, also after a conflict: the list of
    /// Services is never older than the allocation state.
    /// A failed pass does not count as a pass without a Service.
    ///
    /// The first pass writes the range of a store that is not initialized or has another
    /// range.
    /// It allocates the items of all Services, and keeps allocated items within the new
    /// range.
    ///
    /// [`try_pass`](Self::try_pass) is for Services whose list can fail.
    ///
    /// # Errors
    ///
    /// The registry failed.
    pub fn pass<P, S>(
        &mut self,
        registry: &mut Registry<P, S>,
        mut services: impl FnMut() -> Vec<ServiceItems<I>>,
    ) -> Result<Vec<Finding<I>>, Error>
    where
        P: Pool<Item = I>,
        S: Store<P>,
    {
        self.try_pass(registry, || Ok::<_, Infallible>(services()))
    }

    /// Like [`pass`](Self::pass), with Services from a list that can fail, such as that of an
    /// API server.
    ///
    /// # Errors
    ///
    /// - [`Error::Services`]: `services` failed. Nothing has changed.
    /// - All other variants of [`Error`]: the registry failed.
    pub fn try_pass<P, S, E>(
        &mut self,
        registry: &mut Registry<P, S>,
        mut services: impl FnMut() -> Result<Vec<ServiceItems<I>>, E>,
    ) -> Result<Vec<Finding<I>>, Error>
    where
        P: Pool<Item = I>,
        S: Store<P>,
        E: Into<Box<dyn error::Error + Send + Sync>>,
    {
        let planned =
            registry.repair(|draft| Ok(services().map(|services| self.plan(&services, draft))));
        // The outer result is that of the registry, the inner one that of the list.
        if !matches!(planned, Ok(Ok(_))) {
            self.counters.failures += 1;
        }
        match planned {
            Ok(Ok(pass)) => {
                // Replaced and not extended: an item that is used again is not in it, and begins
                // from one if it is lost later.
                self.possible_leaks = pass.possible_leaks;
                for label in pass.findings.iter().filter_map(Finding::label) {
                    *self.counters.findings.entry(label).or_default() += 1;
                }
                Ok(pass.findings)
            }
            // Without a list nothing was planned, so nothing was committed.
            Ok(Err(error)) => Err(Error::Services(error.into())),
            Err(error) => {
                // The leaked items may be released, and allocated again before the next pass, to a
                // Service that is not stored yet. Without a record of owners only a new count of
                // passes protects it. After any other error nothing has changed, and passes count.
                if matches!(error, Error::Unknown(_)) {
                    self.possible_leaks.clear();
                }
                Err(error)
            }
        }
    }

    /// Plans a pass. Does not count findings: the plan may be repeated after a conflict.
    fn plan<P: Pool<Item = I>>(
        &self,
        services: &[ServiceItems<I>],
        draft: &mut Draft<'_, P>,
    ) -> Pass<I> {
        let rewritten = draft.repair_reason().map(|reason| Finding::Rewritten {
            reason: reason.clone(),
        });
        let mut findings: Vec<_> = rewritten.into_iter().collect();
        let mut claimed: BTreeMap<I, Vec<&OwnerRef>> = BTreeMap::new();
        for ServiceItems {
            owner,
            items,
            invalid,
        } in services
        {
            findings.extend(invalid.iter().map(|text| Finding::Invalid {
                owner: owner.clone(),
                text: text.clone(),
            }));
            for item in items {
                claimed.entry(*item).or_default().push(owner);
            }
        }
        // The map is sorted, so that findings come in a stable order. Before the search for leaks:
        // what is allocated here for a Service is in `claimed`, and no leak.
        for (item, owners) in &claimed {
            grant(*item, owners, draft, &mut findings);
        }
        let taken = draft.pool().items();
        // Collected, because the loop changes the pool that `taken` reads.
        let without_service: Vec<I> = taken
            .filter(|item| !claimed.contains_key(item) && may_leak(*item, draft))
            .collect();
        let mut possible_leaks = BTreeMap::new();
        for item in without_service {
            let recorded = draft.owner(item).cloned();
            let before = self.possible_leaks.get(&item);
            // Another owner: the item was released and allocated again in between, so this is a new
            // wait for a Service.
            let before = before.filter(|before| before.recorded == recorded);
            let passes = before.map_or(0, |before| before.passes) + 1;
            if passes >= PASSES {
                // Regardless of the record: its owner has not had the item for three passes.
                draft.free(item);
                findings.push(Finding::Leaked { item, recorded });
                continue;
            }
            findings.push(Finding::PossibleLeak {
                item,
                recorded: recorded.clone(),
                passes,
            });
            possible_leaks.insert(item, PossibleLeak { recorded, passes });
        }
        Pass {
            findings,
            possible_leaks,
        }
    }
}

/// Returns whether an item without a Service has leaked.
///
/// A reservation keeps an item without a Service on purpose. An owner of another kind is not among
/// the `services` of a pass, so its item would always look lost.
fn may_leak<P: Pool>(item: P::Item, draft: &Draft<'_, P>) -> bool {
    !draft.reservations().contains(item) && draft.owner(item).is_none_or(OwnerRef::is_service)
}

/// Ensures that an item is allocated to one of the Services that have it.
fn grant<P: Pool>(
    item: P::Item,
    owners: &[&OwnerRef],
    draft: &mut Draft<'_, P>,
    findings: &mut Vec<Finding<P::Item>>,
) {
    let recorded = draft.owner(item).cloned();
    let by_record = owners
        .iter()
        .position(|owner| recorded.as_ref() == Some(owner));
    // The one to which it was allocated; without a record the first one in the list.
    let owner_index = by_record.unwrap_or_default();
    let owner = owners[owner_index].clone();
    let is_missing = !draft.pool().contains(item);
    // `reserve_uncounted` and not `reserve`: nobody requested it now, so no metric counts, and a
    // reservation must not take the address away from a running Service. An item that is
    // allocated already may be outside of all ranges by now, which is only checked.
    let granted = if is_missing {
        draft.reserve_uncounted(item, &owner)
    } else {
        draft.pool().check(item)
    };
    // Kept as it is: the Service works, and only its author can recreate it.
    if let Err(error) = granted {
        findings.extend(owners.iter().map(|owner| Finding::Unallocatable {
            owner: (*owner).clone(),
            item,
            error: error.clone(),
        }));
        return;
    }
    if is_missing {
        findings.push(Finding::NotAllocated {
            owner: owner.clone(),
            item,
        });
    } else if let Some(recorded) = recorded.filter(|_| by_record.is_none()) {
        // Otherwise this Service could not release its item, and the recorded one could.
        draft.reassign(item, &owner);
        findings.push(Finding::WrongOwner {
            owner: owner.clone(),
            item,
            recorded,
        });
    }
    if let Err(error) = draft.reservations().check(item, &owner) {
        findings.push(Finding::Reserved {
            owner: owner.clone(),
            item,
            error,
        });
    }
    for (index, other) in owners.iter().enumerate() {
        if index != owner_index {
            findings.push(Finding::Duplicate {
                owner: (*other).clone(),
                item,
                other: owner.clone(),
            });
        }
    }
}
