//! `osf`: passive fingerprints of operating systems.

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attrs, put_be32};

use super::{ExprType, Register, put_byte};

// enum nft_osf_attributes
const NFTA_OSF_DREG: u16 = 1;
const NFTA_OSF_TTL: u16 = 2;
const NFTA_OSF_FLAGS: u16 = 3;
// enum nft_osf_flags
const NFT_OSF_F_VERSION: u32 = 1;
// linux/netfilter/nfnetlink_osf.h
const NF_OSF_TTL_TRUE: u8 = 0;
const NF_OSF_TTL_LESS: u8 = 1;
const NF_OSF_TTL_NOCHECK: u8 = 2;

/// The `osf` expression: loads the operating system of the sender of a TCP SYN.
///
/// The kernel compares with fingerprints that `nfnl_osf` loaded.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Osf {
    /// Check of the TTL.
    pub ttl: OsfTtl,
    /// Whether the name includes the version: `Linux:3.11`.
    pub version: bool,
    /// Destination register: 16 bytes.
    pub destination: Register,
}

/// Check of the TTL of a fingerprint: `NF_OSF_TTL_*` of `linux/netfilter/nfnetlink_osf.h`.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum OsfTtl {
    /// The TTL must be that of the fingerprint on a local network.
    #[default]
    True,
    /// The TTL must be at most that of the fingerprint: `ttl loose`.
    Less,
    /// The TTL is not checked: `ttl skip`.
    NoCheck,
}

impl ExprType for Osf {
    const NAME: &'static str = "osf";

    /// The kernel rejects flags that are zero, although its dumps contain them.
    fn encode(&self, out: &mut Vec<u8>) {
        put_be32(out, NFTA_OSF_DREG, self.destination.number());
        let ttl = match self.ttl {
            OsfTtl::True => NF_OSF_TTL_TRUE,
            OsfTtl::Less => NF_OSF_TTL_LESS,
            OsfTtl::NoCheck => NF_OSF_TTL_NOCHECK,
        };
        put_byte(out, NFTA_OSF_TTL, ttl);
        if self.version {
            put_be32(out, NFTA_OSF_FLAGS, NFT_OSF_F_VERSION);
        }
    }

    fn decode(attrs: Attrs<'_>) -> Result<Option<Self>, DecodeError> {
        let (mut destination, mut ttl, mut flags) = (None, OsfTtl::True, 0);
        for attr in attrs {
            let attr = attr?;
            match attr.kind {
                NFTA_OSF_DREG => destination = Some(Register::from_number(attr.be32()?)),
                NFTA_OSF_TTL => {
                    ttl = match attr.u8()? {
                        NF_OSF_TTL_TRUE => OsfTtl::True,
                        NF_OSF_TTL_LESS => OsfTtl::Less,
                        NF_OSF_TTL_NOCHECK => OsfTtl::NoCheck,
                        _ => return Ok(None),
                    };
                }
                NFTA_OSF_FLAGS => flags = attr.be32()?,
                _ => return Ok(None),
            }
        }
        let (Some(destination), 0..=NFT_OSF_F_VERSION) = (destination, flags) else {
            return Ok(None);
        };
        Ok(Some(Self {
            ttl,
            version: flags == NFT_OSF_F_VERSION,
            destination,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::tests::assert_identity;

    #[test]
    fn every_check_round_trips() {
        for ttl in [OsfTtl::True, OsfTtl::Less, OsfTtl::NoCheck] {
            for version in [false, true] {
                assert_identity(Osf {
                    ttl,
                    version,
                    destination: Register::word(0),
                });
            }
        }
    }

    #[test]
    fn the_kernel_writes_flags_that_it_rejects() {
        let osf = Osf {
            ttl: OsfTtl::Less,
            version: false,
            destination: Register::word(0),
        };
        let mut plain = Vec::new();
        osf.encode(&mut plain);
        let mut dumped = plain.clone();
        put_be32(&mut dumped, NFTA_OSF_FLAGS, 0);
        assert_eq!(Osf::decode(Attrs::new(&dumped)), Ok(Some(osf)));
    }
}
