//! Statistics of virtual and real servers.

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attr, Attrs};

use crate::uapi::*;

/// Traffic counters and rates of a virtual or real server.
///
/// All counters have 64 bits and do not wrap.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// Scheduled connections.
    #[doc(alias = "IPVS_STATS_ATTR_CONNS")]
    pub connections: u64,
    /// Incoming packets.
    #[doc(alias = "IPVS_STATS_ATTR_INPKTS")]
    pub packets_in: u64,
    /// Outgoing packets.
    #[doc(alias = "IPVS_STATS_ATTR_OUTPKTS")]
    pub packets_out: u64,
    /// Incoming bytes.
    #[doc(alias = "IPVS_STATS_ATTR_INBYTES")]
    pub bytes_in: u64,
    /// Outgoing bytes.
    #[doc(alias = "IPVS_STATS_ATTR_OUTBYTES")]
    pub bytes_out: u64,
    /// Connections per second.
    #[doc(alias = "IPVS_STATS_ATTR_CPS")]
    pub connection_rate: u64,
    /// Incoming packets per second.
    #[doc(alias = "IPVS_STATS_ATTR_INPPS")]
    pub packet_rate_in: u64,
    /// Outgoing packets per second.
    #[doc(alias = "IPVS_STATS_ATTR_OUTPPS")]
    pub packet_rate_out: u64,
    /// Incoming bytes per second.
    #[doc(alias = "IPVS_STATS_ATTR_INBPS")]
    pub byte_rate_in: u64,
    /// Outgoing bytes per second.
    #[doc(alias = "IPVS_STATS_ATTR_OUTBPS")]
    pub byte_rate_out: u64,
}

impl Stats {
    /// Decodes `IPVS_STATS_ATTR_*`, each with 32 or 64 bits.
    pub(crate) fn decode(attrs: Attrs<'_>) -> Result<Self, DecodeError> {
        let mut stats = Self::default();
        for attr in attrs {
            let attr = attr?;
            let number = match attr.kind {
                IPVS_STATS_ATTR_CONNS => &mut stats.connections,
                IPVS_STATS_ATTR_INPKTS => &mut stats.packets_in,
                IPVS_STATS_ATTR_OUTPKTS => &mut stats.packets_out,
                IPVS_STATS_ATTR_INBYTES => &mut stats.bytes_in,
                IPVS_STATS_ATTR_OUTBYTES => &mut stats.bytes_out,
                IPVS_STATS_ATTR_CPS => &mut stats.connection_rate,
                IPVS_STATS_ATTR_INPPS => &mut stats.packet_rate_in,
                IPVS_STATS_ATTR_OUTPPS => &mut stats.packet_rate_out,
                IPVS_STATS_ATTR_INBPS => &mut stats.byte_rate_in,
                IPVS_STATS_ATTR_OUTBPS => &mut stats.byte_rate_out,
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

    /// Empty, so that the following number is aligned to 8 bytes.
    const IPVS_STATS_ATTR_PAD: u16 = 11;

    #[test]
    fn counters_of_32_and_64_bits_are_decoded_and_padding_is_skipped() {
        let mut out = Vec::new();
        put_u32(&mut out, IPVS_STATS_ATTR_CONNS, 7);
        put_u64(&mut out, IPVS_STATS_ATTR_INBYTES, 1 << 40);
        put_u64(&mut out, IPVS_STATS_ATTR_PAD, 5);
        put_u64(&mut out, IPVS_STATS_ATTR_OUTBPS, 9);
        let stats = Stats::decode(Attrs::new(&out)).unwrap();
        assert_eq!((stats.connections, stats.bytes_in), (7, 1 << 40));
        assert_eq!(stats.byte_rate_out, 9);
    }
}
