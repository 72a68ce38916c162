//! Targets whose structures have few fields: `linux/netfilter/xt_*.h`.

use std::net::IpAddr;

use super::matches::Structure;
use super::rare_targets;
use super::structure::{Reader, Writer};
use crate::Family;
use crate::matches::{DscpValue, TosValue};
use crate::number::Range;
use crate::targets::{
    Checksum, ClassId, Classify, Dscp, Hl, Nfqueue, Target, Tcpmss, Tee, Tos, Ttl,
};

/// Length of an interface name: `IFNAMSIZ`.
const INTERFACE: usize = 16;
/// `XT_TCPMSS_CLAMP_PMTU`
const CLAMP: u16 = 0xffff;

/// Returns the structure of a target. Returns `None` if it is not supported.
pub(super) fn encode(target: &Target<'_>, family: Family) -> Option<Structure> {
    let out = Writer::default();
    Some(match target {
        Target::Checksum(Checksum { fill: true }) => ("CHECKSUM", 0, out.u8(1).finish()),
        Target::Classify(Classify { class }) => {
            let ClassId { major, minor } = (*class)?;
            let priority = u32::from(major) << 16 | u32::from(minor);
            ("CLASSIFY", 0, out.u32(priority).finish())
        }
        Target::Dscp(Dscp { dscp }) => ("DSCP", 0, out.u8((*dscp)?.get()).finish()),
        Target::Hl(it) if family == Family::V6 => {
            let (mode, value) = mode(it.set, it.inc, it.dec)?;
            ("HL", 0, out.u8(mode).u8(value).finish())
        }
        Target::Nfqueue(it) => ("NFQUEUE", 3, nfqueue(it).finish()),
        Target::Tcpmss(it) => {
            let size = if it.clamp_to_pmtu { CLAMP } else { it.set? };
            ("TCPMSS", 0, out.u16(size).finish())
        }
        Target::Tee(it) => {
            let name = it.out_interface.as_deref().unwrap_or_default();
            let out = out.address(it.gateway?, family)?.text(name, INTERFACE)?;
            // The kernel stores a pointer.
            ("TEE", 1, out.zeros(8).finish())
        }
        Target::Tos(Tos { tos }) => {
            let TosValue { value, mask } = (*tos)?;
            ("TOS", 1, out.u8(value).u8(mask).finish())
        }
        Target::Ttl(it) if family == Family::V4 => {
            let (mode, value) = mode(it.set, it.inc, it.dec)?;
            ("TTL", 0, out.u8(mode).u8(value).finish())
        }
        _ => return rare_targets::encode(target, family),
    })
}

/// Returns the target of a structure. Returns `None` if it is not supported.
pub(super) fn decode(
    name: &str,
    revision: u32,
    reader: &mut Reader<'_>,
    family: Family,
) -> Option<Target<'static>> {
    Some(match (name, revision) {
        ("CHECKSUM", 0) => Checksum {
            fill: reader.u8()? == 1,
        }
        .into(),
        ("CLASSIFY", 0) => {
            let priority = reader.u32()?;
            let class = Some(ClassId {
                major: u16::try_from(priority >> 16).ok()?,
                minor: u16::try_from(priority & 0xffff).ok()?,
            });
            Classify { class }.into()
        }
        ("DSCP", 0) => {
            let dscp = Some(DscpValue::new(reader.u8()?)?);
            Dscp { dscp }.into()
        }
        ("HL", 0) => {
            let (set, inc, dec) = read_mode(reader)?;
            Hl { set, dec, inc }.into()
        }
        ("NFQUEUE", 3) => read_nfqueue(reader)?.into(),
        ("TCPMSS", 0) => match reader.u16()? {
            CLAMP => Tcpmss {
                set: None,
                clamp_to_pmtu: true,
            },
            size => Tcpmss {
                set: Some(size),
                clamp_to_pmtu: false,
            },
        }
        .into(),
        ("TEE", 1) => {
            let gateway: IpAddr = reader.address(family)?;
            let name = reader.text(INTERFACE)?.to_owned();
            Tee {
                gateway: Some(gateway),
                out_interface: (!name.is_empty()).then(|| name.into()),
            }
            .into()
        }
        ("TOS", 1) => {
            let (value, mask) = (reader.u8()?, reader.u8()?);
            let tos = Some(TosValue { value, mask });
            Tos { tos }.into()
        }
        ("TTL", 0) => {
            let (set, inc, dec) = read_mode(reader)?;
            Ttl { set, dec, inc }.into()
        }
        _ => return rare_targets::decode(name, revision, reader),
    })
}

/// Changes of a time to live: set, increment and decrement.
type Changes = (Option<u8>, Option<u8>, Option<u8>);

/// Returns `IPT_TTL_SET` and the following modes, and the value.
fn mode(set: Option<u8>, inc: Option<u8>, dec: Option<u8>) -> Option<(u8, u8)> {
    match (set, inc, dec) {
        (Some(value), None, None) => Some((0, value)),
        (None, Some(value), None) => Some((1, value)),
        (None, None, Some(value)) => Some((2, value)),
        _ => None,
    }
}

fn read_mode(reader: &mut Reader<'_>) -> Option<Changes> {
    let (mode, value) = (reader.u8()?, reader.u8()?);
    Some(match mode {
        0 => (Some(value), None, None),
        1 => (None, Some(value), None),
        2 => (None, None, Some(value)),
        _ => return None,
    })
}

/// Writes `struct xt_NFQ_info_v3`.
fn nfqueue(it: &Nfqueue) -> Writer {
    let (first, count) = match it.balance {
        Some(Range { first, last }) => (first, last - first + 1),
        None => (it.queue.unwrap_or(0), 1),
    };
    let flags = u16::from(it.bypass) | u16::from(it.cpu_fanout) << 1;
    Writer::default().u16(first).u16(count).u16(flags)
}

fn read_nfqueue(reader: &mut Reader<'_>) -> Option<Nfqueue> {
    let (first, count, flags) = (reader.u16()?, reader.u16()?, reader.u16()?);
    let last = first.checked_add(count.checked_sub(1)?)?;
    let is_single = count == 1;
    Some(Nfqueue {
        queue: Some(first).filter(|queue| is_single && *queue != 0),
        balance: (!is_single).then_some(Range { first, last }),
        bypass: flags & 1 != 0,
        cpu_fanout: flags & 2 != 0,
    })
}
