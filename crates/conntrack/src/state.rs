//! Protocol state of flows.

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attr, nest, put, put_be32, put_u8};

use crate::uapi::*;
use crate::{Dccp, Other};

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
    Dccp(Box<Dccp>),
    /// The attribute of another protocol.
    Other(Box<Other>),
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
    #[doc(alias = "TCP_CONNTRACK_NONE")]
    pub const NONE: Self = Self(0);
    /// SYN seen.
    #[doc(alias = "TCP_CONNTRACK_SYN_SENT")]
    pub const SYN_SENT: Self = Self(1);
    /// SYN-ACK seen.
    #[doc(alias = "TCP_CONNTRACK_SYN_RECV")]
    pub const SYN_RECV: Self = Self(2);
    /// Connection established.
    #[doc(alias = "TCP_CONNTRACK_ESTABLISHED")]
    pub const ESTABLISHED: Self = Self(3);
    /// FIN seen.
    #[doc(alias = "TCP_CONNTRACK_FIN_WAIT")]
    pub const FIN_WAIT: Self = Self(4);
    /// ACK of the FIN seen.
    #[doc(alias = "TCP_CONNTRACK_CLOSE_WAIT")]
    pub const CLOSE_WAIT: Self = Self(5);
    /// Second FIN seen.
    #[doc(alias = "TCP_CONNTRACK_LAST_ACK")]
    pub const LAST_ACK: Self = Self(6);
    /// Last ACK seen.
    #[doc(alias = "TCP_CONNTRACK_TIME_WAIT")]
    pub const TIME_WAIT: Self = Self(7);
    /// Connection closed, usually by RST.
    #[doc(alias = "TCP_CONNTRACK_CLOSE")]
    pub const CLOSE: Self = Self(8);
    /// SYN seen in both directions (simultaneous open).
    #[doc(alias = "TCP_CONNTRACK_SYN_SENT2")]
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
    #[doc(alias = "SCTP_CONNTRACK_NONE")]
    pub const NONE: Self = Self(0);
    /// No association.
    #[doc(alias = "SCTP_CONNTRACK_CLOSED")]
    pub const CLOSED: Self = Self(1);
    /// INIT seen.
    #[doc(alias = "SCTP_CONNTRACK_COOKIE_WAIT")]
    pub const COOKIE_WAIT: Self = Self(2);
    /// COOKIE ECHO seen.
    #[doc(alias = "SCTP_CONNTRACK_COOKIE_ECHOED")]
    pub const COOKIE_ECHOED: Self = Self(3);
    /// Association established.
    #[doc(alias = "SCTP_CONNTRACK_ESTABLISHED")]
    pub const ESTABLISHED: Self = Self(4);
    /// SHUTDOWN of the original direction seen.
    #[doc(alias = "SCTP_CONNTRACK_SHUTDOWN_SENT")]
    pub const SHUTDOWN_SENT: Self = Self(5);
    /// SHUTDOWN of the reply direction seen.
    #[doc(alias = "SCTP_CONNTRACK_SHUTDOWN_RECD")]
    pub const SHUTDOWN_RECD: Self = Self(6);
    /// SHUTDOWN ACK seen.
    #[doc(alias = "SCTP_CONNTRACK_SHUTDOWN_ACK_SENT")]
    pub const SHUTDOWN_ACK_SENT: Self = Self(7);
    /// HEARTBEAT of a secondary path seen.
    #[doc(alias = "SCTP_CONNTRACK_HEARTBEAT_SENT")]
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
            CTA_PROTOINFO_TCP => Self::Tcp(Tcp::decode(attr)?),
            CTA_PROTOINFO_SCTP => Self::Sctp(Sctp::decode(attr)?),
            CTA_PROTOINFO_DCCP => Self::Dccp(Box::new(Dccp::decode(attr)?)),
            kind => Self::Other(Box::new(Other {
                kind,
                value: attr.value.to_vec(),
            })),
        };
        Ok(Some(state))
    }

    /// Appends the attributes of `CTA_PROTOINFO`.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Tcp(tcp) => nest(out, CTA_PROTOINFO_TCP, |out| tcp.encode(out)),
            Self::Sctp(sctp) => nest(out, CTA_PROTOINFO_SCTP, |out| sctp.encode(out)),
            Self::Dccp(dccp) => nest(out, CTA_PROTOINFO_DCCP, |out| dccp.encode(out)),
            Self::Other(other) => nest(out, other.kind, |out| {
                out.extend_from_slice(&other.value);
            }),
        }
    }
}

impl Tcp {
    fn decode(attr: Attr<'_>) -> Result<Self, DecodeError> {
        let mut tcp = Self::default();
        for attr in attr.attrs() {
            let attr = attr?;
            match attr.kind {
                CTA_PROTOINFO_TCP_STATE => tcp.state = Some(TcpState(attr.u8()?)),
                CTA_PROTOINFO_TCP_WSCALE_ORIGINAL => tcp.original.window_scale = Some(attr.u8()?),
                CTA_PROTOINFO_TCP_WSCALE_REPLY => tcp.reply.window_scale = Some(attr.u8()?),
                CTA_PROTOINFO_TCP_FLAGS_ORIGINAL => {
                    tcp.original.flags = Some(TcpFlags::decode(attr)?)
                }
                CTA_PROTOINFO_TCP_FLAGS_REPLY => tcp.reply.flags = Some(TcpFlags::decode(attr)?),
                _ => {}
            }
        }
        Ok(tcp)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        if let Some(state) = self.state {
            put_u8(out, CTA_PROTOINFO_TCP_STATE, state.0);
        }
        for (kind, direction) in [
            (CTA_PROTOINFO_TCP_WSCALE_ORIGINAL, self.original),
            (CTA_PROTOINFO_TCP_WSCALE_REPLY, self.reply),
        ] {
            if let Some(scale) = direction.window_scale {
                put_u8(out, kind, scale);
            }
        }
        for (kind, direction) in [
            (CTA_PROTOINFO_TCP_FLAGS_ORIGINAL, self.original),
            (CTA_PROTOINFO_TCP_FLAGS_REPLY, self.reply),
        ] {
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
                CTA_PROTOINFO_SCTP_STATE => sctp.state = Some(SctpState(attr.u8()?)),
                CTA_PROTOINFO_SCTP_VTAG_ORIGINAL => sctp.vtag_original = Some(attr.be32()?),
                CTA_PROTOINFO_SCTP_VTAG_REPLY => sctp.vtag_reply = Some(attr.be32()?),
                _ => {}
            }
        }
        Ok(sctp)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        if let Some(state) = self.state {
            put_u8(out, CTA_PROTOINFO_SCTP_STATE, state.0);
        }
        for (kind, vtag) in [
            (CTA_PROTOINFO_SCTP_VTAG_ORIGINAL, self.vtag_original),
            (CTA_PROTOINFO_SCTP_VTAG_REPLY, self.vtag_reply),
        ] {
            if let Some(vtag) = vtag {
                put_be32(out, kind, vtag);
            }
        }
    }
}
