//! Listening to what happens to the kernel's state.

mod filter;

mod socket;

pub use socket::{Event, Listener};
