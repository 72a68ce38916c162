//! The types of values: numbers, sizes and names as `nft` has them.

use std::fmt;

/// How many bits of a key type one field of a concatenation takes.
const FIELD_BITS: u32 = 6;

/// The order of the bytes of a number in a register.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum ByteOrder {
    /// Network order, or no number at all.
    Big,
    /// The order of the machine.
    Host,
}

macro_rules! datatypes {
    ($($(#[$doc:meta])* $variant:ident = $id:literal, $bytes:literal, $order:ident, $name:literal;)*) => {
        /// The type of a value.
        ///
        /// The kernel keeps the number of a set's key type for `nft` and does
        /// not look at it (`enum datatypes` of nft).
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        #[non_exhaustive]
        pub enum Datatype {
            $($(#[$doc])* $variant,)*
            /// A type we have no name for, by its number.
            Other(u8),
        }

        impl Datatype {
            /// Returns the number `nft` has for the type.
            pub const fn id(self) -> u8 {
                match self { $(Self::$variant => $id,)* Self::Other(id) => id }
            }

            /// Returns the type with this number.
            pub const fn from_id(id: u8) -> Self {
                match id { $($id => Self::$variant,)* id => Self::Other(id) }
            }

            /// Returns how many bytes a value has; 0 if values vary in size.
            pub const fn bytes(self) -> u16 {
                match self { $(Self::$variant => $bytes,)* Self::Other(_) => 0 }
            }

            /// Returns the order of the bytes.
            pub(crate) const fn order(self) -> ByteOrder {
                match self { $(Self::$variant => ByteOrder::$order,)* Self::Other(_) => ByteOrder::Big }
            }

            /// Returns the name `nft` has for the type.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)* Self::Other(_) => "unknown" }
            }
        }
    };
}

datatypes! {
    /// A number of any size.
    Integer = 4, 4, Host, "integer";
    /// A string.
    String = 5, 0, Host, "string";
    /// A link layer address of any kind.
    LlAddr = 6, 0, Big, "ll_addr";
    /// An IPv4 address.
    Ipv4Addr = 7, 4, Big, "ipv4_addr";
    /// An IPv6 address.
    Ipv6Addr = 8, 16, Big, "ipv6_addr";
    /// An Ethernet address.
    EtherAddr = 9, 6, Big, "ether_addr";
    /// The type of an Ethernet frame.
    EtherType = 10, 2, Big, "ether_type";
    /// The protocol of the transport layer.
    InetProto = 12, 1, Big, "inet_proto";
    /// A port of any transport protocol.
    InetService = 13, 2, Big, "inet_service";
    /// The type of an ICMP message.
    IcmpType = 14, 1, Big, "icmp_type";
    /// The flags of a TCP segment.
    TcpFlag = 15, 1, Big, "tcp_flag";
    /// A packet mark or a connection mark.
    Mark = 19, 4, Host, "mark";
    /// The index of an interface.
    IfaceIndex = 20, 4, Host, "iface_index";
    /// The hardware type of an interface.
    IfaceType = 21, 2, Host, "iface_type";
    /// A routing realm.
    Realm = 22, 4, Host, "realm";
    /// The id of a user.
    Uid = 24, 4, Host, "uid";
    /// The id of a group.
    Gid = 25, 4, Host, "gid";
    /// The state of a connection.
    CtState = 26, 4, Host, "ct_state";
    /// The direction of a packet in its connection.
    CtDirection = 27, 1, Host, "ct_dir";
    /// The status of a connection.
    CtStatus = 28, 4, Host, "ct_status";
    /// The type of an ICMPv6 message.
    Icmpv6Type = 29, 1, Big, "icmpv6_type";
    /// A connection label.
    CtLabel = 30, 16, Host, "ct_label";
    /// Whom a frame is for.
    PacketType = 31, 1, Host, "pkt_type";
    /// The differentiated services code point.
    Dscp = 36, 1, Big, "dscp";
    /// What an address is to this machine.
    FibAddrType = 38, 4, Host, "fib_addrtype";
    /// Whether something is so.
    Boolean = 39, 1, Host, "boolean";
    /// The name of an interface.
    Ifname = 41, 16, Host, "ifname";
    /// The netfilter family of a packet.
    NfProto = 2, 1, Host, "nf_proto";
}

impl Datatype {
    /// Returns the key type of a set whose key has these fields.
    pub(crate) fn concat(fields: impl IntoIterator<Item = Self>) -> u32 {
        fields
            .into_iter()
            .fold(0, |id, field| id << FIELD_BITS | u32::from(field.id()))
    }

    /// Returns the fields of a key type, the first field first.
    pub(crate) fn fields(mut id: u32) -> Vec<Self> {
        let mut fields = Vec::new();
        while id != 0 {
            fields.push(Self::from_id((id & 0x3f) as u8));
            id >>= FIELD_BITS;
        }
        fields.reverse();
        fields
    }
}

impl fmt::Display for Datatype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_concatenation_packs_six_bits_a_field() {
        let fields = [
            Datatype::Ipv4Addr,
            Datatype::InetProto,
            Datatype::InetService,
        ];
        assert_eq!(Datatype::concat(fields), 7 << 12 | 12 << 6 | 13);
        assert_eq!(Datatype::fields(7 << 12 | 12 << 6 | 13), fields);
        assert_eq!(Datatype::fields(0), []);
    }

    #[test]
    fn every_number_comes_back() {
        for id in 0..64 {
            assert_eq!(Datatype::from_id(id).id(), id);
        }
    }
}
