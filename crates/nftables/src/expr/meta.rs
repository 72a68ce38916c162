//! `meta`: packet metadata.

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attrs, put_be32};

use super::{Access, ExprType, Register};
use crate::Datatype;

// enum nft_meta_attributes
const NFTA_META_DREG: u16 = 1;
const NFTA_META_KEY: u16 = 2;
const NFTA_META_SREG: u16 = 3;

/// The `meta` expression: loads or sets packet metadata.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Meta {
    /// Key.
    pub key: MetaKey,
    /// Load or store, with the register.
    pub access: Access,
}

macro_rules! meta_keys {
    ($($(#[$doc:meta])* $variant:ident: $kernel:ident = $number:literal, $text:literal, $datatype:ident, $bytes:literal;)*) => {
        $(const $kernel: u32 = $number;)*

        /// A packet metadata key: `enum nft_meta_keys`.
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        #[non_exhaustive]
        pub enum MetaKey {
            $($(#[$doc])* $variant,)*
            /// Another key, by number.
            Other(u32),
        }

        impl MetaKey {
            /// Returns the kernel's number of the key.
            pub const fn number(self) -> u32 {
                match self { $(Self::$variant => $kernel,)* Self::Other(number) => number }
            }

            /// Returns the key with this number.
            pub const fn from_number(number: u32) -> Self {
                match number { $($kernel => Self::$variant,)* number => Self::Other(number) }
            }

            /// Returns nft's text of the key, or `None` for [`Other`](Self::Other).
            pub const fn as_str(self) -> Option<&'static str> {
                match self { $(Self::$variant => Some($text),)* Self::Other(_) => None }
            }

            /// Returns data type and size in bytes of the value.
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
    Length: NFT_META_LEN = 0, "meta length", Integer, 4;
    /// The network protocol, as an Ethernet type.
    Protocol: NFT_META_PROTOCOL = 1, "meta protocol", EtherType, 2;
    /// The priority.
    Priority: NFT_META_PRIORITY = 2, "meta priority", Classid, 4;
    /// The packet mark.
    Mark: NFT_META_MARK = 3, "meta mark", Mark, 4;
    /// The index of the input interface.
    Iif: NFT_META_IIF = 4, "iif", IfaceIndex, 4;
    /// The index of the output interface.
    Oif: NFT_META_OIF = 5, "oif", IfaceIndex, 4;
    /// The name of the input interface.
    Iifname: NFT_META_IIFNAME = 6, "iifname", Ifname, 16;
    /// The name of the output interface.
    Oifname: NFT_META_OIFNAME = 7, "oifname", Ifname, 16;
    /// The hardware type of the input interface.
    Iiftype: NFT_META_IIFTYPE = 8, "iiftype", IfaceType, 2;
    /// The hardware type of the output interface.
    Oiftype: NFT_META_OIFTYPE = 9, "oiftype", IfaceType, 2;
    /// The user ID of the sending socket.
    Skuid: NFT_META_SKUID = 10, "meta skuid", Uid, 4;
    /// The group ID of the sending socket.
    Skgid: NFT_META_SKGID = 11, "meta skgid", Gid, 4;
    /// Whether the packet is traced.
    Nftrace: NFT_META_NFTRACE = 12, "meta nftrace", Integer, 1;
    /// The routing realm.
    Rtclassid: NFT_META_RTCLASSID = 13, "meta rtclassid", Realm, 4;
    /// The security mark.
    Secmark: NFT_META_SECMARK = 14, "meta secmark", Integer, 4;
    /// The netfilter protocol family.
    NfProto: NFT_META_NFPROTO = 15, "meta nfproto", NfProto, 1;
    /// The transport protocol.
    L4Proto: NFT_META_L4PROTO = 16, "meta l4proto", InetProto, 1;
    /// The name of the input bridge.
    BriIifname: NFT_META_BRI_IIFNAME = 17, "meta ibrname", Ifname, 16;
    /// The name of the output bridge.
    BriOifname: NFT_META_BRI_OIFNAME = 18, "meta obrname", Ifname, 16;
    /// The destination of the frame: host, broadcast, multicast or other.
    PacketType: NFT_META_PKTTYPE = 19, "meta pkttype", PacketType, 1;
    /// The CPU that processes the packet.
    Cpu: NFT_META_CPU = 20, "meta cpu", Integer, 4;
    /// The group of the input interface.
    Iifgroup: NFT_META_IIFGROUP = 21, "iifgroup", DevGroup, 4;
    /// The group of the output interface.
    Oifgroup: NFT_META_OIFGROUP = 22, "oifgroup", DevGroup, 4;
    /// The class ID of the control group (version 1).
    Cgroup: NFT_META_CGROUP = 23, "meta cgroup", Integer, 4;
    /// A random number.
    Random: NFT_META_PRANDOM = 24, "meta random", Integer, 4;
    /// Whether IPsec decrypted the packet.
    Secpath: NFT_META_SECPATH = 25, "meta ipsec", Boolean, 1;
    /// The kind of the input interface, such as `veth`.
    Iifkind: NFT_META_IIFKIND = 26, "meta iifkind", Ifname, 16;
    /// The kind of the output interface.
    Oifkind: NFT_META_OIFKIND = 27, "meta oifkind", Ifname, 16;
    /// The VLAN ID of the input bridge port.
    BriIifpvid: NFT_META_BRI_IIFPVID = 28, "meta ibrpvid", Integer, 2;
    /// The VLAN protocol of the input bridge.
    BriIifvproto: NFT_META_BRI_IIFVPROTO = 29, "meta ibrvproto", EtherType, 2;
    /// The time of reception, in nanoseconds since 1970.
    TimeNs: NFT_META_TIME_NS = 30, "meta time", Date, 8;
    /// The day of the week of reception, in UTC; 0 is Sunday.
    TimeDay: NFT_META_TIME_DAY = 31, "meta day", Day, 1;
    /// The time of day of reception, in seconds, in UTC.
    TimeHour: NFT_META_TIME_HOUR = 32, "meta hour", Hour, 4;
    /// The index of the port of a virtual routing domain.
    Sdif: NFT_META_SDIF = 33, "meta sdif", IfaceIndex, 4;
    /// The name of the port of a virtual routing domain.
    Sdifname: NFT_META_SDIFNAME = 34, "meta sdifname", Ifname, 16;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::tests::assert_identity;

    #[test]
    fn loads_and_stores_round_trip() {
        let access = Access::Load(Register::word(0));
        assert_identity(Meta {
            key: MetaKey::L4Proto,
            access,
        });
        let access = Access::Store(Register::word(1));
        assert_identity(Meta {
            key: MetaKey::Other(99),
            access,
        });
    }
}
