//! Targets that change headers.

use vipline_iptables::targets::{Classify, Dscp, Tos};
use vipline_nftables::expr::PayloadBase;

use crate::iptables::conditions::traffic_class;
use crate::{Cause, Context};

pub(super) fn classify(it: &Classify, context: &mut Context<'_, '_>) -> Result<(), Cause> {
    let class = it.class.ok_or(Cause::Operand)?;
    context.set_priority(u32::from(class.major) << 16 | u32::from(class.minor));
    Ok(())
}

/// Sets the type of service or traffic class.
fn set_class(class: u8, context: &mut Context<'_, '_>) -> Result<(), Cause> {
    if context.packet().source().is_ipv4() {
        context.overwrite(PayloadBase::Network, 1, &[class])?;
        return Ok(());
    }
    let bytes = context.packet().read(PayloadBase::Network, 1, 1)?;
    let low = bytes.and_then(|bytes| bytes.first().copied()).unwrap_or(0) & 0x0f;
    let bytes = [0x60 | class >> 4, class << 4 | low];
    context.overwrite(PayloadBase::Network, 0, &bytes)?;
    Ok(())
}

pub(super) fn dscp(it: &Dscp, context: &mut Context<'_, '_>) -> Result<(), Cause> {
    let point = it.dscp.ok_or(Cause::Operand)?;
    let class = traffic_class(context)?;
    set_class(class & 3 | point.get() << 2, context)
}

pub(super) fn tos(it: &Tos, context: &mut Context<'_, '_>) -> Result<(), Cause> {
    let wanted = it.tos.ok_or(Cause::Operand)?;
    let class = match wanted.mask {
        // No bit of the old value remains.
        u8::MAX => 0,
        mask => traffic_class(context)? & !mask,
    };
    set_class(class ^ wanted.value, context)
}

/// Sets, decreases or increases the TTL or hop limit.
pub(super) fn ttl(
    (set, dec, inc): (Option<u8>, Option<u8>, Option<u8>),
    context: &mut Context<'_, '_>,
) -> Result<(), Cause> {
    let at = if context.packet().source().is_ipv4() {
        8
    } else {
        7
    };
    let ttl = match set {
        Some(ttl) => ttl,
        None => {
            let bytes = context.packet().read(PayloadBase::Network, at, 1)?;
            let old = bytes.and_then(|bytes| bytes.first().copied());
            let old = old.ok_or(Cause::Operand)?;
            old.saturating_add(inc.unwrap_or(0))
                .saturating_sub(dec.unwrap_or(0))
        }
    };
    context.overwrite(PayloadBase::Network, at, &[ttl])?;
    Ok(())
}
