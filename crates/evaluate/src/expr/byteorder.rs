//! `byteorder`

use vipline_nftables::expr::Byteorder;

use crate::cause::Cause;
use crate::walk::{Flow, Walk};

/// Conversions in both directions are equal.
pub(super) fn evaluate(walk: &mut Walk<'_>, byteorder: &Byteorder) -> Result<Flow, Cause> {
    let (size, len) = (byteorder.size as usize, byteorder.len as usize);
    if ![2, 4, 8].contains(&size) {
        return Err(Cause::Operand);
    }
    let value = walk.registers.read(byteorder.source, len)?;
    let mut value = value.to_vec();
    if cfg!(target_endian = "little") {
        value.chunks_exact_mut(size).for_each(<[u8]>::reverse);
    }
    walk.registers.write(byteorder.destination, &value)?;
    Ok(Flow::Next)
}
