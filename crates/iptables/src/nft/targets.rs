//! Targets as structures of xtables, and verdicts.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use vipline_nftables::{Bytes, Name, Verdict};

use super::matches::Structure;
use super::structure::{Reader, Writer};
use super::{ct, small_targets};
use crate::address::Network;
use crate::number::{Masked, Ports};
use crate::targets::{
    AddressRange, Connmark, ConnmarkAction, Dnat, Log, Mark, Masks, Masquerade, NatPorts, Netmap,
    Redirect, Reject, Shift, Snat, Target, Tproxy,
};
use crate::{ChainName, Family};

// Flags of `linux/netfilter/nf_nat.h`.
const MAP_IPS: u32 = 1;
const PROTO_SPECIFIED: u32 = 2;
const PROTO_RANDOM: u32 = 4;
const PERSISTENT: u32 = 8;
const PROTO_RANDOM_FULLY: u32 = 16;
const PROTO_OFFSET: u32 = 32;
/// Length of the prefix of a log line with its NUL byte.
const PREFIX: usize = 30;

/// Returns the verdict of a target, if it is one.
pub(super) fn verdict(target: &Target<'_>) -> Option<Verdict> {
    let name = |chain: &ChainName| Name::new(chain.as_str()).ok();
    Some(match target {
        Target::Accept => Verdict::Accept,
        Target::Drop => Verdict::Drop,
        Target::Return => Verdict::Return,
        Target::Jump(chain) => Verdict::Jump(name(chain)?),
        Target::Goto(chain) => Verdict::Goto(name(chain)?),
        _ => return None,
    })
}

/// Returns the target of a verdict. Returns `None` if iptables has no such target.
pub(super) fn from_verdict(verdict: &Verdict) -> Option<Target<'static>> {
    let name = |chain: &Name| ChainName::new(chain.as_str()).ok();
    Some(match verdict {
        Verdict::Accept => Target::Accept,
        Verdict::Drop => Target::Drop,
        Verdict::Return => Target::Return,
        Verdict::Jump(chain) => Target::Jump(name(chain)?),
        Verdict::Goto(chain) => Target::Goto(name(chain)?),
        _ => return None,
    })
}

/// Returns the structure of a target. Returns `None` if it is not supported.
pub(super) fn encode(target: &Target<'_>, family: Family) -> Option<Structure> {
    Some(match target {
        Target::Dnat(it) => {
            let range = Range {
                addresses: it.addresses,
                ports: it.ports,
                flags: flag(it.random, PROTO_RANDOM)
                    | flag(it.persistent, PERSISTENT)
                    | flag(it.base_port.is_some(), PROTO_OFFSET),
            };
            let out = range.put(Writer::default(), family)?;
            let out = out.be16(it.base_port.unwrap_or(0)).zeros(2);
            ("DNAT", 2, out.finish())
        }
        Target::Snat(it) => {
            let range = Range {
                addresses: it.addresses,
                ports: it.ports,
                flags: flag(it.random, PROTO_RANDOM)
                    | flag(it.random_fully, PROTO_RANDOM_FULLY)
                    | flag(it.persistent, PERSISTENT),
            };
            let revision = match family {
                Family::V4 => 0,
                Family::V6 => 1,
            };
            ("SNAT", revision, range.encode(family)?)
        }
        Target::Masquerade(it) => {
            let random = flag(it.random, PROTO_RANDOM);
            let flags = random | flag(it.random_fully, PROTO_RANDOM_FULLY);
            let range = Range {
                addresses: None,
                ports: it.ports,
                flags,
            };
            ("MASQUERADE", 0, range.encode(family)?)
        }
        Target::Redirect(it) => {
            let flags = flag(it.random, PROTO_RANDOM);
            let range = Range {
                addresses: None,
                ports: it.ports,
                flags,
            };
            ("REDIRECT", 0, range.encode(family)?)
        }
        Target::Log(it) => ("LOG", 0, log(it)?),
        Target::Mark(Mark(Masked { value, mask })) => {
            ("MARK", 2, Writer::default().u32(*value).u32(*mask).finish())
        }
        Target::Connmark(it) => ("CONNMARK", 2, connmark(it)?),
        Target::Ct(it) => ("CT", 2, ct::encode(it)?),
        Target::Notrack => ("CT", 2, ct::notrack()?),
        Target::Tproxy(it) => ("TPROXY", 1, tproxy(it, family)?),
        Target::Reject(it) => {
            let wanted = it.for_family(family);
            let mut all = (0..).zip(replies(family));
            let (number, _) = all.find(|(_, reply)| **reply == Some(wanted))?;
            ("REJECT", 0, Writer::default().u32(number).finish())
        }
        Target::Netmap(it) => netmap(it.to.as_ref()?, family)?,
        _ => return small_targets::encode(target, family),
    })
}

/// Returns the target of a structure. Returns `None` if it is not supported.
pub(super) fn decode(
    name: &str,
    revision: u32,
    bytes: &[u8],
    family: Family,
) -> Option<Target<'static>> {
    let mut reader = Reader::new(bytes);
    Some(match (name, revision) {
        ("DNAT", 2) => {
            let Range {
                addresses,
                ports,
                flags,
            } = Range::read(&mut reader, family)?;
            let base_port = reader.be16()?;
            Target::Dnat(Dnat {
                addresses,
                ports,
                base_port: (flags & PROTO_OFFSET != 0).then_some(base_port),
                random: flags & PROTO_RANDOM != 0,
                persistent: flags & PERSISTENT != 0,
            })
        }
        ("SNAT", _) => {
            let Range {
                addresses,
                ports,
                flags,
            } = Range::decode(&mut reader, family)?;
            Target::Snat(Snat {
                addresses,
                ports,
                random: flags & PROTO_RANDOM != 0,
                random_fully: flags & PROTO_RANDOM_FULLY != 0,
                persistent: flags & PERSISTENT != 0,
            })
        }
        ("MASQUERADE", 0) => {
            let Range { ports, flags, .. } = Range::decode(&mut reader, family)?;
            Target::Masquerade(Masquerade {
                ports,
                random: flags & PROTO_RANDOM != 0,
                random_fully: flags & PROTO_RANDOM_FULLY != 0,
            })
        }
        ("REDIRECT", 0) => {
            let Range { ports, flags, .. } = Range::decode(&mut reader, family)?;
            Target::Redirect(Redirect {
                ports,
                random: flags & PROTO_RANDOM != 0,
            })
        }
        ("LOG", 0) => Target::Log(read_log(&mut reader)?),
        ("MARK", 2) => {
            let (value, mask) = (reader.u32()?, reader.u32()?);
            Target::Mark(Mark(Masked { value, mask }))
        }
        ("CONNMARK", 2) => Target::Connmark(read_connmark(&mut reader)?),
        ("CT", 2) => return ct::decode(&mut reader),
        ("TPROXY", 1) => Target::Tproxy(read_tproxy(&mut reader, family)?),
        ("REJECT", 0) => {
            let number = usize::try_from(reader.u32()?).ok()?;
            Target::Reject((*replies(family).get(number)?)?)
        }
        ("NETMAP", 0) => Target::Netmap(read_netmap(&mut reader, family)?),
        _ => return small_targets::decode(name, revision, &mut reader, family),
    })
}

fn flag(is_set: bool, flag: u32) -> u32 {
    if is_set { flag } else { 0 }
}

/// Addresses and ports of address translation.
struct Range {
    addresses: Option<AddressRange>,
    ports: Option<NatPorts>,
    /// Flags except those of addresses and ports.
    flags: u32,
}

impl Range {
    fn all_flags(&self) -> u32 {
        let addresses = flag(self.addresses.is_some(), MAP_IPS);
        self.flags | addresses | flag(self.ports.is_some(), PROTO_SPECIFIED)
    }

    fn ports(&self) -> Ports {
        self.ports
            .map_or(Ports { first: 0, last: 0 }, |NatPorts(ports)| ports)
    }

    /// Returns the structure of a target of one family. Returns `None` if an address is not
    /// of the family.
    fn encode(&self, family: Family) -> Option<Bytes> {
        if family == Family::V6 {
            return Some(self.put(Writer::default(), family)?.finish());
        }
        // struct nf_nat_ipv4_multi_range_compat, with one range
        let out = Writer::default().u32(1).u32(self.all_flags());
        let out = match self.addresses {
            Some(AddressRange {
                first: IpAddr::V4(first),
                last: IpAddr::V4(last),
            }) => out.bytes(&first.octets()).bytes(&last.octets()),
            Some(_) => return None,
            None => out.zeros(8),
        };
        let Ports { first, last } = self.ports();
        Some(out.be16(first).be16(last).finish())
    }

    /// Appends `struct nf_nat_range`. Returns `None` if an address is not of the family.
    fn put(&self, out: Writer, family: Family) -> Option<Writer> {
        let out = out.u32(self.all_flags());
        let out = match self.addresses {
            Some(AddressRange { first, last }) => {
                out.address(first, family)?.address(last, family)?
            }
            None => out.zeros(32),
        };
        let Ports { first, last } = self.ports();
        Some(out.be16(first).be16(last))
    }

    /// Reads the structure of a target of one family.
    fn decode(reader: &mut Reader<'_>, family: Family) -> Option<Self> {
        if family == Family::V6 {
            return Self::read(reader, family);
        }
        if reader.u32()? != 1 {
            return None;
        }
        let flags = reader.u32()?;
        let [first, last]: [[u8; 4]; 2] = [reader.array()?, reader.array()?];
        let addresses = [first, last].map(IpAddr::from);
        Some(Self::of(flags, addresses, reader.be16()?, reader.be16()?))
    }

    /// Reads `struct nf_nat_range`.
    fn read(reader: &mut Reader<'_>, family: Family) -> Option<Self> {
        let flags = reader.u32()?;
        let addresses = [reader.address(family)?, reader.address(family)?];
        Some(Self::of(flags, addresses, reader.be16()?, reader.be16()?))
    }

    fn of(flags: u32, [first, last]: [IpAddr; 2], first_port: u16, last_port: u16) -> Self {
        let addresses = (flags & MAP_IPS != 0).then_some(AddressRange { first, last });
        let ports = NatPorts(Ports {
            first: first_port,
            last: last_port,
        });
        Self {
            addresses,
            ports: (flags & PROTO_SPECIFIED != 0).then_some(ports),
            flags: flags & !(MAP_IPS | PROTO_SPECIFIED),
        }
    }
}

fn log(it: &Log<'_>) -> Option<Bytes> {
    let flags = u8::from(it.tcp_sequence)
        | u8::from(it.tcp_options) << 1
        | u8::from(it.ip_options) << 2
        | u8::from(it.uid) << 3
        | u8::from(it.macdecode) << 5;
    let prefix = it.prefix.as_deref().unwrap_or_default();
    Some(
        Writer::default()
            .u8(it.level)
            .u8(flags)
            .text(prefix, PREFIX)?
            .finish(),
    )
}

fn read_log(reader: &mut Reader<'_>) -> Option<Log<'static>> {
    let (level, flags) = (reader.u8()?, reader.u8()?);
    let prefix = reader.text(PREFIX)?;
    Some(Log {
        prefix: (!prefix.is_empty()).then(|| prefix.to_owned().into()),
        level,
        tcp_sequence: flags & 1 != 0,
        tcp_options: flags & 2 != 0,
        ip_options: flags & 4 != 0,
        uid: flags & 8 != 0,
        macdecode: flags & 32 != 0,
    })
}

// Modes of `CONNMARK`.
const SET: u8 = 0;
const SAVE: u8 = 1;
const RESTORE: u8 = 2;

/// Returns `struct xt_connmark_tginfo2`.
fn connmark(it: &Connmark) -> Option<Bytes> {
    let all = |mode, masks: Masks| (mode, 0, masks.connection, masks.packet);
    let (mode, value, connection, packet) = match it.action? {
        ConnmarkAction::Set(Masked { value, mask }) => (SET, value, mask, u32::MAX),
        ConnmarkAction::Save(masks) => all(SAVE, masks),
        ConnmarkAction::Restore(masks) => all(RESTORE, masks),
    };
    let (direction, bits) = match it.shift {
        Some(Shift::Left(bits)) => (0, bits),
        Some(Shift::Right(bits)) => (1, bits),
        None => (0, 0),
    };
    let out = Writer::default().u32(value).u32(connection).u32(packet);
    Some(out.u8(direction).u8(bits).u8(mode).finish())
}

fn read_connmark(reader: &mut Reader<'_>) -> Option<Connmark> {
    let (value, connection, packet) = (reader.u32()?, reader.u32()?, reader.u32()?);
    let [direction, bits, mode] = reader.array()?;
    let masks = Masks { packet, connection };
    let action = match mode {
        // iptables prints no mask of the packet mark.
        SET if packet != u32::MAX => return None,
        SET => ConnmarkAction::Set(Masked {
            value,
            mask: connection,
        }),
        SAVE => ConnmarkAction::Save(masks),
        RESTORE => ConnmarkAction::Restore(masks),
        _ => return None,
    };
    let shift = match (direction, bits) {
        (_, 0) => None,
        (0, bits) => Some(Shift::Left(bits)),
        (1, bits) => Some(Shift::Right(bits)),
        _ => return None,
    };
    Some(Connmark {
        action: Some(action),
        shift,
    })
}

/// Returns `struct xt_tproxy_target_info_v1`. Returns `None` if the address is not of the
/// family.
fn tproxy(it: &Tproxy, family: Family) -> Option<Bytes> {
    let Masked { value, mask } = it.mark;
    let out = Writer::default().u32(mask).u32(value);
    let out = match it.address {
        Some(address) => out.address(address, family)?,
        None => out.zeros(16),
    };
    Some(out.be16(it.port?).finish())
}

fn read_tproxy(reader: &mut Reader<'_>, family: Family) -> Option<Tproxy> {
    let (mask, value) = (reader.u32()?, reader.u32()?);
    let address = Some(reader.address(family)?);
    let port = Some(reader.be16()?);
    let mark = Masked { value, mask };
    Some(Tproxy {
        port,
        address,
        mark,
    })
}

/// Returns the replies in the order of `enum ipt_reject_with` or `enum ip6t_reject_with`.
fn replies(family: Family) -> &'static [Option<Reject>] {
    match family {
        Family::V4 => &[
            Some(Reject::NetUnreachable),
            Some(Reject::HostUnreachable),
            Some(Reject::ProtocolUnreachable),
            Some(Reject::PortUnreachable),
            None,
            Some(Reject::NetProhibited),
            Some(Reject::HostProhibited),
            Some(Reject::TcpReset),
            Some(Reject::AdminProhibited),
        ],
        Family::V6 => &[
            Some(Reject::Icmp6NoRoute),
            Some(Reject::Icmp6AdminProhibited),
            None,
            Some(Reject::Icmp6AddressUnreachable),
            Some(Reject::Icmp6PortUnreachable),
            None,
            Some(Reject::TcpReset),
            Some(Reject::Icmp6PolicyFail),
            Some(Reject::Icmp6RejectRoute),
        ],
    }
}

/// Returns the structure of `NETMAP`: the range of all addresses of the network.
fn netmap(to: &Network, family: Family) -> Option<Structure> {
    let network = to.prefix()?;
    let addresses = AddressRange {
        first: network.network(),
        last: network.broadcast(),
    };
    let range = Range {
        addresses: Some(addresses),
        ports: None,
        flags: 0,
    };
    Some(("NETMAP", 0, range.encode(family)?))
}

fn read_netmap(reader: &mut Reader<'_>, family: Family) -> Option<Netmap> {
    let AddressRange { first, last } = Range::decode(reader, family)?.addresses?;
    // Equal bits of both ends are the mask.
    let mask: IpAddr = match (first, last) {
        (IpAddr::V4(first), IpAddr::V4(last)) => {
            Ipv4Addr::from_bits(!(first.to_bits() ^ last.to_bits())).into()
        }
        (IpAddr::V6(first), IpAddr::V6(last)) => {
            Ipv6Addr::from_bits(!(first.to_bits() ^ last.to_bits())).into()
        }
        _ => return None,
    };
    let to = Some(Network::masked(first, mask)?);
    Some(Netmap { to })
}
