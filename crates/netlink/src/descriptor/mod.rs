//! Descriptors of netlink sockets: opening, options, memberships and reception.

mod socket;

pub use socket::SocketOption;
pub(crate) use socket::{BUFFER, Descriptor, MAX_INTERRUPTED_CALLS, failed, io_error, receive};
