//! Stateful objects: named counters, quotas, limits, conntrack helpers and others.

use std::time::Duration;

use crate::expr::{
    Counter, Expr, Limit, NF_SYNPROXY_OPT_MSS, NF_SYNPROXY_OPT_SACK_PERM,
    NF_SYNPROXY_OPT_TIMESTAMP, NF_SYNPROXY_OPT_WSCALE, NFT_OBJECT_COUNTER, NFT_OBJECT_CT_EXPECT,
    NFT_OBJECT_CT_HELPER, NFT_OBJECT_CT_TIMEOUT, NFT_OBJECT_LIMIT, NFT_OBJECT_QUOTA,
    NFT_OBJECT_SECMARK, NFT_OBJECT_SYNPROXY, Objref, ObjrefSource, Quota,
};
use crate::{Bytes, Comment, Name, Statement, TableId};

/// A stateful object of a table, such as a named counter.
///
/// Rules and object maps refer to it by type and name.
///
/// ```
/// use vipline_nftables::expr::Counter;
/// use vipline_nftables::{Family, Name, Object, StatefulObject, TableId};
///
/// let table = TableId::new(Family::Inet, Name::new("filter")?);
/// let hits = StatefulObject::new(table, Name::new("hits")?, Counter::default());
/// let text = "add counter inet filter hits { packets 0 bytes 0; }";
/// assert_eq!(Object::from(hits).to_string(), text);
/// # Ok::<(), vipline_nftables::InvalidName>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct StatefulObject {
    /// Table of the object.
    pub table: TableId,
    /// Name, unique among the objects of the type in the table.
    pub name: Name,
    /// Type and state.
    pub state: State,
    /// Comment, listed by `nft`.
    pub comment: Option<Comment>,
    /// User data of a dump that this crate would write otherwise.
    pub(crate) userdata: Option<Bytes>,
}

impl StatefulObject {
    /// Creates an object.
    pub fn new(table: TableId, name: Name, state: impl Into<State>) -> Self {
        Self {
            table,
            name,
            state: state.into(),
            comment: None,
            userdata: None,
        }
    }

    /// Sets the comment.
    #[must_use]
    pub fn with_comment(mut self, comment: Comment) -> Self {
        self.comment = Some(comment);
        self
    }

    /// Returns the statement of a rule that uses the object: `counter name "hits"`.
    pub fn statement(&self) -> Statement {
        let source = ObjrefSource::Named {
            kind: self.state.kind(),
            name: self.name.clone(),
        };
        Expr::from(Objref { source }).into()
    }

    /// Returns whether the kernel treats both objects of the same key alike.
    pub(crate) fn is_equivalent(&self, other: &Self) -> bool {
        self.state.without_counts() == other.state.without_counts()
    }
}

/// Type and state of a stateful object.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum State {
    /// `counter`: packets and bytes.
    Counter(Counter),
    /// `quota`: a number of bytes.
    Quota(Quota),
    /// `limit`: a rate.
    Limit(Limit),
    /// `ct helper`
    CtHelper(CtHelper),
    /// `ct timeout`
    CtTimeout(CtTimeout),
    /// `ct expectation`
    CtExpectation(CtExpectation),
    /// `synproxy`
    Synproxy(Synproxy),
    /// `secmark`: a security context.
    Secmark(Name),
    /// Another type, or a state with unknown attributes.
    Other {
        /// Type: `NFT_OBJECT_*`.
        kind: u32,
        /// Raw attributes.
        bytes: Bytes,
    },
}

impl State {
    /// Returns the number of the type: `NFT_OBJECT_*`.
    pub fn kind(&self) -> u32 {
        match self {
            Self::Counter(_) => NFT_OBJECT_COUNTER,
            Self::Quota(_) => NFT_OBJECT_QUOTA,
            Self::CtHelper(_) => NFT_OBJECT_CT_HELPER,
            Self::Limit(_) => NFT_OBJECT_LIMIT,
            Self::CtTimeout(_) => NFT_OBJECT_CT_TIMEOUT,
            Self::Secmark(_) => NFT_OBJECT_SECMARK,
            Self::CtExpectation(_) => NFT_OBJECT_CT_EXPECT,
            Self::Synproxy(_) => NFT_OBJECT_SYNPROXY,
            Self::Other { kind, .. } => *kind,
        }
    }

    /// Returns the state without counts, which change with each packet.
    fn without_counts(&self) -> Self {
        match self {
            Self::Counter(_) => Self::Counter(Counter::default()),
            Self::Quota(quota) => match Expr::from(quota.clone()).without_counts() {
                Expr::Quota(quota) => Self::Quota(quota),
                _ => self.clone(),
            },
            state => state.clone(),
        }
    }
}

macro_rules! from {
    ($($variant:ident)*) => {
        $(impl From<$variant> for State {
            fn from(state: $variant) -> Self {
                Self::$variant(state)
            }
        })*
    };
}

from! { Counter Quota Limit CtHelper CtTimeout CtExpectation Synproxy }

/// A conntrack helper: `ct helper`.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct CtHelper {
    /// Name of the helper, such as `ftp`.
    pub helper: Name,
    /// Network protocol: `NFPROTO_*`. The kernel uses the family of the table if it is 0.
    pub l3proto: u16,
    /// Transport protocol: 6 for TCP.
    pub l4proto: u8,
}

impl CtHelper {
    /// Creates a helper for connections of a transport protocol.
    pub fn new(helper: Name, l3proto: u16, l4proto: u8) -> Self {
        Self {
            helper,
            l3proto,
            l4proto,
        }
    }
}

/// A conntrack timeout policy: `ct timeout`.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct CtTimeout {
    /// Network protocol: `NFPROTO_*`.
    pub l3proto: u16,
    /// Transport protocol: 6 for TCP, 17 for UDP.
    pub l4proto: u8,
    /// Timeout in seconds by state: `CTA_TIMEOUT_TCP_*`, `CTA_TIMEOUT_UDP_*`.
    pub timeouts: Vec<(u16, u32)>,
}

impl CtTimeout {
    /// Creates a policy with the default timeouts of the kernel.
    pub fn new(l3proto: u16, l4proto: u8) -> Self {
        Self {
            l3proto,
            l4proto,
            timeouts: Vec::new(),
        }
    }

    /// Sets the timeout of a state, in seconds.
    #[must_use]
    pub fn with_timeout(mut self, state: u16, seconds: u32) -> Self {
        self.timeouts.push((state, seconds));
        self
    }
}

/// A conntrack expectation: `ct expectation`.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct CtExpectation {
    /// Network protocol: `NFPROTO_*`.
    pub l3proto: u16,
    /// Transport protocol: 6 for TCP.
    pub l4proto: u8,
    /// Destination port of the expected connection.
    pub dport: u16,
    /// Time until the expectation expires, with a resolution of 1 ms.
    pub timeout: Duration,
    /// Maximum number of expectations.
    pub size: u8,
}

impl CtExpectation {
    /// Creates an expectation of connections to a port.
    pub fn new(l3proto: u16, l4proto: u8, dport: u16, timeout: Duration, size: u8) -> Self {
        Self {
            l3proto,
            l4proto,
            dport,
            timeout,
            size,
        }
    }
}

/// TCP options of a SYN proxy: `synproxy`.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct Synproxy {
    /// Maximum segment size.
    pub mss: u16,
    /// Window scale.
    pub wscale: u8,
    /// Options: `NF_SYNPROXY_OPT_*` of `linux/netfilter/nf_synproxy.h`.
    pub flags: u32,
}

impl Synproxy {
    /// Option: maximum segment size.
    pub const MSS: u32 = NF_SYNPROXY_OPT_MSS;
    /// Option: window scale.
    pub const WSCALE: u32 = NF_SYNPROXY_OPT_WSCALE;
    /// Option: selective acknowledgments.
    pub const SACK_PERM: u32 = NF_SYNPROXY_OPT_SACK_PERM;
    /// Option: timestamps.
    pub const TIMESTAMP: u32 = NF_SYNPROXY_OPT_TIMESTAMP;

    /// Creates the options with a maximum segment size and a window scale.
    pub fn new(mss: u16, wscale: u8) -> Self {
        let flags = Self::MSS | Self::WSCALE;
        Self { mss, wscale, flags }
    }

    /// Adds options.
    #[must_use]
    pub fn with_flags(mut self, flags: u32) -> Self {
        self.flags |= flags;
        self
    }
}
