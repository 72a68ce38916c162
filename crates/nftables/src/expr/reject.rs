//! `reject`: packet rejection.

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attrs, put_be32};

use super::{ExprType, put_byte};
use crate::Family;

// enum nft_reject_attributes
const NFTA_REJECT_TYPE: u16 = 1;
const NFTA_REJECT_ICMP_CODE: u16 = 2;
// enum nft_reject_types
const NFT_REJECT_ICMP_UNREACH: u32 = 0;
const NFT_REJECT_TCP_RST: u32 = 1;
const NFT_REJECT_ICMPX_UNREACH: u32 = 2;
// enum nft_reject_inet_code
const NFT_REJECT_ICMPX_PORT_UNREACH: u8 = 1;
// linux/icmp.h and linux/icmpv6.h
const ICMP_PORT_UNREACH: u8 = 3;
const ICMPV6_PORT_UNREACH: u8 = 4;

/// The `reject` expression: drops the packet and replies with an error.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Reject {
    /// Reply.
    pub kind: RejectType,
}

/// The reply to a rejected packet: `enum nft_reject_types`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum RejectType {
    /// ICMP or ICMPv6 destination unreachable with this code.
    Icmp(u8),
    /// TCP reset.
    TcpReset,
    /// ICMP or ICMPv6 by packet family: a code of `enum nft_reject_inet_code`.
    Icmpx(u8),
}

impl Reject {
    /// Returns the rejection with port unreachable.
    pub fn port_unreachable(family: Family) -> Self {
        Self {
            kind: match family {
                Family::Ip => RejectType::Icmp(ICMP_PORT_UNREACH),
                Family::Ip6 => RejectType::Icmp(ICMPV6_PORT_UNREACH),
                _ => RejectType::Icmpx(NFT_REJECT_ICMPX_PORT_UNREACH),
            },
        }
    }
}

impl ExprType for Reject {
    const NAME: &'static str = "reject";

    fn encode(&self, out: &mut Vec<u8>) {
        let (kind, code) = match self.kind {
            RejectType::Icmp(code) => (NFT_REJECT_ICMP_UNREACH, code),
            RejectType::TcpReset => (NFT_REJECT_TCP_RST, 0),
            RejectType::Icmpx(code) => (NFT_REJECT_ICMPX_UNREACH, code),
        };
        put_be32(out, NFTA_REJECT_TYPE, kind);
        put_byte(out, NFTA_REJECT_ICMP_CODE, code);
    }

    fn decode(attrs: Attrs<'_>) -> Result<Option<Self>, DecodeError> {
        let (mut kind, mut code) = (None, 0);
        for attr in attrs {
            let attr = attr?;
            match attr.kind {
                NFTA_REJECT_TYPE => kind = Some(attr.be32()?),
                NFTA_REJECT_ICMP_CODE => code = attr.u8()?,
                _ => return Ok(None),
            }
        }
        let kind = match kind {
            Some(NFT_REJECT_ICMP_UNREACH) => RejectType::Icmp(code),
            Some(NFT_REJECT_TCP_RST) => RejectType::TcpReset,
            Some(NFT_REJECT_ICMPX_UNREACH) => RejectType::Icmpx(code),
            _ => return Ok(None),
        };
        Ok(Some(Self { kind }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::tests::assert_identity;

    #[test]
    fn every_reply_round_trips() {
        for kind in [
            RejectType::Icmp(3),
            RejectType::TcpReset,
            RejectType::Icmpx(1),
        ] {
            assert_identity(Reject { kind });
        }
    }
}
