//! Tests of the checks and filters.

use hickory_proto::op::Edns;
use hickory_proto::rr::rdata::{A, CNAME, NS, NULL, SOA, SRV, TXT};

use super::*;

fn name(text: &str) -> Name {
    Name::from_ascii(text).unwrap()
}

fn a(owner: &str, ttl: u32) -> Record {
    Record::from_rdata(name(owner), ttl, RData::A(A::new(192, 0, 2, 1)))
}

fn cname(owner: &str, target: &str) -> Record {
    Record::from_rdata(name(owner), 60, RData::CNAME(CNAME(name(target))))
}

fn ns(owner: &str, host: &str) -> Record {
    Record::from_rdata(name(owner), 60, RData::NS(NS(name(host))))
}

fn soa(owner: &str, ttl: u32, minimum: u32) -> Record {
    let soa = SOA::new(
        name("ns.example."),
        name("admin.example."),
        1,
        2,
        3,
        4,
        minimum,
    );
    Record::from_rdata(name(owner), ttl, RData::SOA(soa))
}

fn response(code: ResponseCode, answers: &[Record], authorities: &[Record]) -> Message {
    let mut message = Message::response(7, OpCode::Query);
    message.metadata.response_code = code;
    message.answers = answers.to_vec();
    message.authorities = authorities.to_vec();
    message.edns = Some(Edns::new());
    message
}

fn positive(answers: &[Record]) -> Message {
    response(ResponseCode::NoError, answers, &[])
}

fn screened(message: Message) -> Result<Screened, Unusable> {
    let question = Question::query(name("www.example.com."), RecordType::A);
    screen(message, &question, false, &CacheOptions::default())
}

fn owners(records: &[Record]) -> Vec<String> {
    records
        .iter()
        .map(|record| record.name.to_string())
        .collect()
}

fn seconds(screened: &Screened) -> Option<u64> {
    screened.lifetime.map(|lifetime| lifetime.as_secs())
}

#[test]
fn an_answer_is_cached_for_its_smallest_ttl_within_the_bounds() {
    for (ttls, lifetime) in [
        ([300, 20], 20),
        ([300, 60], 30),
        ([300, 0], 5),
        ([0x8000_0000, 300], 5),
        ([90_000, 80_000], 30),
    ] {
        let message = positive(&[
            a("www.example.com.", ttls[0]),
            a("www.example.com.", ttls[1]),
        ]);
        let screened = screened(message).unwrap();
        assert_eq!(seconds(&screened), Some(lifetime), "{ttls:?}");
        assert_eq!(screened.answer_type, AnswerType::Success);
        let smallest = screened
            .message
            .answers
            .iter()
            .map(|record| record.ttl)
            .min();
        assert_eq!(smallest.map(u64::from), Some(lifetime), "{ttls:?}");
        assert!(screened.message.edns.is_none());
    }
}

#[test]
fn a_ttl_of_zero_is_not_cached_without_a_minimum() {
    let options = CacheOptions {
        min_success_ttl: Duration::ZERO,
        ..CacheOptions::default()
    };
    let question = Question::query(name("www.example.com."), RecordType::A);
    let message = positive(&[a("www.example.com.", 0)]);
    assert_eq!(
        screen(message, &question, false, &options)
            .unwrap()
            .lifetime,
        None
    );
}

#[test]
fn a_chain_keeps_its_records_and_no_others() {
    let message = positive(&[
        a("end.example.net.", 60),
        cname("MIDDLE.example.com.", "end.example.net."),
        cname("WWW.example.com.", "middle.example.com."),
        a("www.example.com.", 60),
        a("victim.example.org.", 60),
        cname("victim.example.org.", "attacker.example."),
        Record::from_rdata(
            name("end.example.net."),
            60,
            RData::TXT(TXT::new(vec!["x".into()])),
        ),
    ]);
    let screened = screened(message).unwrap();
    assert_eq!(
        owners(&screened.message.answers),
        [
            "www.example.com.",
            "middle.example.com.",
            "end.example.net.",
        ],
        "in the order of the chain"
    );
    assert_eq!(screened.answer_type, AnswerType::Success);
}

/// Returns a record of a type that the codec does not decode.
fn unknown(owner: &str, record_type: RecordType, data: &[u8]) -> Record {
    let rdata = NULL::with(data.to_vec());
    let code = record_type;
    Record::from_rdata(name(owner), 60, RData::Unknown { code, rdata })
}

#[test]
fn a_dname_record_precedes_the_alias_that_it_makes() {
    let target = b"\x07example\x03net\0";
    let dname = |owner, data| unknown(owner, RecordType::DNAME, data);
    let message = positive(&[
        a("www.example.net.", 60),
        unknown("example.com.", RecordType::RRSIG, b"\0\x27"),
        cname("www.example.com.", "www.example.net."),
        dname("example.com.", target),
        // A pointer, bytes after the name, and no name of the chain.
        dname("example.com.", b"\xC0\x0C"),
        dname("example.com.", b"\x03net\0x"),
        dname("example.org.", target),
    ]);
    // As an upstream sends it.
    let message = Message::from_vec(&message.to_vec().unwrap()).unwrap();
    let screened = |dnssec_ok| {
        let question = Question::query(name("www.example.com."), RecordType::A);
        let options = CacheOptions::default();
        let screened = screen(message.clone(), &question, dnssec_ok, &options).unwrap();
        owners(&screened.message.answers)
    };
    let expected = ["example.com.", "www.example.com.", "www.example.net."];
    assert_eq!(screened(false), expected);
    let signed = [&expected[..1], &expected].concat();
    assert_eq!(screened(true), signed);
}

#[test]
fn loops_and_contradictions_of_cname_records_are_unusable() {
    let to_itself = positive(&[cname("www.example.com.", "WWW.example.com.")]);
    let circle = positive(&[
        cname("www.example.com.", "a.example."),
        cname("a.example.", "www.example.com."),
    ]);
    let two = positive(&[
        cname("www.example.com.", "a.example."),
        cname("www.example.com.", "b.example."),
    ]);
    let existing = response(ResponseCode::NXDomain, &[a("www.example.com.", 60)], &[]);
    for message in [to_itself, circle, two, existing] {
        assert_eq!(screened(message).unwrap_err(), Unusable::Chain);
    }
}

#[test]
fn a_chain_has_at_most_16_records() {
    let chain = |len: usize| {
        let name = |at| {
            if at == 0 {
                "www.example.com.".into()
            } else {
                format!("n{at}.example.")
            }
        };
        let mut records = (0..len)
            .map(|at| cname(&name(at), &name(at + 1)))
            .collect::<Vec<_>>();
        records.push(a(&name(len), 60));
        positive(&records)
    };
    assert_eq!(screened(chain(16)).unwrap().message.answers.len(), 17);
    assert_eq!(screened(chain(17)).unwrap_err(), Unusable::Chain);
}

#[test]
fn a_negative_answer_is_cached_for_the_minimum_of_its_soa_record() {
    for (ttl, minimum, lifetime) in [
        (300, 20, 20),
        (20, 300, 20),
        (0, 300, 5),
        (9_000, 9_000, 30),
    ] {
        for code in [ResponseCode::NoError, ResponseCode::NXDomain] {
            let message = response(code, &[], &[soa("example.com.", ttl, minimum)]);
            let screened = screened(message).unwrap();
            assert_eq!(seconds(&screened), Some(lifetime), "{ttl} {minimum} {code}");
            assert_eq!(screened.answer_type, AnswerType::Denial);
            assert_eq!(
                screened.message.authorities[0].ttl,
                u32::try_from(lifetime).unwrap()
            );
            assert_eq!(screened.message.metadata.response_code, code);
        }
    }
}

#[test]
fn a_negative_answer_without_a_soa_record_of_its_zone_is_not_cached() {
    for authorities in [
        vec![],
        vec![soa("example.org.", 60, 60)],
        vec![ns("com.", "ns.example.")],
    ] {
        let message = response(ResponseCode::NXDomain, &[], &authorities);
        assert_eq!(screened(message).unwrap().lifetime, None);
    }
}

#[test]
fn a_chain_without_an_end_of_the_type_is_a_negative_answer() {
    let answers = [cname("www.example.com.", "end.example.net.")];
    let message = response(
        ResponseCode::NXDomain,
        &answers,
        &[soa("example.net.", 300, 300)],
    );
    let screened = screened(message).unwrap();
    assert_eq!(
        (screened.answer_type, seconds(&screened)),
        (AnswerType::Denial, Some(30))
    );
    assert_eq!(screened.message.answers.len(), 1);
}

#[test]
fn authorities_and_additionals_of_other_names_are_removed() {
    let mut message = response(
        ResponseCode::NoError,
        &[a("www.example.com.", 60)],
        &[
            ns("example.com.", "ns.example.com."),
            ns("victim.example.", "ns.attacker.example."),
        ],
    );
    message.additionals = vec![
        a("ns.example.com.", 60),
        a("ns.attacker.example.", 60),
        a("victim.example.", 60),
        cname("ns.example.com.", "attacker.example."),
    ];
    let screened = screened(message).unwrap();
    assert_eq!(owners(&screened.message.authorities), ["example.com."]);
    assert_eq!(owners(&screened.message.additionals), ["ns.example.com."]);
}

#[test]
fn addresses_of_srv_targets_are_kept() {
    let srv = RData::SRV(SRV::new(1, 2, 80, name("host.example.net.")));
    let mut message = positive(&[Record::from_rdata(name("_http._tcp.example.com."), 60, srv)]);
    message.additionals = vec![a("host.example.net.", 60), a("other.example.net.", 60)];
    let question = Question::query(name("_http._tcp.example.com."), RecordType::SRV);
    let screened = screen(message, &question, false, &CacheOptions::default()).unwrap();
    assert_eq!(owners(&screened.message.additionals), ["host.example.net."]);
}

#[test]
fn errors_are_unusable() {
    for code in [
        ResponseCode::ServFail,
        ResponseCode::Refused,
        ResponseCode::BADVERS,
    ] {
        assert_eq!(
            screened(response(code, &[], &[])).unwrap_err(),
            Unusable::Code(code)
        );
    }
}

#[test]
fn a_large_hostile_answer_leaves_no_record() {
    // The most records of a message: all owners differ, and each is the target of another.
    let records = (0..4_000).map(|at| cname(&format!("n{at}."), &format!("n{}.", at + 1)));
    let mut message = positive(&records.collect::<Vec<_>>());
    message.authorities = (0..4_000)
        .map(|at| ns(&format!("n{at}."), &format!("h{at}.")))
        .collect();
    message.additionals = (0..4_000).map(|at| a(&format!("h{at}."), 60)).collect();
    let screened = screened(message).unwrap();
    assert_eq!(
        screened.message.answers.len() + screened.message.additionals.len(),
        0
    );
}
