//! `byteorder`: byte order conversions.

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attrs, put_be32};

use super::{ExprType, Register};

// enum nft_byteorder_attributes
const NFTA_BYTEORDER_SREG: u16 = 1;
const NFTA_BYTEORDER_DREG: u16 = 2;
const NFTA_BYTEORDER_OP: u16 = 3;
const NFTA_BYTEORDER_LEN: u16 = 4;
const NFTA_BYTEORDER_SIZE: u16 = 5;
// enum nft_byteorder_ops
const NFT_BYTEORDER_NTOH: u32 = 0;
const NFT_BYTEORDER_HTON: u32 = 1;

/// The `byteorder` expression: converts integers between host and network byte order.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Byteorder {
    /// Source register.
    pub source: Register,
    /// Destination register.
    pub destination: Register,
    /// Direction of the conversion.
    pub op: ByteorderOp,
    /// Total length in bytes.
    pub len: u32,
    /// Size of one integer in bytes: 2, 4 or 8.
    pub size: u32,
}

/// Direction of a conversion: `enum nft_byteorder_ops`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum ByteorderOp {
    /// To host byte order.
    ToHost,
    /// To network byte order.
    ToNetwork,
}

impl ExprType for Byteorder {
    const NAME: &'static str = "byteorder";

    fn encode(&self, out: &mut Vec<u8>) {
        put_be32(out, NFTA_BYTEORDER_SREG, self.source.number());
        put_be32(out, NFTA_BYTEORDER_DREG, self.destination.number());
        let op = match self.op {
            ByteorderOp::ToHost => NFT_BYTEORDER_NTOH,
            ByteorderOp::ToNetwork => NFT_BYTEORDER_HTON,
        };
        put_be32(out, NFTA_BYTEORDER_OP, op);
        put_be32(out, NFTA_BYTEORDER_LEN, self.len);
        put_be32(out, NFTA_BYTEORDER_SIZE, self.size);
    }

    fn decode(attrs: Attrs<'_>) -> Result<Option<Self>, DecodeError> {
        let (mut source, mut destination, mut op) = (None, None, None);
        let (mut len, mut size) = (None, None);
        for attr in attrs {
            let attr = attr?;
            let number = attr.be32()?;
            match (attr.kind, number) {
                (NFTA_BYTEORDER_SREG, number) => source = Some(Register::from_number(number)),
                (NFTA_BYTEORDER_DREG, number) => destination = Some(Register::from_number(number)),
                (NFTA_BYTEORDER_OP, NFT_BYTEORDER_NTOH) => op = Some(ByteorderOp::ToHost),
                (NFTA_BYTEORDER_OP, NFT_BYTEORDER_HTON) => op = Some(ByteorderOp::ToNetwork),
                (NFTA_BYTEORDER_LEN, number) => len = Some(number),
                (NFTA_BYTEORDER_SIZE, number) => size = Some(number),
                _ => return Ok(None),
            }
        }
        let (Some(source), Some(destination), Some(op)) = (source, destination, op) else {
            return Ok(None);
        };
        let (Some(len), Some(size)) = (len, size) else {
            return Ok(None);
        };
        Ok(Some(Self {
            source,
            destination,
            op,
            len,
            size,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::tests::assert_identity;

    #[test]
    fn both_directions_round_trip() {
        let (source, destination) = (Register::word(0), Register::word(1));
        for op in [ByteorderOp::ToHost, ByteorderOp::ToNetwork] {
            assert_identity(Byteorder {
                source,
                destination,
                op,
                len: 4,
                size: 4,
            });
        }
    }
}
