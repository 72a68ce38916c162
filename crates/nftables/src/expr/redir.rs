//! `redir`: redirects to the local host.

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attrs, put_be32};

use super::{ExprType, NatFlags, Register};

// enum nft_redir_attributes
const NFTA_REDIR_REG_PROTO_MIN: u16 = 1;
const NFTA_REDIR_REG_PROTO_MAX: u16 = 2;
const NFTA_REDIR_FLAGS: u16 = 3;

/// The `redir` expression: redirects packets to the local host.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Redir {
    /// Register of the first port.
    pub proto_min: Option<Register>,
    /// Register of the last port of a range.
    pub proto_max: Option<Register>,
    /// Port selection.
    pub flags: NatFlags,
}

impl ExprType for Redir {
    const NAME: &'static str = "redir";

    fn encode(&self, out: &mut Vec<u8>) {
        if let Some(register) = self.proto_min {
            put_be32(out, NFTA_REDIR_REG_PROTO_MIN, register.number());
        }
        if let Some(register) = self.proto_max {
            put_be32(out, NFTA_REDIR_REG_PROTO_MAX, register.number());
        }
        let flags = self.flags.bits_with_port(self.proto_min);
        if flags != 0 {
            put_be32(out, NFTA_REDIR_FLAGS, flags);
        }
    }

    fn decode(attrs: Attrs<'_>) -> Result<Option<Self>, DecodeError> {
        let mut redir = Self::default();
        for attr in attrs {
            let attr = attr?;
            let number = attr.be32()?;
            match attr.kind {
                NFTA_REDIR_REG_PROTO_MIN => redir.proto_min = Some(Register::from_number(number)),
                NFTA_REDIR_REG_PROTO_MAX => redir.proto_max = Some(Register::from_number(number)),
                NFTA_REDIR_FLAGS => redir.flags = NatFlags::decode(number),
                _ => return Ok(None),
            }
        }
        redir.proto_max = redir
            .proto_max
            .filter(|_| redir.proto_max != redir.proto_min);
        Ok(Some(redir))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::tests::assert_identity;

    #[test]
    fn redirects_round_trip() {
        assert_identity(Redir::default());
        assert_identity(Redir {
            proto_min: Some(Register::word(0)),
            proto_max: Some(Register::word(4)),
            flags: NatFlags::RANDOM,
        });
    }
}
