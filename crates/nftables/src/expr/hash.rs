//! `hash`: hashes of a value (`jhash`) or of a connection (`symhash`).

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attrs, put_be32};

use super::{ExprType, Register};

// enum nft_hash_attributes
const NFTA_HASH_SREG: u16 = 1;
const NFTA_HASH_DREG: u16 = 2;
const NFTA_HASH_LEN: u16 = 3;
const NFTA_HASH_MODULUS: u16 = 4;
const NFTA_HASH_SEED: u16 = 5;
const NFTA_HASH_OFFSET: u16 = 6;
const NFTA_HASH_TYPE: u16 = 7;

/// The `hash` expression: computes a hash from `offset` to `offset + modulus - 1`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Hash {
    /// Hash function.
    pub kind: HashType,
    /// Modulus.
    pub modulus: u32,
    /// Smallest number.
    pub offset: u32,
    /// Destination register; the number is in host byte order.
    pub destination: Register,
}

/// A hash function: `enum nft_hash_types`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum HashType {
    /// Jenkins hash of registers.
    Jenkins {
        /// First register.
        source: Register,
        /// Length in bytes.
        len: u32,
        /// Seed; `None` lets the kernel choose a random seed.
        seed: Option<u32>,
    },
    /// Hash of both ends of the connection, independent of direction.
    Symmetric,
}

impl ExprType for Hash {
    const NAME: &'static str = "hash";

    fn encode(&self, out: &mut Vec<u8>) {
        if let HashType::Jenkins { source, .. } = self.kind {
            put_be32(out, NFTA_HASH_SREG, source.number());
        }
        put_be32(out, NFTA_HASH_DREG, self.destination.number());
        if let HashType::Jenkins { len, .. } = self.kind {
            put_be32(out, NFTA_HASH_LEN, len);
        }
        put_be32(out, NFTA_HASH_MODULUS, self.modulus);
        if let HashType::Jenkins {
            seed: Some(seed), ..
        } = self.kind
        {
            put_be32(out, NFTA_HASH_SEED, seed);
        }
        put_be32(out, NFTA_HASH_OFFSET, self.offset);
        put_be32(
            out,
            NFTA_HASH_TYPE,
            u32::from(self.kind == HashType::Symmetric),
        );
    }

    fn decode(attrs: Attrs<'_>) -> Result<Option<Self>, DecodeError> {
        let (mut source, mut destination, mut len, mut modulus) = (None, None, None, None);
        let (mut seed, mut offset, mut symmetric) = (None, 0, false);
        for attr in attrs {
            let attr = attr?;
            let number = attr.be32()?;
            match (attr.kind, number) {
                (NFTA_HASH_SREG, number) => source = Some(Register::from_number(number)),
                (NFTA_HASH_DREG, number) => destination = Some(Register::from_number(number)),
                (NFTA_HASH_LEN, number) => len = Some(number),
                (NFTA_HASH_MODULUS, number) => modulus = Some(number),
                (NFTA_HASH_SEED, number) => seed = Some(number),
                (NFTA_HASH_OFFSET, number) => offset = number,
                (NFTA_HASH_TYPE, 0) => symmetric = false,
                (NFTA_HASH_TYPE, 1) => symmetric = true,
                _ => return Ok(None),
            }
        }
        let kind = match (source, len) {
            (Some(source), Some(len)) if !symmetric => HashType::Jenkins { source, len, seed },
            (None, None) if symmetric => HashType::Symmetric,
            _ => return Ok(None),
        };
        let (Some(modulus), Some(destination)) = (modulus, destination) else {
            return Ok(None);
        };
        Ok(Some(Self {
            kind,
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
    fn both_types_round_trip() {
        let destination = Register::word(3);
        for seed in [None, Some(7)] {
            let kind = HashType::Jenkins {
                source: Register::word(8),
                len: 6,
                seed,
            };
            assert_identity(Hash {
                kind,
                modulus: 251,
                offset: 0,
                destination,
            });
        }
        let kind = HashType::Symmetric;
        assert_identity(Hash {
            kind,
            modulus: 16,
            offset: 2,
            destination,
        });
    }
}
