//! `bitwise`

use vipline_nftables::Bytes;
use vipline_nftables::expr::{Bitwise, BitwiseOp};

use crate::cause::Cause;
use crate::walk::{Flow, Walk};

pub(super) fn evaluate(walk: &mut Walk<'_>, bitwise: &Bitwise) -> Result<Flow, Cause> {
    let len = bitwise.len as usize;
    let value = match &bitwise.op {
        BitwiseOp::MaskXor { mask, xor } => {
            let value = walk.registers.read(bitwise.source, len)?;
            if mask.len() != len || xor.len() != len {
                return Err(Cause::Operand);
            }
            let bytes = value.iter().zip(&**mask).zip(&**xor);
            bytes
                .map(|((value, mask), xor)| value & mask ^ xor)
                .collect()
        }
        BitwiseOp::ShiftLeft(bits) => {
            let mut words = words(walk, bitwise)?;
            shift(&mut words, bits, true)?
        }
        BitwiseOp::ShiftRight(bits) => {
            let mut words = words(walk, bitwise)?;
            shift(&mut words, bits, false)?
        }
    };
    walk.registers.write(bitwise.destination, &value)?;
    Ok(Flow::Next)
}

/// Reads whole words in host byte order: the kernel shifts words.
fn words(walk: &Walk<'_>, bitwise: &Bitwise) -> Result<Vec<u32>, Cause> {
    let len = (bitwise.len as usize).next_multiple_of(4);
    let value = walk.registers.read(bitwise.source, len)?;
    let words = value.chunks_exact(4).filter_map(|word| word.first_chunk());
    Ok(words.map(|word| u32::from_ne_bytes(*word)).collect())
}

/// Shifts the words, of which the first is the highest.
fn shift(words: &mut [u32], bits: &Bytes, is_left: bool) -> Result<Vec<u8>, Cause> {
    let bits = bits.first_chunk().map(|bits| u32::from_ne_bytes(*bits));
    let bits = bits
        .filter(|bits| *bits < u32::BITS)
        .ok_or(Cause::Operand)?;
    let mut carry = 0;
    let mut step = |word: &mut u32| {
        let wide = match is_left {
            true => u64::from(*word) << bits,
            false => (u64::from(*word) << u32::BITS) >> bits,
        };
        let [low, high] = [wide as u32, (wide >> u32::BITS) as u32];
        let (kept, out) = if is_left { (low, high) } else { (high, low) };
        *word = kept | carry;
        carry = out;
    };
    match is_left {
        true => words.iter_mut().rev().for_each(&mut step),
        false => words.iter_mut().for_each(&mut step),
    }
    Ok(words.iter().flat_map(|word| word.to_ne_bytes()).collect())
}
