//! `-m pkttype`: destination of frames.

use crate::field::{extension, names};
use crate::negatable::Negatable;

extension! {
    /// Matches the destination of a frame: `-m pkttype --pkt-type multicast`.
    pub struct Pkttype = "-m pkttype" {
        /// Destination of the frame.
        ty: Option<Negatable<PacketType>> = "--pkt-type",
    }
}

names! {
    /// Destination of a frame.
    pub enum PacketType by str::eq_ignore_ascii_case {
        /// This host.
        Unicast = "unicast" | "host",
        /// All hosts.
        Broadcast = "broadcast" | "bcast",
        /// A group of hosts.
        Multicast = "multicast" | "mcast",
    }
}
