//! `-m pkttype`: destination of frames.

use crate::extensions::structure::{Reader, Structure, Writer, at, position};
use crate::options::field::{extension, names};
use crate::options::negatable::Negatable;

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

/// `PACKET_HOST`, `PACKET_BROADCAST` and `PACKET_MULTICAST` of `linux/if_packet.h`.
const TYPES: [PacketType; 3] = [
    PacketType::Unicast,
    PacketType::Broadcast,
    PacketType::Multicast,
];

/// `struct xt_pkttype_info`.
impl Structure for Pkttype {
    const NAME: &'static str = "pkttype";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        let ty = self.ty?;
        out.u32(position(&TYPES, ty.value())?);
        out.u32(ty.is_negated().into());
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let ty = at(&TYPES, reader.u32()?)?;
        let ty = Some(Negatable::new(reader.u32()? != 0, ty));
        Some(Self { ty })
    }
}
