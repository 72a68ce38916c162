//! Expressions of the nft language that load from optional headers, routes, sockets and
//! IPsec transformations.

use std::fmt;

use crate::expr::{
    Expr, Exthdr, ExthdrAccess, ExthdrOp, Osf, OsfTtl, Register, Rt, RtKey, Socket, SocketKey,
    Xfrm, XfrmDirection, XfrmKey,
};
use crate::language::extension::{Extension, prefix};
use crate::value::ByteOrder;
use crate::{Datatype, Family};

/// A value that a single kernel expression loads.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Load {
    /// Bytes of an optional header, or whether it is present.
    Exthdr {
        op: ExthdrOp,
        kind: u8,
        offset: u32,
        len: u32,
        present: bool,
    },
    Rt(RtKey),
    Socket(SocketKey),
    Xfrm {
        key: XfrmKey,
        direction: XfrmDirection,
        spnum: u32,
    },
    Osf {
        ttl: OsfTtl,
        version: bool,
    },
}

/// Size of the name of an operating system: `NFT_OSF_MAXGENRELEN`.
const OSF_BYTES: u16 = 16;

impl Load {
    /// Returns data type and size in bytes of the value.
    pub(crate) fn datatype(&self) -> (Datatype, u16) {
        match self {
            Self::Exthdr { present: true, .. } => (Datatype::Boolean, 1),
            Self::Exthdr {
                op,
                kind,
                offset,
                len,
                ..
            } => {
                let bits = [offset, len].map(|bytes| bytes.saturating_mul(8));
                let field = Extension::find_field(*op, *kind, bits[0], bits[1]);
                let datatype = field.map_or(Datatype::Integer, |(_, field)| field.3);
                (datatype, u16::try_from(*len).unwrap_or(u16::MAX))
            }
            Self::Rt(key) => key.datatype(),
            Self::Socket(key) => key.datatype(),
            Self::Xfrm { key, .. } => key.datatype(),
            Self::Osf { .. } => (Datatype::String, OSF_BYTES),
        }
    }

    /// Returns the byte order of the value.
    pub(crate) fn order(&self) -> ByteOrder {
        match self {
            Self::Exthdr { present: false, .. }
            | Self::Xfrm {
                key: XfrmKey::Spi, ..
            } => ByteOrder::Big,
            _ => self.datatype().0.order(),
        }
    }

    /// Returns the network protocol family that the packet must have.
    pub(crate) fn family(&self) -> Option<Family> {
        match self {
            Self::Exthdr {
                op: ExthdrOp::Ipv6, ..
            } => Some(Family::Ip6),
            Self::Exthdr {
                op: ExthdrOp::Ipv4, ..
            } => Some(Family::Ip),
            _ => None,
        }
    }

    /// Returns the kernel expression that loads the value, if there is one.
    pub(crate) fn expr(&self, destination: Register) -> Option<Expr> {
        Some(match *self {
            Self::Exthdr {
                op,
                kind,
                offset,
                len,
                present,
            } => Exthdr {
                op,
                kind,
                access: ExthdrAccess::Load {
                    destination,
                    offset,
                    len,
                    present,
                },
            }
            .into(),
            Self::Rt(key) => Rt { key, destination }.into(),
            Self::Socket(key) => Socket { key, destination }.into(),
            Self::Xfrm {
                key,
                direction,
                spnum,
            } => Xfrm {
                key,
                direction,
                spnum,
                destination,
            }
            .into(),
            Self::Osf { ttl, version } => Osf {
                ttl,
                version,
                destination,
            }
            .into(),
        })
    }

    /// Returns the kernel expression that writes the value, if any can.
    pub(crate) fn store(&self, source: Register) -> Option<Expr> {
        let Self::Exthdr {
            op,
            kind,
            offset,
            len,
            present: false,
        } = *self
        else {
            return None;
        };
        let access = ExthdrAccess::Store {
            source,
            offset,
            len,
        };
        Some(Exthdr { op, kind, access }.into())
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exthdr {
                op,
                kind,
                present: true,
                ..
            } => fmt_present(f, *op, *kind),
            Self::Exthdr {
                op,
                kind,
                offset,
                len,
                ..
            } => fmt_exthdr(f, *op, *kind, u64::from(*offset) * 8, u64::from(*len) * 8),
            Self::Rt(key) => match key.as_str() {
                Some(text) => f.write_str(text),
                None => write!(f, "/* rt key {} */", key.number()),
            },
            Self::Socket(key) => match key {
                SocketKey::Transparent => f.write_str("socket transparent"),
                SocketKey::Mark => f.write_str("socket mark"),
                SocketKey::Wildcard => f.write_str("socket wildcard"),
                SocketKey::Cgroupv2(level) => write!(f, "socket cgroupv2 level {level}"),
                SocketKey::Other(number) => write!(f, "/* socket key {number} */"),
            },
            Self::Xfrm {
                key,
                direction,
                spnum,
            } => {
                f.write_str(match direction {
                    XfrmDirection::In => "ipsec in",
                    XfrmDirection::Out => "ipsec out",
                })?;
                if *spnum != 0 {
                    write!(f, " spnum {spnum}")?;
                }
                match key.as_str() {
                    Some(text) => write!(f, " {text}"),
                    None => write!(f, " /* key {} */", key.number()),
                }
            }
            Self::Osf { ttl, version } => {
                f.write_str(match ttl {
                    OsfTtl::True => "osf ",
                    OsfTtl::Less => "osf ttl loose ",
                    OsfTtl::NoCheck => "osf ttl skip ",
                })?;
                f.write_str(if *version { "version" } else { "name" })
            }
        }
    }
}

/// Writes the name of an optional header as an operand of `exists`.
pub(crate) fn fmt_present(f: &mut impl fmt::Write, op: ExthdrOp, kind: u8) -> fmt::Result {
    let prefix = if op == ExthdrOp::Ipv6 {
        "exthdr "
    } else {
        prefix(op)
    };
    match Extension::find(op, kind) {
        Some(extension) => write!(f, "{prefix}{}", extension.name),
        None if op == ExthdrOp::TcpOption => write!(f, "{prefix}{kind}"),
        None => write!(f, "/* exthdr {} {kind} */", op.number()),
    }
}

/// Writes a field by its location in bits.
fn fmt_exthdr(
    f: &mut fmt::Formatter<'_>,
    op: ExthdrOp,
    kind: u8,
    offset: u64,
    len: u64,
) -> fmt::Result {
    let bits = |bits: u64| u32::try_from(bits).unwrap_or(u32::MAX);
    match Extension::find_field(op, kind, bits(offset), bits(len)) {
        Some((extension, field)) => write!(f, "{}{} {}", prefix(op), extension.name, field.0),
        None if op == ExthdrOp::TcpOption => write!(f, "tcp option @{kind},{offset},{len}"),
        None => write!(f, "/* exthdr {} {kind} {offset} {len} */", op.number()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rule;
    use crate::expression::{exthdr, exthdr_exists, osf_name};

    #[test]
    fn a_header_implies_its_network_protocol() {
        let fragment = exthdr_exists(ExthdrOp::Ipv6, 44);
        let id = exthdr(ExthdrOp::Ipv6, 44, 4, 4);
        let rule = Rule::new(Family::Inet, [fragment.is(true), id.is(5_u32)]).unwrap();
        let text = "meta nfproto ipv6 exthdr frag exists frag id 5";
        assert_eq!(rule.to_string(), text);
    }

    #[test]
    fn an_operating_system_is_a_name() {
        let rule = Rule::new(Family::Ip, [osf_name(OsfTtl::NoCheck).is("Linux")]).unwrap();
        assert_eq!(rule.to_string(), "osf ttl skip name \"Linux\"");
    }
}
