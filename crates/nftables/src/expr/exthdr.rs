//! `exthdr`: IPv6 extension headers, TCP options, IPv4 options and SCTP chunks.

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attrs, put_be32};

use super::{ExprType, Register, put_byte};

// enum nft_exthdr_attributes
const NFTA_EXTHDR_DREG: u16 = 1;
const NFTA_EXTHDR_TYPE: u16 = 2;
const NFTA_EXTHDR_OFFSET: u16 = 3;
const NFTA_EXTHDR_LEN: u16 = 4;
const NFTA_EXTHDR_FLAGS: u16 = 5;
const NFTA_EXTHDR_OP: u16 = 6;
const NFTA_EXTHDR_SREG: u16 = 7;
// enum nft_exthdr_op
const NFT_EXTHDR_OP_IPV6: u32 = 0;
const NFT_EXTHDR_OP_TCPOPT: u32 = 1;
const NFT_EXTHDR_OP_IPV4: u32 = 2;
const NFT_EXTHDR_OP_SCTP: u32 = 3;
// enum nft_exthdr_flags
const NFT_EXTHDR_F_PRESENT: u32 = 1;

/// The `exthdr` expression: loads, writes or removes an optional header.
///
/// A load of bytes breaks the rule if the packet does not have the header.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Exthdr {
    /// Protocol of the optional header.
    pub op: ExthdrOp,
    /// Type of the header: protocol number, option kind or chunk type.
    pub kind: u8,
    /// Load, store or removal.
    pub access: ExthdrAccess,
}

/// A protocol with optional headers: `enum nft_exthdr_op`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum ExthdrOp {
    /// IPv6 extension headers.
    Ipv6,
    /// TCP options.
    TcpOption,
    /// IPv4 options.
    Ipv4,
    /// SCTP chunks.
    Sctp,
    /// Another protocol, by number.
    Other(u32),
}

impl ExthdrOp {
    /// Returns the kernel's number of the protocol.
    pub const fn number(self) -> u32 {
        match self {
            Self::Ipv6 => NFT_EXTHDR_OP_IPV6,
            Self::TcpOption => NFT_EXTHDR_OP_TCPOPT,
            Self::Ipv4 => NFT_EXTHDR_OP_IPV4,
            Self::Sctp => NFT_EXTHDR_OP_SCTP,
            Self::Other(number) => number,
        }
    }

    /// Returns the protocol with this number.
    pub const fn from_number(number: u32) -> Self {
        match number {
            NFT_EXTHDR_OP_IPV6 => Self::Ipv6,
            NFT_EXTHDR_OP_TCPOPT => Self::TcpOption,
            NFT_EXTHDR_OP_IPV4 => Self::Ipv4,
            NFT_EXTHDR_OP_SCTP => Self::Sctp,
            number => Self::Other(number),
        }
    }
}

/// Use of an optional header.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum ExthdrAccess {
    /// Loads bytes of the header.
    Load {
        /// Destination register.
        destination: Register,
        /// Offset in bytes.
        offset: u32,
        /// Length in bytes.
        len: u32,
        /// Loads only whether the header is present, as one byte.
        present: bool,
    },
    /// Writes bytes of the header: `tcp option maxseg size set`.
    Store {
        /// Source register.
        source: Register,
        /// Offset in bytes.
        offset: u32,
        /// Length in bytes.
        len: u32,
    },
    /// Overwrites a TCP option with padding: `reset tcp option`.
    Reset,
}

impl ExprType for Exthdr {
    const NAME: &'static str = "exthdr";

    /// The kernel rejects flags in a store, and all other attributes in a reset.
    fn encode(&self, out: &mut Vec<u8>) {
        let (register, location, flags) = match self.access {
            ExthdrAccess::Load {
                destination,
                offset,
                len,
                present,
            } => (
                Some((NFTA_EXTHDR_DREG, destination)),
                Some((offset, len)),
                Some(if present { NFT_EXTHDR_F_PRESENT } else { 0 }),
            ),
            ExthdrAccess::Store {
                source,
                offset,
                len,
            } => (Some((NFTA_EXTHDR_SREG, source)), Some((offset, len)), None),
            ExthdrAccess::Reset => (None, None, None),
        };
        if let Some((kind, register)) = register {
            put_be32(out, kind, register.number());
        }
        put_byte(out, NFTA_EXTHDR_TYPE, self.kind);
        if let Some((offset, len)) = location {
            put_be32(out, NFTA_EXTHDR_OFFSET, offset);
            put_be32(out, NFTA_EXTHDR_LEN, len);
        }
        put_be32(out, NFTA_EXTHDR_OP, self.op.number());
        if let Some(flags) = flags {
            put_be32(out, NFTA_EXTHDR_FLAGS, flags);
        }
    }

    fn decode(attrs: Attrs<'_>) -> Result<Option<Self>, DecodeError> {
        let (mut destination, mut source, mut kind) = (None, None, None);
        let (mut offset, mut len, mut flags, mut op) = (0, 0, 0, NFT_EXTHDR_OP_IPV6);
        for attr in attrs {
            let attr = attr?;
            match attr.kind {
                NFTA_EXTHDR_DREG => destination = Some(Register::from_number(attr.be32()?)),
                NFTA_EXTHDR_SREG => source = Some(Register::from_number(attr.be32()?)),
                NFTA_EXTHDR_TYPE => kind = Some(attr.u8()?),
                NFTA_EXTHDR_OFFSET => offset = attr.be32()?,
                NFTA_EXTHDR_LEN => len = attr.be32()?,
                NFTA_EXTHDR_FLAGS => flags = attr.be32()?,
                NFTA_EXTHDR_OP => op = attr.be32()?,
                _ => return Ok(None),
            }
        }
        let access = match (destination, source, flags) {
            (Some(destination), None, 0..=NFT_EXTHDR_F_PRESENT) => ExthdrAccess::Load {
                destination,
                offset,
                len,
                present: flags == NFT_EXTHDR_F_PRESENT,
            },
            (None, Some(source), 0) => ExthdrAccess::Store {
                source,
                offset,
                len,
            },
            (None, None, 0) if (offset, len) == (0, 0) => ExthdrAccess::Reset,
            _ => return Ok(None),
        };
        Ok(kind.map(|kind| Self {
            op: ExthdrOp::from_number(op),
            kind,
            access,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::Expr;
    use crate::expr::tests::assert_identity;

    #[test]
    fn loads_stores_and_resets_round_trip() {
        let op = ExthdrOp::TcpOption;
        for access in [
            ExthdrAccess::Load {
                destination: Register::word(0),
                offset: 2,
                len: 2,
                present: false,
            },
            ExthdrAccess::Load {
                destination: Register::word(1),
                offset: 0,
                len: 1,
                present: true,
            },
            ExthdrAccess::Store {
                source: Register::word(0),
                offset: 2,
                len: 2,
            },
            ExthdrAccess::Reset,
        ] {
            assert_identity(Exthdr {
                op,
                kind: 2,
                access,
            });
        }
        for number in 0..6 {
            assert_eq!(ExthdrOp::from_number(number).number(), number);
        }
    }

    #[test]
    fn the_kernel_writes_flags_of_a_store_that_it_rejects() {
        let store = Exthdr {
            op: ExthdrOp::TcpOption,
            kind: 2,
            access: ExthdrAccess::Store {
                source: Register::word(0),
                offset: 2,
                len: 2,
            },
        };
        let mut plain = Vec::new();
        store.encode(&mut plain);
        let mut dumped = plain.clone();
        put_be32(&mut dumped, NFTA_EXTHDR_FLAGS, 0);
        let decoded = Exthdr::decode(Attrs::new(&dumped)).unwrap().unwrap();
        let mut again = Vec::new();
        decoded.encode(&mut again);
        assert_eq!((decoded, again), (store, plain));
    }

    #[test]
    fn unknown_flags_keep_the_raw_attributes() {
        let mut data = Vec::new();
        put_byte(&mut data, NFTA_EXTHDR_TYPE, 2);
        put_be32(&mut data, NFTA_EXTHDR_FLAGS, 8);
        assert_eq!(Exthdr::decode(Attrs::new(&data)), Ok(None));
        assert!(Expr::NAMES.contains(&"exthdr"));
    }
}
