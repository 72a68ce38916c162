//! `dynset`: set updates from the packet path.

use std::time::Duration;

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attrs, nest, put_be32, put_be64, put_str};

use super::{Expr, ExprType, NFTA_LIST_ELEM, Register, SetRef, name};

// enum nft_dynset_attributes
const NFTA_DYNSET_SET_NAME: u16 = 1;
pub(crate) const NFTA_DYNSET_SET_ID: u16 = 2;
const NFTA_DYNSET_OP: u16 = 3;
const NFTA_DYNSET_SREG_KEY: u16 = 4;
const NFTA_DYNSET_SREG_DATA: u16 = 5;
const NFTA_DYNSET_TIMEOUT: u16 = 6;
const NFTA_DYNSET_EXPR: u16 = 7;
const NFTA_DYNSET_PAD: u16 = 8;
const NFTA_DYNSET_FLAGS: u16 = 9;
const NFTA_DYNSET_EXPRESSIONS: u16 = 10;
// enum nft_dynset_ops
const NFT_DYNSET_OP_ADD: u32 = 0;
const NFT_DYNSET_OP_UPDATE: u32 = 1;
const NFT_DYNSET_OP_DELETE: u32 = 2;
// enum nft_dynset_flags
const NFT_DYNSET_F_INV: u32 = 1;
const NFT_DYNSET_F_EXPR: u32 = 2;

/// The `dynset` expression: adds, updates or deletes a set element, with key and data of the packet.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Dynset {
    /// Set or map.
    pub set: SetRef,
    /// Operation.
    pub op: DynsetOp,
    /// Register of the key.
    pub key: Register,
    /// Register of the data.
    pub data: Option<Register>,
    /// Timeout of the element, instead of the set's default.
    pub timeout: Option<Duration>,
    /// Stateful expressions of the element, such as a limit or counter.
    pub exprs: Vec<Expr>,
    /// Inverts the match: breaks the rule if the operation succeeds.
    pub invert: bool,
}

/// A set update operation: `enum nft_dynset_ops`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum DynsetOp {
    /// Adds the element.
    Add,
    /// Adds the element or refreshes its timeout.
    Update,
    /// Deletes the element.
    Delete,
}

impl ExprType for Dynset {
    const NAME: &'static str = "dynset";

    fn encode(&self, out: &mut Vec<u8>) {
        put_be32(out, NFTA_DYNSET_SREG_KEY, self.key.number());
        if let Some(data) = self.data {
            put_be32(out, NFTA_DYNSET_SREG_DATA, data.number());
        }
        let op = match self.op {
            DynsetOp::Add => NFT_DYNSET_OP_ADD,
            DynsetOp::Update => NFT_DYNSET_OP_UPDATE,
            DynsetOp::Delete => NFT_DYNSET_OP_DELETE,
        };
        put_be32(out, NFTA_DYNSET_OP, op);
        if let Some(timeout) = self.timeout {
            let milliseconds = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
            put_be64(out, NFTA_DYNSET_TIMEOUT, milliseconds);
        }
        put_str(out, NFTA_DYNSET_SET_NAME, self.set.name().as_str());
        match &*self.exprs {
            [] => {}
            [expr] => nest(out, NFTA_DYNSET_EXPR, |out| expr.encode(out)),
            exprs => nest(out, NFTA_DYNSET_EXPRESSIONS, |out| {
                for expr in exprs {
                    nest(out, NFTA_LIST_ELEM, |out| expr.encode(out));
                }
            }),
        }
        let has_exprs = if self.exprs.is_empty() {
            0
        } else {
            NFT_DYNSET_F_EXPR
        };
        let flags = if self.invert { NFT_DYNSET_F_INV } else { 0 } | has_exprs;
        if flags != 0 {
            put_be32(out, NFTA_DYNSET_FLAGS, flags);
        }
    }

    fn decode(attrs: Attrs<'_>) -> Result<Option<Self>, DecodeError> {
        let (mut set, mut op, mut key, mut data) = (None, None, None, None);
        let (mut timeout, mut exprs, mut flags) = (None, Vec::new(), 0);
        for attr in attrs {
            let attr = attr?;
            match attr.kind {
                NFTA_DYNSET_SET_NAME => set = Some(name(&attr)?),
                NFTA_DYNSET_OP => {
                    op = match attr.be32()? {
                        NFT_DYNSET_OP_ADD => Some(DynsetOp::Add),
                        NFT_DYNSET_OP_UPDATE => Some(DynsetOp::Update),
                        NFT_DYNSET_OP_DELETE => Some(DynsetOp::Delete),
                        _ => None,
                    };
                }
                NFTA_DYNSET_SREG_KEY => key = Some(Register::from_number(attr.be32()?)),
                NFTA_DYNSET_SREG_DATA => data = Some(Register::from_number(attr.be32()?)),
                NFTA_DYNSET_TIMEOUT => timeout = Some(attr.be64()?),
                NFTA_DYNSET_EXPR => exprs.push(Expr::decode(attr.value)?),
                NFTA_DYNSET_EXPRESSIONS => {
                    for expr in attr.attrs() {
                        exprs.push(Expr::decode(expr?.value)?);
                    }
                }
                NFTA_DYNSET_FLAGS => flags = attr.be32()?,
                // Redundant: the name identifies the set.
                NFTA_DYNSET_SET_ID | NFTA_DYNSET_PAD => {}
                _ => return Ok(None),
            }
        }
        let (Some(set), Some(op), Some(key)) = (set, op, key) else {
            return Ok(None);
        };
        if flags & !(NFT_DYNSET_F_INV | NFT_DYNSET_F_EXPR) != 0 {
            return Ok(None);
        }
        Ok(Some(Self {
            set: SetRef::Named(set),
            op,
            key,
            data,
            timeout: timeout.filter(|ms| *ms != 0).map(Duration::from_millis),
            exprs,
            invert: flags & NFT_DYNSET_F_INV != 0,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Name;
    use crate::expr::tests::assert_identity;
    use crate::expr::{Counter, Notrack};

    #[test]
    fn every_operation_round_trips() {
        let plain = Dynset {
            set: SetRef::Named(Name::new("s").unwrap()),
            op: DynsetOp::Add,
            key: Register::word(0),
            data: None,
            timeout: None,
            exprs: Vec::new(),
            invert: false,
        };
        assert_identity(plain.clone());
        assert_identity(Dynset {
            op: DynsetOp::Update,
            data: Some(Register::word(4)),
            timeout: Some(Duration::from_secs(10)),
            exprs: vec![Counter::default().into()],
            ..plain.clone()
        });
        assert_identity(Dynset {
            op: DynsetOp::Delete,
            exprs: vec![Counter::default().into(), Notrack.into()],
            invert: true,
            ..plain
        });
    }
}
