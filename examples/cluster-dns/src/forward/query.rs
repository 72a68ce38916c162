//! Questions of clients in wire format.

use std::iter;
use std::ops::Deref;

/// Bytes of a message header.
pub(super) const HEADER: usize = 12;

/// Longest name in wire format, with the root label.
const LONGEST_NAME: usize = 255;

/// Longest [`Key`]: flags, type, class and name.
const LONGEST_KEY: usize = 5 + LONGEST_NAME;

const QR: u8 = 0x80;
const OPCODE: u8 = 0x78;
const TC: u8 = 0x02;
const RD: u8 = 0x01;
const AD: u8 = 0x20;
const CD: u8 = 0x10;
const TYPE_OPT: u16 = 41;
const DNSSEC_OK: u8 = 0x80;

/// Smallest limit of answers over UDP.
const SMALLEST_LIMIT: u16 = 512;

/// A standard query with exactly one question, borrowed from a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Query<'a> {
    /// ID of the request.
    pub id: u16,
    /// Name in wire format, uncompressed, in the case of the request, with the root label.
    pub name: &'a [u8],
    /// Type of the question.
    pub record_type: u16,
    /// Class of the question.
    pub class: u16,
    /// The bit RD.
    pub recursion_desired: bool,
    /// The bit AD: the client understands AD in the answer.
    pub authentic_data: bool,
    /// The bit CD.
    pub checking_disabled: bool,
    /// The OPT record of version 0, if there is one.
    pub edns: Option<QueryEdns>,
}

/// Fields of the OPT record of a request that change the answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct QueryEdns {
    /// Largest UDP answer that the client accepts, in bytes.
    pub payload_size: u16,
    /// The bit DO.
    pub dnssec_ok: bool,
}

impl<'a> Query<'a> {
    /// Parses a request.
    ///
    /// Returns `None` unless the request is a standard query with one question, and with
    /// no record except an OPT record of version 0. EDNS options are ignored.
    pub fn parse(request: &'a [u8]) -> Option<Self> {
        let (header, rest) = request.split_at_checked(HEADER)?;
        let count = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let is_query = header[2] & (QR | OPCODE | TC) == 0;
        if !is_query || count(4) != 1 || count(6) != 0 || count(8) != 0 || count(10) > 1 {
            return None;
        }
        let (name, rest) = rest.split_at_checked(name_len(rest)?)?;
        let (question, rest) = rest.split_at_checked(4)?;
        let edns = match count(10) {
            0 if rest.is_empty() => None,
            0 => return None,
            _ => Some(parse_opt(rest)?),
        };
        Some(Self {
            id: u16::from_be_bytes([header[0], header[1]]),
            name,
            record_type: u16::from_be_bytes([question[0], question[1]]),
            class: u16::from_be_bytes([question[2], question[3]]),
            recursion_desired: header[2] & RD != 0,
            authentic_data: header[3] & AD != 0,
            checking_disabled: header[3] & CD != 0,
            edns,
        })
    }

    /// Returns whether the client wants DNSSEC records.
    pub fn dnssec_ok(&self) -> bool {
        self.edns.is_some_and(|edns| edns.dnssec_ok)
    }

    /// Returns the limit of an answer over UDP, in bytes. `payload_size` is ours.
    pub fn udp_limit(&self, payload_size: u16) -> usize {
        let client = self.edns.map_or(SMALLEST_LIMIT, |edns| edns.payload_size);
        client
            .clamp(SMALLEST_LIMIT, payload_size.max(SMALLEST_LIMIT))
            .into()
    }

    /// Returns the key of the answer in the cache.
    pub(super) fn key(&self) -> Key {
        let mut bytes = [0; LONGEST_KEY];
        bytes[0] = u8::from(self.dnssec_ok()) | u8::from(self.checking_disabled) << 1;
        bytes[1..3].copy_from_slice(&self.record_type.to_be_bytes());
        bytes[3..5].copy_from_slice(&self.class.to_be_bytes());
        let len = 5 + self.name.len();
        bytes[5..len].copy_from_slice(self.name);
        // Lengths of labels are at most 63, so this changes letters only.
        bytes[5..len].make_ascii_lowercase();
        Key { bytes, len }
    }
}

/// Returns the length of an uncompressed name with its root label.
fn name_len(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let label = usize::from(*bytes.get(at)?);
        if label > 63 {
            return None;
        }
        at += 1 + label;
        if at > LONGEST_NAME {
            return None;
        }
        if label == 0 {
            return Some(at);
        }
    }
}

/// Returns a valid name in wire format, then its parents up to the root.
pub(super) fn suffixes(name: &[u8]) -> impl Iterator<Item = &[u8]> {
    iter::successors(Some(name), |name| parent(name))
}

fn parent(name: &[u8]) -> Option<&[u8]> {
    let (&label, rest) = name.split_first()?;
    rest.get(label.into()..).filter(|parent| !parent.is_empty())
}

/// Parses an OPT record of version 0 that is the whole rest of a request.
fn parse_opt(bytes: &[u8]) -> Option<QueryEdns> {
    // Root name, type, payload size, extended RCODE, version, flags, length of the options.
    let (fixed, options) = bytes.split_first_chunk::<11>()?;
    let [
        root,
        type0,
        type1,
        size0,
        size1,
        _,
        version,
        flags,
        _,
        len0,
        len1,
    ] = *fixed;
    let is_opt = root == 0 && u16::from_be_bytes([type0, type1]) == TYPE_OPT && version == 0;
    let is_whole = options.len() == usize::from(u16::from_be_bytes([len0, len1]));
    (is_opt && is_whole).then_some(QueryEdns {
        payload_size: u16::from_be_bytes([size0, size1]),
        dnssec_ok: flags & DNSSEC_OK != 0,
    })
}

/// Identity of an answer: name in lower case, type, class, and the bits DO and CD.
#[derive(Clone, Copy)]
pub(super) struct Key {
    bytes: [u8; LONGEST_KEY],
    len: usize,
}

impl Key {
    /// Returns the name in lower case and in wire format of the bytes of a key.
    pub(super) fn name(key: &[u8]) -> &[u8] {
        key.get(5..).unwrap_or_default()
    }

    /// Returns a query without EDNS, except for DO, that has this key.
    pub(super) fn query(&self) -> Query<'_> {
        Query {
            id: 0,
            name: Self::name(self),
            record_type: u16::from_be_bytes([self.bytes[1], self.bytes[2]]),
            class: u16::from_be_bytes([self.bytes[3], self.bytes[4]]),
            recursion_desired: true,
            authentic_data: true,
            checking_disabled: self.bytes[0] & 2 != 0,
            edns: (self.bytes[0] & 1 != 0).then_some(QueryEdns {
                payload_size: SMALLEST_LIMIT,
                dnssec_ok: true,
            }),
        }
    }
}

impl Deref for Key {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query as Question};
    use hickory_proto::rr::{Name, RecordType};

    use super::*;

    fn request(name: &str, edns: Option<bool>) -> Vec<u8> {
        let mut message = Message::new(7, MessageType::Query, OpCode::Query);
        message.metadata.recursion_desired = true;
        message.add_query(Question::query(
            Name::from_ascii(name).unwrap(),
            RecordType::AAAA,
        ));
        message.edns = edns.map(|dnssec_ok| {
            let mut edns = Edns::new();
            edns.set_max_payload(4_096).set_dnssec_ok(dnssec_ok);
            edns
        });
        message.to_vec().unwrap()
    }

    #[test]
    fn a_query_is_parsed() {
        let request = request("Www.Example.com.", Some(true));
        let query = Query::parse(&request).unwrap();
        assert_eq!(query.id, 7);
        assert_eq!(query.name, b"\x03Www\x07Example\x03com\0");
        assert_eq!((query.record_type, query.class), (28, 1));
        assert!(query.recursion_desired && !query.checking_disabled && query.dnssec_ok());
        assert_eq!(query.udp_limit(1_232), 1_232);
    }

    #[test]
    fn the_key_ignores_case_and_depends_on_do_and_cd() {
        let [mixed, lower, dnssec, mut unchecked] = [
            request("Www.Example.com.", None),
            request("www.example.com.", Some(false)),
            request("www.example.com.", Some(true)),
            request("www.example.com.", None),
        ];
        unchecked[3] |= CD;
        let key = |request: &[u8]| Query::parse(request).unwrap().key().to_vec();
        assert_eq!(key(&mixed), key(&lower));
        assert_ne!(key(&lower), key(&dnssec));
        assert_ne!(key(&lower), key(&unchecked));
        let again = Query::parse(&dnssec).unwrap().key();
        assert_eq!(*again.query().key(), *again);
    }

    #[test]
    fn truncated_requests_are_no_queries() {
        let request = request("www.example.com.", Some(true));
        for len in 0..request.len() {
            assert_eq!(Query::parse(&request[..len]), None, "{len} bytes");
        }
    }

    #[test]
    fn unusual_requests_are_no_queries() {
        let valid = request("www.example.com.", Some(true));
        // Response, opcode, TC, two questions, an answer, an authority, two additionals,
        // a compressed name, EDNS version 1, trailing bytes.
        for (at, value) in [
            (2, 0x81),
            (2, 0x29),
            (2, 3),
            (5, 2),
            (7, 1),
            (9, 1),
            (11, 2),
            (12, 0xC0),
        ] {
            let mut request = valid.clone();
            request[at] = value;
            assert_eq!(Query::parse(&request), None, "byte {at} is {value}");
        }
        let mut version = valid.clone();
        let at = version.len() - 5;
        version[at] = 1;
        assert_eq!(Query::parse(&version), None);
        assert_eq!(Query::parse(&[valid.as_slice(), b"x"].concat()), None);
    }

    #[test]
    fn the_parents_of_a_name_end_with_the_root() {
        let names = suffixes(b"\x01a\x02bc\0").collect::<Vec<_>>();
        assert_eq!(names, [&b"\x01a\x02bc\0"[..], b"\x02bc\0", b"\0"]);
        assert_eq!(suffixes(b"\0").count(), 1);
    }

    #[test]
    fn a_client_without_edns_gets_512_bytes() {
        let request = request("www.example.com.", None);
        assert_eq!(Query::parse(&request).unwrap().udp_limit(1_232), 512);
    }
}
