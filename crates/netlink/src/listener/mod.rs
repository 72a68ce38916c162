//! Reception of notifications of multicast groups.

mod filter;

mod socket;

pub use socket::{Event, Listener};
