//! `payload`: packet payload.

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attrs, put_be32};

use super::{ExprType, Register};

// enum nft_payload_attributes
const NFTA_PAYLOAD_DREG: u16 = 1;
const NFTA_PAYLOAD_BASE: u16 = 2;
const NFTA_PAYLOAD_OFFSET: u16 = 3;
const NFTA_PAYLOAD_LEN: u16 = 4;
const NFTA_PAYLOAD_SREG: u16 = 5;
const NFTA_PAYLOAD_CSUM_TYPE: u16 = 6;
const NFTA_PAYLOAD_CSUM_OFFSET: u16 = 7;
const NFTA_PAYLOAD_CSUM_FLAGS: u16 = 8;
// enum nft_payload_bases
const NFT_PAYLOAD_LL_HEADER: u32 = 0;
const NFT_PAYLOAD_NETWORK_HEADER: u32 = 1;
const NFT_PAYLOAD_TRANSPORT_HEADER: u32 = 2;

/// The `payload` expression: loads or writes bytes of the packet.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Payload {
    /// Header that the offset refers to.
    pub base: PayloadBase,
    /// Offset in bytes.
    pub offset: u32,
    /// Length in bytes.
    pub len: u32,
    /// Load or store.
    pub access: PayloadAccess,
}

/// The header that an offset refers to: `enum nft_payload_bases`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum PayloadBase {
    /// The link-layer header.
    Link,
    /// The network header.
    Network,
    /// The transport header.
    Transport,
    /// Another header, by number.
    Other(u32),
}

impl PayloadBase {
    pub(crate) fn number(self) -> u32 {
        match self {
            Self::Link => NFT_PAYLOAD_LL_HEADER,
            Self::Network => NFT_PAYLOAD_NETWORK_HEADER,
            Self::Transport => NFT_PAYLOAD_TRANSPORT_HEADER,
            Self::Other(number) => number,
        }
    }

    pub(crate) fn from_number(number: u32) -> Self {
        match number {
            NFT_PAYLOAD_LL_HEADER => Self::Link,
            NFT_PAYLOAD_NETWORK_HEADER => Self::Network,
            NFT_PAYLOAD_TRANSPORT_HEADER => Self::Transport,
            number => Self::Other(number),
        }
    }
}

/// Load from or store to the packet.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum PayloadAccess {
    /// Loads into this register.
    Load(Register),
    /// Stores a register and updates a checksum.
    Store {
        /// Source register.
        source: Register,
        /// Checksum type: `enum nft_payload_csum_types`.
        checksum: u32,
        /// Offset of the checksum in the same header.
        checksum_offset: u32,
        /// Checksum flags: `enum nft_payload_csum_flags`.
        checksum_flags: u32,
    },
}

impl ExprType for Payload {
    const NAME: &'static str = "payload";

    fn encode(&self, out: &mut Vec<u8>) {
        if let PayloadAccess::Load(register) = self.access {
            put_be32(out, NFTA_PAYLOAD_DREG, register.number());
        }
        if let PayloadAccess::Store { source, .. } = self.access {
            put_be32(out, NFTA_PAYLOAD_SREG, source.number());
        }
        put_be32(out, NFTA_PAYLOAD_BASE, self.base.number());
        put_be32(out, NFTA_PAYLOAD_OFFSET, self.offset);
        put_be32(out, NFTA_PAYLOAD_LEN, self.len);
        if let PayloadAccess::Store {
            checksum,
            checksum_offset,
            checksum_flags,
            ..
        } = self.access
        {
            put_be32(out, NFTA_PAYLOAD_CSUM_TYPE, checksum);
            put_be32(out, NFTA_PAYLOAD_CSUM_OFFSET, checksum_offset);
            put_be32(out, NFTA_PAYLOAD_CSUM_FLAGS, checksum_flags);
        }
    }

    fn decode(attrs: Attrs<'_>) -> Result<Option<Self>, DecodeError> {
        let (mut load, mut source, mut base, mut offset, mut len) = (None, None, None, None, None);
        let (mut checksum, mut checksum_offset, mut checksum_flags) = (0, 0, 0);
        for attr in attrs {
            let attr = attr?;
            match attr.kind {
                NFTA_PAYLOAD_DREG => load = Some(Register::from_number(attr.be32()?)),
                NFTA_PAYLOAD_SREG => source = Some(Register::from_number(attr.be32()?)),
                NFTA_PAYLOAD_BASE => base = Some(PayloadBase::from_number(attr.be32()?)),
                NFTA_PAYLOAD_OFFSET => offset = Some(attr.be32()?),
                NFTA_PAYLOAD_LEN => len = Some(attr.be32()?),
                NFTA_PAYLOAD_CSUM_TYPE => checksum = attr.be32()?,
                NFTA_PAYLOAD_CSUM_OFFSET => checksum_offset = attr.be32()?,
                NFTA_PAYLOAD_CSUM_FLAGS => checksum_flags = attr.be32()?,
                _ => return Ok(None),
            }
        }
        let access = match (load, source) {
            (Some(register), None) => PayloadAccess::Load(register),
            (None, Some(source)) => PayloadAccess::Store {
                source,
                checksum,
                checksum_offset,
                checksum_flags,
            },
            _ => return Ok(None),
        };
        let (Some(base), Some(offset), Some(len)) = (base, offset, len) else {
            return Ok(None);
        };
        Ok(Some(Self {
            base,
            offset,
            len,
            access,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::tests::assert_identity;

    #[test]
    fn loads_and_stores_round_trip() {
        let base = PayloadBase::Network;
        assert_identity(Payload {
            base,
            offset: 16,
            len: 4,
            access: PayloadAccess::Load(Register::word(0)),
        });
        assert_identity(Payload {
            base: PayloadBase::Other(9),
            offset: 8,
            len: 1,
            access: PayloadAccess::Store {
                source: Register::word(1),
                checksum: 1,
                checksum_offset: 10,
                checksum_flags: 0,
            },
        });
    }
}
