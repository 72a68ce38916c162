//! Protocol state of DCCP connections.

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attr, put_be64, put_u8};

use crate::uapi::*;

/// Tracked data of a DCCP connection (`CTA_PROTOINFO_DCCP`).
///
/// Linux 6.16 and later do not track DCCP.
///
/// Exhaustive: these are the attributes of the kernel.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Dccp {
    /// State.
    pub state: Option<DccpState>,
    /// Role of the original direction: 0 for the client, 1 for the server.
    pub role: Option<u8>,
    /// Sequence number of the handshake.
    pub handshake_seq: Option<u64>,
}

/// State of a DCCP connection (`enum ct_dccp_states`).
///
/// Exhaustive: a state is one number.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct DccpState(pub u8);

impl DccpState {
    /// No state.
    #[doc(alias = "CT_DCCP_NONE")]
    pub const NONE: Self = Self(0);
    /// Request seen.
    #[doc(alias = "CT_DCCP_REQUEST")]
    pub const REQUEST: Self = Self(1);
    /// Response seen.
    #[doc(alias = "CT_DCCP_RESPOND")]
    pub const RESPOND: Self = Self(2);
    /// Acknowledgment of the response seen.
    #[doc(alias = "CT_DCCP_PARTOPEN")]
    pub const PARTOPEN: Self = Self(3);
    /// Connection established.
    #[doc(alias = "CT_DCCP_OPEN")]
    pub const OPEN: Self = Self(4);
    /// Request to close seen.
    #[doc(alias = "CT_DCCP_CLOSEREQ")]
    pub const CLOSEREQ: Self = Self(5);
    /// Close seen.
    #[doc(alias = "CT_DCCP_CLOSING")]
    pub const CLOSING: Self = Self(6);
    /// Connection closed.
    #[doc(alias = "CT_DCCP_TIMEWAIT")]
    pub const TIMEWAIT: Self = Self(7);

    /// Returns the name in the output of `conntrack`, or `None` for an unknown state.
    pub fn name(self) -> Option<&'static str> {
        let names = [
            "NONE", "REQUEST", "RESPOND", "PARTOPEN", "OPEN", "CLOSEREQ", "CLOSING", "TIMEWAIT",
            "IGNORE", "INVALID",
        ];
        names.get(usize::from(self.0)).copied()
    }
}

impl Dccp {
    pub(crate) fn decode(attr: Attr<'_>) -> Result<Self, DecodeError> {
        let mut dccp = Self::default();
        for attr in attr.attrs() {
            let attr = attr?;
            match attr.kind {
                CTA_PROTOINFO_DCCP_STATE => dccp.state = Some(DccpState(attr.u8()?)),
                CTA_PROTOINFO_DCCP_ROLE => dccp.role = Some(attr.u8()?),
                CTA_PROTOINFO_DCCP_HANDSHAKE_SEQ => dccp.handshake_seq = Some(attr.be64()?),
                _ => {}
            }
        }
        Ok(dccp)
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        if let Some(state) = self.state {
            put_u8(out, CTA_PROTOINFO_DCCP_STATE, state.0);
        }
        if let Some(role) = self.role {
            put_u8(out, CTA_PROTOINFO_DCCP_ROLE, role);
        }
        if let Some(seq) = self.handshake_seq {
            put_be64(out, CTA_PROTOINFO_DCCP_HANDSHAKE_SEQ, seq);
        }
    }
}
