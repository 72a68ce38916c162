//! Matches of the link layer and the receiving CPU: `-m mac`, `-m pkttype`,
//! `-m devgroup`, `-m realm` and `-m cpu`.

use std::fmt;

use crate::field::{extension, names, word_values};
use crate::negatable::Negatable;
use crate::number::MaskedMatch;

extension! {
    /// Matches the source address of Ethernet frames: `-m mac --mac-source 42:01:02:03:04:05`.
    pub struct Mac = "-m mac" {
        /// Source address.
        source: Option<Negatable<MacAddress>> = "--mac-source",
    }
}

/// An Ethernet address, printed as `42:01:02:03:04:05`.
///
/// Exhaustive: an address has six bytes.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    /// Parses six hexadecimal numbers of one or two digits.
    fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().filter(|part| matches!(part.len(), 1 | 2))?;
            let is_hex = part.bytes().all(|b| b.is_ascii_hexdigit());
            *byte = u8::from_str_radix(part, 16).ok().filter(|_| is_hex)?;
        }
        parts.next().is_none().then_some(Self(bytes))
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, rest @ ..] = self.0;
        write!(f, "{first:02x}")?;
        rest.iter().try_for_each(|byte| write!(f, ":{byte:02x}"))
    }
}

word_values! { MacAddress = MacAddress::parse, }

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

extension! {
    /// Matches the groups of interfaces: `-m devgroup --src-group 5`.
    ///
    /// Only numbers are supported, not names of groups.
    pub struct Devgroup = "-m devgroup" {
        /// Group of the input interface.
        source: Option<Negatable<MaskedMatch>> = "--src-group",
        /// Group of the output interface.
        destination: Option<Negatable<MaskedMatch>> = "--dst-group",
    }
}

extension! {
    /// Matches the routing realm: `-m realm --realm 0x1`.
    ///
    /// Only numbers are supported, not names of realms.
    pub struct Realm = "-m realm" {
        /// Realm.
        realm: Option<Negatable<MaskedMatch>> = "--realm",
    }
}

extension! {
    /// Matches the CPU that processes the packet: `-m cpu --cpu 0`.
    pub struct Cpu = "-m cpu" {
        /// Number of the CPU.
        cpu: Option<Negatable<u32>> = "--cpu",
    }
}
