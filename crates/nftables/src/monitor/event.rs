//! Events: changes of single objects.

use std::fmt;

use crate::{Action, Chain, Name, Object, Operation, Rule, RuleHandle, Subject, TableId};

/// A change of one object.
///
/// Displays in nft syntax, as operations in error messages do:
/// `add rule ip filter input tcp dport 22 accept # handle 4`.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Event {
    /// Table of the object, or the table itself.
    pub table: TableId,
    /// Whether the object was deleted. Otherwise it was added or changed.
    pub is_removed: bool,
    /// Object.
    pub object: EventObject,
}

/// The object of an [`Event`].
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum EventObject {
    /// A table, a chain without its rules, a set without its elements, an element, or
    /// another object with a name.
    ///
    /// Of deleted chains and sets, recent kernels report only the name. A deleted set is
    /// nevertheless complete if the decoder knows it.
    Object(Object),
    /// A rule.
    Rule {
        /// Name of the chain.
        chain: Name,
        /// Handle.
        handle: RuleHandle,
        /// The rule.
        ///
        /// Notifications of rules contain only the names of anonymous sets, such as
        /// `@__set0`. The decoder replaces the names by the sets if it was notified of the
        /// sets, or learned them from a dump
        /// ([`Notifications::learn_sets`](crate::Notifications::learn_sets)).
        rule: Rule,
    },
    /// A notification that is not decoded: an element of an unknown set, or an object of
    /// an unknown kind.
    Other {
        /// Type of the netlink message.
        message_type: u16,
        /// The message without the netlink header.
        payload: Box<[u8]>,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let action = match self.is_removed {
            true => Action::Delete,
            false => Action::Add,
        };
        match &self.object {
            EventObject::Object(object) => {
                Operation::new(action, Subject::Object(object.clone().into())).fmt(f)
            }
            EventObject::Rule {
                chain,
                handle,
                rule,
            } => {
                let chain = Chain::new(self.table.clone(), chain.clone());
                let subject = Subject::Rule(chain.into(), rule.clone().into());
                let operation = Operation::new(action, subject);
                write!(f, "{operation} # handle {}", handle.0)
            }
            EventObject::Other {
                message_type,
                payload,
            } => {
                let (table, len) = (&self.table, payload.len());
                write!(
                    f,
                    "# table {table}: message of type {message_type:#x}, {len} bytes"
                )
            }
        }
    }
}
