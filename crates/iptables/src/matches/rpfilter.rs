//! `-m rpfilter`: routes back to the source.

use crate::field::extension;

extension! {
    /// Matches packets whose reply leaves through their input interface: `-m rpfilter`.
    pub struct Rpfilter = "-m rpfilter" {
        /// Whether any interface with a route to the source is enough.
        loose: bool = "--loose",
        /// Whether the packet mark selects the route.
        validmark: bool = "--validmark",
        /// Whether packets from this host match.
        accept_local: bool = "--accept-local",
        /// Whether packets match that fail the test.
        invert: bool = "--invert",
    }
    complete |_| true;
}
