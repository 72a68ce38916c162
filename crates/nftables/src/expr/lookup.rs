//! `lookup`: set and map lookups.

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attrs, put_be32, put_str};

use super::{ExprType, Register, SetRef, name};

// enum nft_lookup_attributes
const NFTA_LOOKUP_SET: u16 = 1;
const NFTA_LOOKUP_SREG: u16 = 2;
const NFTA_LOOKUP_DREG: u16 = 3;
const NFTA_LOOKUP_SET_ID: u16 = 4;
const NFTA_LOOKUP_FLAGS: u16 = 5;
// enum nft_lookup_flags
const NFT_LOOKUP_F_INV: u32 = 1;

/// The `lookup` expression: looks up a value in a set or map and loads map data. Breaks the rule if absent.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Lookup {
    /// Set or map.
    pub set: SetRef,
    /// Source register.
    pub source: Register,
    /// Destination register of map data: [`Register::VERDICT`] for a verdict map.
    pub destination: Option<Register>,
    /// Inverts the match: breaks the rule if the value is in the set.
    pub invert: bool,
}

impl ExprType for Lookup {
    const NAME: &'static str = "lookup";

    fn encode(&self, out: &mut Vec<u8>) {
        put_be32(out, NFTA_LOOKUP_SREG, self.source.number());
        if let Some(destination) = self.destination {
            put_be32(out, NFTA_LOOKUP_DREG, destination.number());
        }
        put_str(out, NFTA_LOOKUP_SET, self.set.name().as_str());
        if self.invert {
            put_be32(out, NFTA_LOOKUP_FLAGS, NFT_LOOKUP_F_INV);
        }
    }

    fn decode(attrs: Attrs<'_>) -> Result<Option<Self>, DecodeError> {
        let (mut set, mut source, mut destination, mut flags) = (None, None, None, 0);
        for attr in attrs {
            let attr = attr?;
            match attr.kind {
                NFTA_LOOKUP_SET => set = Some(name(&attr)?),
                NFTA_LOOKUP_SREG => source = Some(Register::from_number(attr.be32()?)),
                NFTA_LOOKUP_DREG => destination = Some(Register::from_number(attr.be32()?)),
                NFTA_LOOKUP_FLAGS => flags = attr.be32()?,
                // Redundant: the name identifies the set.
                NFTA_LOOKUP_SET_ID => {}
                _ => return Ok(None),
            }
        }
        let (Some(set), Some(source), 0..=NFT_LOOKUP_F_INV) = (set, source, flags) else {
            return Ok(None);
        };
        Ok(Some(Self {
            set: SetRef::Named(set),
            source,
            destination,
            invert: flags == NFT_LOOKUP_F_INV,
        }))
    }
}

impl Lookup {
    /// Appends the attributes and the ID of a set of the same transaction.
    pub(crate) fn encode_with_set_id(&self, out: &mut Vec<u8>, id: u32) {
        self.encode(out);
        put_be32(out, NFTA_LOOKUP_SET_ID, id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Name;
    use crate::expr::tests::assert_identity;

    #[test]
    fn sets_maps_and_verdict_maps_round_trip() {
        let set = SetRef::Named(Name::new("s").unwrap());
        let source = Register::word(0);
        for destination in [None, Some(Register::VERDICT), Some(source)] {
            let set = set.clone();
            assert_identity(Lookup {
                set,
                source,
                destination,
                invert: false,
            });
        }
        assert_identity(Lookup {
            set,
            source,
            destination: None,
            invert: true,
        });
    }
}
