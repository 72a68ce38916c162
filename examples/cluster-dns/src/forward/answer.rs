//! Answers in wire format, which are copied and patched for each client.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;

use hickory_proto::ProtoError;
use hickory_proto::op::Message;
use hickory_proto::rr::{RData, Record};
use hickory_proto::serialize::binary::{BinEncodable, BinEncoder};

use super::query::{HEADER, Query};
use crate::truncation;

/// Mark of a pointer in a compressed name, and the offsets that a pointer can have.
const POINTER: u16 = 0xC000;
const POINTER_RANGE: u16 = 0x4000;

const QR: u8 = 0x80;
const TC: u8 = 0x02;
const RA: u8 = 0x80;
const AD: u8 = 0x20;
const CD: u8 = 0x10;
const RCODE: u8 = 0x0F;
const TYPE_OPT: u16 = 41;
const DNSSEC_OK: u8 = 0x80;

/// EDNS option Extended DNS Error, RFC 8914.
const EXTENDED_ERROR: u16 = 15;
const STALE_ANSWER: u16 = 3;
const STALE_NXDOMAIN_ANSWER: u16 = 19;
const NXDOMAIN: u8 = 3;

/// An encoded response with one question in lower case and without an OPT record.
///
/// The answer to a client differs in the ID, in flags, in the case of the question, in the
/// TTLs and in the OPT record.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Answer {
    message: Box<[u8]>,
    /// Offsets of the TTLs of all records.
    ttls: Box<[u16]>,
    /// Places in `ttls` of the addresses at the end of the answer section. All have the
    /// same name and type.
    addresses: Range<usize>,
}

/// TTLs in an answer to a client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Ttl {
    /// Seconds since the answer was received.
    Age(u32),
    /// The TTL of all records of a stale answer, in seconds.
    Stale(u32),
}

/// Form of the answer that a client gets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    pub(super) ttl: Ttl,
    /// Longest answer, in bytes. Longer ones are cut after the last record that fits.
    pub(super) limit: usize,
    /// EDNS buffer size of this server.
    pub(super) payload_size: u16,
    /// Number of places by which addresses rotate.
    pub(super) rotation: usize,
}

impl Answer {
    /// Encodes a response with one question, without its OPT record.
    ///
    /// Returns `None` if the response is too long.
    pub(super) fn encode(response: &Message) -> Option<Self> {
        let mut message = Vec::with_capacity(512);
        let mut ttls = Vec::new();
        encode(response, &mut message, &mut ttls).ok()?;
        let metadata = &response.metadata;
        let header = message.first_chunk_mut::<HEADER>()?;
        header[3] = metadata.response_code.low() | if metadata.authentic_data { AD } else { 0 };
        let sections = [
            &response.answers,
            &response.authorities,
            &response.additionals,
        ];
        header[5] = 1;
        for (section, count) in sections.into_iter().zip(header[6..].chunks_exact_mut(2)) {
            count.copy_from_slice(&u16::try_from(section.len()).ok()?.to_be_bytes());
        }
        Some(Self {
            message: message.into(),
            ttls: ttls.into(),
            addresses: addresses(&response.answers),
        })
    }

    /// Creates an answer that has only a question and an RCODE.
    pub(super) fn error(query: &Query<'_>, rcode: u8) -> Self {
        let mut message = vec![0; HEADER];
        message[3] = rcode & RCODE;
        message[5] = 1;
        message.extend_from_slice(query.name);
        message[HEADER..].make_ascii_lowercase();
        message.extend_from_slice(&query.record_type.to_be_bytes());
        message.extend_from_slice(&query.class.to_be_bytes());
        Self {
            message: message.into(),
            ttls: Box::default(),
            addresses: 0..0,
        }
    }

    /// Returns the answer with the bit TC.
    pub(super) fn truncated(mut self) -> Self {
        self.message[2] |= TC;
        self
    }

    /// Returns the bytes of memory that the answer uses.
    pub(super) fn memory(&self) -> usize {
        self.message.len() + self.ttls.len() * size_of::<u16>()
    }

    /// Returns the RCODE.
    pub(super) fn rcode(&self) -> u8 {
        self.message.get(3).map_or(0, |flags| flags & RCODE)
    }

    /// Replaces the content of `out` by the answer to `query`, whose key must be that of
    /// the answer.
    pub(super) fn write(&self, query: &Query<'_>, form: Form, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&self.message);
        self.patch_ttls(form.ttl, out);
        self.rotate(form.rotation, out);
        let question = HEADER + query.name.len();
        // Names of the question and of the answer are equal except for their case.
        if let Some(name) = out.get_mut(HEADER..question) {
            name.copy_from_slice(query.name);
        }
        let opt = query
            .edns
            .map(|edns| opt_record(edns.dnssec_ok, form, self.rcode()));
        let opt = opt.as_ref().map_or(&[][..], |(bytes, len)| &bytes[..*len]);
        truncation::cut(out, form.limit.saturating_sub(opt.len()));
        let mut flags = [
            QR | (out[2] & TC) | u8::from(query.recursion_desired),
            RA | (self.message[3] & RCODE),
        ];
        if self.message[3] & AD != 0 && (query.dnssec_ok() || query.authentic_data) {
            flags[1] |= AD;
        }
        if query.checking_disabled {
            flags[1] |= CD;
        }
        if !opt.is_empty() {
            out.extend_from_slice(opt);
            let additionals = u16::from_be_bytes([out[10], out[11]]).saturating_add(1);
            out[10..12].copy_from_slice(&additionals.to_be_bytes());
        }
        out[..2].copy_from_slice(&query.id.to_be_bytes());
        out[2..4].copy_from_slice(&flags);
    }

    /// Rotates the addresses. Owners stay: only the first may be written without a pointer.
    fn rotate(&self, rotation: usize, out: &mut [u8]) {
        let ttls = self.ttls.get(self.addresses.clone()).unwrap_or_default();
        let rotated = ttls.iter().cycle().skip(rotation % ttls.len().max(1));
        for (&to, &from) in ttls.iter().zip(rotated) {
            let data = |ttl: u16| data(&self.message, ttl);
            if let (Some(to), Some(from)) = (data(to), data(from)) {
                out[to].copy_from_slice(&self.message[from]);
            }
        }
    }

    fn patch_ttls(&self, ttl: Ttl, out: &mut [u8]) {
        for &at in &self.ttls {
            let at = usize::from(at);
            let Some(bytes) = out.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<4>) else {
                return;
            };
            let value = match ttl {
                Ttl::Age(age) => u32::from_be_bytes(*bytes).saturating_sub(age),
                Ttl::Stale(value) => value,
            };
            *bytes = value.to_be_bytes();
        }
    }
}

/// Returns the place of the data of a record, given the offset of its TTL.
fn data(message: &[u8], ttl: u16) -> Option<Range<usize>> {
    let start = usize::from(ttl) + 6;
    let length = message.get(start - 2..)?.first_chunk()?;
    let end = start + usize::from(u16::from_be_bytes(*length));
    (end <= message.len()).then_some(start..end)
}

/// Returns the places of the addresses at the end of the answer section.
fn addresses(answers: &[Record]) -> Range<usize> {
    let is_address = |record: &&Record| matches!(record.data, RData::A(_) | RData::AAAA(_));
    let Some(last) = answers.last().filter(is_address) else {
        return 0..0;
    };
    let is_like_last =
        |record: &&Record| record.record_type() == last.record_type() && record.name == last.name;
    let count = answers.iter().rev().take_while(is_like_last).count();
    answers.len() - count..answers.len()
}

/// Longest OPT record that [`opt_record`] returns.
const LONGEST_OPT: usize = 17;

/// Returns an OPT record and its length.
fn opt_record(dnssec_ok: bool, form: Form, rcode: u8) -> ([u8; LONGEST_OPT], usize) {
    let mut opt = [0; LONGEST_OPT];
    opt[1..3].copy_from_slice(&TYPE_OPT.to_be_bytes());
    opt[3..5].copy_from_slice(&form.payload_size.to_be_bytes());
    opt[7] = if dnssec_ok { DNSSEC_OK } else { 0 };
    if matches!(form.ttl, Ttl::Age(_)) {
        return (opt, 11);
    }
    let error = if rcode == NXDOMAIN {
        STALE_NXDOMAIN_ANSWER
    } else {
        STALE_ANSWER
    };
    opt[10] = 6;
    opt[11..13].copy_from_slice(&EXTENDED_ERROR.to_be_bytes());
    opt[14] = 2;
    opt[15..17].copy_from_slice(&error.to_be_bytes());
    (opt, LONGEST_OPT)
}

/// Encodes question and records after an empty header, and lists the offsets of the TTLs.
///
/// The codec compresses a limited number of names. Repeated owners are always pointers, so
/// that a long response is not longer than that of the upstream.
fn encode(response: &Message, out: &mut Vec<u8>, ttls: &mut Vec<u16>) -> Result<(), ProtoError> {
    let mut encoder = BinEncoder::new(out);
    let mut owners = HashMap::new();
    encoder.emit_vec(&[0; HEADER])?;
    for question in &response.queries {
        owners.insert(&question.name, encoder.offset());
        question.emit(&mut encoder)?;
    }
    let sections = [
        &response.answers,
        &response.authorities,
        &response.additionals,
    ];
    for record in sections.into_iter().flatten() {
        match owners.entry(&record.name) {
            Entry::Occupied(owner) => {
                encoder.emit_u16(POINTER | u16::try_from(*owner.get()).unwrap_or_default())?;
            }
            Entry::Vacant(owner) => {
                if encoder.offset() < usize::from(POINTER_RANGE) {
                    owner.insert(encoder.offset());
                }
                record.name.emit(&mut encoder)?;
            }
        }
        encoder.emit_u16(record.record_type().into())?;
        encoder.emit_u16(record.dns_class.into())?;
        ttls.extend(u16::try_from(encoder.offset()));
        encoder.emit_u32(record.ttl)?;
        let len = encoder.place::<u16>()?;
        record.data.emit(&mut encoder)?;
        let written = encoder.len_since_place(&len);
        // The encoder limits a message to 65,535 bytes.
        len.replace(&mut encoder, u16::try_from(written).unwrap_or_default())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use hickory_proto::op::{OpCode, Query as Question, ResponseCode};
    use hickory_proto::rr::{Name, RecordType, rdata};

    use super::*;
    use crate::forward::query::QueryEdns;

    const PLAIN: Form = Form {
        ttl: Ttl::Age(0),
        limit: 512,
        payload_size: 1_232,
        rotation: 0,
    };

    fn query(edns: Option<bool>) -> Query<'static> {
        Query {
            id: 0xABCD,
            name: b"\x03WWW\x07eXample\x03com\0",
            record_type: 1,
            class: 1,
            recursion_desired: true,
            authentic_data: false,
            checking_disabled: false,
            edns: edns.map(|dnssec_ok| QueryEdns {
                payload_size: 4_096,
                dnssec_ok,
            }),
        }
    }

    fn answer(records: u8) -> Answer {
        let name = Name::from_ascii("www.example.com.").unwrap();
        let mut message = Message::response(0, OpCode::Query);
        message.metadata.authentic_data = true;
        message.metadata.response_code = ResponseCode::NXDomain;
        message.add_query(Question::query(name.clone(), RecordType::A));
        for last in 0..records {
            let data = RData::A(rdata::A(Ipv4Addr::new(192, 0, 2, last)));
            message.add_answer(Record::from_rdata(
                name.clone(),
                100 + u32::from(last),
                data,
            ));
        }
        Answer::encode(&message).unwrap()
    }

    fn written(answer: &Answer, query: &Query<'_>, form: Form) -> (Vec<u8>, Message) {
        let mut out = vec![1, 2, 3];
        answer.write(query, form, &mut out);
        let message = Message::from_vec(&out).unwrap();
        (out, message)
    }

    #[test]
    fn an_answer_has_the_id_flags_and_case_of_its_query() {
        let (out, message) = written(&answer(2), &query(None), PLAIN);
        assert_eq!(message.metadata.id, 0xABCD);
        assert_eq!(message.metadata.response_code, ResponseCode::NXDomain);
        let flags = message.metadata;
        assert!(flags.recursion_desired && flags.recursion_available);
        assert!(!flags.authentic_data && !flags.authoritative && !flags.checking_disabled);
        assert_eq!(&out[HEADER..HEADER + 17], query(None).name);
        // The owners are pointers to the question, so that they have its case, too.
        assert_eq!(message.answers[0].name.to_string(), "WWW.eXample.com.");
        assert!(message.edns.is_none());
    }

    #[test]
    fn the_addresses_at_the_end_of_the_answer_rotate() {
        let name = |text: &str| Name::from_ascii(text).unwrap();
        let mut message = Message::response(0, OpCode::Query);
        message.add_query(Question::query(name("www.example.com."), RecordType::A));
        let alias = RData::CNAME(rdata::CNAME(name("end.example.net.")));
        message.add_answer(Record::from_rdata(name("www.example.com."), 60, alias));
        for last in 0..3 {
            let data = RData::A(rdata::A(Ipv4Addr::new(192, 0, 2, last)));
            message.add_answer(Record::from_rdata(name("end.example.net."), 60, data));
        }
        let answer = Answer::encode(&message).unwrap();
        for (rotation, expected) in [(0, [1, 2, 3]), (1, [2, 3, 1]), (5, [3, 1, 2])] {
            let form = Form { rotation, ..PLAIN };
            let (_, rotated) = written(&answer, &query(None), form);
            let expected = [0, expected[0], expected[1], expected[2]];
            let expected = expected.map(|place: usize| message.answers[place].data.clone());
            let data = rotated.answers.iter().map(|record| record.data.clone());
            assert_eq!(data.collect::<Vec<_>>(), expected, "{rotation}");
            assert_eq!(rotated.answers[1].name, name("end.example.net."));
        }
    }

    #[test]
    fn ttls_are_counted_down_to_zero() {
        let aged = Form {
            ttl: Ttl::Age(101),
            ..PLAIN
        };
        let (_, message) = written(&answer(3), &query(None), aged);
        let ttls = message
            .answers
            .iter()
            .map(|record| record.ttl)
            .collect::<Vec<_>>();
        assert_eq!(ttls, [0, 0, 1]);
    }

    #[test]
    fn a_client_with_edns_gets_an_opt_record_and_ad_with_do() {
        let (_, message) = written(&answer(1), &query(Some(true)), PLAIN);
        let edns = message.edns.as_ref().unwrap();
        assert_eq!((edns.max_payload(), edns.flags().dnssec_ok), (1_232, true));
        assert!(message.metadata.authentic_data);
        let (_, message) = written(&answer(1), &query(Some(false)), PLAIN);
        assert!(!message.edns.as_ref().unwrap().flags().dnssec_ok);
        assert!(!message.metadata.authentic_data);
    }

    #[test]
    fn a_stale_answer_has_one_ttl_and_an_extended_error() {
        let stale = Form {
            ttl: Ttl::Stale(30),
            ..PLAIN
        };
        let (out, message) = written(&answer(2), &query(Some(false)), stale);
        assert!(message.answers.iter().all(|record| record.ttl == 30));
        assert_eq!(out[out.len() - 8..], [0, 6, 0, 15, 0, 2, 0, 19]);
        let (_, message) = written(&answer(2), &query(None), stale);
        assert!(message.edns.is_none());
    }

    #[test]
    fn an_answer_over_the_limit_has_the_records_that_fit() {
        // 33 bytes of header and question, 16 bytes a record, 11 bytes of OPT.
        for (records, edns, truncated) in [
            (29, None, false),
            (30, None, true),
            (29, Some(false), false),
            (30, Some(false), true),
        ] {
            let (out, message) = written(&answer(records), &query(edns), PLAIN);
            let case = format!("{records} records, {edns:?}");
            assert!(out.len() <= 512, "{case}");
            assert_eq!(message.metadata.truncation, truncated, "{case}");
            assert_eq!(message.answers.len(), 29, "{case}");
            assert_eq!(message.edns.is_some(), edns.is_some(), "{case}");
            assert_eq!(message.queries.len(), 1);
        }
        let long = Form {
            limit: 4_096,
            ..PLAIN
        };
        assert_eq!(
            written(&answer(200), &query(None), long).1.answers.len(),
            200
        );
    }

    #[test]
    fn repeated_owners_of_a_long_answer_are_pointers() {
        let name = |text: &str| Name::from_ascii(text).unwrap();
        let mut message = Message::response(0, OpCode::Query);
        message.add_query(Question::query(name("www.example.com."), RecordType::A));
        let alias = RData::CNAME(rdata::CNAME(name("end.example.net.")));
        message.add_answer(Record::from_rdata(name("www.example.com."), 60, alias));
        for _ in 0..4_000 {
            let data = RData::A(rdata::A(Ipv4Addr::LOCALHOST));
            message.add_answer(Record::from_rdata(name("end.example.net."), 60, data));
        }
        let long = Form {
            limit: 65_535,
            ..PLAIN
        };
        let (out, decoded) = written(&Answer::encode(&message).unwrap(), &query(None), long);
        assert!(out.len() < 64_200, "{}", out.len());
        assert_eq!(decoded.answers[1..], message.answers[1..]);
        message.answers.extend_from_within(1..101);
        assert_eq!(Answer::encode(&message), None, "too long");
    }

    #[test]
    fn an_error_is_an_answer_without_records() {
        let (_, message) = written(&Answer::error(&query(None), 5), &query(Some(true)), PLAIN);
        assert_eq!(message.metadata.response_code, ResponseCode::Refused);
        assert_eq!(message.queries[0].name.to_string(), "WWW.eXample.com.");
        assert!(message.answers.is_empty() && message.edns.is_some());
    }
}
