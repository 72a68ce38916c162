//! `lookup`

use vipline_nftables::expr::{Expr, Lookup, Register};
use vipline_nftables::{ElementData, Verdict};

use crate::cause::Cause;
use crate::sets::{find, resolve};
use crate::walk::{Flow, Walk};

/// Returns how evaluation continues, after the stateful expressions of the element.
pub(super) fn evaluate(walk: &mut Walk<'_>, lookup: &Lookup) -> Result<(Flow, Vec<Expr>), Cause> {
    let (set, _) = resolve(walk, &lookup.set)?;
    let key = walk.registers.read(lookup.source, set.key_bytes())?;
    let Some(element) = find(walk, &lookup.set, &key)? else {
        return Ok((Flow::next_if(lookup.invert), Vec::new()));
    };
    walk.record(&element);
    if lookup.invert {
        return Ok((Flow::Break, Vec::new()));
    }
    let exprs = element.exprs().to_vec();
    let flow = match (lookup.destination, element.data()) {
        (None, _) => Flow::Next,
        (Some(Register::VERDICT), Some(ElementData::Verdict(verdict))) => match verdict {
            Verdict::Continue => Flow::Next,
            verdict => Flow::Verdict(verdict.clone()),
        },
        (Some(register), Some(ElementData::Value(value))) => {
            walk.registers.write(register, value)?;
            Flow::Next
        }
        _ => return Err(Cause::Operand),
    };
    Ok((flow, exprs))
}
