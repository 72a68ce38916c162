//! `numgen`: number generators.

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attrs, put_be32};

use super::{ExprType, Register};

// enum nft_ng_attributes
const NFTA_NG_DREG: u16 = 1;
const NFTA_NG_MODULUS: u16 = 2;
const NFTA_NG_TYPE: u16 = 3;
const NFTA_NG_OFFSET: u16 = 4;
// enum nft_ng_types
const NFT_NG_INCREMENTAL: u32 = 0;
const NFT_NG_RANDOM: u32 = 1;

/// The `numgen` expression: generates a number from `offset` to `offset + modulus - 1`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Numgen {
    /// Mode.
    pub mode: NumgenMode,
    /// Modulus.
    pub modulus: u32,
    /// Smallest number.
    pub offset: u32,
    /// Destination register; the number is in host byte order.
    pub destination: Register,
}

/// A mode of number generation: `enum nft_ng_types`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum NumgenMode {
    /// Round robin: each number is one greater than the previous.
    Incremental,
    /// Random.
    Random,
}

impl NumgenMode {
    /// Returns the kernel's number.
    pub(crate) fn number(self) -> u32 {
        match self {
            Self::Incremental => NFT_NG_INCREMENTAL,
            Self::Random => NFT_NG_RANDOM,
        }
    }

    pub(crate) fn from_number(number: u32) -> Option<Self> {
        match number {
            NFT_NG_INCREMENTAL => Some(Self::Incremental),
            NFT_NG_RANDOM => Some(Self::Random),
            _ => None,
        }
    }
}

impl ExprType for Numgen {
    const NAME: &'static str = "numgen";

    fn encode(&self, out: &mut Vec<u8>) {
        put_be32(out, NFTA_NG_DREG, self.destination.number());
        put_be32(out, NFTA_NG_MODULUS, self.modulus);
        put_be32(out, NFTA_NG_TYPE, self.mode.number());
        put_be32(out, NFTA_NG_OFFSET, self.offset);
    }

    fn decode(attrs: Attrs<'_>) -> Result<Option<Self>, DecodeError> {
        let (mut mode, mut modulus, mut offset, mut destination) = (None, None, 0, None);
        for attr in attrs {
            let attr = attr?;
            let number = attr.be32()?;
            match attr.kind {
                NFTA_NG_DREG => destination = Some(Register::from_number(number)),
                NFTA_NG_MODULUS => modulus = Some(number),
                NFTA_NG_TYPE => mode = NumgenMode::from_number(number),
                NFTA_NG_OFFSET => offset = number,
                _ => return Ok(None),
            }
        }
        let (Some(mode), Some(modulus), Some(destination)) = (mode, modulus, destination) else {
            return Ok(None);
        };
        Ok(Some(Self {
            mode,
            modulus,
            offset,
            destination,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::tests::assert_identity;

    #[test]
    fn both_modes_round_trip() {
        for mode in [NumgenMode::Incremental, NumgenMode::Random] {
            assert_identity(Numgen {
                mode,
                modulus: 3,
                offset: 1,
                destination: Register::word(3),
            });
        }
    }
}
