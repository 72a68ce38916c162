//! Operations of a transaction, for error reports.

use crate::{Chain, Element, Name, Object, Rule, RuleHandle, TableId};

/// An operation of a transaction.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Operation {
    /// Action.
    pub action: Action,
    /// Subject of the action.
    pub subject: Subject,
}

impl Operation {
    /// Creates an operation.
    pub fn new(action: Action, subject: Subject) -> Self {
        Self { action, subject }
    }
}

/// The action of an operation.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Action {
    /// Adds the object.
    Add,
    /// Deletes the object.
    Delete,
    /// Deletes the object if it exists.
    Destroy,
    /// Replaces the rule.
    Replace,
    /// Deletes all rules of the chain.
    Flush,
    /// Begins or commits the transaction.
    Commit,
}

/// The subject of an operation.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Subject {
    /// A table, a set, a chain without its rules or an element.
    Object(Box<Object>),
    /// A rule and its chain.
    Rule(Box<Chain>, Box<Rule>),
    /// A rule of a chain, by its handle.
    RuleHandle {
        /// Table.
        table: TableId,
        /// Name of the chain.
        chain: Name,
        /// Handle.
        handle: RuleHandle,
    },
    /// One of several elements; the kernel does not report which one.
    Elements {
        /// First element.
        first: Box<Element>,
        /// Last element.
        last: Box<Element>,
        /// Number of elements.
        count: usize,
    },
    /// The operation of a [`BatchBuilder`](crate::BatchBuilder) with this index, from 0.
    Index(usize),
    /// The whole transaction.
    Transaction,
}
