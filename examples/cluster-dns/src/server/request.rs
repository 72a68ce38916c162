//! Classification of requests, before any work is done for them.

use hickory_proto::op::{Message, Query as Question, ResponseCode};
use hickory_proto::rr::{Record, RecordType};
use hickory_proto::serialize::binary::BinEncodable;

use crate::forward::Query;

/// Bytes of a message header.
pub(super) const HEADER: usize = 12;

const QR: u8 = 0x80;
const OPCODE: u8 = 0x78;
const RD: u8 = 0x01;
const CLASS_IN: u16 = 1;

/// Types of questions that are no records: OPT, TKEY, TSIG, transfers, MAILB and MAILA.
const META_TYPES: [u16; 7] = [41, 249, 250, 251, 252, 253, 254];

/// A request, as far as the server decides on it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Request<'a> {
    /// A question to answer.
    Query(Query<'a>),
    /// A request that is rejected.
    Rejected(Rejection),
    /// A message that must not be answered: no request, or not even a header.
    Ignored,
}

/// The response to a rejected request: header, question and OPT record of the request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Rejection {
    /// Response code.
    pub(super) code: ResponseCode,
    /// Type of the question; 0 if unknown.
    pub(super) record_type: u16,
    /// Header of the request.
    header: [u8; HEADER],
    /// Question section of the request. Empty if the question cannot be read.
    question: Vec<u8>,
    /// Bit DO of the request's OPT record, if there is one.
    edns: Option<bool>,
}

impl<'a> Request<'a> {
    /// Classifies a message.
    pub(super) fn parse(message: &'a [u8]) -> Self {
        let Some(header) = message.first_chunk::<HEADER>() else {
            return Self::Ignored;
        };
        if header[2] & QR != 0 {
            return Self::Ignored;
        }
        let questions = u16::from_be_bytes([header[4], header[5]]);
        let reject = |code| Self::Rejected(Rejection::of_header(code, header));
        if header[2] & OPCODE != 0 {
            return reject(ResponseCode::NotImp);
        }
        if questions != 1 {
            return reject(ResponseCode::FormErr);
        }
        let Some(query) = Query::parse(message) else {
            return Self::Rejected(Rejection::of_unusual(message, header));
        };
        if query.class != CLASS_IN || META_TYPES.contains(&query.record_type) {
            return Self::Rejected(Rejection::of_query(ResponseCode::Refused, &query, header));
        }
        Self::Query(query)
    }
}

impl Rejection {
    /// Creates a rejection without a question.
    fn of_header(code: ResponseCode, header: &[u8; HEADER]) -> Self {
        Self {
            code,
            record_type: 0,
            header: *header,
            question: Vec::new(),
            edns: None,
        }
    }

    /// Creates a rejection of a well-formed query.
    pub(super) fn of_query(code: ResponseCode, query: &Query<'_>, header: &[u8; HEADER]) -> Self {
        let mut question = query.name.to_vec();
        question.extend(query.record_type.to_be_bytes());
        question.extend(query.class.to_be_bytes());
        Self {
            question,
            record_type: query.record_type,
            edns: query.edns.map(|edns| edns.dnssec_ok),
            ..Self::of_header(code, header)
        }
    }

    /// Creates a rejection of a request that is no standard query: with another version of
    /// EDNS, with other records than one OPT record, or malformed.
    ///
    /// An incremental zone transfer has a SOA record of the client (RFC 1995).
    fn of_unusual(message: &[u8], header: &[u8; HEADER]) -> Self {
        let Ok(decoded) = Message::from_vec(message) else {
            return Self::of_header(ResponseCode::FormErr, header);
        };
        match decoded.edns {
            Some(edns) if edns.version() > 0 => Self {
                edns: Some(edns.flags().dnssec_ok),
                ..Self::of_header(ResponseCode::BADVERS, header)
            },
            edns if is_transfer(&decoded.queries, &decoded.authorities) => Self {
                record_type: RecordType::IXFR.into(),
                question: decoded.queries[0].to_bytes().unwrap_or_default(),
                edns: edns.map(|edns| edns.flags().dnssec_ok),
                ..Self::of_header(ResponseCode::Refused, header)
            },
            _ => Self::of_header(ResponseCode::FormErr, header),
        }
    }

    /// Replaces the content of `out` by the response. Its size is at most that of the
    /// request, or that of a header and an OPT record.
    pub(super) fn write(&self, payload_size: u16, out: &mut Vec<u8>) {
        let code = u16::from(self.code);
        let low = (code & 0xF) as u8;
        out.clear();
        out.extend_from_slice(&self.header[..2]);
        out.push(QR | (self.header[2] & (OPCODE | RD)));
        out.push(low);
        out.extend_from_slice(&[0, u8::from(!self.question.is_empty())]);
        out.extend_from_slice(&[0; 6]);
        out.extend_from_slice(&self.question);
        if let Some(dnssec_ok) = self.edns {
            push_opt((code >> 4) as u8, payload_size, dnssec_ok, out);
        }
    }
}

/// Returns whether a request asks for an incremental zone transfer.
fn is_transfer(questions: &[Question], authorities: &[Record]) -> bool {
    let is_ixfr = |question: &Question| question.query_type() == RecordType::IXFR;
    let is_soa = |record: &Record| record.record_type() == RecordType::SOA;
    questions.iter().all(is_ixfr) && authorities.len() == 1 && authorities.iter().all(is_soa)
}

/// Appends an OPT record of version 0, and counts the record in the header.
pub(super) fn push_opt(extended_code: u8, payload_size: u16, dnssec_ok: bool, out: &mut Vec<u8>) {
    const OPT: u8 = 41;
    let [high, low] = payload_size.to_be_bytes();
    let flags = u8::from(dnssec_ok) << 7;
    out.extend_from_slice(&[0, 0, OPT, high, low, extended_code, 0, flags, 0, 0, 0]);
    if let Some(count) = out.get_mut(10..HEADER) {
        let records = u16::from_be_bytes([count[0], count[1]]).saturating_add(1);
        count.copy_from_slice(&records.to_be_bytes());
    }
}

/// Size of the record that [`push_opt`] appends.
pub(super) const OPT_SIZE: usize = 11;

#[cfg(test)]
mod tests {
    use hickory_proto::op::{Edns, MessageType, OpCode};
    use hickory_proto::rr::rdata::SOA;
    use hickory_proto::rr::{DNSClass, Name, RData};

    use super::*;

    fn message(record_type: RecordType, class: DNSClass, edns: Option<u8>) -> Vec<u8> {
        let mut message = Message::new(7, MessageType::Query, OpCode::Query);
        message.metadata.recursion_desired = true;
        let name = Name::from_ascii("Web.example.").unwrap();
        let mut question = Question::query(name, record_type);
        question.set_query_class(class);
        message.add_query(question);
        message.edns = edns.map(|version| {
            let mut edns = Edns::new();
            edns.set_version(version).set_dnssec_ok(true);
            edns
        });
        message.to_vec().unwrap()
    }

    fn rejected(request: &[u8]) -> Message {
        let Request::Rejected(rejection) = Request::parse(request) else {
            panic!("{request:?} is not rejected");
        };
        let mut out = vec![1; 9];
        rejection.write(1232, &mut out);
        Message::from_vec(&out).unwrap()
    }

    #[test]
    fn responses_and_fragments_are_ignored() {
        let mut request = message(RecordType::A, DNSClass::IN, None);
        assert!(matches!(Request::parse(&request), Request::Query(_)));
        for len in 0..HEADER {
            assert_eq!(Request::parse(&request[..len]), Request::Ignored);
        }
        request[2] |= QR;
        assert_eq!(Request::parse(&request), Request::Ignored);
    }

    #[test]
    fn other_operations_are_not_implemented() {
        for code in [1, 2, 4, 5, 6, 15] {
            let mut request = message(RecordType::A, DNSClass::IN, None);
            request[2] |= code << 3;
            let response = rejected(&request);
            assert_eq!(response.metadata.response_code, ResponseCode::NotImp);
            assert_eq!(response.metadata.id, 7);
            assert_eq!(u8::from(response.metadata.op_code), code);
        }
    }

    #[test]
    fn other_classes_and_transfers_are_refused_with_their_question() {
        let refused = [
            (RecordType::TXT, DNSClass::CH),
            (RecordType::A, DNSClass::HS),
            (RecordType::AXFR, DNSClass::IN),
            (RecordType::IXFR, DNSClass::IN),
            (RecordType::TSIG, DNSClass::IN),
        ];
        for (record_type, class) in refused {
            let response = rejected(&message(record_type, class, Some(0)));
            assert_eq!(response.metadata.response_code, ResponseCode::Refused);
            assert_eq!(response.queries[0].query_type(), record_type);
            assert!(response.metadata.recursion_desired);
            assert!(response.edns.unwrap().flags().dnssec_ok);
        }
    }

    #[test]
    fn an_incremental_transfer_with_the_serial_of_the_client_is_refused() {
        let root = Name::root();
        for (record_type, edns, code) in [
            (RecordType::IXFR, None, ResponseCode::Refused),
            (RecordType::IXFR, Some(0), ResponseCode::Refused),
            (RecordType::A, None, ResponseCode::FormErr),
        ] {
            let request = message(record_type, DNSClass::IN, edns);
            let mut request = Message::from_vec(&request).unwrap();
            let soa = RData::SOA(SOA::new(root.clone(), root.clone(), 7, 1, 1, 1, 1));
            request.add_authority(Record::from_rdata(root.clone(), 0, soa));
            let response = rejected(&request.to_vec().unwrap());
            assert_eq!(response.metadata.response_code, code);
            assert_eq!(response.edns.is_some(), edns.is_some());
            if code == ResponseCode::Refused {
                assert_eq!(response.queries, request.queries);
                assert!(response.authorities.is_empty());
            }
        }
    }

    #[test]
    fn another_version_of_edns_is_rejected_with_our_version() {
        let response = rejected(&message(RecordType::A, DNSClass::IN, Some(1)));
        // BADVERS and BADSIG have the same number.
        assert_eq!(u16::from(response.metadata.response_code), 16);
        assert_eq!(response.edns.unwrap().version(), 0);
    }

    #[test]
    fn malformed_requests_are_format_errors_of_at_most_their_size() {
        let valid = message(RecordType::A, DNSClass::IN, Some(0));
        let mut several = valid.clone();
        several[5] = 2;
        let mut none = valid.clone();
        none[5] = 0;
        let trailing = [&valid[..], b"rest"].concat();
        let without_edns = message(RecordType::A, DNSClass::IN, None);
        let after_question = [&without_edns[..], b"rest"].concat();
        let mut pointer = valid.clone();
        pointer[HEADER] = 0xC0;
        let cut = valid[..HEADER + 3].to_vec();
        for request in [several, none, trailing, after_question, pointer, cut] {
            let response = rejected(&request);
            assert_eq!(response.metadata.response_code, ResponseCode::FormErr);
            assert!(response.to_vec().unwrap().len() <= request.len());
        }
    }
}
