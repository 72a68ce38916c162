//! Handles of the objects that a commit adds.

use vipline_netlink::DecodeError;
use vipline_netlink::message::{Message, NLM_F_ECHO};

use crate::wire::message_types::*;
use crate::wire::rule::NFTA_RULE_CHAIN_ID;
use crate::wire::{self, NFNL_SUBSYS_NFTABLES, NFTA_CHAIN_ID};
use crate::{Operation, RuleHandle};

/// Length of `struct nlmsghdr`.
const HEADER: usize = 16;
/// Minimum size of the receive buffer for notifications, in bytes.
const ECHO_BUFFER: usize = 1 << 20;
/// Space in the receive buffer for notifications, per byte of the batch.
const ECHO_SIZE: usize = 8;

/// A table, chain or rule that a commit added, with its handle.
///
/// [`Client::commit_with_handles`](crate::Client::commit_with_handles) and
/// [`Client::commit_batch_with_handles`](crate::Client::commit_batch_with_handles)
/// return the handles.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Added {
    /// Operation that added the object.
    pub operation: Operation,
    /// Handle.
    pub handle: Handle,
}

/// The handle of an object: a number that the kernel assigns.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Handle {
    /// Handle of a table, unique within the network namespace.
    Table(u64),
    /// Handle of a chain, unique within the table.
    Chain(u64),
    /// Handle of a rule.
    Rule(RuleHandle),
}

impl Added {
    /// Returns the handle if the object is a rule.
    pub fn rule_handle(&self) -> Option<RuleHandle> {
        match self.handle {
            Handle::Rule(handle) => Some(handle),
            _ => None,
        }
    }
}

impl Handle {
    /// Reads the handle in a notification. Returns `None` for other objects.
    pub(crate) fn read(message: &Message<'_>) -> Result<Option<Self>, DecodeError> {
        let (kind, of): (u16, fn(u64) -> Self) = match message.ty.to_be_bytes() {
            [NFNL_SUBSYS_NFTABLES, NFT_MSG_NEWTABLE] => (wire::NFTA_TABLE_HANDLE, Self::Table),
            [NFNL_SUBSYS_NFTABLES, NFT_MSG_NEWCHAIN] => (wire::NFTA_CHAIN_HANDLE, Self::Chain),
            [NFNL_SUBSYS_NFTABLES, NFT_MSG_NEWRULE] => {
                let handle = |handle| Self::Rule(RuleHandle(handle));
                (wire::rule::NFTA_RULE_HANDLE, handle)
            }
            _ => return Ok(None),
        };
        let (_, attrs) = wire::split_header(message.payload)?;
        for attr in attrs {
            let attr = attr?;
            if attr.kind == kind {
                return attr.be64().map(|handle| Some(of(handle)));
            }
        }
        Ok(None)
    }
}

/// Returns the size of a receive buffer for the notifications of a batch, in bytes.
///
/// A notification repeats its message and adds a few attributes. The kernel also counts
/// its own data about each datagram.
pub(crate) fn echo_buffer(batch: usize) -> usize {
    batch.saturating_mul(ECHO_SIZE).max(ECHO_BUFFER)
}

/// Requests notifications of the tables, chains and rules that a batch adds:
/// `NLM_F_ECHO`. Anonymous chains have none.
pub(crate) fn request_echo(batch: &mut [u8]) {
    let mut rest = batch;
    while let Some(header) = rest.first_chunk::<HEADER>() {
        let [l0, l1, l2, l3, t0, t1, f0, f1, ..] = *header;
        let len = u32::from_ne_bytes([l0, l1, l2, l3]);
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let Some((message, others)) = rest.split_at_mut_checked(len.max(HEADER)) else {
            return;
        };
        let is_echoed = adds_named(u16::from_ne_bytes([t0, t1]), message.get(HEADER..));
        if let (true, Some(flags)) = (is_echoed, message.get_mut(6..8)) {
            let echo = u16::from_ne_bytes([f0, f1]) | NLM_F_ECHO;
            flags.copy_from_slice(&echo.to_ne_bytes());
        }
        rest = others
            .get_mut(len.next_multiple_of(4) - len..)
            .unwrap_or_default();
    }
}

/// Returns whether a message adds a table, a chain with a name, or one of its rules.
fn adds_named(ty: u16, payload: Option<&[u8]>) -> bool {
    // The attribute of anonymous chains, and of their rules.
    let id = match ty.to_be_bytes() {
        [NFNL_SUBSYS_NFTABLES, NFT_MSG_NEWTABLE] => None,
        [NFNL_SUBSYS_NFTABLES, NFT_MSG_NEWCHAIN] => Some(NFTA_CHAIN_ID),
        [NFNL_SUBSYS_NFTABLES, NFT_MSG_NEWRULE] => Some(NFTA_RULE_CHAIN_ID),
        _ => return false,
    };
    match payload.map(wire::split_header) {
        Some(Ok((_, attrs))) => !attrs.flatten().any(|attr| Some(attr.kind) == id),
        _ => false,
    }
}
