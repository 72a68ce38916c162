//! Named fields of optional headers: IPv6 extension headers, TCP and IPv4 options,
//! SCTP chunks.

use crate::Datatype;
use crate::expr::ExthdrOp;

/// A type of an optional header.
#[derive(Debug)]
pub(crate) struct Extension {
    pub(crate) op: ExthdrOp,
    pub(crate) kind: u8,
    pub(crate) name: &'static str,
    fields: &'static [ExtensionField],
}

/// A field: name, offset in bits, length in bits and data type.
#[derive(Debug)]
pub(crate) struct ExtensionField(pub(crate) &'static str, u32, u32, pub(crate) Datatype);

macro_rules! extensions {
    ($($op:ident $kind:literal $name:literal {
        $($field:literal $offset:literal $len:literal $($datatype:ident)?),* $(,)?
    })*) => {
        static EXTENSIONS: &[Extension] = &[$(Extension {
            op: ExthdrOp::$op,
            kind: $kind,
            name: $name,
            fields: &[$(ExtensionField($field, $offset, $len, datatype!($($datatype)?)),)*],
        },)*];
    };
}

macro_rules! datatype {
    () => {
        Datatype::Integer
    };
    ($datatype:ident) => {
        Datatype::$datatype
    };
}

// RFC 8200, 6275 and 8754; RFC 9293, 7323, 2018, 2385, 8684 and 7413; RFC 791 and 2113;
// RFC 9260, 5061 and 3758. A type with several names has its own fields under each name.
extensions! {
    Ipv6 0 "hbh" { "nexthdr" 0 8 InetProto, "hdrlength" 8 8 }
    Ipv6 43 "rt" { "nexthdr" 0 8 InetProto, "hdrlength" 8 8, "type" 16 8, "seg-left" 24 8 }
    Ipv6 43 "srh" {
        "last-entry" 32 8, "flags" 40 8, "tag" 48 16,
        "sid[1]" 64 128 Ipv6Addr, "sid[2]" 192 128 Ipv6Addr,
    }
    Ipv6 43 "rt0" { "reserved" 32 32 }
    Ipv6 44 "frag" {
        "nexthdr" 0 8 InetProto, "reserved" 8 8, "frag-off" 16 13, "reserved2" 29 2,
        "more-fragments" 31 1, "id" 32 32,
    }
    Ipv6 60 "dst" { "nexthdr" 0 8 InetProto, "hdrlength" 8 8 }
    Ipv6 135 "mh" {
        "nexthdr" 0 8 InetProto, "hdrlength" 8 8, "type" 16 8 MhType, "reserved" 24 8,
        "checksum" 32 16,
    }
    TcpOption 0 "eol" { "kind" 0 8 }
    TcpOption 1 "nop" { "kind" 0 8 }
    TcpOption 2 "maxseg" { "kind" 0 8, "length" 8 8, "size" 16 16 }
    TcpOption 3 "window" { "kind" 0 8, "length" 8 8, "count" 16 8 }
    TcpOption 4 "sack-perm" { "kind" 0 8, "length" 8 8 }
    TcpOption 5 "sack" { "kind" 0 8, "length" 8 8, "left" 16 32, "right" 48 32 }
    TcpOption 5 "sack1" { "left" 80 32, "right" 112 32 }
    TcpOption 5 "sack2" { "left" 144 32, "right" 176 32 }
    TcpOption 5 "sack3" { "left" 208 32, "right" 240 32 }
    TcpOption 8 "timestamp" { "kind" 0 8, "length" 8 8, "tsval" 16 32, "tsecr" 48 32 }
    TcpOption 19 "md5sig" { "kind" 0 8, "length" 8 8 }
    TcpOption 30 "mptcp" { "kind" 0 8, "length" 8 8, "subtype" 16 4 }
    TcpOption 34 "fastopen" { "kind" 0 8, "length" 8 8 }
    Ipv4 7 "rr" { "type" 0 8, "length" 8 8, "ptr" 16 8, "addr" 24 32 }
    Ipv4 131 "lsrr" { "type" 0 8, "length" 8 8, "ptr" 16 8, "addr" 24 32 }
    Ipv4 137 "ssrr" { "type" 0 8, "length" 8 8, "ptr" 16 8, "addr" 24 32 }
    Ipv4 148 "ra" { "type" 0 8, "length" 8 8, "value" 16 16 }
    Sctp 0 "data" {
        "type" 0 8, "flags" 8 8, "length" 16 16, "tsn" 32 32, "stream" 64 16, "ssn" 80 16,
        "ppid" 96 32,
    }
    Sctp 1 "init" {
        "type" 0 8, "flags" 8 8, "length" 16 16, "init-tag" 32 32, "a-rwnd" 64 32,
        "num-outbound-streams" 96 16, "num-inbound-streams" 112 16, "initial-tsn" 128 32,
    }
    Sctp 2 "init-ack" {
        "type" 0 8, "flags" 8 8, "length" 16 16, "init-tag" 32 32, "a-rwnd" 64 32,
        "num-outbound-streams" 96 16, "num-inbound-streams" 112 16, "initial-tsn" 128 32,
    }
    Sctp 3 "sack" {
        "type" 0 8, "flags" 8 8, "length" 16 16, "cum-tsn-ack" 32 32, "a-rwnd" 64 32,
        "num-gap-ack-blocks" 96 16, "num-dup-tsns" 112 16,
    }
    Sctp 4 "heartbeat" { "type" 0 8, "flags" 8 8, "length" 16 16 }
    Sctp 5 "heartbeat-ack" { "type" 0 8, "flags" 8 8, "length" 16 16 }
    Sctp 6 "abort" { "type" 0 8, "flags" 8 8, "length" 16 16 }
    Sctp 7 "shutdown" { "type" 0 8, "flags" 8 8, "length" 16 16, "cum-tsn-ack" 32 32 }
    Sctp 8 "shutdown-ack" { "type" 0 8, "flags" 8 8, "length" 16 16 }
    Sctp 9 "error" { "type" 0 8, "flags" 8 8, "length" 16 16 }
    Sctp 10 "cookie-echo" { "type" 0 8, "flags" 8 8, "length" 16 16 }
    Sctp 11 "cookie-ack" { "type" 0 8, "flags" 8 8, "length" 16 16 }
    Sctp 12 "ecne" { "type" 0 8, "flags" 8 8, "length" 16 16, "lowest-tsn" 32 32 }
    Sctp 13 "cwr" { "type" 0 8, "flags" 8 8, "length" 16 16, "lowest-tsn" 32 32 }
    Sctp 14 "shutdown-complete" { "type" 0 8, "flags" 8 8, "length" 16 16 }
    Sctp 128 "asconf-ack" { "type" 0 8, "flags" 8 8, "length" 16 16, "seqno" 32 32 }
    Sctp 192 "forward-tsn" { "type" 0 8, "flags" 8 8, "length" 16 16, "new-cum-tsn" 32 32 }
    Sctp 193 "asconf" { "type" 0 8, "flags" 8 8, "length" 16 16, "seqno" 32 32 }
}

impl Extension {
    /// Finds an optional header by its type.
    pub(crate) fn find(op: ExthdrOp, kind: u8) -> Option<&'static Self> {
        Self::all(op, kind).next()
    }

    /// Finds a field by its location in bits.
    pub(crate) fn find_field(
        op: ExthdrOp,
        kind: u8,
        offset: u32,
        len: u32,
    ) -> Option<(&'static Self, &'static ExtensionField)> {
        Self::all(op, kind).find_map(|extension| {
            let mut fields = extension.fields.iter();
            let field = fields.find(|field| (field.1, field.2) == (offset, len))?;
            Some((extension, field))
        })
    }

    /// Finds a field by its text. Returns the type of the header, and offset and length of
    /// the field in bits.
    pub(crate) fn find_text(op: ExthdrOp, text: &str) -> Option<(u8, u32, u32)> {
        let rest = text.strip_prefix(prefix(op))?;
        let mut extensions = EXTENSIONS.iter().filter(|extension| extension.op == op);
        extensions.find_map(|extension| {
            let name = rest.strip_prefix(extension.name)?.strip_prefix(' ')?;
            let field = extension.fields.iter().find(|field| field.0 == name)?;
            Some((extension.kind, field.1, field.2))
        })
    }

    /// Returns the name of a field by its index.
    pub(crate) fn field(&self, index: usize) -> Option<&'static str> {
        self.fields.get(index).map(|field| field.0)
    }

    fn all(op: ExthdrOp, kind: u8) -> impl Iterator<Item = &'static Self> {
        EXTENSIONS
            .iter()
            .filter(move |extension| (extension.op, extension.kind) == (op, kind))
    }
}

/// Returns nft's words before the name of an optional header.
pub(crate) fn prefix(op: ExthdrOp) -> &'static str {
    match op {
        ExthdrOp::TcpOption => "tcp option ",
        ExthdrOp::Ipv4 => "ip option ",
        ExthdrOp::Sctp => "sctp chunk ",
        _ => "",
    }
}
