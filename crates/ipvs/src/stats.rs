//! Statistics of virtual and real servers.

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attr, Attrs};

/// Traffic counters and rates of a virtual or real server.
///
/// All counters have 64 bits and do not wrap.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// Scheduled connections.
    pub connections: u64,
    /// Incoming packets.
    pub packets_in: u64,
    /// Outgoing packets.
    pub packets_out: u64,
    /// Incoming bytes.
    pub bytes_in: u64,
    /// Outgoing bytes.
    pub bytes_out: u64,
    /// Connections per second.
    pub connection_rate: u64,
    /// Incoming packets per second.
    pub packet_rate_in: u64,
    /// Outgoing packets per second.
    pub packet_rate_out: u64,
    /// Incoming bytes per second.
    pub byte_rate_in: u64,
    /// Outgoing bytes per second.
    pub byte_rate_out: u64,
}

impl Stats {
    /// Decodes `IPVS_STATS_ATTR_*`, each with 32 or 64 bits.
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

/// Decodes a number of 32 or 64 bits.
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
    fn counters_of_32_and_64_bits_are_decoded_and_padding_is_skipped() {
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
