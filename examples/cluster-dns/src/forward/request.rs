//! Queries to upstreams, and the check that a reply belongs to its query.

use hickory_proto::op::{Message, Query as Question};

use super::query::{HEADER, Query};

const RD: u8 = 0x01;
const AD: u8 = 0x20;
const CD: u8 = 0x10;
const TYPE_OPT: u16 = 41;
const DNSSEC_OK: u8 = 0x80;

/// A query to upstreams. Each try has an ID of its own.
#[derive(Debug)]
pub(super) struct Request {
    /// The message with an OPT record, without an ID.
    message: Vec<u8>,
    /// Length up to the end of the question.
    question_end: usize,
    pub(super) question: Question,
    pub(super) dnssec_ok: bool,
    pub(super) payload_size: u16,
}

/// Relation of a reply to a request.
#[derive(Debug)]
pub(super) enum Reply {
    /// Another ID, another question, or not a response.
    Mismatch,
    /// The reply belongs to the request, but it cannot be decoded.
    Malformed,
    /// The decoded reply.
    Message(Box<Message>),
}

impl Request {
    /// Creates the request for a query, or `None` if the codec rejects the name.
    pub(super) fn new(query: &Query<'_>, payload_size: u16) -> Option<Self> {
        let mut message = vec![0; HEADER];
        message[2] = RD;
        // AD asks for AD in the response, RFC 6840 section 5.7.
        message[3] = AD | if query.checking_disabled { CD } else { 0 };
        message[5] = 1;
        message.extend_from_slice(query.name);
        message.extend_from_slice(&query.record_type.to_be_bytes());
        message.extend_from_slice(&query.class.to_be_bytes());
        let question_end = message.len();
        let question = Message::from_vec(&message).ok()?.queries.pop()?;
        message[11] = 1;
        message.push(0);
        message.extend_from_slice(&TYPE_OPT.to_be_bytes());
        message.extend_from_slice(&payload_size.to_be_bytes());
        let flags = if query.dnssec_ok() { DNSSEC_OK } else { 0 };
        message.extend_from_slice(&[0, 0, flags, 0, 0, 0]);
        let dnssec_ok = query.dnssec_ok();
        Some(Self {
            message,
            question_end,
            question,
            dnssec_ok,
            payload_size,
        })
    }

    /// Returns the message with an ID.
    pub(super) fn encode(&self, id: u16, with_edns: bool) -> Vec<u8> {
        let mut message = self.message.clone();
        message[..2].copy_from_slice(&id.to_be_bytes());
        if !with_edns {
            message.truncate(self.question_end);
            message[11] = 0;
        }
        message
    }

    /// Checks and decodes a reply to the message with this ID.
    pub(super) fn check(&self, id: u16, reply: &[u8]) -> Reply {
        let Some((header, rest)) = reply.split_at_checked(HEADER) else {
            return Reply::Mismatch;
        };
        let is_response = header[2] & 0xF8 == 0x80 && header[..2] == id.to_be_bytes();
        let question = &self.message[HEADER..self.question_end];
        let asks_same = match header[4..6] {
            [0, 1] => {
                let same = rest.get(..question.len());
                same.is_some_and(|same| is_same_question(same, question))
            }
            // Some servers leave the question out of errors.
            [0, 0] => header[3] & 0x0F != 0 && header[6..10] == [0; 4],
            _ => false,
        };
        if !is_response || !asks_same {
            return Reply::Mismatch;
        }
        match Message::from_vec(reply) {
            Ok(message) => Reply::Message(Box::new(message)),
            Err(_) => Reply::Malformed,
        }
    }
}

/// Compares questions of equal length. Names are compared without case.
fn is_same_question(a: &[u8], b: &[u8]) -> bool {
    let fixed = a.len() - 4;
    a[..fixed].eq_ignore_ascii_case(&b[..fixed]) && a[fixed..] == b[fixed..]
}

#[cfg(test)]
mod tests {
    use hickory_proto::op::{MessageType, OpCode, ResponseCode};
    use hickory_proto::rr::{Name, RecordType};

    use super::*;
    use crate::forward::query::QueryEdns;

    const QUERY: Query<'_> = Query {
        id: 0,
        name: b"\x03www\x07example\x03com\0",
        record_type: 1,
        class: 1,
        recursion_desired: true,
        authentic_data: false,
        checking_disabled: true,
        edns: Some(QueryEdns {
            payload_size: 4_096,
            dnssec_ok: true,
        }),
    };

    fn reply(name: &str, id: u16) -> Message {
        let mut message = Message::response(id, OpCode::Query);
        message.add_query(Question::query(
            Name::from_ascii(name).unwrap(),
            RecordType::A,
        ));
        message
    }

    fn check(message: &Message) -> &'static str {
        let request = Request::new(&QUERY, 1_232).unwrap();
        match request.check(7, &message.to_vec().unwrap()) {
            Reply::Mismatch => "mismatch",
            Reply::Malformed => "malformed",
            Reply::Message(_) => "message",
        }
    }

    #[test]
    fn a_request_has_an_opt_record_and_the_flags_of_its_query() {
        let request = Request::new(&QUERY, 1_232).unwrap();
        let message = Message::from_vec(&request.encode(9, true)).unwrap();
        assert_eq!(message.metadata.id, 9);
        assert_eq!(message.metadata.message_type, MessageType::Query);
        assert!(message.metadata.recursion_desired && message.metadata.checking_disabled);
        let edns = message.edns.as_ref().unwrap();
        assert_eq!((edns.max_payload(), edns.flags().dnssec_ok), (1_232, true));
        let message = Message::from_vec(&request.encode(9, false)).unwrap();
        assert!(message.edns.is_none());
        assert_eq!(message.queries[0], request.question);
    }

    #[test]
    fn only_replies_to_the_question_are_decoded() {
        assert_eq!(check(&reply("www.example.com.", 7)), "message");
        assert_eq!(check(&reply("WWW.example.COM.", 7)), "message");
        assert_eq!(check(&reply("www.example.com.", 8)), "mismatch");
        assert_eq!(check(&reply("www.example.net.", 7)), "mismatch");
        assert_eq!(check(&reply("example.com.", 7)), "mismatch");
        let mut other_type = reply("www.example.com.", 7);
        other_type.queries[0].query_type = RecordType::AAAA;
        assert_eq!(check(&other_type), "mismatch");
        let mut query = reply("www.example.com.", 7);
        query.metadata.message_type = MessageType::Query;
        assert_eq!(check(&query), "mismatch");
    }

    #[test]
    fn an_error_without_a_question_is_a_reply() {
        let error = |code| {
            let mut message = Message::response(7, OpCode::Query);
            message.metadata.response_code = code;
            check(&message)
        };
        assert_eq!(error(ResponseCode::FormErr), "message");
        assert_eq!(error(ResponseCode::NoError), "mismatch");
    }

    #[test]
    fn a_reply_that_ends_early_is_malformed_or_a_mismatch() {
        let request = Request::new(&QUERY, 1_232).unwrap();
        let mut whole = reply("www.example.com.", 7).to_vec().unwrap();
        whole[7] = 1;
        assert!(matches!(request.check(7, &whole), Reply::Malformed));
        for len in 0..whole.len() {
            assert!(
                matches!(request.check(7, &whole[..len]), Reply::Mismatch),
                "{len} bytes"
            );
        }
    }
}
