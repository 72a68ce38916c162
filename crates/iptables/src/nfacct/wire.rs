//! Message encoding and decoding: `linux/netfilter/nfnetlink_acct.h`.

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attrs, put_be64, put_str};

use super::Name;

// linux/netfilter/nfnetlink.h
const NFNL_SUBSYS_ACCT: u8 = 7;

/// `struct nfgenmsg` with family 0, before the attributes.
const HEADER: [u8; 4] = [0; 4];

// enum nfnl_acct_type
const NFACCT_NAME: u16 = 1;
const NFACCT_PKTS: u16 = 2;
const NFACCT_BYTES: u16 = 3;
const NFACCT_USE: u16 = 4;

// enum nfnl_acct_msg_types
pub(super) const NFNL_MSG_ACCT_NEW: u8 = 0;
pub(super) const NFNL_MSG_ACCT_GET: u8 = 1;
pub(super) const NFNL_MSG_ACCT_DEL: u8 = 3;

/// Returns the type of a netlink message: the subsystem, and the type within it.
pub(super) fn message_type(kind: u8) -> u16 {
    u16::from_be_bytes([NFNL_SUBSYS_ACCT, kind])
}

/// A counter.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Counter {
    /// Name.
    pub name: Name,
    /// Number of packets.
    #[doc(alias = "NFACCT_PKTS")]
    pub packets: u64,
    /// Number of bytes.
    #[doc(alias = "NFACCT_BYTES")]
    pub bytes: u64,
    /// Number of rules that use the counter. A counter in use cannot be deleted.
    #[doc(alias = "NFACCT_USE")]
    pub rules: u32,
}

/// Returns the payload of a request for all counters.
pub(super) fn all() -> Vec<u8> {
    HEADER.to_vec()
}

/// Returns the payload of a request for one counter.
pub(super) fn named(name: &Name) -> Vec<u8> {
    let mut out = HEADER.to_vec();
    put_str(&mut out, NFACCT_NAME, name.as_str());
    out
}

/// Returns the payload of a request that creates a counter with value zero.
pub(super) fn new(name: &Name) -> Vec<u8> {
    let mut out = named(name);
    put_be64(&mut out, NFACCT_PKTS, 0);
    put_be64(&mut out, NFACCT_BYTES, 0);
    out
}

/// Decodes a counter from the payload of a reply.
pub(super) fn decode(payload: &[u8]) -> Result<Counter, DecodeError> {
    let attrs = payload
        .get(HEADER.len()..)
        .ok_or_else(|| DecodeError::new("nfgenmsg", 0, payload.len()))?;
    let (mut name, mut packets, mut bytes, mut uses) = (None, 0, 0, 0);
    for attr in Attrs::new(attrs) {
        let attr = attr?;
        match attr.kind {
            NFACCT_NAME => {
                let read = Name::new(attr.str()?);
                name = Some(read.map_err(|_| attr.error("name of a counter"))?);
            }
            NFACCT_PKTS => packets = attr.be64()?,
            NFACCT_BYTES => bytes = attr.be64()?,
            NFACCT_USE => uses = attr.be32()?,
            _ => {}
        }
    }
    Ok(Counter {
        name: name.ok_or_else(|| DecodeError::new("counter", 0, payload.len()))?,
        packets,
        bytes,
        // The counter itself holds one reference.
        rules: u32::saturating_sub(uses, 1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages of the program `nfacct` 1.0.2, recorded with strace: a comment with
    /// the command, then `nlmsg_type` and the payload.
    const CAPTURES: &str = include_str!("../../tests/nfacct/messages.hex");

    fn captured(command: &str) -> (u16, Vec<u8>) {
        let mut lines = CAPTURES.lines();
        lines.find(|line| *line == format!("# {command}")).unwrap();
        let (ty, hex) = lines.next().unwrap().split_once(' ').unwrap();
        let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        let bytes = (0..hex.len()).step_by(2).map(byte).collect();
        (u16::from_str_radix(ty, 16).unwrap(), bytes)
    }

    #[test]
    fn messages_equal_those_of_the_nfacct_program() {
        let name = Name::new("hits").unwrap();
        for (command, kind, payload) in [
            ("nfacct add hits", NFNL_MSG_ACCT_NEW, new(&name)),
            ("nfacct get hits", NFNL_MSG_ACCT_GET, named(&name)),
            ("nfacct delete hits", NFNL_MSG_ACCT_DEL, named(&name)),
            ("nfacct list", NFNL_MSG_ACCT_GET, all()),
        ] {
            assert_eq!(
                (message_type(kind), payload),
                captured(command),
                "{command}"
            );
        }
    }

    #[test]
    fn a_counter_is_decoded_from_a_reply() {
        let (_, payload) = captured("nfacct get hits, the answer with two rules");
        let counter = decode(&payload).unwrap();
        assert_eq!(counter.name.as_str(), "hits");
        assert_eq!((counter.packets, counter.bytes, counter.rules), (2, 168, 2));
    }

    #[test]
    fn truncated_counters_are_errors() {
        let (_, payload) = captured("nfacct get hits, the answer with two rules");
        // Truncated in the header, before the name, and in each attribute.
        for len in [0, 3, 4, 12, 27, 39, 47] {
            assert!(decode(&payload[..len]).is_err(), "{len}");
        }
        assert!(decode(&payload[..40]).is_ok());
    }
}
