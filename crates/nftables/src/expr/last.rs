//! `last`: the time since the last match.

use std::time::Duration;

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attrs, put_be32, put_be64};

use super::ExprType;

// enum nft_last_attributes
const NFTA_LAST_SET: u16 = 1;
const NFTA_LAST_MSECS: u16 = 2;
const NFTA_LAST_PAD: u16 = 3;

/// The `last` expression: records the time of the last match.
///
/// Linux 5.14; nft 1.0.7.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Last {
    /// Time since the last match, in milliseconds; `None` without a match.
    pub used: Option<Duration>,
}

impl ExprType for Last {
    const NAME: &'static str = "last";

    fn encode(&self, out: &mut Vec<u8>) {
        let milliseconds = self.used.map_or(0, |used| used.as_millis());
        put_be32(out, NFTA_LAST_SET, u32::from(self.used.is_some()));
        put_be64(
            out,
            NFTA_LAST_MSECS,
            u64::try_from(milliseconds).unwrap_or(u64::MAX),
        );
    }

    fn decode(attrs: Attrs<'_>) -> Result<Option<Self>, DecodeError> {
        let (mut set, mut milliseconds) = (0, 0);
        for attr in attrs {
            let attr = attr?;
            match attr.kind {
                NFTA_LAST_SET => set = attr.be32()?,
                NFTA_LAST_MSECS => milliseconds = attr.be64()?,
                NFTA_LAST_PAD => {}
                _ => return Ok(None),
            }
        }
        Ok(Some(Self {
            used: (set != 0).then(|| Duration::from_millis(milliseconds)),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::tests::assert_identity;

    #[test]
    fn times_round_trip() {
        for used in [None, Some(Duration::ZERO), Some(Duration::from_millis(7))] {
            assert_identity(Last { used });
        }
    }
}
