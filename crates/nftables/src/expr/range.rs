//! `range`: values within or without a range.

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attrs, put_be32};

use super::{CmpOp, ExprType, List, Register};
use crate::Bytes;
use crate::text::Listing;
use crate::verdict::{decode_value, encode_value};

// enum nft_range_attributes
const NFTA_RANGE_SREG: u16 = 1;
const NFTA_RANGE_OP: u16 = 2;
const NFTA_RANGE_FROM_DATA: u16 = 3;
const NFTA_RANGE_TO_DATA: u16 = 4;

/// Goes on if a value is within a range, or without it.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Range {
    /// Where the value comes from.
    pub source: Register,
    /// Goes on if the value is not in the range.
    pub invert: bool,
    /// The first value within.
    pub from: Bytes,
    /// The last value within.
    pub to: Bytes,
}

impl ExprType for Range {
    const NAME: &'static str = "range";

    fn encode(&self, out: &mut Vec<u8>) {
        put_be32(out, NFTA_RANGE_SREG, self.source.number());
        put_be32(out, NFTA_RANGE_OP, u32::from(self.invert));
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
        let (Some(source), Some(op @ 0..=1), Some(from), Some(to)) = (source, op, from, to) else {
            return Ok(None);
        };
        Ok(Some(Self {
            source,
            invert: op == 1,
            from,
            to,
        }))
    }
}

impl List for Range {
    fn list(&self, listing: &mut Listing) {
        let left = listing.read(self.source, self.from.len());
        let op = if self.invert { CmpOp::Ne } else { CmpOp::Eq };
        let turned = listing.is_turned(self.source);
        listing.compare_range(left, op, &self.from, &self.to, turned);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::tests::assert_identity;

    #[test]
    fn both_senses_come_back() {
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
