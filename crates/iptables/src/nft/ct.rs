//! Targets `CT` and `NOTRACK` as `struct xt_ct_target_info_v1`.

use vipline_nftables::Bytes;

use super::structure::{Reader, Writer};
use crate::targets::{Ct, CtEvents, Target, Zone, ZoneDirection};

// Flags of `linux/netfilter/xt_CT.h`.
const NOTRACK: u16 = 1;
const NOTRACK_ALIAS: u16 = 2;
const ZONE_ORIGINAL: u16 = 4;
const ZONE_REPLY: u16 = 8;
const ZONE_MARK: u16 = 16;
/// Event of a new expectation.
const EXPECT_NEW: u32 = 1;
/// Length of the name of a helper.
const HELPER: usize = 16;
/// Length of the name of a timeout policy.
const TIMEOUT: usize = 32;
/// Padding of the pointer that the kernel stores, and the pointer.
const POINTER: usize = 4 + 8;

/// Returns the structure of `NOTRACK`, an alias of `CT`.
pub(super) fn notrack() -> Option<Bytes> {
    put(NOTRACK | NOTRACK_ALIAS, &Ct::default())
}

/// Returns the structure of `CT`. Returns `None` if a name is too long.
pub(super) fn encode(it: &Ct<'_>) -> Option<Bytes> {
    let zone = it.zone.map_or(0, |zone| {
        let direction = match zone.direction {
            ZoneDirection::Both => 0,
            ZoneDirection::Original => ZONE_ORIGINAL,
            ZoneDirection::Reply => ZONE_REPLY,
        };
        direction | if zone.id.is_none() { ZONE_MARK } else { 0 }
    });
    put(zone | if it.notrack { NOTRACK } else { 0 }, it)
}

fn put(flags: u16, it: &Ct<'_>) -> Option<Bytes> {
    let events = it.events.map_or(0, |events| events.bits());
    let out = Writer::default()
        .u16(flags)
        .u16(it.zone.and_then(|zone| zone.id).unwrap_or(0))
        .u32(events.into())
        .u32(if it.expect_new { EXPECT_NEW } else { 0 })
        .text(it.helper.as_deref().unwrap_or_default(), HELPER)?
        .text(it.timeout.as_deref().unwrap_or_default(), TIMEOUT)?;
    Some(out.zeros(POINTER).finish())
}

/// Returns `CT` or `NOTRACK`. Returns `None` for unknown events or flags, and for a zone
/// that iptables cannot express.
pub(super) fn decode(reader: &mut Reader<'_>) -> Option<Target<'static>> {
    let (flags, id) = (reader.u16()?, reader.u16()?);
    let (events, expected) = (reader.u32()?, reader.u32()?);
    let [helper, timeout] = [reader.text(HELPER)?, reader.text(TIMEOUT)?];
    let name = |text: &str| (!text.is_empty()).then(|| text.to_owned().into());
    let direction = match flags & (ZONE_ORIGINAL | ZONE_REPLY) {
        0 => ZoneDirection::Both,
        ZONE_ORIGINAL => ZoneDirection::Original,
        ZONE_REPLY => ZoneDirection::Reply,
        _ => return None,
    };
    let zone = match (flags & ZONE_MARK, id) {
        (0, 0) if direction == ZoneDirection::Both => None,
        (0, 1..) => Some(Some(id)),
        (ZONE_MARK, 0) => Some(None),
        _ => return None,
    };
    let events = CtEvents::from_bits(events.try_into().ok()?)?;
    let ct = Ct {
        notrack: flags & NOTRACK != 0,
        helper: name(helper),
        timeout: name(timeout),
        events: (!events.is_empty()).then_some(events),
        expect_new: expected == EXPECT_NEW,
        zone: zone.map(|id| Zone { id, direction }),
    };
    let is_known = flags < ZONE_MARK << 1 && expected <= EXPECT_NEW;
    match flags & NOTRACK_ALIAS {
        _ if !is_known => None,
        0 => Some(Target::Ct(ct)),
        _ if flags == NOTRACK | NOTRACK_ALIAS => Some(Target::Notrack),
        _ => None,
    }
}
