//! Packets from bytes.

use std::net::IpAddr;

use super::{Packet, PartialBytes};
use crate::{Cause, Error};

/// Length of an IPv6 header.
const V6_HEADER: usize = 40;
/// Flag bits of the fragment field of IPv4 that are no offset.
const V4_OFFSET: u16 = 0x1fff;
/// Offset bits of the fragment field of IPv6.
const V6_OFFSET: u16 = 0xfff8;

/// Extension headers of IPv6.
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
/// Hop-by-hop options, routing and destination options: all have the same layout.
const OPTIONS: [u8; 3] = [0, 43, 60];

impl Packet {
    /// Creates a packet from its bytes, from the network header on.
    ///
    /// # Errors
    ///
    /// [`Cause::NotAPacket`] if the version is unknown or a header is truncated.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        match bytes.first().map(|byte| byte >> 4) {
            Some(4) => from_v4(bytes),
            Some(6) => from_v6(bytes),
            _ => Err(invalid("unknown version")),
        }
    }
}

fn invalid(reason: &'static str) -> Error {
    Cause::NotAPacket(reason).into()
}

fn from_v4(bytes: &[u8]) -> Result<Packet, Error> {
    let header = bytes
        .first_chunk::<20>()
        .ok_or_else(|| invalid("truncated header"))?;
    let len = usize::from(header[0] & 0x0f) * 4;
    let (network, transport) = bytes
        .split_at_checked(len)
        .filter(|_| len >= header.len())
        .ok_or_else(|| invalid("truncated options"))?;
    let fragment = u16::from_be_bytes([header[6], header[7]]);
    let [a, b, c, d] = [header[12], header[13], header[14], header[15]];
    let source = IpAddr::from([a, b, c, d]);
    let [a, b, c, d] = [header[16], header[17], header[18], header[19]];
    let destination = IpAddr::from([a, b, c, d]);
    let mut packet = Packet::new(source, destination, header[9], 0);
    packet.is_later_fragment = fragment & V4_OFFSET != 0;
    packet.fill(network, transport);
    Ok(packet)
}

fn from_v6(bytes: &[u8]) -> Result<Packet, Error> {
    let truncated = || invalid("truncated header");
    let header = bytes.first_chunk::<V6_HEADER>().ok_or_else(truncated)?;
    let fixed = PartialBytes::from(&header[..]);
    let source = IpAddr::from(fixed.array::<16>(8).ok_or_else(truncated)?);
    let destination = IpAddr::from(fixed.array::<16>(24).ok_or_else(truncated)?);
    let (mut next, mut len, mut is_later_fragment) = (header[6], V6_HEADER, false);
    loop {
        let extension = bytes.get(len..).unwrap_or(&[]);
        let size = match (next, extension) {
            (FRAGMENT, [_, _, high, low, ..]) => {
                is_later_fragment |= u16::from_be_bytes([*high, *low]) & V6_OFFSET != 0;
                8
            }
            (AUTHENTICATION, [_, words, ..]) => (usize::from(*words) + 2) * 4,
            (kind, [_, words, ..]) if OPTIONS.contains(&kind) => (usize::from(*words) + 1) * 8,
            (FRAGMENT | AUTHENTICATION, _) => return Err(truncated()),
            (kind, _) if OPTIONS.contains(&kind) => return Err(truncated()),
            _ => break,
        };
        next = extension.first().copied().ok_or_else(truncated)?;
        len += size;
        if is_later_fragment {
            break;
        }
    }
    let (network, transport) = bytes.split_at_checked(len).ok_or_else(truncated)?;
    let mut packet = Packet::new(source, destination, next, 0);
    packet.is_later_fragment = is_later_fragment;
    packet.fill(network, transport);
    Ok(packet)
}

impl Packet {
    fn fill(&mut self, network: &[u8], transport: &[u8]) {
        self.network = network.into();
        self.transport = transport.into();
        self.is_complete = true;
    }
}
