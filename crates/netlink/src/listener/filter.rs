//! A socket filter that drops notifications of changes by given sockets.

use socket2::SockFilter;

use crate::uapi::*;

/// Maximum number of port IDs in a filter.
const MAX_PORT_IDS: usize = (BPF_MAXINSNS - 2) / 2;

const LOAD_WORD: u16 = BPF_LD | BPF_W | BPF_ABS;
const JUMP_IF_EQUAL: u16 = BPF_JMP | BPF_JEQ | BPF_K;
const RETURN: u16 = BPF_RET | BPF_K;

/// Offset of `nlmsg_pid` in `struct nlmsghdr`, in bytes.
const PORT_ID: u32 = 12;

/// Returns a filter that drops datagrams that originate from the given port IDs.
///
/// Every message of a datagram carries the port ID of its originator, so the filter
/// only compares the first message.
pub(super) fn exclude(port_ids: &[u32]) -> Vec<SockFilter> {
    let mut filter = vec![SockFilter::new(LOAD_WORD, 0, 0, PORT_ID)];
    for port_id in port_ids.iter().take(MAX_PORT_IDS) {
        // BPF loads words in network byte order; the header is in host byte order.
        let word = u32::from_be_bytes(port_id.to_ne_bytes());
        filter.push(SockFilter::new(JUMP_IF_EQUAL, 0, 1, word));
        filter.push(SockFilter::new(RETURN, 0, 0, 0));
    }
    filter.push(SockFilter::new(RETURN, 0, 0, u32::MAX));
    filter
}
