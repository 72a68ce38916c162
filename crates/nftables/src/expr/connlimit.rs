//! `connlimit`: limits of connections.

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attrs, put_be32};

use super::ExprType;

// enum nft_connlimit_attributes
const NFTA_CONNLIMIT_COUNT: u16 = 1;
const NFTA_CONNLIMIT_FLAGS: u16 = 2;
// enum nft_connlimit_flags
const NFT_CONNLIMIT_F_INV: u32 = 1;

/// The `connlimit` expression: matches up to a number of connections: `ct count`.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Connlimit {
    /// Number of connections.
    pub count: u32,
    /// Matches only beyond the number: `ct count over`.
    pub over: bool,
}

impl ExprType for Connlimit {
    const NAME: &'static str = "connlimit";

    fn encode(&self, out: &mut Vec<u8>) {
        put_be32(out, NFTA_CONNLIMIT_COUNT, self.count);
        put_be32(out, NFTA_CONNLIMIT_FLAGS, u32::from(self.over));
    }

    fn decode(attrs: Attrs<'_>) -> Result<Option<Self>, DecodeError> {
        let (mut count, mut flags) = (None, 0);
        for attr in attrs {
            let attr = attr?;
            match attr.kind {
                NFTA_CONNLIMIT_COUNT => count = Some(attr.be32()?),
                NFTA_CONNLIMIT_FLAGS => flags = attr.be32()?,
                _ => return Ok(None),
            }
        }
        let (Some(count), 0..=NFT_CONNLIMIT_F_INV) = (count, flags) else {
            return Ok(None);
        };
        Ok(Some(Self {
            count,
            over: flags == NFT_CONNLIMIT_F_INV,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::tests::assert_identity;

    #[test]
    fn limits_round_trip() {
        for over in [false, true] {
            assert_identity(Connlimit { count: 20, over });
        }
    }
}
