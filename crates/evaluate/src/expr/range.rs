//! `range`

use vipline_nftables::expr::Range;

use crate::cause::Cause;
use crate::walk::{Flow, Walk};

pub(super) fn evaluate(walk: &Walk<'_>, range: &Range) -> Result<Flow, Cause> {
    let value = walk.registers.read(range.source, range.from.len())?;
    let is_inside = *range.from <= *value && *value <= *range.to;
    Ok(Flow::next_if(is_inside != range.invert))
}
