//! `xfrm`: IPsec transformations of the packet.

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attrs, put_be32};

use super::{ExprType, Register, put_byte};
use crate::Datatype;

// enum nft_xfrm_attributes
const NFTA_XFRM_DREG: u16 = 1;
const NFTA_XFRM_KEY: u16 = 2;
const NFTA_XFRM_DIR: u16 = 3;
const NFTA_XFRM_SPNUM: u16 = 4;
// enum nft_xfrm_keys
const NFT_XFRM_KEY_DADDR_IP4: u32 = 1;
const NFT_XFRM_KEY_DADDR_IP6: u32 = 2;
const NFT_XFRM_KEY_SADDR_IP4: u32 = 3;
const NFT_XFRM_KEY_SADDR_IP6: u32 = 4;
const NFT_XFRM_KEY_REQID: u32 = 5;
const NFT_XFRM_KEY_SPI: u32 = 6;
// linux/xfrm.h
const XFRM_POLICY_IN: u8 = 0;
const XFRM_POLICY_OUT: u8 = 1;

/// The `xfrm` expression: loads a property of an IPsec transformation.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Xfrm {
    /// Key.
    pub key: XfrmKey,
    /// Direction of the transformation.
    pub direction: XfrmDirection,
    /// Index of the transformation, from 0 to 255.
    pub spnum: u32,
    /// Destination register.
    pub destination: Register,
}

/// A direction of IPsec: `XFRM_POLICY_*` of `linux/xfrm.h`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum XfrmDirection {
    /// Received packets, which were decrypted.
    In,
    /// Sent packets, which will be encrypted.
    Out,
}

/// A property of a transformation: `enum nft_xfrm_keys`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum XfrmKey {
    /// The IPv4 destination address of the tunnel.
    DaddrIp4,
    /// The IPv6 destination address of the tunnel.
    DaddrIp6,
    /// The IPv4 source address of the tunnel.
    SaddrIp4,
    /// The IPv6 source address of the tunnel.
    SaddrIp6,
    /// The request ID.
    Reqid,
    /// The security parameter index.
    Spi,
    /// Another key, by number.
    Other(u32),
}

impl XfrmKey {
    /// Returns the kernel's number of the key.
    pub const fn number(self) -> u32 {
        match self {
            Self::DaddrIp4 => NFT_XFRM_KEY_DADDR_IP4,
            Self::DaddrIp6 => NFT_XFRM_KEY_DADDR_IP6,
            Self::SaddrIp4 => NFT_XFRM_KEY_SADDR_IP4,
            Self::SaddrIp6 => NFT_XFRM_KEY_SADDR_IP6,
            Self::Reqid => NFT_XFRM_KEY_REQID,
            Self::Spi => NFT_XFRM_KEY_SPI,
            Self::Other(number) => number,
        }
    }

    /// Returns the key with this number.
    pub const fn from_number(number: u32) -> Self {
        match number {
            NFT_XFRM_KEY_DADDR_IP4 => Self::DaddrIp4,
            NFT_XFRM_KEY_DADDR_IP6 => Self::DaddrIp6,
            NFT_XFRM_KEY_SADDR_IP4 => Self::SaddrIp4,
            NFT_XFRM_KEY_SADDR_IP6 => Self::SaddrIp6,
            NFT_XFRM_KEY_REQID => Self::Reqid,
            NFT_XFRM_KEY_SPI => Self::Spi,
            number => Self::Other(number),
        }
    }

    /// Returns nft's text of the key, or `None` for [`Other`](Self::Other).
    pub const fn as_str(self) -> Option<&'static str> {
        Some(match self {
            Self::DaddrIp4 => "ip daddr",
            Self::DaddrIp6 => "ip6 daddr",
            Self::SaddrIp4 => "ip saddr",
            Self::SaddrIp6 => "ip6 saddr",
            Self::Reqid => "reqid",
            Self::Spi => "spi",
            Self::Other(_) => return None,
        })
    }

    /// Returns data type and size in bytes of the value.
    pub const fn datatype(self) -> (Datatype, u16) {
        match self {
            Self::DaddrIp4 | Self::SaddrIp4 => (Datatype::Ipv4Addr, 4),
            Self::DaddrIp6 | Self::SaddrIp6 => (Datatype::Ipv6Addr, 16),
            Self::Reqid | Self::Spi | Self::Other(_) => (Datatype::Integer, 4),
        }
    }
}

impl XfrmDirection {
    /// Returns the kernel's number.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::In => XFRM_POLICY_IN,
            Self::Out => XFRM_POLICY_OUT,
        }
    }

    pub(crate) fn from_number(number: u8) -> Option<Self> {
        match number {
            XFRM_POLICY_IN => Some(Self::In),
            XFRM_POLICY_OUT => Some(Self::Out),
            _ => None,
        }
    }
}

impl ExprType for Xfrm {
    const NAME: &'static str = "xfrm";

    fn encode(&self, out: &mut Vec<u8>) {
        put_be32(out, NFTA_XFRM_KEY, self.key.number());
        put_byte(out, NFTA_XFRM_DIR, self.direction.number());
        put_be32(out, NFTA_XFRM_SPNUM, self.spnum);
        put_be32(out, NFTA_XFRM_DREG, self.destination.number());
    }

    fn decode(attrs: Attrs<'_>) -> Result<Option<Self>, DecodeError> {
        let (mut key, mut direction, mut spnum, mut destination) = (None, None, 0, None);
        for attr in attrs {
            let attr = attr?;
            match attr.kind {
                NFTA_XFRM_KEY => key = Some(XfrmKey::from_number(attr.be32()?)),
                NFTA_XFRM_DIR => direction = XfrmDirection::from_number(attr.u8()?),
                NFTA_XFRM_SPNUM => spnum = attr.be32()?,
                NFTA_XFRM_DREG => destination = Some(Register::from_number(attr.be32()?)),
                _ => return Ok(None),
            }
        }
        let (Some(key), Some(direction), Some(destination)) = (key, direction, destination) else {
            return Ok(None);
        };
        Ok(Some(Self {
            key,
            direction,
            spnum,
            destination,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::tests::assert_identity;

    #[test]
    fn every_key_round_trips() {
        for number in 0..8 {
            let key = XfrmKey::from_number(number);
            assert_eq!(key.number(), number);
            for (direction, spnum) in [(XfrmDirection::In, 0), (XfrmDirection::Out, 3)] {
                assert_identity(Xfrm {
                    key,
                    direction,
                    spnum,
                    destination: Register::word(0),
                });
            }
        }
    }
}
