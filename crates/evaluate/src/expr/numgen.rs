//! `numgen`, and the choice of random numbers
//!
//! All numbers are equally probable. Numbers that the rest of the rule treats alike are one
//! choice: `numgen random mod 1000 < 300` has two outcomes. So are all numbers if no element
//! of a set has the other fields of a key.

use std::collections::BTreeSet;
use std::ops::Range;

use vipline_nftables::Element;
use vipline_nftables::expr::{ByteorderOp, CmpOp, Expr, Lookup, Numgen, Register};

use crate::cause::{Cause, MAX_OUTCOMES};
use crate::sets::{find, resolve};
use crate::walk::{Flow, Rest, Walk};

/// Size of a number.
const LEN: usize = 4;

/// The kernel counts in mode `inc`. The count is unknown, so the numbers are a distribution.
pub(super) fn evaluate(
    walk: &mut Walk<'_>,
    numgen: &Numgen,
    rest: Rest<'_>,
) -> Result<Flow, Cause> {
    let range = (numgen.offset, numgen.modulus.into());
    let number = choose(walk, rest, numgen.destination, range)?;
    walk.registers.write_u32(numgen.destination, number)?;
    Ok(Flow::Next)
}

/// Chooses one of `count` numbers from `first` on, for a register.
pub(super) fn choose(
    walk: &mut Walk<'_>,
    rest: Rest<'_>,
    register: Register,
    (first, count): (u32, u64),
) -> Result<u32, Cause> {
    let start = u64::from(first);
    let end = start + count;
    if count == 0 || end > 1 << 32 {
        return Err(Cause::Operand);
    }
    let starts: Vec<u64> = match cuts(walk, rest, register, start..end)? {
        Some(cuts) => {
            let inside = cuts.into_iter().filter(|cut| start < *cut && *cut < end);
            [start].into_iter().chain(inside).collect()
        }
        None if count > MAX_OUTCOMES as u64 => return Err(Cause::Outcomes),
        None => (start..end).collect(),
    };
    if starts.len() > MAX_OUTCOMES {
        return Err(Cause::Outcomes);
    }
    let ends = starts.iter().skip(1).copied().chain([end]);
    let weights = starts.iter().zip(ends).map(|(start, end)| end - start);
    let weights: Vec<u128> = weights.map(u128::from).collect();
    let chosen = match weights.len() {
        1 => 0,
        _ => walk.choices.choose(weights),
    };
    let number = starts.get(chosen).copied().unwrap_or(start);
    u32::try_from(number).map_err(|_| Cause::Operand)
}

/// Returns the numbers at which the behavior of the rest of the rule may change.
///
/// `None`: unknown, because an expression reads the register otherwise.
fn cuts(
    walk: &Walk<'_>,
    rest: Rest<'_>,
    register: Register,
    numbers: Range<u64>,
) -> Result<Option<BTreeSet<u64>>, Cause> {
    let (mut cuts, mut is_big) = (BTreeSet::new(), false);
    for expr in rest {
        match expr {
            Expr::Byteorder(it) if it.source == register && it.destination == register => {
                if (it.op, it.len, it.size, is_big) != (ByteorderOp::ToNetwork, 4, 4, false) {
                    return Ok(None);
                }
                is_big = true;
            }
            Expr::Cmp(it) if it.source == register => {
                let is_equality = matches!(it.op, CmpOp::Eq | CmpOp::Ne);
                if it.data.len() != LEN || !(is_big || is_equality) {
                    return Ok(None);
                }
                add(&mut cuts, &it.data, &it.data, is_big);
            }
            Expr::Range(it) if it.source == register => {
                if it.from.len() != LEN || !is_big {
                    return Ok(None);
                }
                add(&mut cuts, &it.from, &it.to, true);
            }
            Expr::Lookup(it) if it.source == register => {
                let (set, elements) = resolve(walk, &it.set)?;
                if set.key_bytes() != LEN || set.is_dynamic() || set.has_intervals() != is_big {
                    return Ok(None);
                }
                for element in elements {
                    add_element(&mut cuts, element, is_big);
                }
                if it.destination == Some(register) {
                    return Ok(Some(cuts));
                }
            }
            Expr::Lookup(it) if matches_none(walk, it, register, numbers.clone(), is_big)? => {
                return Ok(Some(cuts));
            }
            Expr::Immediate(it) if it.destination == Register::VERDICT => {}
            Expr::Counter(_) | Expr::Log(_) | Expr::Reject(_) | Expr::Notrack(_) => {}
            _ => return Ok(None),
        }
    }
    Ok(Some(cuts))
}

/// Returns whether a lookup ends the rule for all numbers, because no element of the set has
/// the other fields of the key.
fn matches_none(
    walk: &Walk<'_>,
    lookup: &Lookup,
    register: Register,
    numbers: Range<u64>,
    is_big: bool,
) -> Result<bool, Cause> {
    let (set, _) = resolve(walk, &lookup.set)?;
    let len = set.key_bytes();
    let words = |register: Register| register.start().ok_or(Cause::Register).map(usize::from);
    let at = words(register)?.checked_sub(words(lookup.source)?);
    let is_in_key = at.is_some_and(|at| (at + 1) * LEN <= len);
    let is_countable = numbers.end - numbers.start <= MAX_OUTCOMES as u64;
    if lookup.invert || !is_in_key || !is_countable {
        return Ok(false);
    }
    let mut registers = walk.registers.clone();
    for number in numbers {
        let number = u32::try_from(number).map_err(|_| Cause::Operand)?;
        registers.write_u32(register, if is_big { number.to_be() } else { number })?;
        if find(walk, &lookup.set, &registers.read(lookup.source, len)?)?.is_some() {
            return Ok(false);
        }
    }
    Ok(true)
}

fn add_element(cuts: &mut BTreeSet<u64>, element: &Element, is_big: bool) {
    if !element.is_catch_all() {
        let first = element.key_bytes();
        add(cuts, first, element.key_end().unwrap_or(first), is_big);
    }
}

/// Adds the first number of a range and the number after the range.
fn add(cuts: &mut BTreeSet<u64>, first: &[u8], last: &[u8], is_big: bool) {
    let number = |bytes: &[u8]| {
        let bytes = bytes.first_chunk().copied().unwrap_or_default();
        u64::from(match is_big {
            true => u32::from_be_bytes(bytes),
            false => u32::from_ne_bytes(bytes),
        })
    };
    cuts.insert(number(first));
    cuts.insert(number(last) + 1);
}
