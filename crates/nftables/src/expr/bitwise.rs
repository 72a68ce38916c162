//! `bitwise`: bitwise operations.

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attrs, put_be32};

use super::{ExprType, Register};
use crate::Bytes;
use crate::value::verdict::{decode_value, encode_value};

// enum nft_bitwise_attributes
const NFTA_BITWISE_SREG: u16 = 1;
const NFTA_BITWISE_DREG: u16 = 2;
const NFTA_BITWISE_LEN: u16 = 3;
const NFTA_BITWISE_MASK: u16 = 4;
const NFTA_BITWISE_XOR: u16 = 5;
const NFTA_BITWISE_OP: u16 = 6;
const NFTA_BITWISE_DATA: u16 = 7;
// enum nft_bitwise_ops
const NFT_BITWISE_MASK_XOR: u32 = 0;
const NFT_BITWISE_LSHIFT: u32 = 1;
const NFT_BITWISE_RSHIFT: u32 = 2;

/// The `bitwise` expression: performs a bitwise operation.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Bitwise {
    /// Source register.
    pub source: Register,
    /// Destination register.
    pub destination: Register,
    /// Length of the value in bytes.
    pub len: u32,
    /// Operation.
    pub op: BitwiseOp,
}

/// A bitwise operation: `enum nft_bitwise_ops`.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum BitwiseOp {
    /// `value & mask ^ xor`.
    MaskXor {
        /// AND mask.
        mask: Bytes,
        /// XOR value.
        xor: Bytes,
    },
    /// Left shift by this number of bits.
    ShiftLeft(Bytes),
    /// Right shift by this number of bits.
    ShiftRight(Bytes),
}

impl ExprType for Bitwise {
    const NAME: &'static str = "bitwise";

    fn encode(&self, out: &mut Vec<u8>) {
        put_be32(out, NFTA_BITWISE_SREG, self.source.number());
        put_be32(out, NFTA_BITWISE_DREG, self.destination.number());
        let op = match &self.op {
            BitwiseOp::MaskXor { .. } => NFT_BITWISE_MASK_XOR,
            BitwiseOp::ShiftLeft(_) => NFT_BITWISE_LSHIFT,
            BitwiseOp::ShiftRight(_) => NFT_BITWISE_RSHIFT,
        };
        put_be32(out, NFTA_BITWISE_OP, op);
        put_be32(out, NFTA_BITWISE_LEN, self.len);
        match &self.op {
            BitwiseOp::MaskXor { mask, xor } => {
                encode_value(out, NFTA_BITWISE_MASK, mask);
                encode_value(out, NFTA_BITWISE_XOR, xor);
            }
            BitwiseOp::ShiftLeft(by) | BitwiseOp::ShiftRight(by) => {
                encode_value(out, NFTA_BITWISE_DATA, by);
            }
        }
    }

    fn decode(attrs: Attrs<'_>) -> Result<Option<Self>, DecodeError> {
        let (mut source, mut destination, mut len) = (None, None, None);
        let (mut op, mut mask, mut xor, mut data) = (NFT_BITWISE_MASK_XOR, None, None, None);
        for attr in attrs {
            let attr = attr?;
            match attr.kind {
                NFTA_BITWISE_SREG => source = Some(Register::from_number(attr.be32()?)),
                NFTA_BITWISE_DREG => destination = Some(Register::from_number(attr.be32()?)),
                NFTA_BITWISE_LEN => len = Some(attr.be32()?),
                NFTA_BITWISE_OP => op = attr.be32()?,
                NFTA_BITWISE_MASK => mask = Some(decode_value(&attr)?),
                NFTA_BITWISE_XOR => xor = Some(decode_value(&attr)?),
                NFTA_BITWISE_DATA => data = Some(decode_value(&attr)?),
                _ => return Ok(None),
            }
        }
        let op = match (op, mask, xor, data) {
            (NFT_BITWISE_MASK_XOR, Some(mask), Some(xor), None) => BitwiseOp::MaskXor { mask, xor },
            (NFT_BITWISE_LSHIFT, None, None, Some(by)) => BitwiseOp::ShiftLeft(by),
            (NFT_BITWISE_RSHIFT, None, None, Some(by)) => BitwiseOp::ShiftRight(by),
            _ => return Ok(None),
        };
        let (Some(source), Some(destination), Some(len)) = (source, destination, len) else {
            return Ok(None);
        };
        Ok(Some(Self {
            source,
            destination,
            len,
            op,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::tests::assert_identity;

    #[test]
    fn every_operation_round_trips() {
        let bytes = Bytes::from([0, 0, 0x40, 0]);
        for op in [
            BitwiseOp::MaskXor {
                mask: bytes.clone(),
                xor: Bytes::repeat(0, 4),
            },
            BitwiseOp::ShiftLeft(bytes.clone()),
            BitwiseOp::ShiftRight(bytes),
        ] {
            let (source, destination) = (Register::word(0), Register::word(1));
            assert_identity(Bitwise {
                source,
                destination,
                len: 4,
                op,
            });
        }
    }
}
