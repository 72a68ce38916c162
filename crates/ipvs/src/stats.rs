//! Statistics of virtual and real servers.

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attr, Attrs};

/// What passed through a server, and how fast it does now.
///
/// Kernels since 4.1 count in 64 bits; the numbers of older ones wrap at 32,
/// all but the bytes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Stats {
    /// Connections that were scheduled.
    pub connections: u64,
    /// Packets that came in.
    pub packets_in: u64,
    /// Packets that went out.
    pub packets_out: u64,
    /// Bytes that came in.
    pub bytes_in: u64,
    /// Bytes that went out.
    pub bytes_out: u64,
    /// Connections a second.
    pub connection_rate: u64,
    /// Packets a second that come in.
    pub packet_rate_in: u64,
    /// Packets a second that go out.
    pub packet_rate_out: u64,
    /// Bytes a second that come in.
    pub byte_rate_in: u64,
    /// Bytes a second that go out.
    pub byte_rate_out: u64,
}

impl Stats {
    /// Reads `IPVS_STATS_ATTR_*`, each in 32 or 64 bits.
    pub(crate) fn decode(attrs: Attrs<'_>) -> Result<Self, DecodeError> {
        let mut stats = Self::default();
        for attr in attrs {
            let attr = attr?;
            let number = match attr.kind {
                1 => &mut stats.connections,
                2 => &mut stats.packets_in,
                3 => &mut stats.packets_out,
                4 => &mut stats.bytes_in,
                5 => &mut stats.bytes_out,
                6 => &mut stats.connection_rate,
                7 => &mut stats.packet_rate_in,
                8 => &mut stats.packet_rate_out,
                9 => &mut stats.byte_rate_in,
                10 => &mut stats.byte_rate_out,
                _ => continue,
            };
            *number = either(&attr)?;
        }
        Ok(stats)
    }
}

/// Reads a number of 32 or 64 bits.
fn either(attr: &Attr<'_>) -> Result<u64, DecodeError> {
    match attr.value.len() {
        4 => attr.u32().map(u64::from),
        _ => attr.u64(),
    }
}

#[cfg(test)]
mod tests {
    use vipline_netlink::attr::{put_u32, put_u64};

    use super::*;

    #[test]
    fn numbers_of_both_widths_are_read_and_the_padding_between_is_not() {
        let mut out = Vec::new();
        put_u32(&mut out, 1, 7);
        put_u64(&mut out, 4, 1 << 40);
        put_u64(&mut out, 11, 5);
        put_u64(&mut out, 10, 9);
        let stats = Stats::decode(Attrs::new(&out)).unwrap();
        assert_eq!((stats.connections, stats.bytes_in), (7, 1 << 40));
        assert_eq!(stats.byte_rate_out, 9);
    }
}
