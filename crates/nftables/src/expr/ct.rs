//! `ct` and `notrack`: conntrack properties, and exclusion from connection tracking.

use bitflags::bitflags;
use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attrs, put_be32};

use super::{Access, ExprType, Register, put_byte};
use crate::{Datatype, Value};

// enum nft_ct_attributes
const NFTA_CT_DREG: u16 = 1;
const NFTA_CT_KEY: u16 = 2;
const NFTA_CT_DIRECTION: u16 = 3;
const NFTA_CT_SREG: u16 = 4;
// linux/netfilter/nf_conntrack_tuple_common.h: enum ip_conntrack_dir
const IP_CT_DIR_ORIGINAL: u8 = 0;
const IP_CT_DIR_REPLY: u8 = 1;

/// The `ct` expression: loads or sets a conntrack property.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Ct {
    /// Key.
    pub key: CtKey,
    /// Direction, for keys that depend on it.
    pub direction: Option<Direction>,
    /// Load or store, with the register.
    pub access: Access,
}

/// A conntrack direction: `enum ip_conntrack_dir`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Direction {
    /// The direction of the first packet.
    Original,
    /// The opposite direction.
    Reply,
}

impl Direction {
    /// Returns the kernel's number.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Original => IP_CT_DIR_ORIGINAL,
            Self::Reply => IP_CT_DIR_REPLY,
        }
    }

    pub(crate) fn from_number(number: u8) -> Option<Self> {
        match number {
            IP_CT_DIR_ORIGINAL => Some(Self::Original),
            IP_CT_DIR_REPLY => Some(Self::Reply),
            _ => None,
        }
    }
}

impl From<Direction> for Value {
    fn from(direction: Direction) -> Self {
        Self::Integer(direction.number().into())
    }
}

macro_rules! ct_keys {
    ($($(#[$doc:meta])* $variant:ident: $kernel:ident = $number:literal, $text:literal, $datatype:ident, $bytes:literal;)*) => {
        $(const $kernel: u32 = $number;)*

        /// A conntrack property: `enum nft_ct_keys`.
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        #[non_exhaustive]
        pub enum CtKey {
            $($(#[$doc])* $variant,)*
            /// Another key, by number.
            Other(u32),
        }

        impl CtKey {
            /// Returns the kernel's number of the key.
            pub const fn number(self) -> u32 {
                match self { $(Self::$variant => $kernel,)* Self::Other(number) => number }
            }

            /// Returns the key with this number.
            pub const fn from_number(number: u32) -> Self {
                match number { $($kernel => Self::$variant,)* number => Self::Other(number) }
            }

            /// Returns nft's text of the key, or `None` for [`Other`](Self::Other).
            pub const fn as_str(self) -> Option<&'static str> {
                match self { $(Self::$variant => Some($text),)* Self::Other(_) => None }
            }

            /// Returns data type and size in bytes of the value.
            pub const fn datatype(self) -> (Datatype, u16) {
                match self {
                    $(Self::$variant => (Datatype::$datatype, $bytes),)*
                    Self::Other(_) => (Datatype::Integer, 4),
                }
            }
        }
    };
}

ct_keys! {
    /// The state.
    State: NFT_CT_STATE = 0, "state", CtState, 4;
    /// The direction of the packet.
    Direction: NFT_CT_DIRECTION = 1, "direction", CtDirection, 1;
    /// The status.
    Status: NFT_CT_STATUS = 2, "status", CtStatus, 4;
    /// The mark.
    Mark: NFT_CT_MARK = 3, "mark", Mark, 4;
    /// The security mark.
    Secmark: NFT_CT_SECMARK = 4, "secmark", Integer, 4;
    /// The time until the entry expires, in milliseconds.
    Expiration: NFT_CT_EXPIRATION = 5, "expiration", Time, 4;
    /// The name of the helper.
    Helper: NFT_CT_HELPER = 6, "helper", String, 16;
    /// The network protocol.
    L3Proto: NFT_CT_L3PROTOCOL = 7, "l3proto", NfProto, 1;
    /// The source address in a direction: 4 or 16 bytes.
    Src: NFT_CT_SRC = 8, "saddr", Ipv4Addr, 4;
    /// The destination address in a direction: 4 or 16 bytes.
    Dst: NFT_CT_DST = 9, "daddr", Ipv4Addr, 4;
    /// The transport protocol.
    Protocol: NFT_CT_PROTOCOL = 10, "protocol", InetProto, 1;
    /// The source port in a direction.
    ProtoSrc: NFT_CT_PROTO_SRC = 11, "proto-src", InetService, 2;
    /// The destination port in a direction.
    ProtoDst: NFT_CT_PROTO_DST = 12, "proto-dst", InetService, 2;
    /// The labels, one bit each.
    Labels: NFT_CT_LABELS = 13, "label", CtLabel, 16;
    /// The number of packets.
    Packets: NFT_CT_PKTS = 14, "packets", Integer, 8;
    /// The number of bytes.
    Bytes: NFT_CT_BYTES = 15, "bytes", Integer, 8;
    /// The average number of bytes per packet.
    Avgpkt: NFT_CT_AVGPKT = 16, "avgpkt", Integer, 8;
    /// The zone.
    Zone: NFT_CT_ZONE = 17, "zone", Integer, 2;
    /// The events to report; only set.
    Eventmask: NFT_CT_EVENTMASK = 18, "event", CtEvent, 4;
    /// The IPv4 source address in a direction.
    SrcIp: NFT_CT_SRC_IP = 19, "ip saddr", Ipv4Addr, 4;
    /// The IPv4 destination address in a direction.
    DstIp: NFT_CT_DST_IP = 20, "ip daddr", Ipv4Addr, 4;
    /// The IPv6 source address in a direction.
    SrcIp6: NFT_CT_SRC_IP6 = 21, "ip6 saddr", Ipv6Addr, 16;
    /// The IPv6 destination address in a direction.
    DstIp6: NFT_CT_DST_IP6 = 22, "ip6 daddr", Ipv6Addr, 16;
    /// The ID of the entry.
    Id: NFT_CT_ID = 23, "id", Integer, 4;
}

bitflags! {
    /// Conntrack states, as bits.
    #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
    pub struct CtState: u32 {
        /// The packet cannot be assigned to a connection.
        const INVALID = 1;
        /// Packets were seen in both directions.
        const ESTABLISHED = 2;
        /// The connection is related to another connection.
        const RELATED = 4;
        /// The packet starts a connection.
        const NEW = 8;
        /// The packet is not tracked.
        const UNTRACKED = 64;
    }
}

bitflags! {
    /// Conntrack status bits: `enum ip_conntrack_status`.
    #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
    pub struct CtStatus: u32 {
        /// The connection was expected (expectation).
        #[doc(alias = "IPS_EXPECTED")]
        const EXPECTED = 1;
        /// Packets were seen in both directions.
        #[doc(alias = "IPS_SEEN_REPLY")]
        const SEEN_REPLY = 2;
        /// The entry is not dropped early if the table is full.
        #[doc(alias = "IPS_ASSURED")]
        const ASSURED = 4;
        /// The first packet has left the host.
        #[doc(alias = "IPS_CONFIRMED")]
        const CONFIRMED = 8;
        /// The source is translated.
        #[doc(alias = "IPS_SRC_NAT")]
        const SNAT = 16;
        /// The destination is translated.
        #[doc(alias = "IPS_DST_NAT")]
        const DNAT = 32;
        /// The entry is being removed.
        #[doc(alias = "IPS_DYING")]
        const DYING = 512;
    }
}

impl From<CtState> for Value {
    fn from(state: CtState) -> Self {
        Self::from(state.bits())
    }
}

impl From<CtStatus> for Value {
    fn from(status: CtStatus) -> Self {
        Self::from(status.bits())
    }
}

impl ExprType for Ct {
    const NAME: &'static str = "ct";

    fn encode(&self, out: &mut Vec<u8>) {
        put_be32(out, NFTA_CT_KEY, self.key.number());
        if let Access::Load(register) = self.access {
            put_be32(out, NFTA_CT_DREG, register.number());
        }
        if let Some(direction) = self.direction {
            put_byte(out, NFTA_CT_DIRECTION, direction.number());
        }
        if let Access::Store(register) = self.access {
            put_be32(out, NFTA_CT_SREG, register.number());
        }
    }

    fn decode(attrs: Attrs<'_>) -> Result<Option<Self>, DecodeError> {
        let (mut key, mut direction, mut access) = (None, None, None);
        for attr in attrs {
            let attr = attr?;
            let register = || attr.be32().map(Register::from_number);
            match (attr.kind, attr.value) {
                (NFTA_CT_KEY, _) => key = Some(CtKey::from_number(attr.be32()?)),
                (NFTA_CT_DIRECTION, [IP_CT_DIR_ORIGINAL]) => direction = Some(Direction::Original),
                (NFTA_CT_DIRECTION, [IP_CT_DIR_REPLY]) => direction = Some(Direction::Reply),
                (NFTA_CT_DREG, _) => access = Some(Access::Load(register()?)),
                (NFTA_CT_SREG, _) => access = Some(Access::Store(register()?)),
                _ => return Ok(None),
            }
        }
        let (Some(key), Some(access)) = (key, access) else {
            return Ok(None);
        };
        Ok(Some(Self {
            key,
            direction,
            access,
        }))
    }
}

/// The `notrack` expression: disables connection tracking for the packet.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Notrack;

impl ExprType for Notrack {
    const NAME: &'static str = "notrack";

    fn encode(&self, _out: &mut Vec<u8>) {}

    fn decode(mut attrs: Attrs<'_>) -> Result<Option<Self>, DecodeError> {
        let first = attrs.next().transpose()?;
        Ok(first.is_none().then_some(Self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::tests::assert_identity;

    #[test]
    fn loads_and_stores_round_trip() {
        let load = Access::Load(Register::word(0));
        assert_identity(Ct {
            key: CtKey::State,
            direction: None,
            access: load,
        });
        for direction in [Direction::Original, Direction::Reply] {
            let direction = Some(direction);
            assert_identity(Ct {
                key: CtKey::ProtoDst,
                direction,
                access: load,
            });
        }
        let store = Access::Store(Register::word(1));
        assert_identity(Ct {
            key: CtKey::Other(99),
            direction: None,
            access: store,
        });
    }

    #[test]
    fn notrack_round_trips() {
        assert_identity(Notrack);
    }
}
