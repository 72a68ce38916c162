//! Policies of subnets.

use crate::document::document;
use crate::policy::policies;

policies! {
    /// A policy of a subnet.
    pub enum SubnetPolicy {
        /// A VLAN.
        Vlan(VlanPolicy) = "VLAN",
        /// A virtual subnet of VXLAN.
        Vsid(VsidPolicy) = "VSID",
    }
}

/// Defines the policies that isolate a subnet.
macro_rules! isolation {
    ($(#[$meta:meta])* $name:ident) => {
        document! {
            $(#[$meta])*
            pub struct $name {
                /// Identifier.
                "IsolationId" isolation_id: u32,
            }
        }

        impl $name {
            /// Creates a policy.
            pub fn new(isolation_id: u32) -> Self {
                Self {
                    isolation_id,
                    ..Self::default()
                }
            }
        }
    };
}

isolation! {
    /// The VLAN of a subnet: `VLAN`.
    VlanPolicy
}

isolation! {
    /// The virtual subnet of a subnet: `VSID`.
    VsidPolicy
}
