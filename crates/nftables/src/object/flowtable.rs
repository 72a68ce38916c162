//! Flowtables.

use bitflags::bitflags;

use crate::{Hook, Name, TableId};

bitflags! {
    /// Flowtable flags: `enum nft_flowtable_flags` of `linux/netfilter/nf_tables.h`.
    #[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
    pub struct FlowtableFlags: u32 {
        /// Flows are offloaded to the device: `flags offload`.
        #[doc(alias = "NFT_FLOWTABLE_HW_OFFLOAD")]
        const OFFLOAD = 0x1;
        /// Packets of flows are counted: `counter`.
        #[doc(alias = "NFT_FLOWTABLE_COUNTER")]
        const COUNTER = 0x2;
        /// Unknown flags are preserved.
        const _ = !0;
    }
}

/// A flowtable: the fast path for established connections.
///
/// Rules add connections with `flow add @name`
/// ([`FlowOffload`](crate::expr::FlowOffload)).
/// Requires a kernel with `CONFIG_NF_FLOW_TABLE`.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Flowtable {
    /// Table of the flowtable.
    pub table: TableId,
    /// Name, unique within the table.
    pub name: Name,
    /// Hook: `ingress`.
    pub hook: Hook,
    /// Priority among the hooks of a device.
    pub priority: i32,
    /// Devices.
    ///
    /// A name that ends with `*` stands for all devices with this prefix (Linux 6.16).
    pub devices: Vec<Name>,
    /// Flags.
    pub flags: FlowtableFlags,
}

impl Flowtable {
    /// Creates a flowtable at hook `ingress` without devices.
    pub fn new(table: TableId, name: Name, priority: i32) -> Self {
        Self {
            table,
            name,
            hook: Hook::Ingress,
            priority,
            devices: Vec::new(),
            flags: FlowtableFlags::empty(),
        }
    }

    /// Adds a device.
    #[must_use]
    pub fn with_device(mut self, device: Name) -> Self {
        self.devices.push(device);
        self
    }

    /// Adds flags.
    #[must_use]
    pub fn with_flags(mut self, flags: FlowtableFlags) -> Self {
        self.flags |= flags;
        self
    }

    /// Returns whether the kernel treats both flowtables of the same name alike.
    pub(crate) fn is_equivalent(&self, other: &Self) -> bool {
        let sorted = |flowtable: &Self| {
            let mut flowtable = flowtable.clone();
            flowtable.devices.sort();
            flowtable
        };
        sorted(self) == sorted(other)
    }
}
