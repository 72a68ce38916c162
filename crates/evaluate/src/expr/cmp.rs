//! `cmp`

use std::cmp::Ordering::{Equal, Greater, Less};

use vipline_nftables::expr::{Cmp, CmpOp};

use crate::cause::Cause;
use crate::walk::{Flow, Walk};

pub(super) fn evaluate(walk: &Walk<'_>, cmp: &Cmp) -> Result<Flow, Cause> {
    let value = walk.registers.read(cmp.source, cmp.data.len())?;
    let order = (*value).cmp(&*cmp.data);
    Ok(Flow::next_if(match cmp.op {
        CmpOp::Eq => order == Equal,
        CmpOp::Ne => order != Equal,
        CmpOp::Lt => order == Less,
        CmpOp::Le => order != Greater,
        CmpOp::Gt => order == Greater,
        CmpOp::Ge => order != Less,
    }))
}
