//! `cmp`: comparisons with a constant.

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attrs, put_be32};

use super::{ExprType, Register};
use crate::Bytes;
use crate::value::verdict::{decode_value, encode_value};

// enum nft_cmp_attributes
const NFTA_CMP_SREG: u16 = 1;
const NFTA_CMP_OP: u16 = 2;
const NFTA_CMP_DATA: u16 = 3;
// enum nft_cmp_ops
const NFT_CMP_EQ: u32 = 0;
const NFT_CMP_NEQ: u32 = 1;
const NFT_CMP_LT: u32 = 2;
const NFT_CMP_LTE: u32 = 3;
const NFT_CMP_GT: u32 = 4;
const NFT_CMP_GTE: u32 = 5;

/// The `cmp` expression: compares a value with a constant, bytewise. Breaks the rule on mismatch.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Cmp {
    /// Source register.
    pub source: Register,
    /// Comparison operator.
    pub op: CmpOp,
    /// Constant. Its length is the length of the comparison.
    pub data: Bytes,
}

/// A comparison operator: `enum nft_cmp_ops`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum CmpOp {
    /// Equal.
    Eq,
    /// Not equal.
    Ne,
    /// Less.
    Lt,
    /// Less or equal.
    Le,
    /// Greater.
    Gt,
    /// Greater or equal.
    Ge,
}

impl CmpOp {
    const ALL: [Self; 6] = [Self::Eq, Self::Ne, Self::Lt, Self::Le, Self::Gt, Self::Ge];

    fn number(self) -> u32 {
        match self {
            Self::Eq => NFT_CMP_EQ,
            Self::Ne => NFT_CMP_NEQ,
            Self::Lt => NFT_CMP_LT,
            Self::Le => NFT_CMP_LTE,
            Self::Gt => NFT_CMP_GT,
            Self::Ge => NFT_CMP_GTE,
        }
    }

    fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|op| op.number() == number)
    }

    /// Returns nft's operator text. Equality has none.
    pub(crate) fn sign(self) -> &'static str {
        match self {
            Self::Eq => "",
            Self::Ne => "!= ",
            Self::Lt => "< ",
            Self::Le => "<= ",
            Self::Gt => "> ",
            Self::Ge => ">= ",
        }
    }
}

impl ExprType for Cmp {
    const NAME: &'static str = "cmp";

    fn encode(&self, out: &mut Vec<u8>) {
        put_be32(out, NFTA_CMP_SREG, self.source.number());
        put_be32(out, NFTA_CMP_OP, self.op.number());
        encode_value(out, NFTA_CMP_DATA, &self.data);
    }

    fn decode(attrs: Attrs<'_>) -> Result<Option<Self>, DecodeError> {
        let (mut source, mut op, mut data) = (None, None, None);
        for attr in attrs {
            let attr = attr?;
            match attr.kind {
                NFTA_CMP_SREG => source = Some(Register::from_number(attr.be32()?)),
                NFTA_CMP_OP => op = CmpOp::from_number(attr.be32()?),
                NFTA_CMP_DATA => data = Some(decode_value(&attr)?),
                _ => return Ok(None),
            }
        }
        let (Some(source), Some(op), Some(data)) = (source, op, data) else {
            return Ok(None);
        };
        Ok(Some(Self { source, op, data }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::tests::assert_identity;

    #[test]
    fn every_operator_round_trips() {
        for op in CmpOp::ALL {
            assert_identity(Cmp {
                source: Register::word(0),
                op,
                data: Bytes::from([0, 80]),
            });
        }
    }
}
