//! The format of the files with questions and answers.
//!
//! A line has a keyword and arguments:
//!
//! - `table NAME`: begins a table without objects;
//! - `like NAME`: copies options and objects of an earlier table;
//! - `zone`, `other-zone`, `ttl`, `local`, `pods`: options of the zone;
//! - `object JSON`: an object of the API;
//! - `question NAME TYPE`: begins a case;
//! - `code`, `answer`, `authority`, `additional`, `unresolved`: the expected answer;
//! - `excluded NAME COUNT REASON`: a table that is not written down.

use std::collections::BTreeSet;

use vipline_service_dns::service_model::{Event, api};
use vipline_service_dns::{
    Answer, Name, Options, PodRecords, Question, Record, RecordData, RecordType, ResponseCode, Zone,
};

/// A file.
#[derive(Default)]
pub(crate) struct File {
    pub(crate) tables: Vec<Table>,
    /// Name, number of cases and reason.
    pub(crate) excluded: Vec<(String, usize, String)>,
}

/// Cases with the same objects.
#[derive(Clone, Default)]
pub(crate) struct Table {
    pub(crate) name: String,
    zone: String,
    other_zones: Vec<String>,
    local: Vec<String>,
    pods: PodRecords,
    objects: Vec<String>,
    pub(crate) cases: Vec<Case>,
}

/// A question and its expected answer.
#[derive(Clone)]
pub(crate) struct Case {
    /// Name and type.
    pub(crate) question: String,
    pub(crate) expected: Lines,
}

/// An answer as lines, each with the keyword of its section.
pub(crate) type Lines = BTreeSet<String>;

impl File {
    pub(crate) fn parse(text: &str) -> Self {
        let mut file = Self::default();
        let lines = text.lines().map(str::trim);
        for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (keyword, rest) = line.split_once(' ').unwrap_or((line, ""));
            match keyword {
                "table" => file.tables.push(Table {
                    name: rest.to_owned(),
                    zone: "cluster.local".to_owned(),
                    ..Table::default()
                }),
                "excluded" => {
                    let mut words = rest.splitn(3, ' ');
                    let mut word = || words.next().unwrap().to_owned();
                    let (name, count) = (word(), word().parse().unwrap());
                    file.excluded.push((name, count, word()));
                }
                "like" => {
                    let mut tables = file.tables.iter();
                    let other = tables.find(|table| table.name == rest).unwrap().clone();
                    let table = file.tables.last_mut().unwrap();
                    table.objects.extend(other.objects);
                    table.zone = other.zone;
                }
                _ => file.tables.last_mut().unwrap().line(keyword, rest, line),
            }
        }
        file
    }
}

impl Table {
    fn line(&mut self, keyword: &str, rest: &str, line: &str) {
        match keyword {
            "zone" => self.zone = rest.to_owned(),
            "other-zone" => self.other_zones.push(rest.to_owned()),
            "local" => self.local.push(rest.to_owned()),
            "pods" => self.pods = PodRecords::Insecure,
            "object" => self.objects.push(rest.to_owned()),
            "question" => self.cases.push(Case {
                question: rest.to_owned(),
                expected: Lines::new(),
            }),
            "code" | "answer" | "authority" | "additional" | "unresolved" => {
                let words: Vec<_> = line.split_whitespace().collect();
                let case = self.cases.last_mut().unwrap();
                assert!(case.expected.insert(words.join(" ")), "twice: {line}");
            }
            _ => panic!("unknown: {line}"),
        }
    }

    /// Returns a zone with the objects of the table.
    pub(crate) fn zone(&self) -> Zone {
        let mut options = Options::new(self.zone.parse().unwrap());
        options.pods = self.pods;
        let other_zones = self.other_zones.iter().map(|name| name.parse().unwrap());
        options.other_zones = other_zones.collect();
        let local = self.local.iter().map(|addr| addr.parse().unwrap());
        options.local_addresses = local.collect();
        let mut zone = Zone::new(options);
        for object in &self.objects {
            let warnings = zone.apply(&event(object));
            assert!(warnings.is_empty(), "{warnings:?}");
        }
        zone.apply(&Event::Synced);
        zone
    }
}

fn event(json: &str) -> Event {
    let value: serde_json::Value = serde_json::from_str(json).unwrap();
    match value["kind"].as_str().unwrap() {
        "Service" => serde_json::from_value::<api::Service>(value)
            .unwrap()
            .into(),
        "EndpointSlice" => serde_json::from_value::<api::EndpointSlice>(value)
            .unwrap()
            .into(),
        "Namespace" => serde_json::from_value::<api::Namespace>(value)
            .unwrap()
            .into(),
        "ServiceCIDR" => serde_json::from_value::<api::ServiceCidr>(value)
            .unwrap()
            .into(),
        kind => panic!("unknown: {kind}"),
    }
}

impl Case {
    pub(crate) fn ask(&self, zone: &Zone) -> Lines {
        let (name, record_type) = self.question.split_once(' ').unwrap();
        let question = Question::new(name.parse().unwrap(), record_type_of(record_type));
        match zone.answer(&question, 0) {
            Some(answer) => lines(&answer),
            None => Lines::from(["code OUTSIDE".to_owned()]),
        }
    }
}

fn record_type_of(text: &str) -> RecordType {
    match text {
        "A" => RecordType::A,
        "AAAA" => RecordType::Aaaa,
        "SRV" => RecordType::Srv,
        "CNAME" => RecordType::Cname,
        "PTR" => RecordType::Ptr,
        "TXT" => RecordType::Txt,
        "SOA" => RecordType::Soa,
        "NS" => RecordType::Ns,
        "ANY" => RecordType::Any,
        "HINFO" => RecordType::Other(13),
        _ => panic!("unknown: {text}"),
    }
}

fn lines(answer: &Answer) -> Lines {
    let mut lines = Lines::new();
    let code = match answer.code {
        ResponseCode::NoError => "NOERROR",
        ResponseCode::NameError => "NXDOMAIN",
    };
    lines.insert(format!("code {code}"));
    for (section, records) in [
        ("answer", &answer.answers),
        ("authority", &answer.authorities),
        ("additional", &answer.additionals),
    ] {
        for record in records {
            let line = format!("{section} {}", text(record));
            assert!(lines.insert(line), "a record twice: {answer:?}");
        }
    }
    if let Some(name) = &answer.unresolved {
        lines.insert(format!("unresolved {name}"));
    }
    lines
}

/// Returns a record in the format of zone files, without the serial number.
fn text(record: &Record) -> String {
    let data = match &record.data {
        RecordData::A(addr) => format!("A {addr}"),
        RecordData::Aaaa(addr) => format!("AAAA {addr}"),
        RecordData::Srv {
            priority,
            weight,
            port,
            target,
        } => format!("SRV {priority} {weight} {port} {target}"),
        RecordData::Cname(name) => name_data("CNAME", name),
        RecordData::Ptr(name) => name_data("PTR", name),
        RecordData::Ns(name) => name_data("NS", name),
        RecordData::Txt(texts) => format!("TXT {}", texts.join(" ")),
        RecordData::Soa(soa) => format!(
            "SOA {} {} {} {} {} {}",
            soa.name_server, soa.mailbox, soa.refresh, soa.retry, soa.expire, soa.minimum
        ),
    };
    format!("{} {} {data}", record.name, record.ttl)
}

fn name_data(record_type: &str, name: &Name) -> String {
    format!("{record_type} {name}")
}
