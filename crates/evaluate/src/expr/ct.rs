//! `ct`

use std::net::IpAddr;

use vipline_nftables::Bytes;
use vipline_nftables::expr::{Access, Ct, CtKey, CtState, Direction};

use crate::cause::Cause;
use crate::packet::connection::{Entry, Tracked, Tuple};
use crate::walk::{Flow, Walk};

pub(super) fn evaluate(walk: &mut Walk<'_>, ct: &Ct) -> Result<Flow, Cause> {
    match ct.access {
        Access::Load(register) => {
            let Some(value) = load(walk, ct)? else {
                return Ok(Flow::Break);
            };
            walk.registers.write(register, &value)?;
            Ok(Flow::Next)
        }
        Access::Store(register) => {
            let bytes = walk.registers.read(register, 4)?;
            let bytes = bytes.first_chunk().ok_or(Cause::Operand)?;
            let number = u32::from_ne_bytes(*bytes);
            if ct.key != CtKey::Mark {
                return Err(unsupported("set", ct.key));
            }
            // A packet without a connection is not changed.
            if let Some(entry) = walk.tracked.entry_mut() {
                entry.connection.mark = number;
            }
            Ok(Flow::Next)
        }
    }
}

fn unsupported(access: &str, key: CtKey) -> Cause {
    match key.as_str() {
        Some(text) => Cause::unsupported(format_args!("ct {text} ({access})")),
        None => Cause::unsupported(format_args!("ct key {} ({access})", key.number())),
    }
}

/// Returns a value in register layout, or `None` if the packet has no connection.
fn load(walk: &Walk<'_>, ct: &Ct) -> Result<Option<Bytes>, Cause> {
    if ct.key == CtKey::State {
        let state = match &walk.tracked {
            Tracked::Unseen | Tracked::Invalid => CtState::INVALID,
            Tracked::Untracked => CtState::UNTRACKED,
            Tracked::Entry(entry) => entry.state,
        };
        return Ok(Some(state.bits().to_ne_bytes().into()));
    }
    let Some(entry) = walk.tracked.entry() else {
        return Ok(None);
    };
    match ct.key {
        CtKey::Direction => Ok(Some([u8::from(entry.direction == Direction::Reply)].into())),
        CtKey::Status => Ok(Some(entry.connection.status.bits().to_ne_bytes().into())),
        CtKey::Mark => Ok(Some(entry.connection.mark.to_ne_bytes().into())),
        CtKey::Zone => Ok(Some(entry.connection.zone.to_ne_bytes().into())),
        CtKey::L3Proto => Ok(Some([walk.packet.family().number()].into())),
        CtKey::Protocol => Ok(Some([entry.connection.original.protocol].into())),
        CtKey::Labels => {
            let unknown = || Cause::unknown("labels of the connection");
            Ok(Some(entry.connection.labels.ok_or_else(unknown)?.into()))
        }
        key => of_tuple(entry, key, ct.direction),
    }
}

/// Returns an address or a port of one direction.
fn of_tuple(
    entry: &Entry,
    key: CtKey,
    direction: Option<Direction>,
) -> Result<Option<Bytes>, Cause> {
    let tuple = |direction| entry.connection.tuple(direction);
    let tuple: &Tuple = tuple(direction.ok_or_else(|| unsupported("load", key))?);
    let port = |port: Option<u16>| {
        let port = port.ok_or_else(|| Cause::unknown("port of the connection"))?;
        Ok(Some(port.to_be_bytes().into()))
    };
    let only = |addr: IpAddr, is_v4: bool| {
        let matches = addr.is_ipv4() == is_v4;
        Ok(matches.then(|| bytes(addr)))
    };
    match key {
        CtKey::Src => Ok(Some(bytes(tuple.source))),
        CtKey::Dst => Ok(Some(bytes(tuple.destination))),
        CtKey::SrcIp => only(tuple.source, true),
        CtKey::DstIp => only(tuple.destination, true),
        CtKey::SrcIp6 => only(tuple.source, false),
        CtKey::DstIp6 => only(tuple.destination, false),
        CtKey::ProtoSrc => port(tuple.source_port),
        CtKey::ProtoDst => port(tuple.destination_port),
        key => Err(unsupported("load", key)),
    }
}

fn bytes(addr: IpAddr) -> Bytes {
    match addr {
        IpAddr::V4(addr) => addr.octets().into(),
        IpAddr::V6(addr) => addr.octets().into(),
    }
}
