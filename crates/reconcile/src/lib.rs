//! Keyed state, edits between two states, and a ledger of who wants what.
//!
//! A kernel's networking state is a keyed map: chains by name, set elements by
//! key, addresses by themselves.
//! Many owners each want a few entries in it, and it has to end up holding the
//! sum of what they want, at a cost that depends only on what changed.
//!
//! - [`Keyed`]: an object that knows the key it is stored under.
//! - [`Edit`]: one step from one state to another; [`diff`] finds all of them.
//! - [`Ledger`]: which owner wants which objects; replacing the objects of one
//!   owner gives the edits of the whole, also when owners contest a key.
//! - [`Pending`]: edits gathered until they are committed, merged per key.
//! - [`Kernel`]: something that can be dumped and edited.
//! - [`Reconciler`]: brings a kernel to the wanted state; any failure makes it
//!   forget what it knew, and not knowing means dump and diff.
//! - [`Rejection`]: an edit that the kernel refused while it took all others; the
//!   reconciler tries it again with a backoff.
//! - [`isolate`]: finds what a kernel refuses that takes or leaves whole batches.
//! - [`Memory`]: a kernel in memory, for tests.
//!
//! The crate does no IO, reads no clock, has no dependency and knows nothing
//! about networks.
//!
//! ```
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
//!     fn same(&self, other: &Self) -> bool { self == other }
//! }
//!
//! let mut ledger = Ledger::new();
//! let mut reconciler = Reconciler::new(Memory::new());
//! reconciler.reconcile(ledger.objects(), Duration::ZERO)?;
//!
//! let wanted = vec![Route { prefix: "10.0.0.0/8", via: "eth0" }];
//! ledger.replace("alice", wanted.clone(), reconciler.pending());
//! reconciler.reconcile(ledger.objects(), Duration::ZERO)?;
//! assert_eq!(reconciler.kernel().objects().cloned().collect::<Vec<_>>(), wanted);
//! # Ok::<(), vipline_reconcile::Refused>(())
//! ```
#![forbid(unsafe_code)]

mod keyed;

mod edit;

mod pending;

mod slots;

mod index;

mod keep;

mod claims;

mod ledger;

mod kernel;

mod rejection;

mod isolate;

mod isolated;

mod reconciler;

mod memory;

pub use edit::{Edit, diff};
pub use isolate::{Atomic, Attempt, REFUSALS, isolate};
pub use isolated::Rejected;
pub use kernel::Kernel;
pub use keyed::Keyed;
pub use ledger::Ledger;
pub use memory::{Atomicity, Memory, Refused};
pub use pending::Pending;
pub use reconciler::{Outcome, Reconciler, Step};
pub use rejection::{Cause, Reason, Rejection};
