//! `meta`

use vipline_nftables::expr::{Access, Meta, MetaKey};
use vipline_nftables::{Bytes, Family, Hook};

use super::numgen::choose;
use crate::cause::Cause;
use crate::interface::Interface;
use crate::walk::{Flow, Rest, Walk};

/// Length of an interface name: `IFNAMSIZ`.
const NAME_LEN: usize = 16;
const NANOSECONDS: u64 = 1_000_000_000;
const DAY: u64 = 86_400;

pub(super) fn evaluate(walk: &mut Walk<'_>, meta: &Meta, rest: Rest<'_>) -> Result<Flow, Cause> {
    match meta.access {
        Access::Load(register) if meta.key == MetaKey::Random => {
            let number = choose(walk, rest, register, (0, 1 << 32))?;
            walk.registers.write_u32(register, number)?;
            Ok(Flow::Next)
        }
        Access::Load(register) => {
            let Some(value) = load(walk, meta.key)? else {
                return Ok(Flow::Break);
            };
            walk.registers.write(register, &value)?;
            Ok(Flow::Next)
        }
        Access::Store(register) => {
            let number = || {
                let bytes = walk.registers.read(register, 4)?;
                let bytes = bytes.first_chunk().ok_or(Cause::Operand)?;
                Ok::<_, Cause>(u32::from_ne_bytes(*bytes))
            };
            match meta.key {
                MetaKey::Mark => walk.packet.mark = number()?,
                MetaKey::Priority => walk.packet.priority = Some(number()?),
                MetaKey::Nftrace => {}
                key => return Err(unsupported("set", key)),
            }
            Ok(Flow::Next)
        }
    }
}

/// Returns a value in register layout, or `None` if the packet has none.
fn load(walk: &Walk<'_>, key: MetaKey) -> Result<Option<Bytes>, Cause> {
    let packet = &walk.packet;
    let unknown = || Cause::unknown(key.as_str().unwrap_or("meta"));
    let number = |number: Option<u32>| {
        let number = number.ok_or_else(unknown)?;
        Ok(Some(Bytes::from(number.to_ne_bytes())))
    };
    let byte = |byte: u8| Ok(Some(Bytes::from([byte])));
    let (input, output) = (walk.place.input.as_ref(), walk.place.output.as_ref());
    match key {
        MetaKey::Length => number(packet.total_len()),
        MetaKey::Protocol => {
            let protocol: u16 = match packet.family() {
                Family::Ip6 => 0x86dd,
                _ => 0x0800,
            };
            Ok(Some(protocol.to_be_bytes().into()))
        }
        MetaKey::Priority => number(packet.priority),
        MetaKey::Mark => number(Some(packet.mark)),
        MetaKey::NfProto => byte(walk.protocol_family().number()),
        MetaKey::L4Proto => byte(packet.protocol()),
        MetaKey::PacketType => byte(packet.packet_type.ok_or_else(unknown)?),
        MetaKey::Skuid | MetaKey::Skgid => owner(walk, key),
        MetaKey::TimeNs | MetaKey::TimeDay | MetaKey::TimeHour => time(walk, key),
        MetaKey::Iif => number(index(input)),
        MetaKey::Oif => number(index(output)),
        MetaKey::Iifname => Ok(Some(name(input.map_or("", |it| &it.name)))),
        MetaKey::Oifname => Ok(Some(name(output.map_or("", |it| &it.name)))),
        MetaKey::Iiftype => hardware(input, key),
        MetaKey::Oiftype => hardware(output, key),
        MetaKey::Iifgroup => group(input, key),
        MetaKey::Oifgroup => group(output, key),
        MetaKey::Iifkind => kind(input, key),
        MetaKey::Oifkind => kind(output, key),
        key => Err(unsupported("load", key)),
    }
}

fn unsupported(access: &str, key: MetaKey) -> Cause {
    match key.as_str() {
        Some(text) => Cause::unsupported(format_args!("{text} ({access})")),
        None => Cause::unsupported(format_args!("meta key {} ({access})", key.number())),
    }
}

/// Returns the index of an interface. A packet without an interface has index 0.
fn index(interface: Option<&Interface>) -> Option<u32> {
    interface.map_or(Some(0), |interface| interface.index)
}

/// Returns a name in register layout.
pub(super) fn name(text: &str) -> Bytes {
    let mut name = Bytes::from(text.as_bytes());
    name.extend(&Bytes::repeat(0, NAME_LEN.saturating_sub(text.len())));
    name
}

fn hardware(interface: Option<&Interface>, key: MetaKey) -> Result<Option<Bytes>, Cause> {
    let Some(interface) = interface else {
        return Ok(None);
    };
    let hardware = interface.hardware.ok_or_else(|| of(interface, key))?;
    Ok(Some(hardware.to_ne_bytes().into()))
}

fn group(interface: Option<&Interface>, key: MetaKey) -> Result<Option<Bytes>, Cause> {
    let Some(interface) = interface else {
        return Ok(None);
    };
    let group = interface.group.ok_or_else(|| of(interface, key))?;
    Ok(Some(group.to_ne_bytes().into()))
}

fn kind(interface: Option<&Interface>, key: MetaKey) -> Result<Option<Bytes>, Cause> {
    let Some(interface) = interface else {
        return Ok(None);
    };
    let kind = interface.kind.as_ref().ok_or_else(|| of(interface, key))?;
    Ok(Some(name(kind)))
}

fn of(interface: &Interface, key: MetaKey) -> Cause {
    let key = key.as_str().unwrap_or("property");
    Cause::unknown(format_args!("{key} of interface {}", interface.name))
}

/// Only packets of local processes have a socket in `output` and `postrouting`. A received
/// packet can have one in `input`.
fn owner(walk: &Walk<'_>, key: MetaKey) -> Result<Option<Bytes>, Cause> {
    if walk.place.hook == Hook::Forward {
        return Ok(None);
    }
    let unknown = || Cause::unknown("owner of the socket");
    let (user, group) = walk.packet.owner.ok_or_else(unknown)?;
    let id = if key == MetaKey::Skuid { user } else { group };
    Ok(Some(id.to_ne_bytes().into()))
}

fn time(walk: &Walk<'_>, key: MetaKey) -> Result<Option<Bytes>, Cause> {
    let nanoseconds = walk.packet.time.ok_or_else(|| Cause::unknown("time"))?;
    let seconds = nanoseconds / NANOSECONDS;
    Ok(Some(match key {
        MetaKey::TimeNs => nanoseconds.to_ne_bytes().into(),
        // 1970 began with a Thursday.
        MetaKey::TimeDay => [((seconds / DAY + 4) % 7) as u8].into(),
        _ => ((seconds % DAY) as u32).to_ne_bytes().into(),
    }))
}
