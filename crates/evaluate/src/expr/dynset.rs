//! `dynset`

use vipline_nftables::expr::{Dynset, DynsetOp, Expr};
use vipline_nftables::{Data, Element};

use crate::cause::Cause;
use crate::outcome::SetUpdate;
use crate::sets::{find, is_full, resolve};
use crate::walk::{Flow, Walk};

/// Returns how evaluation continues, after the stateful expressions of the element.
pub(super) fn evaluate(walk: &mut Walk<'_>, dynset: &Dynset) -> Result<(Flow, Vec<Expr>), Cause> {
    let (set, _) = resolve(walk, &dynset.set)?;
    let set = set.clone();
    let key = walk.registers.read(dynset.key, set.key_bytes())?;
    let data = match dynset.data {
        None => None,
        Some(register) => Some(Data::Value(
            walk.registers.read(register, set.data_bytes())?,
        )),
    };
    // The elements of a dynamic set may be unknown: an update succeeds also then.
    let known = match find(walk, &dynset.set, &key) {
        Err(Cause::DynamicSet(_)) if dynset.exprs.is_empty() => None,
        known => known?.filter(|it| !it.is_catch_all()),
    };
    let is_delete = dynset.op == DynsetOp::Delete;
    if known.is_none() && !is_delete && is_full(walk, &dynset.set)? {
        return Ok((Flow::next_if(dynset.invert), Vec::new()));
    }
    let timeout = dynset.timeout.or(set.timeout);
    let element = Element::from_bytes(&set, key, data).map_err(|_| Cause::Operand)?;
    let element = element.with_exprs(dynset.exprs.clone());
    let element = match timeout {
        Some(timeout) => element.with_timeout(timeout),
        None => element,
    };
    let exprs = match known.as_ref().map(Element::exprs) {
        Some([]) | None => dynset.exprs.clone(),
        Some(exprs) => exprs.to_vec(),
    };
    walk.updates.push(SetUpdate {
        table: walk.table()?.clone(),
        set: dynset.set.name().clone(),
        op: dynset.op,
        element,
        timeout,
    });
    if is_delete {
        return Ok((Flow::Next, Vec::new()));
    }
    Ok((Flow::next_if(!dynset.invert), exprs))
}
