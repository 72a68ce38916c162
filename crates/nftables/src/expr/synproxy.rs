//! `synproxy`: a proxy for TCP handshakes.

use bitflags::bitflags;
use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attrs, put_be16, put_be32};

use super::{ExprType, put_byte};

// enum nft_synproxy_attributes
pub(crate) const NFTA_SYNPROXY_MSS: u16 = 1;
pub(crate) const NFTA_SYNPROXY_WSCALE: u16 = 2;
pub(crate) const NFTA_SYNPROXY_FLAGS: u16 = 3;
// linux/netfilter/nf_synproxy.h
pub(crate) const NF_SYNPROXY_OPT_MSS: u32 = 0x01;
pub(crate) const NF_SYNPROXY_OPT_WSCALE: u32 = 0x02;
pub(crate) const NF_SYNPROXY_OPT_SACK_PERM: u32 = 0x04;
pub(crate) const NF_SYNPROXY_OPT_TIMESTAMP: u32 = 0x08;
const NF_SYNPROXY_OPT_ECN: u32 = 0x10;

/// The `synproxy` expression: completes the TCP handshake for the server.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Synproxy {
    /// Maximum segment size; used with [`SynproxyFlags::MSS`].
    pub mss: u16,
    /// Window scale; used with [`SynproxyFlags::WSCALE`].
    pub wscale: u8,
    /// TCP options to announce.
    pub flags: SynproxyFlags,
}

bitflags! {
    /// TCP options that the server supports: `NF_SYNPROXY_OPT_*` of
    /// `linux/netfilter/nf_synproxy.h`.
    #[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
    pub struct SynproxyFlags: u32 {
        /// Maximum segment size: `mss`.
        const MSS = NF_SYNPROXY_OPT_MSS;
        /// Window scale: `wscale`.
        const WSCALE = NF_SYNPROXY_OPT_WSCALE;
        /// Selective acknowledgments: `sack-perm`.
        const SACK_PERM = NF_SYNPROXY_OPT_SACK_PERM;
        /// Timestamps: `timestamp`.
        const TIMESTAMP = NF_SYNPROXY_OPT_TIMESTAMP;
        /// Explicit congestion notification.
        const ECN = NF_SYNPROXY_OPT_ECN;
        /// Unknown flags are preserved.
        const _ = !0;
    }
}

impl ExprType for Synproxy {
    const NAME: &'static str = "synproxy";

    fn encode(&self, out: &mut Vec<u8>) {
        put_be16(out, NFTA_SYNPROXY_MSS, self.mss);
        put_byte(out, NFTA_SYNPROXY_WSCALE, self.wscale);
        put_be32(out, NFTA_SYNPROXY_FLAGS, self.flags.bits());
    }

    fn decode(attrs: Attrs<'_>) -> Result<Option<Self>, DecodeError> {
        let mut synproxy = Self::default();
        for attr in attrs {
            let attr = attr?;
            match attr.kind {
                NFTA_SYNPROXY_MSS => synproxy.mss = attr.be16()?,
                NFTA_SYNPROXY_WSCALE => synproxy.wscale = attr.u8()?,
                NFTA_SYNPROXY_FLAGS => {
                    synproxy.flags = SynproxyFlags::from_bits_retain(attr.be32()?);
                }
                _ => return Ok(None),
            }
        }
        Ok(Some(synproxy))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::tests::assert_identity;

    #[test]
    fn proxies_round_trip() {
        assert_identity(Synproxy::default());
        assert_identity(Synproxy {
            mss: 1460,
            wscale: 7,
            flags: SynproxyFlags::MSS | SynproxyFlags::WSCALE | SynproxyFlags::TIMESTAMP,
        });
    }
}
