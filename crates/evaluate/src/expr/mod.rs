//! Evaluation of kernel expressions. The files are those of [`expr`](vipline_nftables::expr).

use vipline_nftables::Data;
use vipline_nftables::expr::{
    Connlimit, Expr, Fwd, Immediate, Limit, Queue, QueueTarget, Quota, Register,
};

use super::cause::Cause;
use super::context::Context;
use super::environment::Limited;
use super::outcome::Disposition;
use super::packet::connection::Tracked;
use super::walk::{Flow, Rest, Walk};

mod bitwise;

mod byteorder;

mod cmp;

mod ct;

mod dynset;

mod fib;

mod flow_offload;

mod hash;

mod lookup;

mod meta;

mod nat;

mod numgen;

mod objref;

mod payload;

mod range;

mod tcp_option;

#[cfg(test)]
mod tests;

/// Evaluates an expression. `rest` are the expressions of the rule after it.
pub(super) fn evaluate(walk: &mut Walk<'_>, expr: &Expr, rest: Rest<'_>) -> Result<Flow, Cause> {
    match expr {
        Expr::Payload(payload) => payload::evaluate(walk, payload),
        Expr::Meta(meta) => meta::evaluate(walk, meta, rest),
        Expr::Ct(ct) => ct::evaluate(walk, ct),
        Expr::Fib(fib) => fib::evaluate(walk, fib),
        Expr::Numgen(numgen) => numgen::evaluate(walk, numgen, rest),
        Expr::Hash(hash) => hash::evaluate(walk, hash, rest),
        Expr::Immediate(immediate) => load(walk, immediate),
        Expr::Bitwise(bitwise) => bitwise::evaluate(walk, bitwise),
        Expr::Byteorder(byteorder) => byteorder::evaluate(walk, byteorder),
        Expr::Cmp(cmp) => cmp::evaluate(walk, cmp),
        Expr::Range(range) => range::evaluate(walk, range),
        Expr::Lookup(lookup) => {
            let (flow, exprs) = lookup::evaluate(walk, lookup)?;
            then(walk, &exprs, flow)
        }
        Expr::Dynset(dynset) => {
            let (flow, exprs) = dynset::evaluate(walk, dynset)?;
            then(walk, &exprs, flow)
        }
        Expr::Objref(objref) => {
            let (flow, exprs) = objref::evaluate(walk, objref)?;
            then(walk, &exprs, flow)
        }
        Expr::Nat(nat) => nat::evaluate(walk, nat),
        Expr::Masq(masq) => nat::masquerade(walk, masq),
        Expr::Redir(redir) => nat::redirect(walk, redir),
        Expr::Notrack(_) => {
            if walk.tracked == Tracked::Unseen {
                walk.tracked = Tracked::Untracked;
            }
            Ok(Flow::Next)
        }
        Expr::Counter(_) | Expr::Last(_) | Expr::Log(_) | Expr::Dup(_) => Ok(Flow::Next),
        Expr::Limit(limit) => rate(walk, limit),
        Expr::Quota(quota) => bytes(walk, quota),
        Expr::Connlimit(connlimit) => connections(walk, connlimit),
        Expr::Reject(reject) => Ok(Flow::End(Disposition::Rejected(reject.kind))),
        Expr::Queue(queue) => queued(walk, queue),
        Expr::Fwd(fwd) => forwarded(walk, fwd),
        Expr::FlowOffload(_) => flow_offload::evaluate(walk, rest),
        Expr::Exthdr(exthdr) => tcp_option::change(walk, exthdr),
        Expr::Rt(rt) => tcp_option::segment_size(walk, rt, rest),
        Expr::Match(it) => match walk.index.extensions() {
            Some(extensions) => extensions.evaluate_match(it, &mut Context::new(walk)),
            None => Err(Cause::unsupported(format_args!("match {}", it.name))),
        },
        Expr::Target(it) => match walk.index.extensions() {
            Some(extensions) => extensions.evaluate_target(it, &mut Context::new(walk)),
            None => Err(Cause::unsupported(format_args!("target {}", it.name))),
        },
        other => Err(Cause::unsupported(format_args!(
            "expression {}",
            other.name()
        ))),
    }
}

/// Evaluates the stateful expressions of an element or object, and then continues.
fn then(walk: &mut Walk<'_>, exprs: &[Expr], flow: Flow) -> Result<Flow, Cause> {
    for expr in exprs {
        if evaluate(walk, expr, &[])? == Flow::Break {
            return Ok(Flow::Break);
        }
    }
    Ok(flow)
}

fn load(walk: &mut Walk<'_>, immediate: &Immediate) -> Result<Flow, Cause> {
    match &immediate.data {
        Data::Verdict(verdict) => Ok(Flow::Verdict(verdict.clone())),
        Data::Value(value) => {
            walk.registers.write(immediate.destination, value)?;
            Ok(Flow::Next)
        }
    }
}

fn rate(walk: &Walk<'_>, limit: &Limit) -> Result<Flow, Cause> {
    let is_over = walk.is_over(Limited::Rate(limit), "limit")?;
    Ok(Flow::next_if(is_over == limit.over))
}

/// An exhausted quota needs no assumption, and a packet of known length neither.
fn bytes(walk: &Walk<'_>, quota: &Quota) -> Result<Flow, Cause> {
    let is_over = match walk.packet.total_len() {
        _ if quota.consumed >= quota.bytes => true,
        Some(len) => quota.consumed.saturating_add(len.into()) > quota.bytes,
        None => walk.is_over(Limited::Bytes(quota), "quota")?,
    };
    Ok(Flow::next_if(is_over == quota.over))
}

/// The connection of the packet counts: it exceeds a limit of 0 without an assumption.
fn connections(walk: &Walk<'_>, connlimit: &Connlimit) -> Result<Flow, Cause> {
    if walk.tracked.entry().is_none() {
        return Err(Cause::unsupported("ct count of an untracked packet"));
    }
    let is_over = match connlimit.count {
        0 => true,
        _ => walk.is_over(Limited::Connections(connlimit), "ct count")?,
    };
    Ok(Flow::next_if(is_over == connlimit.over))
}

fn queued(walk: &Walk<'_>, queue: &Queue) -> Result<Flow, Cause> {
    let target = match queue.target {
        QueueTarget::Register(register) => {
            let first = read_number(walk, register)?;
            QueueTarget::Numbers { first, total: 1 }
        }
        target @ QueueTarget::Numbers { .. } => target,
    };
    Ok(Flow::End(Disposition::Queued(target)))
}

/// Reads a number of 16 bits in host byte order.
fn read_number(walk: &Walk<'_>, register: Register) -> Result<u16, Cause> {
    let bytes = walk.registers.read(register, 2)?;
    let bytes = bytes.first_chunk().ok_or(Cause::Operand)?;
    Ok(u16::from_ne_bytes(*bytes))
}

fn forwarded(walk: &Walk<'_>, fwd: &Fwd) -> Result<Flow, Cause> {
    let index = walk.registers.read(fwd.device, 4)?;
    let index = index.first_chunk().ok_or(Cause::Operand)?;
    let index = u32::from_ne_bytes(*index);
    Ok(Flow::End(Disposition::Redirected(index)))
}
