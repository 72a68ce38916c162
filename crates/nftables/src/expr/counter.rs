//! `counter`: packet and byte counters.

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attrs, put_be64};

use super::ExprType;

// enum nft_counter_attributes
pub(crate) const NFTA_COUNTER_BYTES: u16 = 1;
pub(crate) const NFTA_COUNTER_PACKETS: u16 = 2;
const NFTA_COUNTER_PAD: u16 = 3;

/// The `counter` expression: counts packets and bytes.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Counter {
    /// Number of packets.
    pub packets: u64,
    /// Number of bytes.
    pub bytes: u64,
}

impl ExprType for Counter {
    const NAME: &'static str = "counter";

    fn encode(&self, out: &mut Vec<u8>) {
        if self.bytes != 0 {
            put_be64(out, NFTA_COUNTER_BYTES, self.bytes);
        }
        if self.packets != 0 {
            put_be64(out, NFTA_COUNTER_PACKETS, self.packets);
        }
    }

    fn decode(attrs: Attrs<'_>) -> Result<Option<Self>, DecodeError> {
        let mut counter = Self::default();
        for attr in attrs {
            let attr = attr?;
            match attr.kind {
                NFTA_COUNTER_BYTES => counter.bytes = attr.be64()?,
                NFTA_COUNTER_PACKETS => counter.packets = attr.be64()?,
                NFTA_COUNTER_PAD => {}
                _ => return Ok(None),
            }
        }
        Ok(Some(counter))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::tests::assert_identity;

    #[test]
    fn counts_round_trip() {
        assert_identity(Counter {
            packets: 5,
            bytes: 300,
        });
    }
}
