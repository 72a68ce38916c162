//! Removal of everything that a kube-proxy programmed in any mode, upstream's or this
//! one.
//!
//! [`Removal::find`] reads the state of the kernel and plans typed [`Step`]s. A step
//! displays as the shell command that does the same. [`Removal::apply`] removes the
//! objects step by step. A failed step does not stop the others.
//!
//! Only objects of modes that are built in are found. Each mode owns the names of its
//! objects, the selection and the removal. Objects that rules of other programs use stay.
//!
//! Rules of the legacy variant of iptables are read and removed by the iptables programs,
//! all other objects by netlink. Without `CONFIG_NFT_COMPAT` the programs also remove the
//! rules of the nft variant. If a program is missing although the kernel shows traces of
//! rules, an [error](Removal::unchecked) says so.
//!
//! ```no_run
//! use proxy_core::cleanup::{Removal, Scope};
//!
//! let removal = Removal::find(Scope::AllModes, &[])?;
//! for (step, result) in removal.apply() {
//!     match result {
//!         Ok(()) => println!("removed: {}", step.summary()),
//!         Err(error) => println!("removal failed: {error}"),
//!     }
//! }
//! # Ok::<(), proxy_core::Error>(())
//! ```

mod removal;

mod search;

#[cfg(feature = "iptables")]
pub(crate) mod names;

use ipnet::IpNet;

#[cfg(all(test, feature = "ipvs"))]
pub(crate) use self::removal::plan;
pub use self::removal::{Error, Removal, Step};
pub(crate) use self::removal::{Found, Remove};
pub use self::search::Scope;
pub(crate) use self::search::{Leftovers, Search};
use crate::Mode;
use crate::backend::Backend;

impl Removal {
    /// Reads the state of the kernel in the network namespace of the calling thread, and
    /// plans the removal.
    ///
    /// Virtual servers within `excluded` networks stay. Without privileges most objects
    /// cannot be read: requires those of [`Step::apply`].
    ///
    /// # Errors
    ///
    /// [`Error::Nftables`](crate::Error::Nftables) if nf_tables cannot be read, although
    /// the kernel supports it. All other errors are in [`unchecked`](Self::unchecked).
    pub fn find(scope: Scope, excluded: &[IpNet]) -> Result<Self, crate::Error> {
        let mut search = search(scope);
        for mode in leftovers() {
            (mode.find)(&mut search)?;
        }
        Ok(search.into_removal(excluded))
    }
}

/// Returns the parts of the modes that are built in, in the order of the removal.
fn leftovers() -> impl Iterator<Item = Leftovers> {
    let backends = Mode::BUILT_IN.iter().filter_map(|mode| mode.backend().ok());
    backends.map(Backend::leftovers)
}

/// Creates a search with the names of all modes.
fn search(scope: Scope) -> Search {
    #[allow(unused_mut, reason = "only iptables has names")]
    let mut search = Search::new(scope);
    #[cfg(feature = "iptables")]
    leftovers().for_each(|mode| search.add_iptables_names(mode.iptables));
    search
}

/// Returns the names of iptables objects of all modes in a scope.
#[cfg(all(test, feature = "ipvs"))]
pub(crate) fn iptables_names(scope: Scope) -> Vec<&'static names::Names> {
    search(scope).iptables_names()
}
