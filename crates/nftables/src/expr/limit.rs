//! `limit`: rate limits.

use std::fmt;

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attrs, put_be32, put_be64};

use super::ExprType;

// enum nft_limit_attributes
const NFTA_LIMIT_RATE: u16 = 1;
const NFTA_LIMIT_UNIT: u16 = 2;
const NFTA_LIMIT_BURST: u16 = 3;
const NFTA_LIMIT_TYPE: u16 = 4;
const NFTA_LIMIT_FLAGS: u16 = 5;
const NFTA_LIMIT_PAD: u16 = 6;
// enum nft_limit_type
const NFT_LIMIT_PKTS: u32 = 0;
const NFT_LIMIT_PKT_BYTES: u32 = 1;
// enum nft_limit_flags
const NFT_LIMIT_F_INV: u32 = 1;
/// nft's default burst, in packets.
const DEFAULT_BURST: u32 = 5;

/// The `limit` expression: limits a rate. Breaks the rule beyond the rate, or below with `over`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Limit {
    /// Packets or bytes per unit of time.
    pub rate: u64,
    /// Unit of time in seconds.
    pub unit: u64,
    /// Burst, in packets or bytes.
    pub burst: u32,
    /// Unit of rate and burst.
    pub kind: LimitType,
    /// Matches only beyond the rate: `limit rate over`.
    pub over: bool,
}

/// The unit of a limit: `enum nft_limit_type`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum LimitType {
    /// Packets.
    Packets,
    /// Bytes.
    Bytes,
}

impl Limit {
    /// Creates a limit in packets per second, with a burst of 5.
    pub fn per_second(rate: u64) -> Self {
        Self {
            rate,
            unit: 1,
            burst: DEFAULT_BURST,
            kind: LimitType::Packets,
            over: false,
        }
    }

    /// Creates a limit in packets per minute, with a burst of 5.
    pub fn per_minute(rate: u64) -> Self {
        Self {
            unit: 60,
            ..Self::per_second(rate)
        }
    }

    /// Sets the burst.
    #[must_use]
    pub fn with_burst(self, burst: u32) -> Self {
        Self { burst, ..self }
    }

    /// Matches only beyond the rate.
    #[must_use]
    pub fn over(self) -> Self {
        Self { over: true, ..self }
    }
}

impl ExprType for Limit {
    const NAME: &'static str = "limit";

    fn encode(&self, out: &mut Vec<u8>) {
        put_be64(out, NFTA_LIMIT_RATE, self.rate);
        put_be64(out, NFTA_LIMIT_UNIT, self.unit);
        put_be32(out, NFTA_LIMIT_BURST, self.burst);
        let kind = match self.kind {
            LimitType::Packets => NFT_LIMIT_PKTS,
            LimitType::Bytes => NFT_LIMIT_PKT_BYTES,
        };
        put_be32(out, NFTA_LIMIT_TYPE, kind);
        put_be32(
            out,
            NFTA_LIMIT_FLAGS,
            if self.over { NFT_LIMIT_F_INV } else { 0 },
        );
    }

    fn decode(attrs: Attrs<'_>) -> Result<Option<Self>, DecodeError> {
        let (mut rate, mut unit, mut burst) = (None, None, 0);
        let (mut kind, mut flags) = (NFT_LIMIT_PKTS, 0);
        for attr in attrs {
            let attr = attr?;
            match attr.kind {
                NFTA_LIMIT_RATE => rate = Some(attr.be64()?),
                NFTA_LIMIT_UNIT => unit = Some(attr.be64()?),
                NFTA_LIMIT_BURST => burst = attr.be32()?,
                NFTA_LIMIT_TYPE => kind = attr.be32()?,
                NFTA_LIMIT_FLAGS => flags = attr.be32()?,
                NFTA_LIMIT_PAD => {}
                _ => return Ok(None),
            }
        }
        let kind = match kind {
            NFT_LIMIT_PKTS => LimitType::Packets,
            NFT_LIMIT_PKT_BYTES => LimitType::Bytes,
            _ => return Ok(None),
        };
        let (Some(rate), Some(unit), 0..=NFT_LIMIT_F_INV) = (rate, unit, flags) else {
            return Ok(None);
        };
        let over = flags == NFT_LIMIT_F_INV;
        Ok(Some(Self {
            rate,
            unit,
            burst,
            kind,
            over,
        }))
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let over = if self.over { "over " } else { "" };
        let unit = match self.unit {
            1 => "second",
            60 => "minute",
            3_600 => "hour",
            86_400 => "day",
            _ => "week",
        };
        let (of, burst) = match self.kind {
            LimitType::Packets => ("", "packets"),
            LimitType::Bytes => (" bytes", "bytes"),
        };
        write!(f, "limit rate {over}{}{of}/{unit}", self.rate)?;
        if self.burst != 0 {
            write!(f, " burst {} {burst}", self.burst)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::tests::assert_identity;

    #[test]
    fn limits_round_trip() {
        assert_identity(Limit::per_second(10));
        let kind = LimitType::Bytes;
        assert_identity(Limit {
            kind,
            ..Limit::per_minute(5).with_burst(7).over()
        });
    }

    #[test]
    fn a_limit_displays_in_nft_syntax() {
        let limit = Limit::per_minute(5).over();
        assert_eq!(
            limit.to_string(),
            "limit rate over 5/minute burst 5 packets"
        );
    }
}
