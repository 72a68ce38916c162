//! Conversion of expressions that forward, copy, queue, limit or proxy packets to
//! libnftnl objects.
#![forbid(unsafe_code)]

use super::AnyExpr;
use super::attributes::*;
use super::exprs::Builder;
use crate::Error;
use crate::expr::*;
use crate::wire::element;

pub(super) fn connlimit(connlimit: &Connlimit) -> Result<AnyExpr, Error> {
    Builder::<Connlimit>::new()?
        .number(NFTNL_EXPR_CONNLIMIT_COUNT, connlimit.count)
        .number(NFTNL_EXPR_CONNLIMIT_FLAGS, connlimit.over.into())
        .done()
}

pub(super) fn last(last: &Last) -> Result<AnyExpr, Error> {
    Builder::<Last>::new()?
        .number(NFTNL_EXPR_LAST_SET, last.used.is_some().into())
        .number(
            NFTNL_EXPR_LAST_MSECS,
            last.used.map_or(0, element::milliseconds),
        )
        .done()
}

pub(super) fn synproxy(synproxy: &Synproxy) -> Result<AnyExpr, Error> {
    Builder::<Synproxy>::new()?
        .number(NFTNL_EXPR_SYNPROXY_MSS, synproxy.mss)
        .number(NFTNL_EXPR_SYNPROXY_WSCALE, synproxy.wscale)
        .number(NFTNL_EXPR_SYNPROXY_FLAGS, synproxy.flags.bits())
        .done()
}

pub(super) fn dup(dup: &Dup) -> Result<AnyExpr, Error> {
    Builder::<Dup>::new()?
        .register_if(NFTNL_EXPR_DUP_SREG_ADDR, dup.addr)
        .register_if(NFTNL_EXPR_DUP_SREG_DEV, dup.device)
        .done()
}

pub(super) fn fwd(fwd: &Fwd) -> Result<AnyExpr, Error> {
    let (family, addr) = fwd.addr.unzip();
    Builder::<Fwd>::new()?
        .register(NFTNL_EXPR_FWD_SREG_DEV, fwd.device)
        .register_if(NFTNL_EXPR_FWD_SREG_ADDR, addr)
        .number_if(
            NFTNL_EXPR_FWD_NFPROTO,
            family.map(|family| family.number().into()),
        )
        .done()
}

pub(super) fn queue(queue: &Queue) -> Result<AnyExpr, Error> {
    let flags = Some(queue.flags.bits()).filter(|flags| *flags != 0);
    let object = Builder::<Queue>::new()?.number_if(NFTNL_EXPR_QUEUE_FLAGS, flags);
    match queue.target {
        QueueTarget::Numbers { first, total } => object
            .number(NFTNL_EXPR_QUEUE_NUM, first)
            .number(NFTNL_EXPR_QUEUE_TOTAL, total),
        QueueTarget::Register(register) => object.register(NFTNL_EXPR_QUEUE_SREG_QNUM, register),
    }
    .done()
}
