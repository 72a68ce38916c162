//! `hash`

use super::numgen::choose;
use crate::evaluate::cause::Cause;
use crate::evaluate::walk::{Flow, Rest, Walk};
use crate::expr::{Hash, HashType};

pub(super) fn evaluate(walk: &mut Walk<'_>, hash: &Hash, rest: Rest<'_>) -> Result<Flow, Cause> {
    let last = hash.modulus.checked_sub(1).ok_or(Cause::Operand)?;
    hash.offset.checked_add(last).ok_or(Cause::Operand)?;
    let number = match hash.kind {
        HashType::Symmetric => {
            let packet = &walk.packet;
            let number = walk.hashes.choose(packet, hash.modulus, walk.choices)?;
            hash.offset + number
        }
        HashType::Jenkins { source, len, seed } => {
            let value = walk.registers.read(source, len as usize)?;
            match seed {
                Some(seed) => hash.offset + scale(jenkins(&value, seed), hash.modulus),
                // The kernel chose a seed that no dump contains.
                None => {
                    let range = (hash.offset, hash.modulus.into());
                    choose(walk, rest, hash.destination, range)?
                }
            }
        }
    };
    walk.registers.write_u32(hash.destination, number)?;
    Ok(Flow::Next)
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
