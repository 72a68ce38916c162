//! What happens to flows.

use bitflags::bitflags;
use vipline_netlink::DecodeError;
use vipline_netlink::message::{CREATE, Message};

use crate::{Flow, wire};

bitflags! {
    /// What is listened to.
    #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
    pub struct Groups: u8 {
        /// Flows that begin.
        #[doc(alias = "NFNLGRP_CONNTRACK_NEW")]
        const NEW = 1;
        /// Flows that change.
        #[doc(alias = "NFNLGRP_CONNTRACK_UPDATE")]
        const UPDATE = 1 << 1;
        /// Flows that end.
        #[doc(alias = "NFNLGRP_CONNTRACK_DESTROY")]
        const DESTROY = 1 << 2;
    }
}

impl Groups {
    /// Returns the numbers of the groups, which begin with 1.
    pub(crate) fn numbers(self) -> impl Iterator<Item = u32> {
        self.iter().map(|group| group.bits().trailing_zeros() + 1)
    }
}

/// Something that happened to a flow.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// It began.
    New(Box<Flow>),
    /// It changed; of what did not change, much is not told.
    Update(Box<Flow>),
    /// It ended.
    Destroy(Box<Flow>),
    /// More happened than the socket could hold, and what it was is lost.
    ///
    /// All that was heard before is told: who asks for the flows now misses
    /// nothing.
    Overrun,
}

impl Event {
    /// Reads a message; others than those about flows are nothing.
    ///
    /// # Errors
    ///
    /// A message about a flow whose bytes are none.
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
