//! Changes of TCP options, such as the clamping of the maximum segment size. No expression
//! here reads an option, so a change does not affect the path of a packet.

use vipline_nftables::expr::{Expr, Exthdr, ExthdrAccess, ExthdrOp, Register, Rt, RtKey};

use crate::cause::Cause;
use crate::walk::{Flow, Rest, Walk};

/// `IPPROTO_TCP` of `linux/in.h`.
const TCP: u8 = 6;

/// Evaluates `exthdr`. The change of an option breaks the rule for other protocols than TCP.
pub(super) fn change(walk: &Walk<'_>, exthdr: &Exthdr) -> Result<Flow, Cause> {
    match (exthdr.op, exthdr.access) {
        (ExthdrOp::TcpOption, ExthdrAccess::Store { .. } | ExthdrAccess::Reset) => {
            Ok(Flow::next_if(walk.packet.protocol() == TCP))
        }
        _ => Err(Cause::unsupported("expression exthdr")),
    }
}

/// Evaluates `rt`: loads a maximum segment size that is stored in an option. The value is
/// unknown and has no effect.
pub(super) fn segment_size(walk: &mut Walk<'_>, rt: &Rt, rest: Rest<'_>) -> Result<Flow, Cause> {
    if rt.key != RtKey::Tcpmss || !is_stored(rt.destination, rest) {
        return Err(Cause::unsupported("expression rt"));
    }
    walk.registers.write_u32(rt.destination, 0)?;
    Ok(Flow::Next)
}

/// Returns whether the next expressions store a register in an option, at most after a
/// conversion of its byte order.
fn is_stored(register: Register, rest: Rest<'_>) -> bool {
    let rest = match rest {
        [Expr::Byteorder(it), rest @ ..] if (it.source, it.destination) == (register, register) => {
            rest
        }
        rest => rest,
    };
    let Some(Expr::Exthdr(exthdr)) = rest.first() else {
        return false;
    };
    matches!(exthdr.access, ExthdrAccess::Store { source, .. } if source == register)
}
