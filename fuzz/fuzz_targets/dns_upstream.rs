//! Decodes arbitrary bytes as the reply of an upstream name server, stores the answer in
//! the cache of cluster-dns, and writes the answer to the client.

use cluster_dns::forward::{CacheOptions, Query, QueryEdns, answer_from_reply};
use hickory_proto::op::{Message, MessageType, ResponseCode};

const NAME: &[u8] = b"\x03wWw\x07example\x03com\0";

/// ID and type of the query. The seeds have both.
const ID: u16 = 7;
const TYPE_A: u16 = 1;

/// Length of the longest message of DNS.
const LONGEST: usize = 65_535;

/// Checks one input.
pub(crate) fn run(reply: &[u8]) {
    let options = CacheOptions::default();
    for (limit, dnssec_ok) in [(512, None), (1_232, Some(false)), (LONGEST, Some(true))] {
        let query = Query {
            id: ID,
            name: NAME,
            record_type: TYPE_A,
            class: 1,
            recursion_desired: true,
            authentic_data: false,
            checking_disabled: false,
            edns: dnssec_ok.map(|dnssec_ok| QueryEdns {
                payload_size: 1_232,
                dnssec_ok,
            }),
        };
        let [answer, whole] =
            [limit, LONGEST].map(|limit| answer_from_reply(&query, reply, limit, &options));
        assert_eq!(answer.is_some(), whole.is_some());
        if let (Some(answer), Some(whole)) = (answer, whole) {
            check(&query, &answer, limit);
            check_cut(&answer, &whole);
        }
    }
}

/// Checks an answer to a client.
fn check(query: &Query<'_>, answer: &[u8], limit: usize) {
    assert!(answer.len() <= limit, "{} bytes", answer.len());
    let question = 12..12 + NAME.len();
    assert_eq!(answer.get(question), Some(NAME), "the case of the question");
    let message = Message::from_vec(answer).expect("an answer is well-formed");
    assert_eq!(message.metadata.id, ID);
    assert_eq!(message.metadata.message_type, MessageType::Response);
    let code = message.metadata.response_code;
    assert!(matches!(
        code,
        ResponseCode::NoError | ResponseCode::NXDomain
    ));
    assert_eq!(message.queries.len(), 1);
    assert_eq!(message.edns.is_some(), query.edns.is_some());
    // All records belong to the chain of aliases of the question.
    let mut chain = vec![message.queries[0].name.clone()];
    for record in &message.answers {
        chain.extend(match &record.data {
            hickory_proto::rr::RData::CNAME(target) => Some(target.0.clone()),
            _ => None,
        });
    }
    for record in &message.answers {
        // A DNAME, and its signature, stand at an ancestor of the name that they redirect.
        let may_be_above = matches!(u16::from(record.record_type()), 39 | 46);
        let is_above = may_be_above && chain.iter().any(|name| record.name.zone_of(name));
        assert!(is_above || chain.contains(&record.name), "{record}");
    }
}

/// Checks that a shortened answer has the first records of the whole one, and says whether
/// records are missing.
fn check_cut(answer: &[u8], whole: &[u8]) {
    let [answer, whole] =
        [answer, whole].map(|bytes| Message::from_vec(bytes).expect("an answer is well-formed"));
    let (answers, authorities) = (answer.answers.len(), answer.authorities.len());
    assert_eq!(answer.answers, whole.answers[..answers]);
    assert_eq!(answer.authorities, whole.authorities[..authorities]);
    let has_all_answers = answers == whole.answers.len();
    assert!(has_all_answers || authorities == 0);
    let is_whole = has_all_answers && authorities == whole.authorities.len();
    assert_eq!(
        answer.metadata.truncation,
        whole.metadata.truncation || !is_whole
    );
}
