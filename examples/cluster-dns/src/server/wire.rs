//! Encoding of answers from the zone, without decoded messages.

use vipline_service_dns::{Answer, Name, Record, RecordData, ResponseCode, Soa};

use super::request::{HEADER, OPT_SIZE, push_opt};
use crate::forward::Query;
use crate::truncation;

/// Longest message, in bytes.
const LONGEST_MESSAGE: usize = u16::MAX as usize;

/// First offset that a compression pointer cannot hold.
const POINTER_END: usize = 1 << 14;

const QR_AA: u8 = 0x84;
const RA: u8 = 0x80;
const CD: u8 = 0x10;
const NAME_ERROR: u8 = 3;
const CLASS_IN: u16 = 1;

/// Replaces the content of `out` by the response to a query, of at most `limit` bytes, with
/// an OPT record if the query has one. `limit` is at least 512. A longer response is
/// [cut](truncation::cut); the zone does not return many more records than fit.
pub(super) fn write(
    query: &Query<'_>,
    answer: &Answer,
    is_recursive: bool,
    payload_size: u16,
    limit: usize,
    out: &mut Vec<u8>,
) {
    out.clear();
    push_head(query, answer.code, is_recursive, out);
    let mut writer = Writer {
        question: query.name,
        names: Vec::new(),
        next: 0,
        out,
    };
    let sections = [&answer.answers, &answer.authorities, &answer.additionals];
    for (at, section) in [6, 8, 10].into_iter().zip(sections) {
        section.iter().for_each(|record| writer.record(record));
        let count = u16::try_from(section.len()).unwrap_or(u16::MAX);
        writer.out[at..at + 2].copy_from_slice(&count.to_be_bytes());
    }
    let opt = if query.edns.is_some() { OPT_SIZE } else { 0 };
    truncation::cut(out, limit.min(LONGEST_MESSAGE).saturating_sub(opt));
    if let Some(edns) = query.edns {
        push_opt(0, payload_size, edns.dnssec_ok, out);
    }
}

/// Appends the header, without counts of records, and the question.
fn push_head(query: &Query<'_>, code: ResponseCode, is_recursive: bool, out: &mut Vec<u8>) {
    let code = match code {
        ResponseCode::NoError => 0,
        ResponseCode::NameError => NAME_ERROR,
    };
    let recursion = if is_recursive { RA } else { 0 };
    let checking = if query.checking_disabled { CD } else { 0 };
    out.extend_from_slice(&query.id.to_be_bytes());
    out.push(QR_AA | u8::from(query.recursion_desired));
    out.push(recursion | checking | code);
    out.extend_from_slice(&[0, 1, 0, 0, 0, 0, 0, 0]);
    out.extend_from_slice(query.name);
    push_u16(query.record_type, out);
    push_u16(query.class, out);
}

/// A message that is written.
struct Writer<'a> {
    /// Name of the question, which stands behind the header.
    question: &'a [u8],
    /// Names behind the question, and their offsets.
    names: Vec<(&'a [u8], u16)>,
    /// Name at which the next search begins. Additional records have the order of the
    /// targets of SRV records.
    next: usize,
    out: &'a mut Vec<u8>,
}

impl<'a> Writer<'a> {
    fn record(&mut self, record: &'a Record) {
        self.name(&record.name);
        push_u16(record.data.record_type().number(), self.out);
        push_u16(CLASS_IN, self.out);
        self.out.extend_from_slice(&record.ttl.to_be_bytes());
        let length = self.out.len();
        push_u16(0, self.out);
        self.data(&record.data);
        let data = u16::try_from(self.out.len() - length - 2).unwrap_or(u16::MAX);
        self.out[length..length + 2].copy_from_slice(&data.to_be_bytes());
    }

    fn data(&mut self, data: &'a RecordData) {
        match data {
            RecordData::A(addr) => self.out.extend_from_slice(&addr.octets()),
            RecordData::Aaaa(addr) => self.out.extend_from_slice(&addr.octets()),
            RecordData::Srv {
                priority,
                weight,
                port,
                target,
            } => {
                for value in [*priority, *weight, *port] {
                    push_u16(value, self.out);
                }
                self.target(target);
            }
            RecordData::Cname(name) | RecordData::Ptr(name) | RecordData::Ns(name) => {
                self.name(name);
            }
            RecordData::Txt(texts) => {
                for text in texts {
                    let text = &text.as_bytes()[..text.len().min(255)];
                    self.out.push(u8::try_from(text.len()).unwrap_or(u8::MAX));
                    self.out.extend_from_slice(text);
                }
            }
            RecordData::Soa(soa) => self.soa(soa),
        }
    }

    fn soa(&mut self, soa: &'a Soa) {
        self.name(&soa.name_server);
        self.name(&soa.mailbox);
        let numbers = [soa.serial, soa.refresh, soa.retry, soa.expire, soa.minimum];
        for number in numbers {
            self.out.extend_from_slice(&number.to_be_bytes());
        }
    }

    /// Appends the target of an SRV record, which is not compressed (RFC 2782).
    fn target(&mut self, target: &'a Name) {
        self.remember(target);
        self.out.extend_from_slice(target.as_wire());
    }

    /// Makes the name that begins at the end of the message the target of pointers.
    fn remember(&mut self, name: &'a Name) {
        let offset = self.out.len();
        if offset < POINTER_END {
            let offset = u16::try_from(offset).unwrap_or_default();
            self.names.push((name.as_wire(), offset));
        }
    }

    /// Appends a name, with a pointer to an equal name or to the end of the question.
    ///
    /// The case is compared too: names keep it.
    fn name(&mut self, name: &'a Name) {
        let wire = name.as_wire();
        // Most owners. Without it, each SRV record would be compared with all targets.
        if wire == self.question && wire.len() > 1 {
            self.pointer(u16::try_from(HEADER).unwrap_or_default());
            return;
        }
        if let Some(offset) = self.offset_of(wire) {
            self.pointer(offset);
            return;
        }
        if wire.len() > 1 {
            self.remember(name);
        }
        let mut rest = wire;
        while let Some((&length, after)) = rest.split_first() {
            if length == 0 {
                break;
            }
            if self.question.ends_with(rest) {
                let offset = HEADER + self.question.len() - rest.len();
                self.out.extend_from_slice(&wire[..wire.len() - rest.len()]);
                self.pointer(u16::try_from(offset).unwrap_or_default());
                return;
            }
            rest = after.get(usize::from(length)..).unwrap_or_default();
        }
        self.out.extend_from_slice(wire);
    }

    fn offset_of(&mut self, wire: &[u8]) -> Option<u16> {
        let (before, after) = self.names.split_at(self.next.min(self.names.len()));
        let mut names = after.iter().chain(before);
        let steps = names.position(|(name, _)| *name == wire)?;
        let found = (self.next + steps) % self.names.len();
        self.next = found;
        Some(self.names[found].1)
    }

    fn pointer(&mut self, offset: u16) {
        const POINTER: u16 = 0xC000;
        push_u16(POINTER | offset, self.out);
    }
}

fn push_u16(value: u16, out: &mut Vec<u8>) {
    out.extend_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use hickory_proto::op::Message;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;
    use crate::forward::QueryEdns;
    use crate::server::encode;

    const NAME: &[u8] = b"\x03Web\x07default\x03svc\x07cluster\x05local\0";

    fn query(payload_size: Option<u16>) -> Query<'static> {
        Query {
            id: 9,
            name: NAME,
            record_type: 255,
            class: 1,
            recursion_desired: true,
            authentic_data: false,
            checking_disabled: true,
            edns: payload_size.map(|payload_size| QueryEdns {
                payload_size,
                dnssec_ok: true,
            }),
        }
    }

    fn record(name: &Name, data: RecordData) -> Record {
        let name = name.clone();
        Record { name, ttl: 5, data }
    }

    fn srv(target: &Name) -> RecordData {
        RecordData::Srv {
            priority: 1,
            weight: 2,
            port: 3,
            target: target.clone(),
        }
    }

    /// Returns an answer with records of all types, and `hosts` SRV records with addresses.
    fn answer(hosts: u8) -> Answer {
        let name = Name::from_wire(NAME).unwrap().0;
        let other: Name = "other.default.svc.cluster.local".parse().unwrap();
        let soa = RecordData::Soa(Soa {
            name_server: "ns.dns.cluster.local".parse().unwrap(),
            mailbox: "hostmaster.Cluster.local".parse().unwrap(),
            serial: 1,
            refresh: 2,
            retry: 3,
            expire: 4,
            minimum: 5,
        });
        let mut answers = vec![
            record(&name, RecordData::A(Ipv4Addr::new(10, 0, 0, 1))),
            record(&name, RecordData::Aaaa(Ipv6Addr::LOCALHOST)),
            record(&name, RecordData::Cname(other.clone())),
            record(&other, RecordData::Ptr(name.clone())),
            record(&other, RecordData::Ns(Name::root())),
            record(&name, RecordData::Txt(vec!["1.1.0".into(), "".into()])),
        ];
        let mut additionals = Vec::new();
        for number in 0..hosts {
            let target: Name = format!("host-{number}.web.default.svc.cluster.local")
                .parse()
                .unwrap();
            answers.push(record(&name, srv(&target)));
            let addr = Ipv4Addr::new(10, 0, 1, number);
            additionals.push(record(&target, RecordData::A(addr)));
        }
        // The first target is not that of the first additional record.
        answers.rotate_left(usize::from(hosts.min(7)));
        Answer {
            code: ResponseCode::NameError,
            answers,
            authorities: vec![record(&"cluster.local".parse().unwrap(), soa)],
            additionals,
            unresolved: None,
        }
    }

    fn written(answer: &Answer, payload: Option<u16>, limit: usize) -> (usize, Message) {
        let mut out = vec![1; 3];
        write(&query(payload), answer, true, 1232, limit, &mut out);
        assert!(out.len() <= limit, "{} bytes", out.len());
        (out.len(), Message::from_vec(&out).unwrap())
    }

    #[test]
    fn an_answer_equals_that_of_another_encoder_and_is_not_longer() {
        for (hosts, payload) in [(0, None), (3, Some(4096)), (255, None)] {
            let (query, answer) = (query(payload), answer(hosts));
            let message = encode::response(&query, &answer, true).unwrap();
            let mut out = Vec::new();
            encode::write(&message, &query, 1232, 65_535, &mut out).unwrap();
            let (length, decoded) = written(&answer, payload, 65_535);
            assert_eq!(decoded, Message::from_vec(&out).unwrap());
            assert!(length <= out.len(), "{length} bytes, other {}", out.len());
        }
    }

    #[test]
    fn an_answer_has_the_flags_and_the_case_of_the_query() {
        let (_, message) = written(&answer(1), Some(4096), 65_535);
        assert!(message.queries[0].name().to_string().starts_with("Web."));
        let metadata = message.metadata;
        assert!(metadata.authoritative && metadata.recursion_desired);
        assert!(metadata.recursion_available && metadata.checking_disabled);
        assert_eq!(metadata.id, 9);
        let edns = message.edns.unwrap();
        assert_eq!((edns.max_payload(), edns.version()), (1232, 0));
        assert!(edns.flags().dnssec_ok);
    }

    #[test]
    fn a_truncated_answer_has_the_bit_tc_and_the_records_that_fit() {
        let whole = answer(40);
        let mut counts = Vec::new();
        for (payload, limit) in [(None, 512), (Some(512), 512), (Some(1232), 1232)] {
            let (_, message) = written(&whole, payload, limit);
            assert!(message.metadata.truncation);
            assert!(message.authorities.is_empty() && message.additionals.is_empty());
            assert_eq!(message.edns.is_some(), payload.is_some());
            counts.push(message.answers.len());
        }
        assert!(counts[0] >= counts[1] && counts[1] > 5 && counts[2] > counts[0]);
    }

    #[test]
    fn additional_records_are_left_out_without_truncation() {
        let mut answer = answer(30);
        answer.answers.truncate(3);
        let (_, message) = written(&answer, None, 512);
        assert_eq!((message.answers.len(), message.authorities.len()), (3, 1));
        assert!(message.additionals.is_empty() && !message.metadata.truncation);
    }

    #[test]
    fn every_limit_is_kept() {
        for hosts in [0, 5, 20] {
            let answer = answer(hosts);
            for limit in 512..1400 {
                written(&answer, Some(1232), limit);
            }
        }
    }

    /// Returns names of few labels, so that names end with others. Some labels contain bytes
    /// that could be lengths.
    fn any_name() -> impl Strategy<Value = Name> {
        let labels: [&[u8]; 7] = [b"a", b"A", b"\x01a", b"a\x01a", b"b", b"local", &[b'x'; 63]];
        let labels = vec(select(labels.map(<[u8]>::to_vec).to_vec()), 0..4);
        labels.prop_map(|labels| Name::from_labels(labels).unwrap())
    }

    fn any_data() -> impl Strategy<Value = RecordData> {
        prop_oneof![
            any::<u32>().prop_map(|bits| RecordData::A(bits.into())),
            any_name().prop_map(RecordData::Cname),
            any_name().prop_map(RecordData::Ptr),
            any_name().prop_map(|target| srv(&target)),
            any_name().prop_map(|target| srv(&target)),
            (any_name(), any_name()).prop_map(|(name_server, mailbox)| {
                RecordData::Soa(Soa {
                    name_server,
                    mailbox,
                    serial: 1,
                    refresh: 2,
                    retry: 3,
                    expire: 4,
                    minimum: 5,
                })
            }),
        ]
    }

    proptest! {
        #[test]
        fn an_answer_with_any_names_is_decoded_to_its_records(
            name in any_name(),
            answers in vec((any_name(), any_data()), 0..20),
            additionals in vec((any_name(), any_data()), 0..4),
            limit in 512_usize..1024,
        ) {
            let records = |list: Vec<(Name, RecordData)>| {
                list.into_iter().map(|(name, data)| record(&name, data)).collect()
            };
            let answer = Answer {
                code: ResponseCode::NoError,
                answers: records(answers),
                authorities: Vec::new(),
                additionals: records(additionals),
                unresolved: None,
            };
            let query = Query { name: name.as_wire(), ..query(None) };
            let expected = encode::response(&query, &answer, false).unwrap();
            let texts = |records: &[hickory_proto::rr::Record]| {
                records.iter().map(|record| format!("{record:?}")).collect::<Vec<_>>()
            };
            let mut out = Vec::new();
            write(&query, &answer, false, 1232, 65_535, &mut out);
            let decoded = Message::from_vec(&out).unwrap();
            prop_assert_eq!(&decoded.queries, &expected.queries);
            prop_assert_eq!(texts(&decoded.answers), texts(&expected.answers));
            prop_assert_eq!(texts(&decoded.additionals), texts(&expected.additionals));

            write(&query, &answer, false, 1232, limit, &mut out);
            prop_assert!(out.len() <= limit);
            let decoded = Message::from_vec(&out).unwrap();
            prop_assert!(texts(&expected.answers).starts_with(&texts(&decoded.answers)));
            let is_whole = decoded.answers.len() == expected.answers.len();
            prop_assert_eq!(decoded.metadata.truncation, !is_whole);
        }
    }
}
