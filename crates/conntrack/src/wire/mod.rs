//! Encoding and decoding of ctnetlink messages.
//!
//! The attributes are those of `linux/netfilter/nfnetlink_conntrack.h`.

mod flow;

mod request;

pub use request::Request;

use vipline_netlink::DecodeError;

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
