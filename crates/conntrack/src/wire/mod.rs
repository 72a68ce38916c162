//! Encoding and decoding of ctnetlink messages.
//!
//! The numbers are those of `linux/netfilter/nfnetlink_conntrack.h`.

mod flow;

mod request;

pub use request::Request;

use vipline_netlink::DecodeError;

/// `CTA_*` attributes of a flow.
pub(crate) const TUPLE_ORIGINAL: u16 = 1;
pub(crate) const TUPLE_REPLY: u16 = 2;
pub(crate) const STATUS: u16 = 3;
pub(crate) const PROTOCOL_INFO: u16 = 4;
pub(crate) const HELP: u16 = 5;
pub(crate) const NAT_SOURCE: u16 = 6;
pub(crate) const TIMEOUT: u16 = 7;
pub(crate) const MARK: u16 = 8;
pub(crate) const COUNTERS_ORIGINAL: u16 = 9;
pub(crate) const COUNTERS_REPLY: u16 = 10;
pub(crate) const USE: u16 = 11;
pub(crate) const ID: u16 = 12;
pub(crate) const NAT_DESTINATION: u16 = 13;
pub(crate) const TUPLE_MASTER: u16 = 14;
pub(crate) const SEQ_ADJ_ORIGINAL: u16 = 15;
pub(crate) const SEQ_ADJ_REPLY: u16 = 16;
pub(crate) const ZONE: u16 = 18;
pub(crate) const SECURITY: u16 = 19;
pub(crate) const TIMESTAMP: u16 = 20;
pub(crate) const MARK_MASK: u16 = 21;
pub(crate) const LABELS: u16 = 22;
pub(crate) const LABELS_MASK: u16 = 23;
pub(crate) const SYNPROXY: u16 = 24;
pub(crate) const FILTER: u16 = 25;
pub(crate) const STATUS_MASK: u16 = 26;

/// `NFNL_SUBSYS_CTNETLINK` and `_EXP`, the upper byte of the message type.
const FLOWS: u16 = 1 << 8;
const EXPECTATIONS: u16 = 2 << 8;

/// `IPCTNL_MSG_CT_*` message types.
pub(crate) const NEW: u16 = FLOWS;
pub(crate) const GET: u16 = FLOWS | 1;
pub(crate) const DELETE: u16 = FLOWS | 2;
const GET_AND_ZERO: u16 = FLOWS | 3;
const GET_STATISTICS: u16 = FLOWS | 4;
const GET_USAGE: u16 = FLOWS | 5;
const GET_DYING: u16 = FLOWS | 6;
const GET_UNCONFIRMED: u16 = FLOWS | 7;
/// `IPCTNL_MSG_EXP_*` message types.
pub(crate) const NEW_EXPECTATION: u16 = EXPECTATIONS;
const GET_EXPECTATIONS: u16 = EXPECTATIONS | 1;
pub(crate) const DELETE_EXPECTATION: u16 = EXPECTATIONS | 2;

/// Length of `struct nfgenmsg`, in bytes.
const HEADER: usize = 4;

/// Returns the attributes after the header of a payload.
pub(crate) fn attributes(payload: &[u8]) -> Result<&[u8], DecodeError> {
    payload
        .get(HEADER..)
        .ok_or_else(|| DecodeError::new("nfnetlink header", 0, payload.len()))
}

/// Appends a `struct nfgenmsg`.
pub(crate) fn put_header(out: &mut Vec<u8>, family: u8, version: u8) {
    out.extend_from_slice(&[family, version, 0, 0]);
}
