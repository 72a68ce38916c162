//! `quota`: byte quotas.

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attrs, put_be32, put_be64};

use super::ExprType;

// enum nft_quota_attributes
const NFTA_QUOTA_BYTES: u16 = 1;
const NFTA_QUOTA_FLAGS: u16 = 2;
const NFTA_QUOTA_PAD: u16 = 3;
const NFTA_QUOTA_CONSUMED: u16 = 4;
// enum nft_quota_flags
const NFT_QUOTA_F_INV: u32 = 1;
const NFT_QUOTA_F_DEPLETED: u32 = 2;

/// The `quota` expression: matches until the quota is used up, or only afterwards with `over`.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct Quota {
    /// Quota in bytes.
    pub bytes: u64,
    /// Bytes already consumed.
    pub consumed: u64,
    /// Matches only beyond the quota: `quota over`.
    pub over: bool,
}

impl ExprType for Quota {
    const NAME: &'static str = "quota";

    fn encode(&self, out: &mut Vec<u8>) {
        put_be64(out, NFTA_QUOTA_BYTES, self.bytes);
        put_be64(out, NFTA_QUOTA_CONSUMED, self.consumed);
        put_be32(out, NFTA_QUOTA_FLAGS, u32::from(self.over));
    }

    fn decode(attrs: Attrs<'_>) -> Result<Option<Self>, DecodeError> {
        let (mut bytes, mut consumed, mut flags) = (None, 0, 0);
        for attr in attrs {
            let attr = attr?;
            match attr.kind {
                NFTA_QUOTA_BYTES => bytes = Some(attr.be64()?),
                NFTA_QUOTA_CONSUMED => consumed = attr.be64()?,
                NFTA_QUOTA_FLAGS => flags = attr.be32()? & !NFT_QUOTA_F_DEPLETED,
                NFTA_QUOTA_PAD => {}
                _ => return Ok(None),
            }
        }
        let (Some(bytes), 0..=NFT_QUOTA_F_INV) = (bytes, flags) else {
            return Ok(None);
        };
        Ok(Some(Self {
            bytes,
            consumed,
            over: flags == NFT_QUOTA_F_INV,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::tests::assert_identity;

    #[test]
    fn quotas_round_trip() {
        for over in [false, true] {
            assert_identity(Quota {
                bytes: 5 << 20,
                consumed: 7,
                over,
            });
        }
    }
}
