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
// enum nft_hash_types
const NFT_HASH_JENKINS: u32 = 0;
pub(crate) const NFT_HASH_SYM: u32 = 1;

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

/// Returns the number that `jhash … mod MODULUS seed SEED offset OFFSET` computes for a
/// value, given as bytes in register layout: the fields of a concatenation are padded to
/// whole words.
///
/// You need this to add elements that a rule finds by the hash of a packet:
///
/// ```
/// use vipline_nftables::expr::jenkins_number;
///
/// // ip daddr . th dport of 10.1.0.1 and 8080
/// let value = [10, 1, 0, 1, 0x1f, 0x90, 0, 0];
/// let number = jenkins_number(&value, 1, u32::MAX, 1);
/// # #[cfg(target_endian = "little")]
/// assert_eq!(number, 0xfe61_083e);
/// ```
///
/// The kernel reads words in host byte order, so the number depends on the byte order of the
/// machine.
pub fn jenkins_number(value: &[u8], seed: u32, modulus: u32, offset: u32) -> u32 {
    offset.wrapping_add(scale(jenkins(value, seed), modulus))
}

/// Maps a hash to a number below `modulus`, as `reciprocal_scale` of the kernel.
fn scale(hash: u32, modulus: u32) -> u32 {
    ((u64::from(hash) * u64::from(modulus)) >> u32::BITS) as u32
}

/// Returns the Jenkins hash of the kernel: lookup3 with words in host byte order.
fn jenkins(mut key: &[u8], seed: u32) -> u32 {
    let len = u32::try_from(key.len()).unwrap_or(u32::MAX);
    let start = 0xdead_beef_u32.wrapping_add(len).wrapping_add(seed);
    let mut state = [start; 3];
    let word = |bytes: &[u8], at: usize| {
        let bytes = bytes.get(at..).and_then(|bytes| bytes.first_chunk());
        bytes.map_or(0, |bytes| u32::from_ne_bytes(*bytes))
    };
    let add = |state: &mut [u32; 3], words: [u32; 3]| {
        for (state, word) in state.iter_mut().zip(words) {
            *state = state.wrapping_add(word);
        }
    };
    while let Some((block, rest)) = key
        .split_at_checked(12)
        .filter(|(_, rest)| !rest.is_empty())
    {
        add(&mut state, [word(block, 0), word(block, 4), word(block, 8)]);
        mix(&mut state);
        key = rest;
    }
    if key.is_empty() {
        return state[2];
    }
    // The kernel adds the last bytes in little-endian order.
    let mut last = [0; 12];
    for (place, byte) in last.iter_mut().zip(key) {
        *place = *byte;
    }
    let little = |at| u32::from_le(word(&last, at));
    add(&mut state, [little(0), little(4), little(8)]);
    finish(&mut state);
    state[2]
}

fn mix([a, b, c]: &mut [u32; 3]) {
    for (bits, rotate) in [(4, 0), (6, 1), (8, 2), (16, 0), (19, 1), (4, 2)] {
        let (x, y, z) = match rotate {
            0 => (&mut *a, &mut *b, &mut *c),
            1 => (&mut *b, &mut *c, &mut *a),
            _ => (&mut *c, &mut *a, &mut *b),
        };
        *x = x.wrapping_sub(*z) ^ z.rotate_left(bits);
        *z = z.wrapping_add(*y);
    }
}

fn finish([a, b, c]: &mut [u32; 3]) {
    for (bits, rotate) in [(14, 0), (11, 1), (25, 2), (16, 0), (4, 1), (14, 2), (24, 0)] {
        let (x, y) = match rotate {
            0 => (&mut *c, *b),
            1 => (&mut *a, *c),
            _ => (&mut *b, *a),
        };
        *x = (*x ^ y).wrapping_sub(y.rotate_left(bits));
    }
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
        let kind = match self.kind {
            HashType::Jenkins { .. } => NFT_HASH_JENKINS,
            HashType::Symmetric => NFT_HASH_SYM,
        };
        put_be32(out, NFTA_HASH_TYPE, kind);
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
                (NFTA_HASH_TYPE, NFT_HASH_JENKINS) => symmetric = false,
                (NFTA_HASH_TYPE, NFT_HASH_SYM) => symmetric = true,
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
    fn the_number_of_a_hash_is_at_least_the_offset() {
        let value = [10, 1, 0, 1, 0x1f, 0x90, 0, 0];
        for modulus in [1, 16, u32::MAX] {
            let number = jenkins_number(&value, 1, modulus, 0);
            assert!(number < modulus);
            assert_eq!(jenkins_number(&value, 1, modulus, 1), number + 1);
        }
        assert_ne!(
            jenkins_number(&value, 1, u32::MAX, 0),
            jenkins_number(&value, 2, u32::MAX, 0)
        );
    }

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
