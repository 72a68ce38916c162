//! Chains.

use std::fmt;
use std::sync::Arc;

use crate::{Comment, Name, Rule, TableId};

/// A chain with its rules.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Chain {
    /// The table it is in.
    pub table: TableId,
    /// Its name, unique within the table.
    pub name: Name,
    /// Where packets enter it; none for a chain that others jump to.
    pub base: Option<BaseChain>,
    /// The rules in their order, shared between clones.
    pub rules: Arc<[Rule]>,
    /// What `nft` lists as its comment.
    pub comment: Option<Comment>,
}

impl Chain {
    /// Returns a chain without rules that others can jump to.
    pub fn new(table: TableId, name: Name) -> Self {
        Self {
            table,
            name,
            base: None,
            rules: Arc::new([]),
            comment: None,
        }
    }

    /// Returns the chain with a place where packets enter it.
    #[must_use]
    pub fn with_base(mut self, base: BaseChain) -> Self {
        self.base = Some(base);
        self
    }

    /// Returns the chain with these rules in place of those it had.
    #[must_use]
    pub fn with_rules(mut self, rules: impl IntoIterator<Item = Rule>) -> Self {
        self.rules = rules.into_iter().collect();
        self
    }

    /// Returns the chain with a comment.
    #[must_use]
    pub fn with_comment(mut self, comment: Comment) -> Self {
        self.comment = Some(comment);
        self
    }

    /// Tells whether the kernel sees no difference to another chain of the name.
    pub(crate) fn same(&self, other: &Self) -> bool {
        self.base == other.base
            && (Arc::ptr_eq(&self.rules, &other.rules)
                || self.rules.len() == other.rules.len()
                    && self.rules.iter().zip(&*other.rules).all(|(a, b)| a.same(b)))
    }
}

/// Where and when packets enter a chain.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BaseChain {
    /// What the chain may do.
    pub kind: ChainType,
    /// Where packets enter it.
    pub hook: Hook,
    /// Its place among the chains of a hook: lower comes first.
    pub priority: i32,
    /// What becomes of packets that leave the chain at its end.
    pub policy: Policy,
    /// The device whose packets it sees; only for `netdev` and `inet ingress`.
    pub device: Option<Name>,
}

impl BaseChain {
    /// Returns a base chain that accepts what reaches its end.
    pub fn new(kind: ChainType, hook: Hook, priority: i32) -> Self {
        Self {
            kind,
            hook,
            priority,
            policy: Policy::Accept,
            device: None,
        }
    }

    /// Returns the base chain with a policy.
    #[must_use]
    pub fn with_policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Returns the base chain bound to a device.
    #[must_use]
    pub fn with_device(mut self, device: Name) -> Self {
        self.device = Some(device);
        self
    }
}

impl fmt::Display for BaseChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "type {} hook {}", self.kind, self.hook)?;
        if let Some(device) = &self.device {
            write!(f, " device \"{device}\"")?;
        }
        write!(f, " priority {}; policy {};", self.priority, self.policy)
    }
}

/// What a base chain may do.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum ChainType {
    /// Judges packets.
    Filter,
    /// Changes addresses; sees the first packet of a connection.
    Nat,
    /// Judges packets and routes them anew after a change.
    Route,
    /// Another kind, by the kernel's word for it.
    Other(Name),
}

impl ChainType {
    /// Returns the kernel's word for the kind.
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

/// Where packets enter a base chain.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Hook {
    /// When they arrive, before routing.
    Prerouting,
    /// On their way to a process of this machine.
    Input,
    /// On their way through this machine.
    Forward,
    /// When a process of this machine sends them.
    Output,
    /// When they leave, after routing.
    Postrouting,
    /// When a device hands them over.
    Ingress,
    /// When a device is about to send them.
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

/// What becomes of packets that leave a base chain at its end.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Policy {
    /// They go on.
    Accept,
    /// They are thrown away.
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
