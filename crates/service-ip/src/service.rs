//! The addresses of a Service, from the registries of its families.

use std::collections::BTreeMap;
use std::net::IpAddr;

use thiserror::Error;

use crate::{
    AddressPlan, AddressRequest, Error, Family, Pool, Random, Registry, ServiceRef, Store,
};

/// The registries of a cluster, one for each family that it has addresses of.
#[derive(Debug)]
pub struct ServiceAddresses<P: Pool<Item = IpAddr>, S> {
    registries: BTreeMap<Family, Registry<P, S>>,
}

/// What a Service got, until it is known whether it is stored.
///
/// It is handed to [`ServiceAddresses::commit`] or to
/// [`ServiceAddresses::revert`]; if it is dropped, what is new in it stays
/// taken until a repair.
#[derive(Clone, Debug, Eq, PartialEq)]
#[must_use = "addresses are released by commit or revert only"]
pub struct AssignedAddresses {
    /// The addresses of the Service, in the order of its families.
    pub addresses: Vec<IpAddr>,
    /// Those of them that it did not have before.
    taken: Vec<IpAddr>,
    /// Those that it had and no longer has.
    released: Vec<IpAddr>,
}

/// Why a Service got no addresses.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AssignError {
    /// The cluster has no registry of a family.
    #[error("{family} is not configured on this cluster")]
    NotConfigured {
        /// The family.
        family: Family,
    },
    /// An address was not given, and those given before were released again.
    #[error("{owner}: failed to allocate {wanted}")]
    Failed {
        /// The Service.
        owner: ServiceRef,
        /// What was asked for: an address, or any of a family.
        wanted: Box<str>,
        /// Those that could not be released again; repair finds them.
        not_released: Vec<ReleaseError>,
        /// Why.
        source: Box<Error>,
    },
}

/// An address that could not be released.
///
/// It stays taken, or is another's already: to release it again is not sound.
#[derive(Debug, Error)]
#[error("release {address}")]
pub struct ReleaseError {
    /// The address.
    pub address: IpAddr,
    /// Why.
    pub source: Error,
}

impl<P: Pool<Item = IpAddr>, S: Store<P>> ServiceAddresses<P, S> {
    /// Returns those of a cluster.
    #[must_use]
    pub const fn new(registries: BTreeMap<Family, Registry<P, S>>) -> Self {
        Self { registries }
    }

    /// Returns the registry of a family.
    pub fn registry(&mut self, family: Family) -> Option<&mut Registry<P, S>> {
        self.registries.get_mut(&family)
    }

    /// Takes what a Service is to have and does not have yet.
    ///
    /// # Errors
    ///
    /// [`AssignError`]; then it has nothing new.
    pub fn assign(
        &mut self,
        plan: &AddressPlan,
        owner: &ServiceRef,
        random: &mut Random<'_>,
    ) -> Result<AssignedAddresses, AssignError> {
        let families = plan.addresses.iter().map(|wanted| wanted.family());
        if let Some(family) = families.into_iter().find(|one| !self.has(*one)) {
            return Err(AssignError::NotConfigured { family });
        }
        let mut assigned = AssignedAddresses {
            addresses: Vec::new(),
            taken: Vec::new(),
            released: plan.released.clone(),
        };
        for wanted in &plan.addresses {
            let Some(registry) = self.registries.get_mut(&wanted.family()) else {
                continue;
            };
            let taken = match *wanted {
                AddressRequest::Keep(address) => {
                    assigned.addresses.push(address);
                    continue;
                }
                AddressRequest::Static(address) => {
                    registry.reserve(address, owner).map(|()| address)
                }
                AddressRequest::Dynamic(_) => registry.allocate(owner, random),
            };
            match taken {
                Ok(address) => {
                    assigned.addresses.push(address);
                    assigned.taken.push(address);
                }
                Err(source) => {
                    return Err(AssignError::Failed {
                        not_released: self.revert(assigned, owner),
                        wanted: wanted.to_string().into(),
                        owner: owner.clone(),
                        source: source.into(),
                    });
                }
            }
        }
        Ok(assigned)
    }

    /// Releases what a Service no longer has, once it is stored.
    ///
    /// Returns what could not be released.
    pub fn commit(&mut self, assigned: AssignedAddresses, owner: &ServiceRef) -> Vec<ReleaseError> {
        self.release(&assigned.released, owner)
    }

    /// Releases what is new, because the Service was not stored.
    ///
    /// Returns what could not be released.
    pub fn revert(&mut self, assigned: AssignedAddresses, owner: &ServiceRef) -> Vec<ReleaseError> {
        self.release(&assigned.taken, owner)
    }

    fn release(&mut self, addresses: &[IpAddr], owner: &ServiceRef) -> Vec<ReleaseError> {
        let mut not_released = Vec::new();
        for address in addresses.iter().copied() {
            if let Some(registry) = self.registries.get_mut(&Family::of(address))
                && let Err(source) = registry.release(address, owner)
            {
                not_released.push(ReleaseError { address, source });
            }
        }
        not_released
    }

    fn has(&self, family: Family) -> bool {
        self.registries.contains_key(&family)
    }
}
