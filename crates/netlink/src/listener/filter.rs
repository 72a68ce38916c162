//! A filter that keeps what a program did itself from its listener.

use socket2::SockFilter;

/// A socket takes at most so many instructions (`BPF_MAXINSNS`).
const INSTRUCTIONS: usize = 4096;

/// How many ports fit into a filter.
const PORTS: usize = (INSTRUCTIONS - 2) / 2;

// Instructions of classic BPF, `linux/bpf_common.h`.
const LOAD_WORD: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;

/// Where `struct nlmsghdr` has the port of whoever caused the message.
const PORT: u32 = 12;

/// Returns a filter that drops datagrams about what these ports did.
///
/// The kernel says in all messages of a datagram who caused them, and it is
/// the same one, so the first message tells.
pub(super) fn others_than(ports: &[u32]) -> Vec<SockFilter> {
    let mut filter = vec![SockFilter::new(LOAD_WORD, 0, 0, PORT)];
    for port in ports.iter().take(PORTS) {
        // Words are loaded in network order, the kernel wrote its own.
        let word = u32::from_be_bytes(port.to_ne_bytes());
        filter.push(SockFilter::new(JUMP_IF_EQUAL, 0, 1, word));
        filter.push(SockFilter::new(RETURN, 0, 0, 0));
    }
    filter.push(SockFilter::new(RETURN, 0, 0, u32::MAX));
    filter
}
