//! `tproxy`: transparent proxying.

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attrs, put_be32};

use super::{ExprType, Register};
use crate::Family;

// enum nft_tproxy_attributes
const NFTA_TPROXY_FAMILY: u16 = 1;
const NFTA_TPROXY_REG_ADDR: u16 = 2;
const NFTA_TPROXY_REG_PORT: u16 = 3;
/// The family of the packet (`linux/netfilter.h`).
const NFPROTO_UNSPEC: u32 = 0;

/// The `tproxy` expression: assigns the packet to a local socket without translation.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Tproxy {
    /// Family; `None` for IPv4 and IPv6.
    pub family: Option<Family>,
    /// Register of the socket's address.
    pub addr: Option<Register>,
    /// Register of the socket's port.
    pub port: Option<Register>,
}

impl ExprType for Tproxy {
    const NAME: &'static str = "tproxy";

    fn encode(&self, out: &mut Vec<u8>) {
        let family = self
            .family
            .map_or(NFPROTO_UNSPEC, |family| family.number().into());
        put_be32(out, NFTA_TPROXY_FAMILY, family);
        if let Some(addr) = self.addr {
            put_be32(out, NFTA_TPROXY_REG_ADDR, addr.number());
        }
        if let Some(port) = self.port {
            put_be32(out, NFTA_TPROXY_REG_PORT, port.number());
        }
    }

    fn decode(attrs: Attrs<'_>) -> Result<Option<Self>, DecodeError> {
        let mut tproxy = Self {
            family: None,
            addr: None,
            port: None,
        };
        for attr in attrs {
            let attr = attr?;
            let number = attr.be32()?;
            match (attr.kind, number) {
                (NFTA_TPROXY_FAMILY, NFPROTO_UNSPEC) => tproxy.family = None,
                (NFTA_TPROXY_FAMILY, number) => {
                    let family = u8::try_from(number).ok().and_then(Family::from_number);
                    let Some(family) = family else {
                        return Ok(None);
                    };
                    tproxy.family = Some(family);
                }
                (NFTA_TPROXY_REG_ADDR, n) => tproxy.addr = Some(Register::from_number(n)),
                (NFTA_TPROXY_REG_PORT, n) => tproxy.port = Some(Register::from_number(n)),
                _ => return Ok(None),
            }
        }
        Ok(Some(tproxy))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::tests::assert_identity;

    #[test]
    fn proxies_round_trip() {
        let port = Some(Register::word(0));
        assert_identity(Tproxy {
            family: None,
            addr: None,
            port,
        });
        let addr = Some(Register::word(4));
        assert_identity(Tproxy {
            family: Some(Family::Ip),
            addr,
            port,
        });
    }
}
