//! `socket`: the local socket of the packet.

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attrs, put_be32};

use super::{ExprType, Register};
use crate::Datatype;

// enum nft_socket_attributes
const NFTA_SOCKET_KEY: u16 = 1;
const NFTA_SOCKET_DREG: u16 = 2;
const NFTA_SOCKET_LEVEL: u16 = 3;
// enum nft_socket_keys
pub(crate) const NFT_SOCKET_TRANSPARENT: u32 = 0;
pub(crate) const NFT_SOCKET_MARK: u32 = 1;
pub(crate) const NFT_SOCKET_WILDCARD: u32 = 2;
const NFT_SOCKET_CGROUPV2: u32 = 3;

/// The `socket` expression: loads a property of the local socket.
///
/// Breaks the rule if there is no socket.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Socket {
    /// Key.
    pub key: SocketKey,
    /// Destination register.
    pub destination: Register,
}

/// A property of a socket: `enum nft_socket_keys`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum SocketKey {
    /// Whether the socket has the option `IP_TRANSPARENT`: 0 or 1.
    Transparent,
    /// The mark of the socket.
    Mark,
    /// Whether the socket is bound to any address: 0 or 1.
    Wildcard,
    /// The ID of the control group (version 2) at this level, from 1 to 255.
    ///
    /// Text contains the ID as a number: `socket cgroupv2 level 2 1234`. `nft` reads only
    /// paths of control groups, so `nft -f` does not load this text.
    Cgroupv2(u32),
    /// Another key, by number.
    Other(u32),
}

impl SocketKey {
    /// Returns the kernel's number of the key.
    pub const fn number(self) -> u32 {
        match self {
            Self::Transparent => NFT_SOCKET_TRANSPARENT,
            Self::Mark => NFT_SOCKET_MARK,
            Self::Wildcard => NFT_SOCKET_WILDCARD,
            Self::Cgroupv2(_) => NFT_SOCKET_CGROUPV2,
            Self::Other(number) => number,
        }
    }

    /// Returns data type and size in bytes of the value.
    pub const fn datatype(self) -> (Datatype, u16) {
        match self {
            Self::Transparent | Self::Wildcard => (Datatype::Integer, 1),
            Self::Mark => (Datatype::Mark, 4),
            Self::Cgroupv2(_) => (Datatype::Cgroupv2, 8),
            Self::Other(_) => (Datatype::Integer, 4),
        }
    }
}

impl ExprType for Socket {
    const NAME: &'static str = "socket";

    fn encode(&self, out: &mut Vec<u8>) {
        put_be32(out, NFTA_SOCKET_KEY, self.key.number());
        put_be32(out, NFTA_SOCKET_DREG, self.destination.number());
        if let SocketKey::Cgroupv2(level) = self.key {
            put_be32(out, NFTA_SOCKET_LEVEL, level);
        }
    }

    fn decode(attrs: Attrs<'_>) -> Result<Option<Self>, DecodeError> {
        let (mut key, mut destination, mut level) = (None, None, None);
        for attr in attrs {
            let attr = attr?;
            match attr.kind {
                NFTA_SOCKET_KEY => key = Some(attr.be32()?),
                NFTA_SOCKET_DREG => destination = Some(Register::from_number(attr.be32()?)),
                NFTA_SOCKET_LEVEL => level = Some(attr.be32()?),
                _ => return Ok(None),
            }
        }
        // nft writes a level of zero with all keys.
        let key = match (key, level.filter(|level| *level != 0)) {
            (Some(NFT_SOCKET_TRANSPARENT), None) => SocketKey::Transparent,
            (Some(NFT_SOCKET_MARK), None) => SocketKey::Mark,
            (Some(NFT_SOCKET_WILDCARD), None) => SocketKey::Wildcard,
            (Some(NFT_SOCKET_CGROUPV2), Some(level)) => SocketKey::Cgroupv2(level),
            // The kernel requires a level for this key.
            (Some(NFT_SOCKET_CGROUPV2), None) => return Ok(None),
            (Some(number), None) => SocketKey::Other(number),
            _ => return Ok(None),
        };
        Ok(destination.map(|destination| Self { key, destination }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::tests::assert_identity;

    #[test]
    fn every_key_round_trips() {
        for key in [
            SocketKey::Transparent,
            SocketKey::Mark,
            SocketKey::Wildcard,
            SocketKey::Cgroupv2(2),
            SocketKey::Other(9),
        ] {
            assert_identity(Socket {
                key,
                destination: Register::word(0),
            });
        }
    }
}
