//! Messages about counters, `linux/netfilter/nfnetlink_acct.h`.

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attrs, put_be64, put_str};

use super::Name;

/// The number of nfacct within nfnetlink: `NFNL_SUBSYS_ACCT`.
const SUBSYSTEM: u8 = 7;

/// What stands before the attributes: `struct nfgenmsg` of no family.
const HEADER: [u8; 4] = [0; 4];

// enum nfnl_acct_type
const NFACCT_NAME: u16 = 1;
const NFACCT_PKTS: u16 = 2;
const NFACCT_BYTES: u16 = 3;
const NFACCT_USE: u16 = 4;

/// The kinds of messages: `enum nfnl_acct_msg_types`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    New = 0,
    Get = 1,
    Del = 3,
}

impl Kind {
    /// Returns the type of the netlink message.
    pub(super) fn message_type(self) -> u16 {
        u16::from(SUBSYSTEM) << 8 | self as u16
    }
}

/// A counter.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Counter {
    /// Its name.
    pub name: Name,
    /// How many packets were counted.
    #[doc(alias = "NFACCT_PKTS")]
    pub packets: u64,
    /// The bytes in them.
    #[doc(alias = "NFACCT_BYTES")]
    pub bytes: u64,
    /// How many rules count in it; while there are any it cannot be deleted.
    #[doc(alias = "NFACCT_USE")]
    pub rules: u32,
}

/// Returns the payload of a message about all counters.
pub(super) fn all() -> Vec<u8> {
    HEADER.to_vec()
}

/// Returns the payload of a message about the counter of a name.
pub(super) fn named(name: &Name) -> Vec<u8> {
    let mut out = HEADER.to_vec();
    put_str(&mut out, NFACCT_NAME, name.as_str());
    out
}

/// Returns the payload of a message that makes a counter, at zero.
pub(super) fn new(name: &Name) -> Vec<u8> {
    let mut out = named(name);
    put_be64(&mut out, NFACCT_PKTS, 0);
    put_be64(&mut out, NFACCT_BYTES, 0);
    out
}

/// Reads the payload of a message that tells of a counter.
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
        // The counter itself is one use.
        rules: u32::saturating_sub(uses, 1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the program `nfacct` 1.0.2 sent and received, recorded by strace:
    /// a comment with the command, then `nlmsg_type` and the payload.
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
    fn messages_are_those_of_the_program() {
        let name = Name::new("hits").unwrap();
        for (command, kind, payload) in [
            ("nfacct add hits", Kind::New, new(&name)),
            ("nfacct get hits", Kind::Get, named(&name)),
            ("nfacct delete hits", Kind::Del, named(&name)),
            ("nfacct list", Kind::Get, all()),
        ] {
            assert_eq!(
                (kind.message_type(), payload),
                captured(command),
                "{command}"
            );
        }
    }

    #[test]
    fn a_counter_is_read_from_the_kernels_answer() {
        let (_, payload) = captured("nfacct get hits, the answer with two rules");
        let counter = decode(&payload).unwrap();
        assert_eq!(counter.name.as_str(), "hits");
        assert_eq!((counter.packets, counter.bytes, counter.rules), (2, 168, 2));
    }

    #[test]
    fn what_is_no_counter_is_an_error() {
        let (_, payload) = captured("nfacct get hits, the answer with two rules");
        // Within the header, without the name, within each attribute.
        for len in [0, 3, 4, 12, 27, 39, 47] {
            assert!(decode(&payload[..len]).is_err(), "{len}");
        }
        assert!(decode(&payload[..40]).is_ok());
    }
}
