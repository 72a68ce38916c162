//! `meta`: what the kernel knows about the packet.

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attrs, put_be32};

use super::{Access, ExprType, List, Register};
use crate::Datatype;
use crate::expression::Expression;
use crate::text::Listing;

// enum nft_meta_attributes
const NFTA_META_DREG: u16 = 1;
const NFTA_META_KEY: u16 = 2;
const NFTA_META_SREG: u16 = 3;

/// Loads or sets what the kernel knows about the packet.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Meta {
    /// What to load or set.
    pub key: MetaKey,
    /// Whether it is loaded or set.
    pub access: Access,
}

macro_rules! meta_keys {
    ($($(#[$doc:meta])* $variant:ident = $number:literal, $text:literal, $datatype:ident, $bytes:literal;)*) => {
        /// What the kernel knows about a packet: `enum nft_meta_keys`.
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        #[non_exhaustive]
        pub enum MetaKey {
            $($(#[$doc])* $variant,)*
            /// Another key, by its number.
            Other(u32),
        }

        impl MetaKey {
            /// Returns the kernel's number of the key.
            pub const fn number(self) -> u32 {
                match self { $(Self::$variant => $number,)* Self::Other(number) => number }
            }

            /// Returns the key with this number.
            pub const fn from_number(number: u32) -> Self {
                match number { $($number => Self::$variant,)* number => Self::Other(number) }
            }

            /// Returns the text of the key; none for those we do not know.
            pub const fn as_str(self) -> Option<&'static str> {
                match self { $(Self::$variant => Some($text),)* Self::Other(_) => None }
            }

            /// Returns the type of the value and its size in bytes.
            pub const fn datatype(self) -> (Datatype, u16) {
                match self {
                    $(Self::$variant => (Datatype::$datatype, $bytes),)*
                    Self::Other(_) => (Datatype::Integer, 4),
                }
            }
        }
    };
}

meta_keys! {
    /// The length of the packet.
    Length = 0, "meta length", Integer, 4;
    /// The protocol of the network layer, as an Ethernet type.
    Protocol = 1, "meta protocol", EtherType, 2;
    /// The priority.
    Priority = 2, "meta priority", Integer, 4;
    /// The packet mark.
    Mark = 3, "meta mark", Mark, 4;
    /// The index of the device it came in by.
    Iif = 4, "iif", IfaceIndex, 4;
    /// The index of the device it goes out by.
    Oif = 5, "oif", IfaceIndex, 4;
    /// The name of the device it came in by.
    Iifname = 6, "iifname", Ifname, 16;
    /// The name of the device it goes out by.
    Oifname = 7, "oifname", Ifname, 16;
    /// The type of the device it came in by.
    Iiftype = 8, "iiftype", IfaceType, 2;
    /// The type of the device it goes out by.
    Oiftype = 9, "oiftype", IfaceType, 2;
    /// The user whose socket sent it.
    Skuid = 10, "meta skuid", Uid, 4;
    /// The group whose socket sent it.
    Skgid = 11, "meta skgid", Gid, 4;
    /// Whether the packet is traced.
    Nftrace = 12, "meta nftrace", Integer, 1;
    /// The family of the packet.
    NfProto = 15, "meta nfproto", NfProto, 1;
    /// The protocol of the transport layer.
    L4Proto = 16, "meta l4proto", InetProto, 1;
    /// Whom the frame is for.
    PacketType = 19, "meta pkttype", PacketType, 1;
    /// The processor that handles the packet.
    Cpu = 20, "meta cpu", Integer, 4;
    /// A random number.
    Random = 24, "meta random", Integer, 4;
}

impl ExprType for Meta {
    const NAME: &'static str = "meta";

    fn encode(&self, out: &mut Vec<u8>) {
        put_be32(out, NFTA_META_KEY, self.key.number());
        match self.access {
            Access::Load(register) => put_be32(out, NFTA_META_DREG, register.number()),
            Access::Store(register) => put_be32(out, NFTA_META_SREG, register.number()),
        }
    }

    fn decode(attrs: Attrs<'_>) -> Result<Option<Self>, DecodeError> {
        let (mut key, mut access) = (None, None);
        for attr in attrs {
            let attr = attr?;
            let register = || attr.be32().map(Register::from_number);
            match attr.kind {
                NFTA_META_KEY => key = Some(MetaKey::from_number(attr.be32()?)),
                NFTA_META_DREG => access = Some(Access::Load(register()?)),
                NFTA_META_SREG => access = Some(Access::Store(register()?)),
                _ => return Ok(None),
            }
        }
        let (Some(key), Some(access)) = (key, access) else {
            return Ok(None);
        };
        Ok(Some(Self { key, access }))
    }
}

impl List for Meta {
    fn list(&self, listing: &mut Listing) {
        let expression = Expression::from(self.key);
        match self.access {
            Access::Load(register) => listing.load(register, expression),
            Access::Store(register) => listing.set(expression, register),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::tests::assert_identity;

    #[test]
    fn loads_and_stores_come_back() {
        let access = Access::Load(Register::word(0));
        assert_identity(Meta {
            key: MetaKey::L4Proto,
            access,
        });
        let access = Access::Store(Register::word(1));
        assert_identity(Meta {
            key: MetaKey::Other(29),
            access,
        });
    }
}
