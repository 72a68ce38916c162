//! Parses arbitrary bytes as a DNS query, and answers it from a zone with many kinds of
//! Services.

use std::sync::OnceLock;

use cluster_dns::forward::Query;
use serde_json::Value;
use vipline_service_dns::{
    Answer, Name, Options, PodRecords, Question, RecordData, RecordType, ResponseCode, Zone,
};
use vipline_service_model::{Event, api};

const OBJECTS: &str = include_str!("../../crates/service-dns/tests/recorded/objects.jsonl");

static ZONE: OnceLock<Zone> = OnceLock::new();

/// Checks one input.
pub(crate) fn run(request: &[u8]) {
    let Some(query) = Query::parse(request) else {
        return;
    };
    let (name, length) = Name::from_wire(query.name).expect("a parsed query has a valid name");
    assert_eq!(length, query.name.len());
    let again: Name = name.to_string().parse().expect("a printed name is valid");
    assert_eq!(again.as_wire(), name.as_wire());

    let zone = ZONE.get_or_init(zone);
    let question = Question::new(name.clone(), RecordType::from(query.record_type));
    let rotation = usize::from(query.id);
    let Some(answer) = zone.answer(&question, rotation) else {
        return;
    };
    check(&question, &answer);
    let lower = query.name.to_ascii_lowercase();
    let (lower, _) = Name::from_wire(&lower).expect("lower case keeps a name valid");
    let question = Question::new(lower, question.record_type);
    let lower = zone.answer(&question, rotation);
    // Names are compared without case.
    assert_eq!(lower, Some(answer), "{name}");
}

/// Checks an answer of the zone.
fn check(question: &Question, answer: &Answer) {
    let mut owner = &question.name;
    for record in &answer.answers {
        assert_eq!(record.name, *owner, "aliases form a chain");
        match &record.data {
            RecordData::Cname(target) if question.record_type != RecordType::Cname => {
                owner = target;
            }
            data => {
                let asked = [data.record_type(), RecordType::Any];
                assert!(asked.contains(&question.record_type), "{record:?}");
            }
        }
    }
    for record in &answer.authorities {
        assert!(matches!(record.data, RecordData::Soa(_)), "{record:?}");
        assert!(owner.is_within(&record.name), "{record:?}");
    }
    if answer.code == ResponseCode::NameError {
        assert!(!answer.authorities.is_empty(), "{answer:?}");
    }
    if answer.answers.is_empty() {
        assert_eq!(answer.authorities.len(), 1, "{answer:?}");
    }
}

fn zone() -> Zone {
    let name = "cluster.local".parse().expect("a valid name");
    let mut options = Options::new(name);
    options.pods = PodRecords::Insecure;
    let mut zone = Zone::new(options);
    for line in OBJECTS.lines() {
        let object: Value = serde_json::from_str(line).expect("a line is JSON");
        let event = match object["kind"].as_str() {
            Some("Service") => service(object),
            Some("EndpointSlice") => slice(object),
            _ => continue,
        };
        zone.apply(&event);
    }
    zone.apply(&Event::Synced);
    zone
}

fn service(object: Value) -> Event {
    serde_json::from_value::<api::Service>(object)
        .expect("a Service")
        .into()
}

fn slice(object: Value) -> Event {
    serde_json::from_value::<api::EndpointSlice>(object)
        .expect("an EndpointSlice")
        .into()
}
