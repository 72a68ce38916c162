//! Protocol state of flows.

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attr, nest, put, put_be32, put_u8};

use crate::Dccp;

/// `CTA_PROTOINFO_TCP`, `_DCCP` and `_SCTP`.
const TCP: u16 = 1;
const DCCP: u16 = 2;
const SCTP: u16 = 3;

/// `CTA_PROTOINFO_TCP_STATE`.
const TCP_STATE: u16 = 1;
/// `CTA_PROTOINFO_TCP_WSCALE_ORIGINAL` and `_REPLY`.
const WINDOW_SCALES: [u16; 2] = [2, 3];
/// `CTA_PROTOINFO_TCP_FLAGS_ORIGINAL` and `_REPLY`.
const FLAGS: [u16; 2] = [4, 5];

/// `CTA_PROTOINFO_SCTP_*` attributes.
const SCTP_STATE: u16 = 1;
const VTAG_ORIGINAL: u16 = 2;
const VTAG_REPLY: u16 = 3;

/// Protocol state of a flow (`CTA_PROTOINFO`).
///
/// Decoding drops unknown nested attributes of TCP, SCTP and DCCP.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum State {
    /// TCP.
    Tcp(Tcp),
    /// SCTP.
    Sctp(Sctp),
    /// DCCP.
    Dccp(Dccp),
    /// Another protocol.
    Other {
        /// Attribute type.
        kind: u16,
        /// Attribute value.
        value: Vec<u8>,
    },
}

/// Tracked data of a TCP connection (`CTA_PROTOINFO_TCP`).
///
/// Exhaustive: these are the attributes of the kernel.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Tcp {
    /// State.
    pub state: Option<TcpState>,
    /// Data of the original direction.
    pub original: TcpDirection,
    /// Data of the reply direction.
    pub reply: TcpDirection,
}

/// Data of one direction of a TCP connection.
///
/// Exhaustive: these are the attributes of the kernel.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct TcpDirection {
    /// Window scale, in bits.
    pub window_scale: Option<u8>,
    /// Tracking flags.
    pub flags: Option<TcpFlags>,
}

/// Tracking flags of one direction (`IP_CT_TCP_FLAG_*`).
///
/// Exhaustive: flags and mask are the whole attribute.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct TcpFlags {
    /// Flags.
    pub flags: u8,
    /// Mask of the flags to change in a request.
    pub mask: u8,
}

/// State of a TCP connection (`enum tcp_conntrack`).
///
/// Exhaustive: a state is one number.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct TcpState(pub u8);

impl TcpState {
    /// No state.
    pub const NONE: Self = Self(0);
    /// SYN seen.
    pub const SYN_SENT: Self = Self(1);
    /// SYN-ACK seen.
    pub const SYN_RECV: Self = Self(2);
    /// Connection established.
    pub const ESTABLISHED: Self = Self(3);
    /// FIN seen.
    pub const FIN_WAIT: Self = Self(4);
    /// ACK of the FIN seen.
    pub const CLOSE_WAIT: Self = Self(5);
    /// Second FIN seen.
    pub const LAST_ACK: Self = Self(6);
    /// Last ACK seen.
    pub const TIME_WAIT: Self = Self(7);
    /// Connection closed, usually by RST.
    pub const CLOSE: Self = Self(8);
    /// SYN seen in both directions (simultaneous open).
    pub const SYN_SENT2: Self = Self(9);

    /// Returns the name in the output of `conntrack`, or `None` for an unknown state.
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

/// Tracked data of an SCTP association (`CTA_PROTOINFO_SCTP`).
///
/// Exhaustive: these are the attributes of the kernel.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Sctp {
    /// State.
    pub state: Option<SctpState>,
    /// Verification tag of the original direction.
    pub vtag_original: Option<u32>,
    /// Verification tag of the reply direction.
    pub vtag_reply: Option<u32>,
}

/// State of an SCTP association (`enum sctp_conntrack`).
///
/// Exhaustive: a state is one number.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SctpState(pub u8);

impl SctpState {
    /// No state.
    pub const NONE: Self = Self(0);
    /// No association.
    pub const CLOSED: Self = Self(1);
    /// INIT seen.
    pub const COOKIE_WAIT: Self = Self(2);
    /// COOKIE ECHO seen.
    pub const COOKIE_ECHOED: Self = Self(3);
    /// Association established.
    pub const ESTABLISHED: Self = Self(4);
    /// SHUTDOWN of the original direction seen.
    pub const SHUTDOWN_SENT: Self = Self(5);
    /// SHUTDOWN of the reply direction seen.
    pub const SHUTDOWN_RECD: Self = Self(6);
    /// SHUTDOWN ACK seen.
    pub const SHUTDOWN_ACK_SENT: Self = Self(7);
    /// HEARTBEAT of a secondary path seen.
    pub const HEARTBEAT_SENT: Self = Self(8);

    /// Returns the name in the output of `conntrack`, or `None` for an unknown state.
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
    /// Decodes `CTA_PROTOINFO`, which may be empty.
    pub(crate) fn decode(info: Attr<'_>) -> Result<Option<Self>, DecodeError> {
        let Some(attr) = info.attrs().next() else {
            return Ok(None);
        };
        let attr = attr?;
        let state = match attr.kind {
            TCP => Self::Tcp(Tcp::decode(attr)?),
            SCTP => Self::Sctp(Sctp::decode(attr)?),
            DCCP => Self::Dccp(Dccp::decode(attr)?),
            kind => Self::Other {
                kind,
                value: attr.value.to_vec(),
            },
        };
        Ok(Some(state))
    }

    /// Appends the attributes of `CTA_PROTOINFO`.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Tcp(tcp) => nest(out, TCP, |out| tcp.encode(out)),
            Self::Sctp(sctp) => nest(out, SCTP, |out| sctp.encode(out)),
            Self::Dccp(dccp) => nest(out, DCCP, |out| dccp.encode(out)),
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
        let directions = [self.original, self.reply];
        for (kind, direction) in WINDOW_SCALES.into_iter().zip(directions) {
            if let Some(scale) = direction.window_scale {
                put_u8(out, kind, scale);
            }
        }
        for (kind, direction) in FLAGS.into_iter().zip(directions) {
            if let Some(TcpFlags { flags, mask }) = direction.flags {
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
