//! Access control lists.

use crate::document::{document, names};

names! {
    /// The action of an access control list.
    pub enum Action {
        /// Allows packets.
        Allow = "Allow",
        /// Drops packets.
        Block = "Block",
        /// Passes packets to the next tier.
        Pass = "Pass",
    }
}

names! {
    /// The direction of packets, from the endpoint's point of view.
    pub enum Direction {
        /// Packets to the endpoint.
        In = "In",
        /// Packets from the endpoint.
        Out = "Out",
    }
}

names! {
    /// The place where an access control list applies.
    pub enum RuleType {
        /// The firewall of the host (Windows Filtering Platform).
        Host = "Host",
        /// The switch (Virtual Filtering Platform).
        Switch = "Switch",
    }
}

/// Defines the documents of rules with the members of all access control lists.
macro_rules! acl {
    ($(#[$meta:meta])* $name:ident) => {
        document! {
            $(#[$meta])*
            ///
            /// Protocols, addresses and ports are lists with commas; empty lists match all.
            pub struct $name {
                /// Numbers of protocols, such as `6,17`.
                "Protocols"? protocols: String,
                /// Action.
                "Action" action: Action,
                /// Direction.
                "Direction" direction: Direction,
                /// Addresses or prefixes of the endpoint.
                "LocalAddresses"? local_addresses: String,
                /// Addresses or prefixes of the peer.
                "RemoteAddresses"? remote_addresses: String,
                /// Ports or ranges of ports of the endpoint.
                "LocalPorts"? local_ports: String,
                /// Ports or ranges of ports of the peer.
                "RemotePorts"? remote_ports: String,
                /// Place.
                "RuleType"? rule_type: Option<RuleType>,
                /// Priority: smaller numbers apply first.
                "Priority"? priority: u16,
            }
        }

        impl $name {
            /// Creates a rule for all packets of a direction.
            pub fn new(action: Action, direction: Direction) -> Self {
                Self {
                    action,
                    direction,
                    ..Self::default()
                }
            }
        }
    };
}

acl! {
    /// A rule of an endpoint: `ACL`.
    AclPolicy
}

acl! {
    /// A rule of a network: `NetworkACL`. Requires
    /// [`Features::NETWORK_ACL`](crate::Features::NETWORK_ACL).
    NetworkAclPolicy
}

document! {
    /// A tier of rules of an endpoint: `TierAcl`. Requires
    /// [`Features::TIER_ACL`](crate::Features::TIER_ACL).
    pub struct TierAclPolicy {
        /// Name of the tier.
        "Name" name: String,
        /// Direction of all rules.
        "Direction" direction: Direction,
        /// Position of the tier: smaller numbers apply first.
        "Order" order: u16,
        /// Rules.
        "TierAclRules"? rules: Vec<TierAclRule>,
    }
}

document! {
    /// A rule of a tier.
    pub struct TierAclRule {
        /// Identifier.
        "Id"? id: String,
        /// Numbers of protocols, such as `6,17`.
        "Protocols"? protocols: String,
        /// Action.
        "TierAclRuleAction" action: Action,
        /// Addresses or prefixes of the endpoint.
        "LocalAddresses"? local_addresses: String,
        /// Addresses or prefixes of the peer.
        "RemoteAddresses"? remote_addresses: String,
        /// Ports or ranges of ports of the endpoint.
        "LocalPorts"? local_ports: String,
        /// Ports or ranges of ports of the peer.
        "RemotePorts"? remote_ports: String,
        /// Priority: smaller numbers apply first.
        "Priority"? priority: u16,
    }
}
