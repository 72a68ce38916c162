//! Events of flows and expectations.

use std::fmt;

use bitflags::bitflags;
use vipline_netlink::DecodeError;
use vipline_netlink::message::{Message, NLM_F_CREATE};

use crate::uapi::*;
use crate::{Expectation, Flow};

bitflags! {
    /// Multicast groups of conntrack events.
    #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
    pub struct Groups: u8 {
        /// Created flows.
        #[doc(alias = "NFNLGRP_CONNTRACK_NEW")]
        const NEW = 1;
        /// Updated flows.
        #[doc(alias = "NFNLGRP_CONNTRACK_UPDATE")]
        const UPDATE = 1 << 1;
        /// Destroyed flows.
        #[doc(alias = "NFNLGRP_CONNTRACK_DESTROY")]
        const DESTROY = 1 << 2;
        /// Created expectations.
        #[doc(alias = "NFNLGRP_CONNTRACK_EXP_NEW")]
        const EXPECTATION_NEW = 1 << 3;
        /// Updated expectations.
        #[doc(alias = "NFNLGRP_CONNTRACK_EXP_UPDATE")]
        const EXPECTATION_UPDATE = 1 << 4;
        /// Destroyed expectations.
        #[doc(alias = "NFNLGRP_CONNTRACK_EXP_DESTROY")]
        const EXPECTATION_DESTROY = 1 << 5;
    }
}

impl Groups {
    /// Returns the numbers of the groups, from 1.
    pub(crate) fn numbers(self) -> impl Iterator<Item = u32> {
        self.iter().map(|group| group.bits().trailing_zeros() + 1)
    }
}

/// An event of a flow or an expectation.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// The flow was created.
    New(Box<Flow>),
    /// The flow was updated; most unchanged attributes are missing.
    Update(Box<Flow>),
    /// The flow was destroyed.
    Destroy(Box<Flow>),
    /// The expectation was created.
    NewExpectation(Box<Expectation>),
    /// The expectation was updated.
    UpdateExpectation(Box<Expectation>),
    /// The expectation was destroyed: it was met, deleted, or its timeout expired.
    DestroyExpectation(Box<Expectation>),
    /// Events were lost: the receive buffer was full, or a datagram was malformed or too
    /// large.
    ///
    /// All events before the overrun have been read, so a dump after this event misses
    /// no change.
    Overrun,
}

impl Event {
    /// Decodes a notification. Returns `None` for other messages.
    ///
    /// # Errors
    ///
    /// The flow is malformed.
    pub fn decode(message: &Message<'_>) -> Result<Option<Self>, DecodeError> {
        let is_new = message.flags & NLM_F_CREATE != 0;
        let event = match message.ty.to_be_bytes() {
            [NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_NEW] if is_new => Self::New,
            [NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_NEW] => Self::Update,
            [NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_DELETE] => Self::Destroy,
            [NFNL_SUBSYS_CTNETLINK_EXP, kind] => {
                return Self::decode_expectation(message, kind, is_new);
            }
            _ => return Ok(None),
        };
        let flow = Flow::decode(message.payload)?;
        Ok(Some(event(Box::new(flow))))
    }

    fn decode_expectation(
        message: &Message<'_>,
        kind: u8,
        is_new: bool,
    ) -> Result<Option<Self>, DecodeError> {
        let event = match kind {
            IPCTNL_MSG_EXP_NEW if is_new => Self::NewExpectation,
            IPCTNL_MSG_EXP_NEW => Self::UpdateExpectation,
            IPCTNL_MSG_EXP_DELETE => Self::DestroyExpectation,
            _ => return Ok(None),
        };
        let expectation = Expectation::decode(message.payload)?;
        Ok(Some(event(Box::new(expectation))))
    }
}

/// Formats the event like `conntrack -E -o extended`, without the time.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::New(flow) => write!(f, "    [NEW] {flow}"),
            Self::Update(flow) => write!(f, " [UPDATE] {flow}"),
            Self::Destroy(flow) => write!(f, "[DESTROY] {flow}"),
            Self::NewExpectation(expectation) => write!(f, "    [NEW] {expectation}"),
            Self::UpdateExpectation(expectation) => write!(f, " [UPDATE] {expectation}"),
            Self::DestroyExpectation(expectation) => write!(f, "[DESTROY] {expectation}"),
            Self::Overrun => f.write_str("[OVERRUN] events were lost"),
        }
    }
}
