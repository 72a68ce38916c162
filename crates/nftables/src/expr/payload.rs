//! `payload`: bytes of the packet.

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attrs, put_be32};

use super::{ExprType, List, Register};
use crate::text::Listing;

// enum nft_payload_attributes
const NFTA_PAYLOAD_DREG: u16 = 1;
const NFTA_PAYLOAD_BASE: u16 = 2;
const NFTA_PAYLOAD_OFFSET: u16 = 3;
const NFTA_PAYLOAD_LEN: u16 = 4;
const NFTA_PAYLOAD_SREG: u16 = 5;
const NFTA_PAYLOAD_CSUM_TYPE: u16 = 6;
const NFTA_PAYLOAD_CSUM_OFFSET: u16 = 7;
const NFTA_PAYLOAD_CSUM_FLAGS: u16 = 8;

/// Loads or writes bytes of the packet.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Payload {
    /// The header to count from.
    pub base: PayloadBase,
    /// The first byte.
    pub offset: u32,
    /// How many bytes.
    pub len: u32,
    /// Whether they are read or written.
    pub access: PayloadAccess,
}

/// The header an offset counts from: `enum nft_payload_bases`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum PayloadBase {
    /// The header of the link layer.
    Link,
    /// The header of the network layer.
    Network,
    /// The header of the transport layer.
    Transport,
    /// Another one, by its number.
    Other(u32),
}

impl PayloadBase {
    fn number(self) -> u32 {
        match self {
            Self::Link => 0,
            Self::Network => 1,
            Self::Transport => 2,
            Self::Other(number) => number,
        }
    }

    fn from_number(number: u32) -> Self {
        match number {
            0 => Self::Link,
            1 => Self::Network,
            2 => Self::Transport,
            number => Self::Other(number),
        }
    }
}

/// Whether bytes of the packet are read or written.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum PayloadAccess {
    /// Reads into this register.
    Load(Register),
    /// Writes from a register and corrects a checksum.
    Store {
        /// Where the bytes come from.
        source: Register,
        /// The kind of checksum: `enum nft_payload_csum_types`.
        checksum: u32,
        /// Where the checksum is, from the same header.
        checksum_offset: u32,
        /// `enum nft_payload_csum_flags`.
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

impl List for Payload {
    fn list(&self, listing: &mut Listing) {
        let expression = listing.payload(self.base, self.offset, self.len);
        match self.access {
            PayloadAccess::Load(register) => listing.load(register, expression),
            PayloadAccess::Store { source, .. } => listing.set(expression, source),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::tests::assert_identity;

    #[test]
    fn loads_and_stores_come_back() {
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
