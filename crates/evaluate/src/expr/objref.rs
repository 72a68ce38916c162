//! `objref`

use vipline_nftables::expr::{Expr, Objref, ObjrefSource};
use vipline_nftables::{DataKind, State};

use crate::cause::Cause;
use crate::sets::{find, resolve};
use crate::walk::{Flow, Walk};

/// Returns how evaluation continues, after the expression of the object.
pub(super) fn evaluate(walk: &mut Walk<'_>, objref: &Objref) -> Result<(Flow, Vec<Expr>), Cause> {
    let (kind, name) = match &objref.source {
        ObjrefSource::Named { kind, name } => (*kind, name.clone()),
        ObjrefSource::Map { set, key } => {
            let (spec, _) = resolve(walk, set)?;
            let DataKind::Object(kind) = spec.data else {
                return Err(Cause::Operand);
            };
            let key = walk.registers.read(*key, spec.key_bytes())?;
            let Some(element) = find(walk, set, &key)? else {
                return Ok((Flow::Break, Vec::new()));
            };
            walk.record(&element);
            (kind, element.object().cloned().ok_or(Cause::Operand)?)
        }
    };
    let object = walk.index.object(walk.table()?, kind, &name)?;
    let expr = match &object.state {
        State::Quota(quota) => Some(Expr::from(quota.clone())),
        State::Limit(limit) => Some(Expr::from(*limit)),
        State::Counter(_) | State::CtHelper(_) | State::CtTimeout(_) | State::CtExpectation(_) => {
            None
        }
        _ => return Err(Cause::unsupported(format_args!("object {name}"))),
    };
    Ok((Flow::Next, expr.into_iter().collect()))
}
