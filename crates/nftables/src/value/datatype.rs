//! nft's data types: numbers, sizes, byte orders and names.

use std::fmt;

/// Number of bits per field in the key type of a concatenation.
const FIELD_BITS: u32 = 6;

/// Byte order of a number in a register.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum ByteOrder {
    /// Network byte order; also used for values that are not numbers.
    Big,
    /// Host byte order.
    Host,
}

macro_rules! datatypes {
    ($($(#[$doc:meta])* $variant:ident = $id:literal, $bytes:literal, $order:ident, $name:literal;)*) => {
        /// The data type of a value: `enum datatypes` of nft.
        ///
        /// The kernel stores the type of a set's key for `nft` without interpreting it.
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        #[non_exhaustive]
        pub enum Datatype {
            $($(#[$doc])* $variant,)*
            /// Another type, by number.
            Other(u8),
        }

        impl Datatype {
            /// Returns nft's number of the type.
            pub const fn id(self) -> u8 {
                match self { $(Self::$variant => $id,)* Self::Other(id) => id }
            }

            /// Returns the type with this number.
            pub const fn from_id(id: u8) -> Self {
                match id { $($id => Self::$variant,)* id => Self::Other(id) }
            }

            /// Returns the size of a value in bytes, or 0 if the size varies.
            pub const fn bytes(self) -> u16 {
                match self { $(Self::$variant => $bytes,)* Self::Other(_) => 0 }
            }

            /// Returns the byte order of values.
            pub(crate) const fn order(self) -> ByteOrder {
                match self { $(Self::$variant => ByteOrder::$order,)* Self::Other(_) => ByteOrder::Big }
            }

            /// Returns nft's name of the type.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)* Self::Other(_) => "unknown" }
            }
        }
    };
}

datatypes! {
    /// An integer.
    Integer = 4, 4, Host, "integer";
    /// A string.
    String = 5, 0, Host, "string";
    /// A link-layer address.
    LlAddr = 6, 0, Big, "ll_addr";
    /// An IPv4 address.
    Ipv4Addr = 7, 4, Big, "ipv4_addr";
    /// An IPv6 address.
    Ipv6Addr = 8, 16, Big, "ipv6_addr";
    /// An Ethernet address.
    EtherAddr = 9, 6, Big, "ether_addr";
    /// An ARP operation.
    ArpOp = 11, 2, Big, "arp_op";
    /// An Ethernet type.
    EtherType = 10, 2, Big, "ether_type";
    /// A transport protocol.
    InetProto = 12, 1, Big, "inet_proto";
    /// A transport port.
    InetService = 13, 2, Big, "inet_service";
    /// An ICMP message type.
    IcmpType = 14, 1, Big, "icmp_type";
    /// TCP flags.
    TcpFlag = 15, 1, Big, "tcp_flag";
    /// A type of a mobility header.
    MhType = 17, 1, Big, "mh_type";
    /// A duration in milliseconds.
    Time = 18, 8, Host, "time";
    /// A packet mark or a connection mark.
    Mark = 19, 4, Host, "mark";
    /// An interface index.
    IfaceIndex = 20, 4, Host, "iface_index";
    /// An interface hardware type.
    IfaceType = 21, 2, Host, "iface_type";
    /// A routing realm.
    Realm = 22, 4, Host, "realm";
    /// A class of traffic control: major and minor number.
    Classid = 23, 4, Host, "classid";
    /// A user ID.
    Uid = 24, 4, Host, "uid";
    /// A group ID.
    Gid = 25, 4, Host, "gid";
    /// A conntrack state.
    CtState = 26, 4, Host, "ct_state";
    /// A conntrack direction.
    CtDirection = 27, 1, Host, "ct_dir";
    /// A conntrack status.
    CtStatus = 28, 4, Host, "ct_status";
    /// An ICMPv6 message type.
    Icmpv6Type = 29, 1, Big, "icmpv6_type";
    /// A conntrack label.
    CtLabel = 30, 16, Host, "ct_label";
    /// Destination of the frame (`meta pkttype`).
    PacketType = 31, 1, Host, "pkt_type";
    /// A group of interfaces.
    DevGroup = 35, 4, Host, "devgroup";
    /// A differentiated services code point.
    Dscp = 36, 1, Big, "dscp";
    /// A route type of an address (`fib … type`): local, unicast, and so on.
    FibAddrType = 38, 4, Host, "fib_addrtype";
    /// Whether a route or header exists.
    Boolean = 39, 1, Host, "boolean";
    /// Conntrack events, one bit each.
    CtEvent = 40, 4, Host, "ct_event";
    /// An interface name.
    Ifname = 41, 16, Host, "ifname";
    /// A time in nanoseconds since 1970.
    Date = 43, 8, Host, "time";
    /// A time of day in seconds, in UTC.
    Hour = 44, 4, Host, "hour";
    /// A day of the week; 0 is Sunday.
    Day = 45, 1, Host, "day";
    /// An ID of a control group (version 2).
    Cgroupv2 = 46, 8, Host, "cgroupsv2";
    /// A netfilter protocol family.
    NfProto = 2, 1, Host, "nf_proto";
}

impl Datatype {
    /// Returns the key type of a concatenation.
    pub(crate) fn concat(fields: impl IntoIterator<Item = Self>) -> u32 {
        fields
            .into_iter()
            .fold(0, |id, field| id << FIELD_BITS | u32::from(field.id()))
    }

    /// Returns the fields of a key type, in order.
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
    fn every_number_round_trips() {
        for id in 0..64 {
            assert_eq!(Datatype::from_id(id).id(), id);
        }
    }
}
