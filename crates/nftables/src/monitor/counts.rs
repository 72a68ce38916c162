//! Numbers of changed objects.

use vipline_netlink::DecodeError;

use crate::wire;
use crate::wire::message_types::*;

/// Number of objects that were added, changed or deleted, by kind.
///
/// The kernel does not report elements that are deleted with their set.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct ChangeCounts {
    /// The table itself.
    pub tables: usize,
    /// Chains.
    pub chains: usize,
    /// Rules.
    pub rules: usize,
    /// Sets and maps.
    pub sets: usize,
    /// Elements of sets and maps.
    pub elements: usize,
    /// Flowtables, stateful objects and others.
    pub others: usize,
}

impl ChangeCounts {
    /// Returns the total number of changes.
    pub fn total(&self) -> usize {
        self.tables + self.chains + self.rules + self.sets + self.elements + self.others
    }

    /// Counts the objects of a message.
    pub(super) fn add(&mut self, kind: u8, payload: &[u8]) -> Result<(), DecodeError> {
        let (new, _) = object_kind(kind);
        match new {
            NFT_MSG_NEWSETELEM => self.elements += wire::element::count(payload)?,
            NFT_MSG_NEWTABLE => self.tables += 1,
            NFT_MSG_NEWCHAIN => self.chains += 1,
            NFT_MSG_NEWRULE => self.rules += 1,
            NFT_MSG_NEWSET => self.sets += 1,
            _ => self.others += 1,
        }
        Ok(())
    }
}
