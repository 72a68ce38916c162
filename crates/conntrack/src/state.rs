//! What the kernel knows of a flow by its protocol.

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attr, nest, put, put_be32, put_u8};

/// `CTA_PROTOINFO_TCP` and `CTA_PROTOINFO_SCTP`.
const TCP: u16 = 1;
const SCTP: u16 = 3;

/// `CTA_PROTOINFO_TCP_STATE`.
const TCP_STATE: u16 = 1;
/// `CTA_PROTOINFO_TCP_WSCALE_ORIGINAL` and `_REPLY`.
const WINDOW_SCALES: [u16; 2] = [2, 3];
/// `CTA_PROTOINFO_TCP_FLAGS_ORIGINAL` and `_REPLY`.
const FLAGS: [u16; 2] = [4, 5];

/// `CTA_PROTOINFO_SCTP_STATE` and those that follow it.
const SCTP_STATE: u16 = 1;
const VTAG_ORIGINAL: u16 = 2;
const VTAG_REPLY: u16 = 3;

/// What the kernel knows of a flow by its protocol: `CTA_PROTOINFO`.
///
/// It is of one protocol, and attributes in those of TCP and SCTP that no kernel
/// has told yet are left out.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum State {
    /// Of TCP.
    Tcp(Tcp),
    /// Of SCTP.
    Sctp(Sctp),
    /// Of another protocol, such as DCCP.
    Other {
        /// The type of the attribute.
        kind: u16,
        /// What it holds.
        value: Vec<u8>,
    },
}

/// What the kernel knows of a flow of TCP.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Tcp {
    /// How far the connection is.
    pub state: Option<TcpState>,
    /// Of whoever began it.
    pub original: TcpSide,
    /// Of the other one.
    pub reply: TcpSide,
}

/// What the kernel knows of one side of a flow of TCP.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct TcpSide {
    /// By how many bits windows are shifted.
    pub window_scale: Option<u8>,
    /// How its packets are tracked.
    pub flags: Option<TcpFlags>,
}

/// How packets of one side are tracked: `IP_CT_TCP_FLAG_*`.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct TcpFlags {
    /// The flags.
    pub flags: u8,
    /// Which of them are to be set, when they are set.
    pub mask: u8,
}

/// How far a connection of TCP is: `enum tcp_conntrack`.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct TcpState(pub u8);

impl TcpState {
    /// Nothing is known.
    pub const NONE: Self = Self(0);
    /// A SYN was seen.
    pub const SYN_SENT: Self = Self(1);
    /// A SYN was answered.
    pub const SYN_RECV: Self = Self(2);
    /// The connection is made.
    pub const ESTABLISHED: Self = Self(3);
    /// A FIN was seen.
    pub const FIN_WAIT: Self = Self(4);
    /// A FIN was acknowledged.
    pub const CLOSE_WAIT: Self = Self(5);
    /// The second FIN was seen.
    pub const LAST_ACK: Self = Self(6);
    /// The last acknowledgement was seen.
    pub const TIME_WAIT: Self = Self(7);
    /// The connection was reset.
    pub const CLOSE: Self = Self(8);
    /// Both sides sent a SYN.
    pub const SYN_SENT2: Self = Self(9);

    /// Returns the name.
    pub fn name(self) -> Option<&'static str> {
        let names = [
            "NONE",
            "SYN_SENT",
            "SYN_RECV",
            "ESTABLISHED",
            "FIN_WAIT",
            "CLOSE_WAIT",
            "LAST_ACK",
            "TIME_WAIT",
            "CLOSE",
            "SYN_SENT2",
        ];
        names.get(usize::from(self.0)).copied()
    }
}

/// What the kernel knows of a flow of SCTP.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Sctp {
    /// How far the association is.
    pub state: Option<SctpState>,
    /// The verification tag of packets of the original direction.
    pub vtag_original: Option<u32>,
    /// The verification tag of packets of the reply direction.
    pub vtag_reply: Option<u32>,
}

/// How far an association of SCTP is: `enum sctp_conntrack`.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SctpState(pub u8);

impl SctpState {
    /// Nothing is known.
    pub const NONE: Self = Self(0);
    /// There is no association.
    pub const CLOSED: Self = Self(1);
    /// An INIT was seen.
    pub const COOKIE_WAIT: Self = Self(2);
    /// A COOKIE ECHO was seen.
    pub const COOKIE_ECHOED: Self = Self(3);
    /// The association is made.
    pub const ESTABLISHED: Self = Self(4);
    /// A SHUTDOWN of the original direction was seen.
    pub const SHUTDOWN_SENT: Self = Self(5);
    /// A SHUTDOWN of the reply direction was seen.
    pub const SHUTDOWN_RECD: Self = Self(6);
    /// A SHUTDOWN was acknowledged.
    pub const SHUTDOWN_ACK_SENT: Self = Self(7);
    /// A HEARTBEAT of another path was seen.
    pub const HEARTBEAT_SENT: Self = Self(8);

    /// Returns the name.
    pub fn name(self) -> Option<&'static str> {
        let names = [
            "NONE",
            "CLOSED",
            "COOKIE_WAIT",
            "COOKIE_ECHOED",
            "ESTABLISHED",
            "SHUTDOWN_SENT",
            "SHUTDOWN_RECD",
            "SHUTDOWN_ACK_SENT",
            "HEARTBEAT_SENT",
        ];
        names.get(usize::from(self.0)).copied()
    }
}

impl State {
    /// Reads `CTA_PROTOINFO`, which may be empty.
    pub(crate) fn decode(info: Attr<'_>) -> Result<Option<Self>, DecodeError> {
        let Some(attr) = info.attrs().next() else {
            return Ok(None);
        };
        let attr = attr?;
        let state = match attr.kind {
            TCP => Self::Tcp(Tcp::decode(attr)?),
            SCTP => Self::Sctp(Sctp::decode(attr)?),
            kind => Self::Other {
                kind,
                value: attr.value.to_vec(),
            },
        };
        Ok(Some(state))
    }

    /// Appends what is nested in `CTA_PROTOINFO`.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Tcp(tcp) => nest(out, TCP, |out| tcp.encode(out)),
            Self::Sctp(sctp) => nest(out, SCTP, |out| sctp.encode(out)),
            Self::Other { kind, value } => nest(out, *kind, |out| out.extend_from_slice(value)),
        }
    }
}

impl Tcp {
    fn decode(attr: Attr<'_>) -> Result<Self, DecodeError> {
        let mut tcp = Self::default();
        for attr in attr.attrs() {
            let attr = attr?;
            match attr.kind {
                TCP_STATE => tcp.state = Some(TcpState(attr.u8()?)),
                2 => tcp.original.window_scale = Some(attr.u8()?),
                3 => tcp.reply.window_scale = Some(attr.u8()?),
                4 => tcp.original.flags = Some(TcpFlags::decode(attr)?),
                5 => tcp.reply.flags = Some(TcpFlags::decode(attr)?),
                _ => {}
            }
        }
        Ok(tcp)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        if let Some(state) = self.state {
            put_u8(out, TCP_STATE, state.0);
        }
        let sides = [self.original, self.reply];
        for (kind, side) in WINDOW_SCALES.into_iter().zip(sides) {
            if let Some(scale) = side.window_scale {
                put_u8(out, kind, scale);
            }
        }
        for (kind, side) in FLAGS.into_iter().zip(sides) {
            if let Some(TcpFlags { flags, mask }) = side.flags {
                put(out, kind, &[flags, mask]);
            }
        }
    }
}

impl TcpFlags {
    fn decode(attr: Attr<'_>) -> Result<Self, DecodeError> {
        match *attr.value {
            [flags, mask] => Ok(Self { flags, mask }),
            _ => Err(attr.error("flags and their mask")),
        }
    }
}

impl Sctp {
    fn decode(attr: Attr<'_>) -> Result<Self, DecodeError> {
        let mut sctp = Self::default();
        for attr in attr.attrs() {
            let attr = attr?;
            match attr.kind {
                SCTP_STATE => sctp.state = Some(SctpState(attr.u8()?)),
                VTAG_ORIGINAL => sctp.vtag_original = Some(attr.be32()?),
                VTAG_REPLY => sctp.vtag_reply = Some(attr.be32()?),
                _ => {}
            }
        }
        Ok(sctp)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        if let Some(state) = self.state {
            put_u8(out, SCTP_STATE, state.0);
        }
        for (kind, vtag) in [
            (VTAG_ORIGINAL, self.vtag_original),
            (VTAG_REPLY, self.vtag_reply),
        ] {
            if let Some(vtag) = vtag {
                put_be32(out, kind, vtag);
            }
        }
    }
}
