//! `masq`: masquerading.

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attrs, put_be32};

use super::{ExprType, NatFlags, Register};

// enum nft_masq_attributes
const NFTA_MASQ_FLAGS: u16 = 1;
const NFTA_MASQ_REG_PROTO_MIN: u16 = 2;
const NFTA_MASQ_REG_PROTO_MAX: u16 = 3;

/// The `masq` expression: changes the source to an address of the output interface.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Masq {
    /// Port selection.
    pub flags: NatFlags,
    /// Register of the first port.
    pub proto_min: Option<Register>,
    /// Register of the last port of a range.
    pub proto_max: Option<Register>,
}

impl ExprType for Masq {
    const NAME: &'static str = "masq";

    fn encode(&self, out: &mut Vec<u8>) {
        let flags = self.flags.bits_with_port(self.proto_min);
        if flags != 0 {
            put_be32(out, NFTA_MASQ_FLAGS, flags);
        }
        if let Some(register) = self.proto_min {
            put_be32(out, NFTA_MASQ_REG_PROTO_MIN, register.number());
        }
        if let Some(register) = self.proto_max {
            put_be32(out, NFTA_MASQ_REG_PROTO_MAX, register.number());
        }
    }

    fn decode(attrs: Attrs<'_>) -> Result<Option<Self>, DecodeError> {
        let mut masq = Self::default();
        for attr in attrs {
            let attr = attr?;
            let number = attr.be32()?;
            match attr.kind {
                NFTA_MASQ_FLAGS => masq.flags = NatFlags::decode(number),
                NFTA_MASQ_REG_PROTO_MIN => masq.proto_min = Some(Register::from_number(number)),
                NFTA_MASQ_REG_PROTO_MAX => masq.proto_max = Some(Register::from_number(number)),
                _ => return Ok(None),
            }
        }
        masq.proto_max = masq.proto_max.filter(|_| masq.proto_max != masq.proto_min);
        Ok(Some(masq))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::tests::assert_identity;

    #[test]
    fn masquerades_round_trip() {
        assert_identity(Masq::default());
        assert_identity(Masq {
            flags: NatFlags::FULLY_RANDOM,
            proto_min: Some(Register::word(0)),
            proto_max: Some(Register::word(4)),
        });
    }
}
