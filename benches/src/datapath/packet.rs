//! IPv4 packets with a TCP header.

use std::net::{Ipv4Addr, SocketAddrV4};

/// Protocol number of TCP.
const TCP: u8 = 6;

/// Length of each of both headers in bytes; neither has options.
const HEADER: usize = 20;

/// Kind of a TCP packet. Sequence numbers start at 0 in both directions.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Segment {
    /// First packet of the client.
    Syn,
    /// Reply to the first packet.
    SynAck,
    /// A packet of the client with this number of bytes.
    Data(usize),
}

impl Segment {
    const fn flags(self) -> u8 {
        const SYN: u8 = 0x02;
        const ACK: u8 = 0x10;
        match self {
            Self::Syn => SYN,
            Self::SynAck => SYN | ACK,
            Self::Data(_) => ACK,
        }
    }

    const fn sequence_numbers(self) -> [u32; 2] {
        match self {
            Self::Syn => [0, 0],
            Self::SynAck => [0, 1],
            Self::Data(_) => [1, 1],
        }
    }

    const fn payload(self) -> usize {
        match self {
            Self::Syn | Self::SynAck => 0,
            Self::Data(bytes) => bytes,
        }
    }
}

/// Returns a packet without the checksum of the IP header, which the kernel computes.
///
/// The checksum of TCP is valid, because conntrack verifies it.
///
/// # Panics
///
/// If the packet is longer than 65,535 bytes.
pub fn tcp(source: SocketAddrV4, target: SocketAddrV4, segment: Segment) -> Vec<u8> {
    let length = 2 * HEADER + segment.payload();
    let total = u16::try_from(length).expect("a packet has at most 65,535 bytes");
    let mut packet = Vec::with_capacity(length);
    // Version and header length, type of service, length.
    packet.extend([0x45, 0]);
    packet.extend(total.to_be_bytes());
    // Identification, flag "do not fragment", time to live, protocol, checksum.
    packet.extend([0, 0, 0x40, 0, 64, TCP, 0, 0]);
    packet.extend(source.ip().octets());
    packet.extend(target.ip().octets());

    packet.extend(source.port().to_be_bytes());
    packet.extend(target.port().to_be_bytes());
    for number in segment.sequence_numbers() {
        packet.extend(number.to_be_bytes());
    }
    // Header length, flags, window, checksum, urgent pointer.
    packet.extend([0x50, segment.flags(), 0xff, 0xff, 0, 0, 0, 0]);
    packet.resize(length, 0);

    let checksum = checksum(*source.ip(), *target.ip(), &packet[HEADER..]);
    packet[HEADER + 16..HEADER + 18].copy_from_slice(&checksum.to_be_bytes());
    packet
}

/// Returns the checksum of a TCP segment whose checksum field is zero.
fn checksum(source: Ipv4Addr, target: Ipv4Addr, segment: &[u8]) -> u16 {
    let addresses = [source.octets(), target.octets()].concat();
    let words = addresses.chunks(2).chain(segment.chunks(2));
    let words = words.map(|word| match *word {
        [high, low] => u16::from_be_bytes([high, low]),
        [high] => u16::from_be_bytes([high, 0]),
        _ => 0,
    });
    let sum: u64 = words.map(u64::from).sum::<u64>() + u64::from(TCP) + segment.len() as u64;
    let mut sum = sum;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_of_a_valid_packet_is_zero() {
        let (source, target) = ("10.200.0.1:1024", "10.96.0.1:80");
        let (source, target) = (source.parse().unwrap(), target.parse().unwrap());
        for segment in [
            Segment::Syn,
            Segment::SynAck,
            Segment::Data(7),
            Segment::Data(1400),
        ] {
            let packet = tcp(source, target, segment);
            assert_eq!(packet.len(), 40 + segment.payload());
            assert_eq!(checksum(*source.ip(), *target.ip(), &packet[20..]), 0);
        }
    }

    #[test]
    fn a_packet_has_the_addresses_ports_and_flags() {
        let (source, target) = ("10.200.0.1:1024", "10.96.0.1:80");
        let packet = tcp(
            source.parse().unwrap(),
            target.parse().unwrap(),
            Segment::Syn,
        );
        assert_eq!(packet[12..20], [10, 200, 0, 1, 10, 96, 0, 1]);
        assert_eq!(packet[20..24], [4, 0, 0, 80]);
        assert_eq!(packet[33], 2);
    }
}
