//! `range`: comparisons with a range.

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attrs, put_be32};

use super::{ExprType, Register};
use crate::Bytes;
use crate::value::verdict::{decode_value, encode_value};

// enum nft_range_attributes
const NFTA_RANGE_SREG: u16 = 1;
const NFTA_RANGE_OP: u16 = 2;
const NFTA_RANGE_FROM_DATA: u16 = 3;
const NFTA_RANGE_TO_DATA: u16 = 4;
// enum nft_range_ops
const NFT_RANGE_EQ: u32 = 0;
const NFT_RANGE_NEQ: u32 = 1;

/// The `range` expression: compares a value with a range. Breaks the rule if the value is outside.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Range {
    /// Source register.
    pub source: Register,
    /// Inverts the match: breaks the rule if the value is inside.
    pub invert: bool,
    /// First value, inclusive.
    pub from: Bytes,
    /// Last value, inclusive.
    pub to: Bytes,
}

impl ExprType for Range {
    const NAME: &'static str = "range";

    fn encode(&self, out: &mut Vec<u8>) {
        put_be32(out, NFTA_RANGE_SREG, self.source.number());
        let op = if self.invert {
            NFT_RANGE_NEQ
        } else {
            NFT_RANGE_EQ
        };
        put_be32(out, NFTA_RANGE_OP, op);
        encode_value(out, NFTA_RANGE_FROM_DATA, &self.from);
        encode_value(out, NFTA_RANGE_TO_DATA, &self.to);
    }

    fn decode(attrs: Attrs<'_>) -> Result<Option<Self>, DecodeError> {
        let (mut source, mut op, mut from, mut to) = (None, None, None, None);
        for attr in attrs {
            let attr = attr?;
            match attr.kind {
                NFTA_RANGE_SREG => source = Some(Register::from_number(attr.be32()?)),
                NFTA_RANGE_OP => op = Some(attr.be32()?),
                NFTA_RANGE_FROM_DATA => from = Some(decode_value(&attr)?),
                NFTA_RANGE_TO_DATA => to = Some(decode_value(&attr)?),
                _ => return Ok(None),
            }
        }
        let invert = match op {
            Some(NFT_RANGE_EQ) => false,
            Some(NFT_RANGE_NEQ) => true,
            _ => return Ok(None),
        };
        let (Some(source), Some(from), Some(to)) = (source, from, to) else {
            return Ok(None);
        };
        Ok(Some(Self {
            source,
            invert,
            from,
            to,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::tests::assert_identity;

    #[test]
    fn both_senses_round_trip() {
        let (from, to) = (Bytes::from([0, 1]), Bytes::from([0, 5]));
        for invert in [false, true] {
            let (from, to) = (from.clone(), to.clone());
            assert_identity(Range {
                source: Register::word(0),
                invert,
                from,
                to,
            });
        }
    }
}
