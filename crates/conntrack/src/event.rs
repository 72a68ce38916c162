//! Events of flows.

use bitflags::bitflags;
use vipline_netlink::DecodeError;
use vipline_netlink::message::{CREATE, Message};

use crate::{Flow, wire};

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
    }
}

impl Groups {
    /// Returns the numbers of the groups, from 1.
    pub(crate) fn numbers(self) -> impl Iterator<Item = u32> {
        self.iter().map(|group| group.bits().trailing_zeros() + 1)
    }
}

/// An event of a flow.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// The flow was created.
    New(Box<Flow>),
    /// The flow was updated; most unchanged attributes are missing.
    Update(Box<Flow>),
    /// The flow was destroyed.
    Destroy(Box<Flow>),
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
        let event = match message.ty {
            wire::NEW if message.flags & CREATE != 0 => Self::New,
            wire::NEW => Self::Update,
            wire::DELETE => Self::Destroy,
            _ => return Ok(None),
        };
        let flow = Flow::decode(message.payload)?;
        Ok(Some(event(Box::new(flow))))
    }
}
