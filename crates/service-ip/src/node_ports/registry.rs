//! Atomic allocation of the node ports of a Service from a store.

use std::collections::BTreeSet;

use crate::{AssignedPorts, Error, NodePorts, OwnerRef, Pool, Random, Registry, Store};

/// The registry of the node ports of a cluster.
///
/// [`Self::assign`] allocates the node ports of a Service. Store the Service, then call
/// [`Self::commit`], or [`Self::revert`] if it was not stored. Each call is one change.
#[derive(Debug)]
pub struct ServiceNodePorts<P: Pool<Item = u16>, S> {
    registry: Registry<P, S>,
}

impl<P: Pool<Item = u16>, S: Store<P>> ServiceNodePorts<P, S> {
    /// Returns the node ports of a registry.
    #[must_use]
    pub const fn new(registry: Registry<P, S>) -> Self {
        Self { registry }
    }

    /// Returns the registry.
    #[must_use]
    pub const fn registry(&mut self) -> &mut Registry<P, S> {
        &mut self.registry
    }

    /// Allocates the node ports of a Service, see [`NodePorts::assign`].
    ///
    /// `stored` is the stored Service of an update.
    ///
    /// # Errors
    ///
    /// - [`Error::Allocation`]: an error of [`NodePorts::assign`]. Nothing has changed.
    /// - All other errors of [`Registry::change`].
    pub fn assign(
        &mut self,
        ports: &NodePorts,
        stored: Option<&NodePorts>,
        owner: &OwnerRef,
        random: &mut Random<'_>,
    ) -> Result<AssignedPorts, Error> {
        self.registry
            .change(|draft| ports.assign(stored, owner, draft, random))
    }

    /// Releases the node ports that a Service no longer has, after the Service was stored.
    ///
    /// # Errors
    ///
    /// The errors of [`Registry::change`], except [`Error::Allocation`]. Repair releases
    /// the node ports.
    pub fn commit(&mut self, assigned: AssignedPorts, owner: &OwnerRef) -> Result<(), Error> {
        self.free(&assigned.released, owner)
    }

    /// Releases the newly allocated node ports of a Service that was not stored.
    ///
    /// # Errors
    ///
    /// As for [`Self::commit`].
    pub fn revert(&mut self, assigned: AssignedPorts, owner: &OwnerRef) -> Result<(), Error> {
        self.free(&assigned.taken, owner)
    }

    /// Releases the node ports of a deleted Service.
    ///
    /// # Errors
    ///
    /// As for [`Self::commit`].
    pub fn release(&mut self, stored: &NodePorts, owner: &OwnerRef) -> Result<(), Error> {
        self.free(&stored.held(), owner)
    }

    fn free(&mut self, numbers: &BTreeSet<u16>, owner: &OwnerRef) -> Result<(), Error> {
        self.registry.change(|draft| {
            super::free(numbers, owner, draft);
            Ok(())
        })
    }
}
