//! `payload`

use vipline_nftables::expr::{Payload, PayloadAccess};

use crate::cause::Cause;
use crate::walk::{Flow, Walk};

pub(super) fn evaluate(walk: &mut Walk<'_>, payload: &Payload) -> Result<Flow, Cause> {
    let Payload {
        base,
        offset,
        len,
        access,
    } = *payload;
    match access {
        PayloadAccess::Load(register) => {
            let Some(bytes) = walk.packet.read(base, offset, len)? else {
                return Ok(Flow::Break);
            };
            walk.registers.write(register, &bytes)?;
            Ok(Flow::Next)
        }
        PayloadAccess::Store { source, .. } => {
            let bytes = walk.registers.read(source, len as usize)?;
            let is_stored = walk.packet.overwrite(base, offset, &bytes)?;
            Ok(Flow::next_if(is_stored))
        }
    }
}
