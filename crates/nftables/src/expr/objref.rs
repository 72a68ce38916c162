//! `objref`: references to stateful objects.

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attrs, put_be32, put_str};

use super::{ExprType, Register, SetRef, name};
use crate::Name;

// enum nft_objref_attributes
const NFTA_OBJREF_IMM_TYPE: u16 = 1;
const NFTA_OBJREF_IMM_NAME: u16 = 2;
const NFTA_OBJREF_SET_SREG: u16 = 3;
const NFTA_OBJREF_SET_NAME: u16 = 4;
pub(crate) const NFTA_OBJREF_SET_ID: u16 = 5;
// types of stateful objects
pub(crate) const NFT_OBJECT_COUNTER: u32 = 1;
pub(crate) const NFT_OBJECT_QUOTA: u32 = 2;
pub(crate) const NFT_OBJECT_CT_HELPER: u32 = 3;
pub(crate) const NFT_OBJECT_LIMIT: u32 = 4;
pub(crate) const NFT_OBJECT_CT_TIMEOUT: u32 = 7;
pub(crate) const NFT_OBJECT_SECMARK: u32 = 8;
pub(crate) const NFT_OBJECT_CT_EXPECT: u32 = 9;
pub(crate) const NFT_OBJECT_SYNPROXY: u32 = 10;

/// The `objref` expression: uses a stateful object.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Objref {
    /// Source of the reference.
    pub source: ObjrefSource,
}

/// The source of an object reference.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ObjrefSource {
    /// By type and name.
    Named {
        /// Object type: `NFT_OBJECT_*`.
        kind: u32,
        /// Name.
        name: Name,
    },
    /// By map lookup.
    Map {
        /// Object map.
        set: SetRef,
        /// Register of the key.
        key: Register,
    },
}

/// Returns nft's name of an object type: `NFT_OBJECT_*`.
pub(crate) fn kind_text(kind: u32) -> Option<&'static str> {
    Some(match kind {
        NFT_OBJECT_COUNTER => "counter",
        NFT_OBJECT_QUOTA => "quota",
        NFT_OBJECT_CT_HELPER => "ct helper",
        NFT_OBJECT_LIMIT => "limit",
        NFT_OBJECT_CT_TIMEOUT => "ct timeout",
        NFT_OBJECT_SECMARK => "secmark",
        NFT_OBJECT_CT_EXPECT => "ct expectation",
        NFT_OBJECT_SYNPROXY => "synproxy",
        _ => return None,
    })
}

impl ExprType for Objref {
    const NAME: &'static str = "objref";

    fn encode(&self, out: &mut Vec<u8>) {
        match &self.source {
            ObjrefSource::Named { kind, name } => {
                put_be32(out, NFTA_OBJREF_IMM_TYPE, *kind);
                put_str(out, NFTA_OBJREF_IMM_NAME, name.as_str());
            }
            ObjrefSource::Map { set, key } => {
                put_be32(out, NFTA_OBJREF_SET_SREG, key.number());
                put_str(out, NFTA_OBJREF_SET_NAME, set.name().as_str());
            }
        }
    }

    fn decode(attrs: Attrs<'_>) -> Result<Option<Self>, DecodeError> {
        let (mut kind, mut object, mut key, mut set) = (None, None, None, None);
        for attr in attrs {
            let attr = attr?;
            match attr.kind {
                NFTA_OBJREF_IMM_TYPE => kind = Some(attr.be32()?),
                NFTA_OBJREF_IMM_NAME => object = Some(name(&attr)?),
                NFTA_OBJREF_SET_SREG => key = Some(Register::from_number(attr.be32()?)),
                NFTA_OBJREF_SET_NAME => set = Some(SetRef::Named(name(&attr)?)),
                // Redundant: the name identifies the set.
                NFTA_OBJREF_SET_ID => {}
                _ => return Ok(None),
            }
        }
        let source = match (kind, object, key, set) {
            (Some(kind), Some(name), None, None) => ObjrefSource::Named { kind, name },
            (None, None, Some(key), Some(set)) => ObjrefSource::Map { set, key },
            _ => return Ok(None),
        };
        Ok(Some(Self { source }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::tests::assert_identity;

    #[test]
    fn both_sources_round_trip() {
        let name = Name::new("o").unwrap();
        let set = SetRef::Named(name.clone());
        assert_identity(Objref {
            source: ObjrefSource::Named {
                kind: NFT_OBJECT_COUNTER,
                name,
            },
        });
        assert_identity(Objref {
            source: ObjrefSource::Map {
                set,
                key: Register::word(0),
            },
        });
    }
}
