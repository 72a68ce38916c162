//! `hash`

use vipline_nftables::expr::{Hash, HashType, jenkins_number};

use super::numgen::choose;
use crate::cause::Cause;
use crate::walk::{Flow, Rest, Walk};

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
                Some(seed) => jenkins_number(&value, seed, hash.modulus, hash.offset),
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
