//! Keyed state, edits between two states, and a ledger of the objects that owners want.
//!
#![cfg_attr(feature = "memory", doc = "```")]
#![cfg_attr(not(feature = "memory"), doc = "```ignore")]
//! use std::time::Duration;
//!
//! use vipline_reconcile::{Edit, Keyed, Ledger, Memory, Reconciler};
//!
//! #[derive(Clone, Debug, PartialEq)]
//! struct Route { prefix: &'static str, via: &'static str }
//!
//! impl Keyed for Route {
//!     type Key<'a> = &'a str;
//!     fn key(&self) -> &str { self.prefix }
//!     fn is_equivalent(&self, other: &Self) -> bool { self == other }
//! }
//!
//! let mut ledger = Ledger::new();
//! let mut reconciler = Reconciler::new(Memory::new());
//! reconciler.reconcile(ledger.objects(), Duration::ZERO)?;
//!
//! let desired = vec![Route { prefix: "10.0.0.0/8", via: "eth0" }];
//! ledger.replace("alice", desired.clone(), reconciler.pending());
//! reconciler.reconcile(ledger.objects(), Duration::ZERO)?;
//! assert_eq!(reconciler.target().objects().cloned().collect::<Vec<_>>(), desired);
//! # Ok::<(), vipline_reconcile::MemoryError>(())
//! ```
//!
//! The networking state of a kernel is a keyed map: chains by name, set elements by
//! key, addresses by themselves.
//! Each of many owners wants a few entries of the map.
//! The map must equal the sum of all wanted entries, at a cost that depends only on
//! what changed.
//!
//! - [`Keyed`]: an object that contains its key.
//! - [`Edit`]: a change of the object under one key; [`diff`] returns the edits
//!   between two states.
//! - [`Ledger`]: the objects that each owner wants; replacing the objects of one
//!   owner produces the edits of the sum, also for keys that several owners claim.
//! - [`Pending`]: edits of the next commit, merged per key.
//! - [`Target`]: a state that can be dumped and edited, such as a kernel table.
//! - [`Reconciler`]: makes a target equal to the desired state; after an error it
//!   dumps the target and commits the difference.
//! - [`Rejection`]: an edit that the target rejected while it applied all others;
//!   the reconciler retries with a backoff.
//! - [`isolate`]: finds the rejected edits of an atomic batch.
//! - `Memory`: an in-memory kernel for tests. Requires the feature `memory`.
//!
//! The crate does no IO, reads no clock, has no dependencies and is independent of
//! networking.
#![forbid(unsafe_code)]

mod keyed;

mod edit;

mod pending;

mod slab;

mod index;

mod keyed_map;

mod claims;

mod ledger;

mod target;

mod rejection;

mod isolate;

mod rejected;

mod reconciler;

#[cfg(feature = "memory")]
mod memory;

pub use edit::{Edit, diff};
pub use isolate::{Atomic, Attempt, MAX_REJECTED_BATCHES, isolate};
pub use keyed::Keyed;
pub use ledger::Ledger;
#[cfg(feature = "memory")]
pub use memory::{Atomicity, Memory, MemoryError};
pub use pending::Pending;
pub use reconciler::{Outcome, Plan, Reconciler};
pub use rejected::Rejected;
pub use rejection::{Cause, Reason, Rejection};
pub use target::Target;

/// Compiles and runs the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
