//! `dup` and `fwd`: copies of the packet, and another output interface.

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attrs, put_be32};

use super::{ExprType, Register};
use crate::Family;

// enum nft_dup_attributes
const NFTA_DUP_SREG_ADDR: u16 = 1;
const NFTA_DUP_SREG_DEV: u16 = 2;
// enum nft_fwd_attributes
const NFTA_FWD_SREG_DEV: u16 = 1;
const NFTA_FWD_SREG_ADDR: u16 = 2;
const NFTA_FWD_NFPROTO: u16 = 3;

/// The `dup` expression: sends a copy of the packet to another host or interface.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Dup {
    /// Register of the next hop's address. Absent in family `netdev`.
    pub addr: Option<Register>,
    /// Register of the interface index.
    pub device: Option<Register>,
}

impl ExprType for Dup {
    const NAME: &'static str = "dup";

    fn encode(&self, out: &mut Vec<u8>) {
        for (kind, register) in [
            (NFTA_DUP_SREG_ADDR, self.addr),
            (NFTA_DUP_SREG_DEV, self.device),
        ] {
            if let Some(register) = register {
                put_be32(out, kind, register.number());
            }
        }
    }

    fn decode(attrs: Attrs<'_>) -> Result<Option<Self>, DecodeError> {
        let mut dup = Self::default();
        for attr in attrs {
            let attr = attr?;
            let register = || attr.be32().map(Register::from_number);
            match attr.kind {
                NFTA_DUP_SREG_ADDR => dup.addr = Some(register()?),
                NFTA_DUP_SREG_DEV => dup.device = Some(register()?),
                _ => return Ok(None),
            }
        }
        Ok(Some(dup))
    }
}

/// The `fwd` expression: sends the packet through another interface. Family `netdev` only.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Fwd {
    /// Register of the interface index.
    pub device: Register,
    /// Family and register of the neighbor's address.
    pub addr: Option<(Family, Register)>,
}

impl ExprType for Fwd {
    const NAME: &'static str = "fwd";

    fn encode(&self, out: &mut Vec<u8>) {
        put_be32(out, NFTA_FWD_SREG_DEV, self.device.number());
        if let Some((family, addr)) = self.addr {
            put_be32(out, NFTA_FWD_SREG_ADDR, addr.number());
            put_be32(out, NFTA_FWD_NFPROTO, family.number().into());
        }
    }

    fn decode(attrs: Attrs<'_>) -> Result<Option<Self>, DecodeError> {
        let (mut device, mut addr, mut family) = (None, None, None);
        for attr in attrs {
            let attr = attr?;
            match attr.kind {
                NFTA_FWD_SREG_DEV => device = Some(Register::from_number(attr.be32()?)),
                NFTA_FWD_SREG_ADDR => addr = Some(Register::from_number(attr.be32()?)),
                NFTA_FWD_NFPROTO => {
                    let number = u8::try_from(attr.be32()?).ok();
                    let Some(known) = number.and_then(Family::from_number) else {
                        return Ok(None);
                    };
                    family = Some(known);
                }
                _ => return Ok(None),
            }
        }
        let addr = match (family, addr) {
            (Some(family), Some(addr)) => Some((family, addr)),
            (None, None) => None,
            _ => return Ok(None),
        };
        Ok(device.map(|device| Self { device, addr }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::tests::assert_identity;

    #[test]
    fn copies_round_trip() {
        let (addr, device) = (Some(Register::word(0)), Some(Register::word(4)));
        for addr in [None, addr] {
            for device in [None, device] {
                assert_identity(Dup { addr, device });
            }
        }
    }

    #[test]
    fn forwards_round_trip() {
        let device = Register::word(0);
        for addr in [None, Some((Family::Ip6, Register::word(4)))] {
            assert_identity(Fwd { device, addr });
        }
    }
}
