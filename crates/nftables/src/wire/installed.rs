//! Single rules, identified by handles.
//!
//! A chain is the unit of [`Transaction`](crate::Transaction). Chains that several
//! programs share need changes of single rules.

use vipline_netlink::DecodeError;
use vipline_netlink::attr::Attrs;

use crate::{Rule, wire};

/// The handle of a rule: its number, unique within the table.
///
/// The kernel assigns handles and does not use them again. A replaced rule has a new
/// handle.
///
/// Exhaustive: a handle is one number.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct RuleHandle(pub u64);

/// The position of a new rule in its chain.
///
/// Exhaustive: the kernel has these positions.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum RulePosition {
    /// Before all rules of the chain: `insert rule`.
    Head,
    /// After all rules of the chain: `add rule`.
    Tail,
    /// Immediately before a rule.
    Before(RuleHandle),
    /// Immediately after a rule.
    After(RuleHandle),
}

/// A rule in a reply of the kernel. [`decode`](Self::decode) decodes its expressions.
///
/// Rules that are only counted or deleted by handle are not decoded.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct InstalledRule<'a> {
    /// Name of the table.
    pub table: &'a str,
    /// Name of the chain.
    pub chain: &'a str,
    /// Handle.
    pub handle: RuleHandle,
    payload: &'a [u8],
}

impl<'a> InstalledRule<'a> {
    /// Reads the names and the handle of a rule in a reply: the payload after the
    /// netlink header.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the payload is malformed, or if a name or the handle is missing.
    pub fn read(payload: &'a [u8]) -> Result<Self, DecodeError> {
        let (table, chain, handle) = wire::rule::id(payload)?;
        Ok(Self {
            table,
            chain,
            handle: RuleHandle(handle),
            payload,
        })
    }

    /// Decodes the rule. Anonymous sets have no elements.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if an expression is malformed.
    pub fn decode(&self) -> Result<Rule, DecodeError> {
        let (_, attrs) = wire::split_header(self.payload)?;
        Ok(wire::rule::decode(attrs)?.2)
    }

    /// Returns the encoded expressions: a list of attributes (`NFTA_RULE_EXPRESSIONS`).
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the payload is malformed.
    pub fn expressions(&self) -> Result<Attrs<'a>, DecodeError> {
        wire::rule::expressions(self.payload)
    }
}
