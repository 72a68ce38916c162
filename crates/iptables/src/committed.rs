//! Effect of failed changes.

/// Effect of a failed restore.
///
/// Exhaustive: a document is either not applied, or its effect is unknown.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Committed {
    /// No part of the document is applied.
    No,
    /// The part before each `COMMIT` is applied completely or not at all. Save the
    /// tables to find out.
    Unknown,
}
