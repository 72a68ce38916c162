//! `rt`: the route of the packet.

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attrs, put_be32};

use super::{ExprType, Register};
use crate::Datatype;

// enum nft_rt_attributes
const NFTA_RT_DREG: u16 = 1;
const NFTA_RT_KEY: u16 = 2;
// enum nft_rt_keys
const NFT_RT_CLASSID: u32 = 0;
const NFT_RT_NEXTHOP4: u32 = 1;
const NFT_RT_NEXTHOP6: u32 = 2;
const NFT_RT_TCPMSS: u32 = 3;
const NFT_RT_XFRM: u32 = 4;

/// The `rt` expression: loads a property of the packet's route.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Rt {
    /// Key.
    pub key: RtKey,
    /// Destination register.
    pub destination: Register,
}

/// A property of a route: `enum nft_rt_keys`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum RtKey {
    /// The routing realm.
    Classid,
    /// The IPv4 address of the next hop.
    Nexthop4,
    /// The IPv6 address of the next hop.
    Nexthop6,
    /// The TCP maximum segment size that fits the route.
    Tcpmss,
    /// Whether the route has an IPsec transformation.
    Ipsec,
    /// Another key, by number.
    Other(u32),
}

impl RtKey {
    /// Returns the kernel's number of the key.
    pub const fn number(self) -> u32 {
        match self {
            Self::Classid => NFT_RT_CLASSID,
            Self::Nexthop4 => NFT_RT_NEXTHOP4,
            Self::Nexthop6 => NFT_RT_NEXTHOP6,
            Self::Tcpmss => NFT_RT_TCPMSS,
            Self::Ipsec => NFT_RT_XFRM,
            Self::Other(number) => number,
        }
    }

    /// Returns the key with this number.
    pub const fn from_number(number: u32) -> Self {
        match number {
            NFT_RT_CLASSID => Self::Classid,
            NFT_RT_NEXTHOP4 => Self::Nexthop4,
            NFT_RT_NEXTHOP6 => Self::Nexthop6,
            NFT_RT_TCPMSS => Self::Tcpmss,
            NFT_RT_XFRM => Self::Ipsec,
            number => Self::Other(number),
        }
    }

    /// Returns nft's text of the key, or `None` for [`Other`](Self::Other).
    pub const fn as_str(self) -> Option<&'static str> {
        Some(match self {
            Self::Classid => "rt classid",
            Self::Nexthop4 => "rt ip nexthop",
            Self::Nexthop6 => "rt ip6 nexthop",
            Self::Tcpmss => "rt mtu",
            Self::Ipsec => "rt ipsec",
            Self::Other(_) => return None,
        })
    }

    /// Returns data type and size in bytes of the value.
    pub const fn datatype(self) -> (Datatype, u16) {
        match self {
            Self::Classid => (Datatype::Realm, 4),
            Self::Nexthop4 => (Datatype::Ipv4Addr, 4),
            Self::Nexthop6 => (Datatype::Ipv6Addr, 16),
            Self::Tcpmss => (Datatype::Integer, 2),
            Self::Ipsec => (Datatype::Boolean, 1),
            Self::Other(_) => (Datatype::Integer, 4),
        }
    }
}

impl ExprType for Rt {
    const NAME: &'static str = "rt";

    fn encode(&self, out: &mut Vec<u8>) {
        put_be32(out, NFTA_RT_KEY, self.key.number());
        put_be32(out, NFTA_RT_DREG, self.destination.number());
    }

    fn decode(attrs: Attrs<'_>) -> Result<Option<Self>, DecodeError> {
        let (mut key, mut destination) = (None, None);
        for attr in attrs {
            let attr = attr?;
            match attr.kind {
                NFTA_RT_KEY => key = Some(RtKey::from_number(attr.be32()?)),
                NFTA_RT_DREG => destination = Some(Register::from_number(attr.be32()?)),
                _ => return Ok(None),
            }
        }
        let (Some(key), Some(destination)) = (key, destination) else {
            return Ok(None);
        };
        Ok(Some(Self { key, destination }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::tests::assert_identity;

    #[test]
    fn every_key_round_trips() {
        for number in 0..6 {
            let key = RtKey::from_number(number);
            assert_eq!(key.number(), number);
            assert_identity(Rt {
                key,
                destination: Register::word(0),
            });
        }
    }
}
