//! Results of an evaluation.

use std::fmt;
use std::time::Duration;

use vipline_nftables::expr::{DynsetOp, QueueTarget, RejectType};
use vipline_nftables::{Element, Name, TableId};

use super::interface::Interface;
use super::packet::Packet;
use super::packet::connection::Connection;
use super::question::ListUpdate;
use super::{Probability, Trace};

/// One of the possible outcomes for a packet.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Outcome {
    /// Probability.
    pub probability: Probability,
    /// End of the path of the packet.
    pub disposition: Disposition,
    /// The packet at the end of its path, after translation.
    pub packet: Packet,
    /// Rules and elements that decided.
    pub trace: Trace,
    /// Updates of sets by rules, in order. They apply also if the packet is dropped.
    pub updates: Vec<SetUpdate>,
    /// Updates of IP sets and lists of `recent` by matches and targets of xtables, and
    /// persistence templates of IPVS, in order.
    pub lists: Vec<ListUpdate>,
    /// The entry of connection tracking after the packet.
    ///
    /// `None`: the packet is not tracked, or the kernel discards a new entry.
    pub connection: Option<Connection>,
}

/// The end of the path of a packet.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Disposition {
    /// A process of the host receives the packet, if one listens.
    Delivered,
    /// The packet leaves through an interface.
    Sent(Interface),
    /// The packet is dropped.
    Dropped,
    /// The packet is dropped, and the sender receives an error.
    Rejected(RejectType),
    /// A program that listens on a queue decides.
    Queued(QueueTarget),
    /// The packet has no route.
    Unroutable,
    /// The TTL or hop limit is exhausted: the packet is dropped, and the sender receives an
    /// error.
    Expired,
    /// `fwd` sends the packet through the interface with this index.
    Redirected(u32),
}

impl fmt::Display for Disposition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Delivered => f.write_str("delivered"),
            Self::Sent(interface) => write!(f, "sent through {}", interface.name),
            Self::Dropped => f.write_str("dropped"),
            Self::Rejected(RejectType::TcpReset) => f.write_str("rejected with a TCP reset"),
            Self::Rejected(_) => f.write_str("rejected with ICMP"),
            Self::Queued(QueueTarget::Numbers { first, .. }) => write!(f, "queued to {first}"),
            Self::Queued(QueueTarget::Register(_)) => f.write_str("queued"),
            Self::Unroutable => f.write_str("without a route"),
            Self::Expired => f.write_str("dropped: time to live exceeded"),
            Self::Redirected(index) => write!(f, "sent through interface {index}"),
        }
    }
}

impl fmt::Display for Outcome {
    /// Writes probability, disposition and packet, then the trace.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            probability,
            disposition,
            packet,
            trace,
            ..
        } = self;
        writeln!(f, "{probability}: {packet} {disposition}")?;
        trace
            .to_string()
            .lines()
            .try_for_each(|line| writeln!(f, "  {line}"))
    }
}

/// An update of a set by a rule.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SetUpdate {
    /// Table of the set.
    pub table: TableId,
    /// Name of the set.
    pub set: Name,
    /// Operation.
    pub op: DynsetOp,
    /// Element, with key and data.
    pub element: Element,
    /// Timeout of the element, if the rule or the set has one.
    pub timeout: Option<Duration>,
}
