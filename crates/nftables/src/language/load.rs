//! Expressions of the nft language that load from optional headers, routes, sockets and
//! IPsec transformations.
//!
//! The other expressions need work on both sides: a header field may be bits of a byte, a map
//! needs the key first. These are the simple ones: one word of the language is exactly one
//! kernel expression that writes one register. So one type has all of them, and says the four
//! things that the rest of the language asks: type and byte order of the value, the packets that
//! have it, the kernel expression, and the text.
//!
//! For example `tcp option maxseg size`, which is
//! `Exthdr { op: TcpOption, kind: 2, offset: 2, len: 2, present: false }`:
//!
//! ```text
//! kernel expression   exthdr load tcpopt, type 2, offset 2, len 2 => reg 1
//! data type           integer of 2 bytes, big-endian
//! text                "tcp option maxseg size", found by kind and location in extension.rs
//! ```
//!
//! What must stay true:
//!
//! - A rule that the kernel lists is decoded to the same value that a caller creates, because
//!   text and comparison start from it (`text/load.rs` is the way back). So nothing here depends
//!   on how the value was created.
//! - Every value has a text. What nft has no word for, such as a key of a later kernel, becomes a
//!   comment with its numbers: a listing must not fail because of a rule of another program.

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
    ///
    /// Unlike a field of a fixed header, these bytes have no address that a payload expression
    /// could load: the kernel must walk the options or headers of each packet to find them.
    Exthdr {
        op: ExthdrOp,
        /// Protocol number, option kind or chunk type.
        kind: u8,
        /// In bytes, from the first byte of the header. Fields of single bits are a bit field
        /// (`bitfield.rs`) over the bytes that contain them.
        offset: u32,
        /// In bytes.
        len: u32,
        /// Whether the value is the presence itself. A packet without the header then loads 0;
        /// with `false` it ends the rule.
        present: bool,
    },
    /// Property of the packet's route.
    Rt(RtKey),
    /// Property of the local socket that the packet belongs to.
    Socket(SocketKey),
    /// Property of an IPsec transformation.
    Xfrm {
        key: XfrmKey,
        direction: XfrmDirection,
        /// Number of the transformation, if a packet has several; the first is 0.
        spnum: u32,
    },
    /// Name of the sender's operating system, by the fingerprint of its TCP SYN.
    Osf {
        ttl: OsfTtl,
        /// Whether the name has the version: `osf version` instead of `osf name`.
        version: bool,
    },
}

/// Size of the name of an operating system in bytes: `NFT_OSF_MAXGENRELEN`. The kernel fills all
/// of them, so an operand with fewer bytes would match every name that begins like it.
const OSF_NAME_BYTES: u16 = 16;

impl Load {
    /// Returns data type and size in bytes of the value.
    pub(crate) fn datatype(&self) -> (Datatype, u16) {
        match self {
            // The kernel writes one byte, 0 or 1, whatever `len` says.
            Self::Exthdr { present: true, .. } => (Datatype::Boolean, 1),
            Self::Exthdr {
                op,
                kind,
                offset,
                len,
                ..
            } => {
                // Saturating, because the numbers may come from the kernel or from a corrupted
                // dump: there a plain product overflowed. No field is found so far out. The
                // length below saturates for the same reason.
                let [offset_bits, len_bits] = [offset, len].map(|bytes| bytes.saturating_mul(8));
                let field = Extension::find_field(*op, *kind, offset_bits, len_bits);
                let datatype = field.map_or(Datatype::Integer, |(_, field)| field.3);
                (datatype, u16::try_from(*len).unwrap_or(u16::MAX))
            }
            Self::Rt(key) => key.datatype(),
            Self::Socket(key) => key.datatype(),
            Self::Xfrm { key, .. } => key.datatype(),
            Self::Osf { .. } => (Datatype::String, OSF_NAME_BYTES),
        }
    }

    /// Returns the byte order of the value.
    ///
    /// Not always that of its data type: `integer` by itself is in host order.
    pub(crate) fn order(&self) -> ByteOrder {
        match self {
            // Bytes of the packet, and an SPI as it stands in the packet. In host order, `tcp
            // option maxseg size 1460` would match 46085 on a little-endian machine.
            Self::Exthdr { present: false, .. }
            | Self::Xfrm {
                key: XfrmKey::Spi, ..
            } => ByteOrder::Big,
            _ => self.datatype().0.order(),
        }
    }

    /// Returns the network protocol family that the packet must have.
    ///
    /// A rule in family `inet` sees both, and the kernel finds extension headers and IP options
    /// only in one. So `Rule::new` puts `meta nfproto` before the load.
    pub(crate) fn family(&self) -> Option<Family> {
        match self {
            Self::Exthdr {
                op: ExthdrOp::Ipv6, ..
            } => Some(Family::Ip6),
            Self::Exthdr {
                op: ExthdrOp::Ipv4, ..
            } => Some(Family::Ip),
            // TCP options and SCTP chunks are the same in both. The family of the other values
            // is the caller's business: `rt nexthop` has a key for each family.
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
    ///
    /// Only bytes of an optional header can be written, such as the MSS of a SYN. Presence is no
    /// bytes: `reset tcp option` removes an option and is a statement of its own.
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
            // In 64 bits, because this prints the location also if nothing has it.
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
                // nft lists no `spnum 0`, and a listing must equal its own.
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
    // nft writes `frag id` but `exthdr frag exists`: without the word, a header's name alone
    // would be no expression. `prefix` has the words that stand before fields, too.
    let prefix = if op == ExthdrOp::Ipv6 {
        "exthdr "
    } else {
        prefix(op)
    };
    match Extension::find(op, kind) {
        Some(extension) => write!(f, "{prefix}{}", extension.name),
        // Only here does nft take a number in place of a name.
        None if op == ExthdrOp::TcpOption => write!(f, "{prefix}{kind}"),
        None => write!(f, "/* exthdr {} {kind} */", op.number()),
    }
}

/// Writes a field by its location in bits, the unit of nft: `tcp option @2,16,16`.
fn fmt_exthdr(
    f: &mut fmt::Formatter<'_>,
    op: ExthdrOp,
    kind: u8,
    offset: u64,
    len: u64,
) -> fmt::Result {
    let saturated = |bits: u64| u32::try_from(bits).unwrap_or(u32::MAX);
    match Extension::find_field(op, kind, saturated(offset), saturated(len)) {
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
