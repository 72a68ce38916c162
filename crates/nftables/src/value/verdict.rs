//! Verdicts, and the data of expressions and elements.

use std::fmt;

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attr, nest, put, put_be32, put_str};

use crate::{Bytes, Name};

// enum nft_data_attributes of linux/netfilter/nf_tables.h
const NFTA_DATA_VALUE: u16 = 1;
pub(crate) const NFTA_DATA_VERDICT: u16 = 2;
// enum nft_verdict_attributes
pub(crate) const NFTA_VERDICT_CODE: u16 = 1;
const NFTA_VERDICT_CHAIN: u16 = 2;
pub(crate) const NFTA_VERDICT_CHAIN_ID: u16 = 3;
// linux/netfilter.h
const NF_DROP: i32 = 0;
const NF_ACCEPT: i32 = 1;
// enum nft_verdicts
const NFT_CONTINUE: i32 = -1;
const NFT_BREAK: i32 = -2;
const NFT_JUMP: i32 = -3;
const NFT_GOTO: i32 = -4;
const NFT_RETURN: i32 = -5;

/// A verdict: the decision about a packet.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum Verdict {
    /// Accepts the packet. Evaluation continues in the next base chain of the hook.
    Accept,
    /// Drops the packet.
    Drop,
    /// Continues evaluation of the current rule (`NFT_CONTINUE`).
    Continue,
    /// Ends evaluation of the current rule and continues with the next (`NFT_BREAK`).
    Break,
    /// Returns to the calling chain. In a base chain, applies the policy.
    Return,
    /// Jumps to a chain; `return` continues with the rule after the jump.
    Jump(Name),
    /// Continues in another chain; `return` does not come back to this one.
    Goto(Name),
    /// Another verdict, by number.
    Other(i32),
}

impl Verdict {
    /// Returns the number of the verdict: `NF_*` and `enum nft_verdicts`.
    pub fn code(&self) -> i32 {
        match self {
            Self::Drop => NF_DROP,
            Self::Accept => NF_ACCEPT,
            Self::Continue => NFT_CONTINUE,
            Self::Break => NFT_BREAK,
            Self::Jump(_) => NFT_JUMP,
            Self::Goto(_) => NFT_GOTO,
            Self::Return => NFT_RETURN,
            Self::Other(code) => *code,
        }
    }

    /// Returns the target chain of a jump or goto.
    pub fn chain(&self) -> Option<&Name> {
        match self {
            Self::Jump(chain) | Self::Goto(chain) => Some(chain),
            _ => None,
        }
    }

    /// Appends the verdict as a data attribute of type `kind`.
    pub(crate) fn encode_as_data(&self, out: &mut Vec<u8>, kind: u16) {
        nest(out, kind, |out| {
            nest(out, NFTA_DATA_VERDICT, |out| self.encode(out));
        });
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_be32(out, NFTA_VERDICT_CODE, self.code() as u32);
        if let Some(chain) = self.chain() {
            put_str(out, NFTA_VERDICT_CHAIN, chain.as_str());
        }
    }

    fn decode(attr: &Attr<'_>) -> Result<Self, DecodeError> {
        let (mut code, mut chain) = (None, None);
        for attr in attr.attrs() {
            let attr = attr?;
            match attr.kind {
                NFTA_VERDICT_CODE => code = Some(attr.be32()? as i32),
                NFTA_VERDICT_CHAIN => {
                    chain = Some(Name::new(attr.str()?).map_err(|_| attr.error("chain name"))?);
                }
                _ => {}
            }
        }
        let code = code.ok_or_else(|| attr.error("verdict"))?;
        Ok(match (code, chain) {
            (NFT_JUMP, Some(chain)) => Self::Jump(chain),
            (NFT_GOTO, Some(chain)) => Self::Goto(chain),
            (NF_DROP, _) => Self::Drop,
            (NF_ACCEPT, _) => Self::Accept,
            (NFT_CONTINUE, _) => Self::Continue,
            (NFT_BREAK, _) => Self::Break,
            (NFT_RETURN, _) => Self::Return,
            (code, _) => Self::Other(code),
        })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accept => f.write_str("accept"),
            Self::Drop => f.write_str("drop"),
            Self::Continue | Self::Break => f.write_str("continue"),
            Self::Return => f.write_str("return"),
            Self::Jump(chain) => write!(f, "jump {chain}"),
            Self::Goto(chain) => write!(f, "goto {chain}"),
            Self::Other(code) => write!(f, "/* verdict {code} */"),
        }
    }
}

/// A value or a verdict: operand of an immediate, data of a map element.
///
/// Exhaustive: data is a value or a verdict.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Data {
    /// Bytes in register layout.
    Value(Bytes),
    /// A verdict.
    Verdict(Verdict),
}

impl Data {
    /// Appends the data as an attribute of type `kind`.
    pub fn encode(&self, out: &mut Vec<u8>, kind: u16) {
        match self {
            Self::Value(bytes) => encode_value(out, kind, bytes),
            Self::Verdict(verdict) => verdict.encode_as_data(out, kind),
        }
    }

    /// Decodes the data of an attribute.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the attribute is malformed or contains no data.
    pub fn decode(attr: &Attr<'_>) -> Result<Self, DecodeError> {
        for inner in attr.attrs() {
            let inner = inner?;
            match inner.kind {
                NFTA_DATA_VALUE => return Ok(Self::Value(inner.value.into())),
                NFTA_DATA_VERDICT => return Verdict::decode(&inner).map(Self::Verdict),
                _ => {}
            }
        }
        Err(attr.error("data"))
    }
}

/// Appends a value as a data attribute of type `kind`.
pub(crate) fn encode_value(out: &mut Vec<u8>, kind: u16, bytes: &[u8]) {
    nest(out, kind, |out| put(out, NFTA_DATA_VALUE, bytes));
}

/// Decodes a data attribute that must hold a value, not a verdict.
pub(crate) fn decode_value(attr: &Attr<'_>) -> Result<Bytes, DecodeError> {
    match Data::decode(attr)? {
        Data::Value(bytes) => Ok(bytes),
        Data::Verdict(_) => Err(attr.error("value")),
    }
}

#[cfg(test)]
mod tests {
    use vipline_netlink::attr::Attrs;

    use super::*;

    #[test]
    fn data_round_trips() {
        let chain = Name::new("c").unwrap();
        let verdicts = [
            Verdict::Accept,
            Verdict::Drop,
            Verdict::Continue,
            Verdict::Break,
            Verdict::Return,
            Verdict::Jump(chain.clone()),
            Verdict::Goto(chain),
            Verdict::Other(3),
        ];
        let value = Data::Value(Bytes::from([1, 2, 3]));
        for data in verdicts.into_iter().map(Data::Verdict).chain([value]) {
            let mut out = Vec::new();
            data.encode(&mut out, 5);
            let attr = Attrs::new(&out).next().unwrap().unwrap();
            assert_eq!((attr.kind, Data::decode(&attr)), (5, Ok(data)));
        }
    }

    #[test]
    fn data_without_content_is_an_error() {
        let attr = Attr {
            kind: 5,
            value: &[],
        };
        assert_eq!(Data::decode(&attr), Err(attr.error("data")));
    }
}
