//! Removal of everything that a kube-proxy programmed in any mode, upstream's or this
//! one.
//!
//! [`find`] reads the state of the kernel and plans typed [`Step`]s. A step
//! displays as the shell command that does the same. [`Removal::apply`] removes the
//! objects step by step. A failed step does not stop the others.
//!
//! Mode iptables finds the chains of all modes, by the list in [`owned`](crate::owned); the
//! other modes find their sets, virtual servers and tables, if they are built in. Objects
//! that rules of other programs use stay.
//!
//! Rules of the legacy variant of iptables are read and removed by the iptables programs,
//! all other objects by netlink. Without `CONFIG_NFT_COMPAT` the programs also remove the
//! rules of the nft variant. If a program is missing although the kernel shows traces of
//! rules, an [error](Removal::unchecked) says so.
//!
//! ```no_run
//! use proxy_core::cleanup::{self, Scope};
//!
//! let removal = cleanup::find(Scope::AllModes, &[])?;
//! for (step, result) in removal.apply() {
//!     match result {
//!         Ok(()) => println!("removed: {}", step.summary()),
//!         Err(error) => println!("removal failed: {error}"),
//!     }
//! }
//! # Ok::<(), proxy_core::Error>(())
//! ```

mod search;

#[cfg(feature = "iptables")]
pub(crate) mod names;

use ipnet::IpNet;

pub use proxy_engine::cleanup::{Found, Removal, Remove, Step, plan};

pub use self::search::Scope;
pub(crate) use self::search::{Leftovers, Search};
use crate::Mode;
use crate::backend::Backend;

/// Reads the state of the kernel in the network namespace of the calling thread, and
/// plans the removal.
///
/// Virtual servers within `excluded` networks stay. Without privileges most objects
/// cannot be read: requires those of [`Step::apply`].
///
/// # Errors
///
/// The error of vipline-nftables if nf_tables cannot be read, although
/// the kernel supports it. All other errors are in [`Removal::unchecked`].
pub fn find(scope: Scope, excluded: &[IpNet]) -> Result<Removal, crate::Error> {
    let mut search = Search::new(scope);
    for mode in leftovers() {
        (mode.find)(&mut search)?;
    }
    Ok(search.into_removal(excluded))
}

/// Returns the parts of the modes that are built in, in the order of the removal.
fn leftovers() -> impl Iterator<Item = Leftovers> {
    let backends = Mode::BUILT_IN.iter().filter_map(|mode| mode.backend().ok());
    backends.map(Backend::leftovers)
}
