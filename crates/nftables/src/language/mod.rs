//! The nft language: the words that users write, and what they mean in the kernel.
//!
//! A [`Statement`] is built from [`Expression`]s, whose values are checked
//! ([`comparison`], [`invalid`]) and which are compiled to the kernel expressions of
//! [`expr`](crate::expr) ([`lower`]). The text of rules shows the same words for the
//! kernel's expressions.

pub(crate) mod header;

pub(crate) mod extension;

pub(crate) mod bitfield;

pub(crate) mod load;

pub(crate) mod field;

pub(crate) mod operand;

pub mod expression;

mod bits;

pub(crate) mod invalid;

pub(crate) mod lower;

mod comparison;

pub mod statement;

pub use expression::{Expression, Parts};
pub use field::{Field, IntoFields};
pub use invalid::InvalidValue;
pub use operand::{Constant, Ifname, Operand};
pub use statement::Statement;
