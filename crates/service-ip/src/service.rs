//! Atomic allocation of the cluster IPs of a Service in both families.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::{
    AddressPlan, AddressRequest, AllocationError, Error, Family, OwnerRef, Pool, Random, Registry,
    Store,
};

/// The registries of a cluster, one per family.
#[derive(Debug)]
pub struct ServiceAddresses<P: Pool<Item = IpAddr>, S> {
    registries: BTreeMap<Family, Registry<P, S>>,
}

/// Allocated addresses of a Service that is not stored yet.
///
/// Pass the value to [`ServiceAddresses::commit`] after the Service was stored, or to
/// [`ServiceAddresses::revert`] if it was not. If the value is dropped, new addresses
/// stay allocated until a repair.
#[derive(Clone, Debug, Eq, PartialEq)]
#[must_use = "addresses are released by commit or revert only"]
pub struct AssignedAddresses {
    /// Addresses of the Service, in the order of its families.
    pub addresses: Vec<IpAddr>,
    /// Newly allocated addresses.
    taken: Vec<IpAddr>,
    /// Addresses that the Service no longer has.
    released: Vec<IpAddr>,
}

impl<P: Pool<Item = IpAddr>, S: Store<P>> ServiceAddresses<P, S> {
    /// Returns the registries of a cluster.
    #[must_use]
    pub const fn new(registries: BTreeMap<Family, Registry<P, S>>) -> Self {
        Self { registries }
    }

    /// Returns the registry of a family.
    pub fn registry(&mut self, family: Family) -> Option<&mut Registry<P, S>> {
        self.registries.get_mut(&family)
    }

    /// Allocates the new addresses of a plan.
    ///
    /// # Errors
    ///
    /// - [`AllocationError::NotConfigured`]: the cluster has no registry for a family.
    /// - [`Error::Assign`]: an allocation failed. Earlier allocations were reverted.
    pub fn assign(
        &mut self,
        plan: &AddressPlan,
        owner: &OwnerRef,
        random: &mut Random<'_>,
    ) -> Result<AssignedAddresses, Error> {
        let families = plan.addresses.iter().map(|wanted| wanted.family());
        if let Some(family) = families.into_iter().find(|one| !self.has(*one)) {
            return Err(AllocationError::NotConfigured { family }.into());
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
                    return Err(Error::Assign {
                        not_released: self.revert(assigned, owner),
                        wanted: wanted.to_string().into(),
                        owner: owner.clone().into(),
                        source: source.into(),
                    });
                }
            }
        }
        Ok(assigned)
    }

    /// Releases the addresses that a Service no longer has, after the Service was stored.
    ///
    /// Returns the failed releases, each as [`Error::Release`].
    pub fn commit(&mut self, assigned: AssignedAddresses, owner: &OwnerRef) -> Vec<Error> {
        self.release(&assigned.released, owner)
    }

    /// Releases the newly allocated addresses of a Service that was not stored.
    ///
    /// Returns the failed releases, each as [`Error::Release`].
    pub fn revert(&mut self, assigned: AssignedAddresses, owner: &OwnerRef) -> Vec<Error> {
        self.release(&assigned.taken, owner)
    }

    /// Releases the addresses of a deleted Service.
    ///
    /// Returns the failed releases, each as [`Error::Release`].
    pub fn release(&mut self, addresses: &[IpAddr], owner: &OwnerRef) -> Vec<Error> {
        let mut errors = Vec::new();
        for address in addresses.iter().copied() {
            if let Some(registry) = self.registries.get_mut(&Family::of(address))
                && let Err(source) = registry.release(address, owner)
            {
                errors.push(Error::Release {
                    address,
                    source: source.into(),
                });
            }
        }
        errors
    }

    fn has(&self, family: Family) -> bool {
        self.registries.contains_key(&family)
    }
}
