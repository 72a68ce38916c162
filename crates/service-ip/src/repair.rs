//! Repair: what is taken, compared with what Services have.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use thiserror::Error;

use crate::{
    AllocationError, Draft, Error, Pool, Registry, RepairCounters, RepairReason, ServiceRef, Store,
    parse_address,
};

/// In how many passes in a row nobody has an item that is freed then.
///
/// An item is taken before the Service that gets it is stored, and freed after
/// the Service is gone: in between it only looks as if it had leaked.
const PASSES: u8 = 3;

/// What a Service has, as it says itself.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ServiceItems<I> {
    /// The Service.
    pub owner: ServiceRef,
    /// Its items of the range, or ranges, that are repaired.
    ///
    /// With a registry for each family, each is given the addresses of its
    /// own; an address of neither is reported by the one that is given it.
    pub items: Vec<I>,
    /// What it has instead of items and is none.
    pub invalid: Vec<Box<str>>,
}

impl ServiceItems<IpAddr> {
    /// Reads the addresses of a Service, in any form that
    /// [`parse_address`] reads.
    #[must_use]
    pub fn parse<'a>(owner: ServiceRef, texts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut claims = Self {
            owner,
            items: Vec::new(),
            invalid: Vec::new(),
        };
        for text in texts {
            match parse_address(text) {
                Some(item) => claims.items.push(item),
                None => claims.invalid.push(text.into()),
            }
        }
        claims
    }
}

/// What a pass has found of an item, or of what should be one.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Finding<I> {
    /// A Service has something that is no item: it has to be made anew.
    Invalid {
        /// The Service.
        owner: ServiceRef,
        /// What it has.
        text: Box<str>,
    },
    /// A Service has what it cannot get: it has to be made anew.
    Unallocatable {
        /// The Service.
        owner: ServiceRef,
        /// What it has.
        item: I,
        /// Why it cannot get it.
        error: AllocationError,
    },
    /// A Service has what another one has, or the same one once more: one of
    /// them has to be made anew.
    Duplicate {
        /// The Service.
        owner: ServiceRef,
        /// What it has.
        item: I,
        /// Whose it stays.
        other: ServiceRef,
    },
    /// A Service had what was not taken: it is now.
    NotAllocated {
        /// The Service.
        owner: ServiceRef,
        /// What it has.
        item: I,
    },
    /// A Service had what was recorded as that of another one, which does not
    /// have it: it is recorded as its own now.
    WrongOwner {
        /// The Service.
        owner: ServiceRef,
        /// What it has.
        item: I,
        /// Whose it was by the record.
        recorded: ServiceRef,
    },
    /// No Service has what is taken: that may be about to change.
    PossibleLeak {
        /// What is taken.
        item: I,
        /// Whose it is by the record, if there is one.
        recorded: Option<ServiceRef>,
        /// How many passes in a row have found so.
        passes: u8,
    },
    /// The store allocated nothing before this pass, which has rewritten the range.
    Rewritten {
        /// Why it had to be repaired.
        reason: RepairReason,
    },
    /// No Service had what was taken, for long: it is free now.
    Leaked {
        /// What was taken.
        item: I,
        /// Whose it was by the record, if there was one.
        recorded: Option<ServiceRef>,
    },
}

impl<I> Finding<I> {
    /// Returns the type that the metrics of Kubernetes count this by, if they
    /// do.
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
            Self::PossibleLeak { .. } | Self::Rewritten { .. } => return None,
            Self::Leaked { .. } => "leak",
        })
    }

    /// Returns the Service that has it.
    #[must_use]
    pub const fn owner(&self) -> Option<&ServiceRef> {
        match self {
            Self::Invalid { owner, .. }
            | Self::Unallocatable { owner, .. }
            | Self::Duplicate { owner, .. }
            | Self::NotAllocated { owner, .. }
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
            Self::WrongOwner { item, recorded, .. } => {
                write!(f, "{item}, which was recorded as that of {recorded}")
            }
            Self::PossibleLeak {
                item,
                recorded,
                passes,
            } => {
                write!(f, "{item}{} may have leaked: ", Recorded(recorded.as_ref()))?;
                write!(f, "no Service has it, in {passes} of {PASSES} passes")
            }
            Self::Rewritten { reason } => write!(f, "{reason}: repair writes it"),
            Self::Leaked { item, recorded } => {
                write!(f, "{item}{} has leaked: ", Recorded(recorded.as_ref()))?;
                write!(f, "no Service has it, and it is free now")
            }
        }
    }
}

/// Whose something is by the record, in brackets.
struct Recorded<'a>(Option<&'a ServiceRef>);

impl fmt::Display for Recorded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |owner| write!(f, " ({owner})"))
    }
}

/// Why a pass was not made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RepairError<E> {
    /// It is not known what Services there are; nothing has changed.
    #[error("the Services cannot be listed")]
    Services(#[source] E),
    /// What is taken could not be read or changed.
    #[error(transparent)]
    Registry(#[from] Error),
}

/// Repair of one registry, and what its last passes have found.
#[derive(Clone, Debug)]
pub struct Repair<I> {
    possible_leaks: BTreeMap<I, PossibleLeak>,
    counters: RepairCounters,
}

/// That no Service has had an item.
#[derive(Clone, Debug)]
struct PossibleLeak {
    /// Whose it is by the record: another one's has been taken anew.
    recorded: Option<ServiceRef>,
    /// How many passes in a row have found so.
    passes: u8,
}

/// What a pass finds, and what the next one has to know.
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
    /// Returns the repair of a registry, before the first pass.
    #[must_use]
    pub fn new() -> Self {
        Self {
            possible_leaks: BTreeMap::new(),
            counters: RepairCounters::default(),
        }
    }

    /// Returns what has happened since the start.
    #[must_use]
    pub const fn counters(&self) -> &RepairCounters {
        &self.counters
    }
}

impl<I: Copy + Ord> Repair<I> {
    /// Compares what is taken with what Services have, and corrects it.
    ///
    /// The Services are listed again whenever others change the store
    /// meanwhile, after what is taken has been read: what they say is never
    /// older than that.
    /// Only a pass that is made counts for what no Service has.
    ///
    /// The first pass writes the range of a store that is not initialized, or is of
    /// another range.
    /// It takes the items of all Services, and keeps the items taken before that
    /// the range has.
    ///
    /// # Errors
    ///
    /// [`RepairError`].
    pub fn pass<P, S, E>(
        &mut self,
        registry: &mut Registry<P, S>,
        mut services: impl FnMut() -> Result<Vec<ServiceItems<I>>, E>,
    ) -> Result<Vec<Finding<I>>, RepairError<E>>
    where
        P: Pool<Item = I>,
        S: Store<P>,
    {
        let planned =
            registry.repair(|draft| Ok(services().map(|services| self.plan(&services, draft))));
        if !matches!(planned, Ok(Ok(_))) {
            self.counters.failures += 1;
        }
        match planned {
            Ok(Ok(pass)) => {
                self.possible_leaks = pass.possible_leaks;
                for label in pass.findings.iter().filter_map(Finding::label) {
                    *self.counters.findings.entry(label).or_default() += 1;
                }
                Ok(pass.findings)
            }
            Ok(Err(error)) => Err(RepairError::Services(error)),
            Err(error) => {
                // What has leaked may be free, and another's by the next pass.
                if matches!(error, Error::Unknown(_)) {
                    self.possible_leaks.clear();
                }
                Err(error.into())
            }
        }
    }

    /// Plans a pass; nothing is counted yet, for it may have to be planned
    /// anew.
    fn plan<P: Pool<Item = I>>(
        &self,
        services: &[ServiceItems<I>],
        draft: &mut Draft<'_, P>,
    ) -> Pass<I> {
        let rewritten = draft.repair_reason().map(|reason| Finding::Rewritten {
            reason: reason.clone(),
        });
        let mut findings: Vec<_> = rewritten.into_iter().collect();
        let mut claimed: BTreeMap<I, Vec<&ServiceRef>> = BTreeMap::new();
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
        for (item, owners) in &claimed {
            grant(*item, owners, draft, &mut findings);
        }
        let taken = draft.pool().items();
        let nobodys: Vec<I> = taken.filter(|item| !claimed.contains_key(item)).collect();
        let mut possible_leaks = BTreeMap::new();
        for item in nobodys {
            let recorded = draft.owner(item).cloned();
            let before = self.possible_leaks.get(&item);
            let before = before.filter(|before| before.recorded == recorded);
            let passes = before.map_or(0, |before| before.passes) + 1;
            if passes >= PASSES {
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

/// Sees to it that an item is taken, by one of those who have it.
fn grant<P: Pool>(
    item: P::Item,
    owners: &[&ServiceRef],
    draft: &mut Draft<'_, P>,
    findings: &mut Vec<Finding<P::Item>>,
) {
    let recorded = draft.owner(item).cloned();
    let by_record = owners
        .iter()
        .position(|owner| recorded.as_ref() == Some(owner));
    let rightful = by_record.unwrap_or_default();
    let owner = owners[rightful].clone();
    let is_missing = !draft.pool().contains(item);
    let granted = match is_missing {
        true => draft.put_back(item, &owner),
        false => draft.pool().check(item),
    };
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
        draft.hand_over(item, &owner);
        findings.push(Finding::WrongOwner {
            owner: owner.clone(),
            item,
            recorded,
        });
    }
    for (place, other) in owners.iter().enumerate() {
        if place != rightful {
            findings.push(Finding::Duplicate {
                owner: (*other).clone(),
                item,
                other: owner.clone(),
            });
        }
    }
}
