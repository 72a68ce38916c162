//! Chains.

use std::fmt;
use std::sync::Arc;

use bitflags::bitflags;

use crate::expr::Counter;
use crate::{Bytes, Comment, Name, Rule, TableId};

/// A chain with its rules.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Chain {
    /// Table of the chain.
    pub table: TableId,
    /// Name, unique within the table.
    pub name: Name,
    /// Hook of a base chain; `None` for a regular chain.
    pub base: Option<BaseChain>,
    /// Flags.
    pub flags: ChainFlags,
    /// Rules, in order; shared between clones.
    pub rules: Arc<[Rule]>,
    /// Comment, listed by `nft`.
    pub comment: Option<Comment>,
    /// User data of a dump that this crate would write otherwise.
    pub(crate) userdata: Option<Bytes>,
}

bitflags! {
    /// Chain flags: `enum nft_chain_flags` of `linux/netfilter/nf_tables.h`.
    ///
    /// The flag of a base chain follows from [`Chain::base`].
    #[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
    pub struct ChainFlags: u32 {
        /// The rules are offloaded to the device: `flags offload`.
        #[doc(alias = "NFT_CHAIN_HW_OFFLOAD")]
        const OFFLOAD = 0x2;
        /// The chain is anonymous: it belongs to the rule that jumps to it.
        #[doc(alias = "NFT_CHAIN_BINDING")]
        const BINDING = 0x4;
        /// Unknown flags are preserved.
        const _ = !0;
    }
}

impl Chain {
    /// Creates a regular chain without rules.
    pub fn new(table: TableId, name: Name) -> Self {
        Self {
            table,
            name,
            base: None,
            flags: ChainFlags::empty(),
            rules: Arc::new([]),
            comment: None,
            userdata: None,
        }
    }

    /// Makes the chain a base chain.
    #[must_use]
    pub fn with_base(mut self, base: BaseChain) -> Self {
        self.base = Some(base);
        self
    }

    /// Adds flags.
    #[must_use]
    pub fn with_flags(mut self, flags: ChainFlags) -> Self {
        self.flags |= flags;
        self
    }

    /// Replaces the rules.
    #[must_use]
    pub fn with_rules(mut self, rules: impl IntoIterator<Item = Rule>) -> Self {
        self.rules = rules.into_iter().collect();
        self
    }

    /// Sets the comment.
    #[must_use]
    pub fn with_comment(mut self, comment: Comment) -> Self {
        self.comment = Some(comment);
        self
    }

    /// Returns whether both are regular chains, or base chains that the kernel treats
    /// alike.
    pub(crate) fn has_equivalent_base(&self, other: &Self) -> bool {
        let has_equivalent_base = match (&self.base, &other.base) {
            (Some(one), Some(other)) => one.is_equivalent(other),
            (None, None) => true,
            _ => false,
        };
        has_equivalent_base && self.flags == other.flags
    }

    /// Returns whether the kernel treats both chains of the same name alike.
    pub(crate) fn is_equivalent(&self, other: &Self) -> bool {
        self.has_equivalent_base(other)
            && (Arc::ptr_eq(&self.rules, &other.rules)
                || self.rules.len() == other.rules.len()
                    && self
                        .rules
                        .iter()
                        .zip(&*other.rules)
                        .all(|(a, b)| a.is_equivalent(b)))
    }
}

/// The hook, type and policy of a base chain.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct BaseChain {
    /// Type.
    pub kind: ChainType,
    /// Hook.
    pub hook: Hook,
    /// Priority among the chains of the hook; lower values run first.
    pub priority: i32,
    /// Policy for packets that reach the end of the chain.
    pub policy: Policy,
    /// Devices; only for family `netdev` and for `inet` with hook `ingress`.
    ///
    /// A name that ends with `*` stands for all devices with this prefix (Linux 6.16).
    pub devices: Vec<Name>,
    /// Counter of packets that reach the end of the chain.
    ///
    /// `None`: the kernel does not count them. Comparisons ignore counters.
    pub counter: Option<Counter>,
}

impl BaseChain {
    /// Creates a base chain with policy `accept`.
    pub fn new(kind: ChainType, hook: Hook, priority: i32) -> Self {
        Self {
            kind,
            hook,
            priority,
            policy: Policy::Accept,
            devices: Vec::new(),
            counter: None,
        }
    }

    /// Sets the policy.
    #[must_use]
    pub fn with_policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Counts the packets that reach the end of the chain, from zero.
    #[must_use]
    pub fn with_counter(mut self) -> Self {
        self.counter = Some(Counter::default());
        self
    }

    /// Returns whether the kernel treats packets alike in both.
    pub(crate) fn is_equivalent(&self, other: &Self) -> bool {
        let plain = |chain: &Self| {
            let mut chain = chain.clone();
            chain.counter = None;
            chain.devices.sort();
            chain
        };
        plain(self) == plain(other)
    }

    /// Adds a device.
    #[must_use]
    pub fn with_device(mut self, device: Name) -> Self {
        self.devices.push(device);
        self
    }
}

impl fmt::Display for BaseChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "type {} hook {}", self.kind, self.hook)?;
        match &*self.devices {
            [] => {}
            [device] => write!(f, " device \"{device}\"")?,
            devices => {
                // nft passes the devices to the kernel in reverse order.
                let devices: Vec<_> = devices
                    .iter()
                    .rev()
                    .map(|name| format!("\"{name}\""))
                    .collect();
                write!(f, " devices = {{ {} }}", devices.join(", "))?;
            }
        }
        write!(f, " priority {}; policy {};", self.priority, self.policy)
    }
}

/// The type of a base chain.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum ChainType {
    /// Filters packets.
    Filter,
    /// Translates addresses; sees the first packet of each connection.
    Nat,
    /// Filters packets and routes them again after a change.
    Route,
    /// Another type, by the kernel's name.
    Other(Name),
}

impl ChainType {
    /// Returns the kernel's name of the type.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Filter => "filter",
            Self::Nat => "nat",
            Self::Route => "route",
            Self::Other(name) => name.as_str(),
        }
    }
}

impl fmt::Display for ChainType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A netfilter hook.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum Hook {
    /// Incoming packets, before routing.
    Prerouting,
    /// Packets to local processes.
    Input,
    /// Forwarded packets.
    Forward,
    /// Packets of local processes.
    Output,
    /// Outgoing packets, after routing.
    Postrouting,
    /// Packets received by a device.
    Ingress,
    /// Packets to be sent by a device.
    Egress,
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Prerouting => "prerouting",
            Self::Input => "input",
            Self::Forward => "forward",
            Self::Output => "output",
            Self::Postrouting => "postrouting",
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        })
    }
}

/// The policy of a base chain for packets that reach its end.
///
/// Exhaustive: the kernel has two policies.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Policy {
    /// Accepts the packets.
    Accept,
    /// Drops the packets.
    Drop,
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Accept => "accept",
            Self::Drop => "drop",
        })
    }
}
