//! Laws of random histories.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use vipline_service_dns::service_model::Event;
use vipline_service_dns::service_model::arbitrary::Dice;
use vipline_service_dns::{
    Answer, Name, Options, PodRecords, Question, Record, RecordData, RecordType, Zone,
};

/// Number of events of a history.
const EVENTS: usize = 60;

fn zone() -> Zone {
    let mut options = Options::new("cluster.local".parse().unwrap());
    options.pods = PodRecords::Insecure;
    options.local_addresses = vec!["10.0.0.1".parse().unwrap(), "10.96.0.1".parse().unwrap()];
    Zone::new(options)
}

/// Returns the key of the object of an event, and whether the object exists afterwards.
fn key(event: &Event) -> Option<(&'static str, String, bool)> {
    Some(match event {
        Event::ServiceApplied(it) => ("Service", it.metadata.object_name().to_string(), true),
        Event::ServiceDeleted(name) => ("Service", name.to_string(), false),
        Event::SliceApplied(it) => ("Slice", it.metadata.object_name().to_string(), true),
        Event::SliceDeleted(name) => ("Slice", name.to_string(), false),
        Event::NamespaceApplied(it) => ("Namespace", it.metadata.name.clone(), true),
        Event::NamespaceDeleted(name) => ("Namespace", name.to_string(), false),
        Event::ServiceCidrApplied(it) => ("Cidr", it.metadata.name.clone(), true),
        Event::ServiceCidrDeleted(name) => ("Cidr", name.to_string(), false),
        Event::NodeApplied(_) | Event::NodeDeleted(_) | Event::Synced => return None,
    })
}

/// Returns names that the generated objects may have, their parents, and others.
fn names() -> Vec<Name> {
    let mut names: Vec<String> = Vec::new();
    for namespace in ["default", "other", "none"] {
        names.push(format!("{namespace}.svc.cluster.local"));
        names.push(format!("10-0-0-1.{namespace}.pod.cluster.local"));
        for service in ["web", "dns", "db", "none"] {
            let service = format!("{service}.{namespace}.svc.cluster.local");
            for first in ["web-0", "10-0-0-1", "10-0-0-2", "fd00--1", "fd00--2", "odd"] {
                names.push(format!("{first}.{service}"));
            }
            for protocol in ["_tcp", "_udp", "_sctp", "_odd"] {
                names.push(format!("{protocol}.{service}"));
                names.push(format!("_http.{protocol}.{service}"));
                names.push(format!("_dns.{protocol}.{service}"));
            }
            names.push(service);
        }
    }
    for other in [
        "cluster.local",
        "svc.cluster.local",
        "pod.cluster.local",
        "ns.dns.cluster.local",
    ] {
        names.push(other.to_owned());
    }
    for number in [0, 1, 2, 10, 99] {
        names.push(format!("{number}.0.0.10.in-addr.arpa"));
        names.push(format!("{number}.0.96.10.in-addr.arpa"));
        names.push(format!("{number}.96.10.in-addr.arpa"));
        names.push(format!("{number}.1.10.in-addr.arpa"));
    }
    let zeros = "0.".repeat(19);
    for network in ["6.9.0.0.", "0.0.0.0."] {
        for number in [1, 2] {
            names.push(format!("{number}.{zeros}0.0.0.0.{network}0.0.d.f.ip6.arpa"));
        }
        names.push(format!("{zeros}{network}0.0.d.f.ip6.arpa"));
    }
    names.iter().map(|name| name.parse().unwrap()).collect()
}

fn answers(zone: &Zone, names: &[Name]) -> Vec<Option<Answer>> {
    let types = [
        RecordType::A,
        RecordType::Aaaa,
        RecordType::Srv,
        RecordType::Ptr,
        RecordType::Ns,
        RecordType::Any,
        RecordType::Other(13),
    ];
    let questions = names
        .iter()
        .flat_map(|name| types.map(|record_type| Question::new(name.clone(), record_type)));
    let answers = questions.map(|question| {
        let mut answer = zone.answer(&question, 0)?;
        // Serial numbers count events.
        for record in answer.answers.iter_mut().chain(&mut answer.authorities) {
            if let RecordData::Soa(soa) = &mut record.data {
                soa.serial = 0;
            }
        }
        Some(answer)
    });
    answers.collect()
}

/// Returns the least size of records in a message, with compressed owners.
fn least_size(records: &[Record]) -> usize {
    let data = |record: &Record| match &record.data {
        RecordData::A(_) => 4,
        RecordData::Aaaa(_) => 16,
        RecordData::Srv { target, .. } => 6 + target.as_wire().len(),
        _ => 1,
    };
    records.iter().map(|record| 11 + data(record)).sum()
}

/// Returns the text of a record without its weight.
fn unweighted(record: &Record) -> String {
    let mut record = record.clone();
    if let RecordData::Srv { weight, .. } = &mut record.data {
        *weight = 0;
    }
    format!("{record:?}")
}

/// Returns whether records are among others, each once.
fn are_among(records: &[Record], whole: &[Record]) -> bool {
    let mut whole: Vec<_> = whole.iter().map(unweighted).collect();
    records.iter().all(|record| {
        let record = unweighted(record);
        let place = whole.iter().position(|other| *other == record);
        place.map(|place| whole.swap_remove(place)).is_some()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn answers_depend_on_objects_and_not_on_their_history(seed in any::<u64>()) {
        let (mut dice, names) = (Dice::from_seed(seed), names());
        let mut zone = zone();
        let mut objects = BTreeMap::new();
        for number in 1..=EVENTS {
            let event = dice.dns_event();
            zone.apply(&event);
            if let Some((kind, name, exists)) = key(&event) {
                match exists {
                    true => drop(objects.insert((kind, name), event)),
                    false => drop(objects.remove(&(kind, name))),
                }
            }
            if number % 20 == 0 {
                let mut scratch = self::zone();
                for object in objects.values() {
                    scratch.apply(object);
                }
                prop_assert_eq!(answers(&zone, &names), answers(&scratch, &names));
            }
        }
    }

    #[test]
    fn an_answer_that_fits_is_whole_and_another_has_more_records_than_fit(
        seed in any::<u64>(),
        rotation in 0_usize..1000,
    ) {
        let mut zone = zone();
        let mut dice = Dice::from_seed(seed);
        for _ in 0..EVENTS {
            zone.apply(&dice.dns_event());
        }
        for name in names() {
            for record_type in [RecordType::A, RecordType::Aaaa, RecordType::Srv, RecordType::Any] {
                let question = Question::new(name.clone(), record_type);
                let Some(whole) = zone.answer(&question, rotation) else {
                    continue;
                };
                for size in [20, 40, 60, 90, 130, 200, 300, 1232] {
                    let part = zone.answer_within(&question, rotation, size).unwrap();
                    if part == whole {
                        continue;
                    }
                    prop_assert!(are_among(&part.answers, &whole.answers));
                    prop_assert!(are_among(&part.additionals, &whole.additionals));
                    let answers = least_size(&part.answers);
                    let all = answers + least_size(&part.additionals);
                    let is_whole = part.answers == whole.answers;
                    prop_assert!(answers > size || (is_whole && all > size), "{size}: {part:?}");
                }
            }
        }
    }

    #[test]
    fn a_name_without_records_has_no_name_with_records_below(seed in any::<u64>()) {
        let (mut dice, names) = (Dice::from_seed(seed), names());
        let mut zone = zone();
        for _ in 0..EVENTS {
            zone.apply(&dice.dns_event());
        }
        let exists = |name: &Name| {
            let answer = zone.answer(&Question::new(name.clone(), RecordType::Any), 0);
            answer.map(|answer| answer.code == vipline_service_dns::ResponseCode::NoError)
        };
        let missing: Vec<_> = names.iter().filter(|name| exists(name) == Some(false)).collect();
        for name in names.iter().filter(|name| exists(name) == Some(true)) {
            for parent in &missing {
                prop_assert!(!name.is_within(parent), "{name} exists, {parent} does not");
            }
        }
    }

    #[test]
    fn hostile_names_have_answers(labels in prop::collection::vec(any::<Vec<u8>>(), 0..6), seed in any::<u64>()) {
        let mut zone = zone();
        let mut dice = Dice::from_seed(seed);
        for _ in 0..10 {
            zone.apply(&dice.dns_event());
        }
        for suffix in ["cluster.local", "default.svc.cluster.local", "10.in-addr.arpa", "ip6.arpa"] {
            let suffix: Name = suffix.parse().unwrap();
            let labels = labels.iter().map(Vec::as_slice).chain(suffix.labels());
            if let Ok(name) = Name::from_labels(labels) {
                let text: Name = name.to_string().parse().unwrap();
                prop_assert_eq!(&text, &name);
                prop_assert_eq!(Name::from_wire(name.as_wire()), Ok((name.clone(), name.as_wire().len())));
                zone.answer(&Question::new(name, RecordType::Any), 7);
            }
        }
    }
}
