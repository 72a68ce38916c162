//! Answers recorded from CoreDNS 1.13.1 with its kubernetes plugin, compared with the
//! answers of a zone with the same objects.
//!
//! - `recorded/objects.jsonl`: objects as kube-apiserver 1.36 returned them, one per line.
//! - `recorded/pods-insecure.txt`: random questions to a server with `pods insecure`.
//! - `recorded/pods-disabled.txt`: the same with `pods disabled` and `ttl 30`.
//!
//! A line is `NAME TYPE CODE | answers | authorities | additionals`. `;` separates the
//! records, which are sorted. `@` is the name of the question. Records have a TTL if it is
//! not that of the server. `SOA ZONE` is the start of authority of a zone.
//! Code `FORWARD` means that the server forwarded the question: an upstream server
//! answered it. `ext.example.com` and `www.example.com` exist there.
//!
//! [`DEVIATIONS`] lists all classes of questions that the zone answers differently.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::IpAddr;

use serde::de::DeserializeOwned;
use serde_json::Value;
use vipline_service_dns::{
    Answer, Name, Options, PodRecords, Question, Record, RecordData, RecordType, ResponseCode, Zone,
};
use vipline_service_model::{Event, api};

const OBJECTS: &str = include_str!("recorded/objects.jsonl");
const PODS_INSECURE: &str = include_str!("recorded/pods-insecure.txt");
const PODS_DISABLED: &str = include_str!("recorded/pods-disabled.txt");

/// Addresses of the recorded server.
const SERVER: [&str; 2] = ["192.168.99.53", "fd00:99::53"];

/// A class of questions that CoreDNS and the zone answer differently.
struct Deviation {
    /// Reason, for a reader of the test.
    reason: &'static str,
    /// Returns whether the question belongs to the class.
    includes: fn(&Asked<'_>) -> bool,
}

/// All deviations. The test fails if a class has no question that differs.
const DEVIATIONS: &[Deviation] = &[
    Deviation {
        reason: "ANY returns all records of the name, RFC 8482 section 4.3 permits no answers",
        includes: |asked| asked.is(&["ANY"]) && asked.recorded_no_data(),
    },
    Deviation {
        reason: "an alias answers questions of all types, RFC 1034 section 3.6.2",
        includes: |asked| asked.ours.contains(" | @ CNAME ") && asked.recorded_no_data(),
    },
    Deviation {
        reason: "names without records do not exist, for questions of type SOA too",
        includes: |asked| {
            asked.is(&["SOA"]) && asked.recorded_no_data() && !asked.ours.starts_with("NOERROR")
        },
    },
    Deviation {
        reason: "a ServiceCIDR is a zone of the server: no upstream server knows its names",
        includes: |asked| {
            let zones = [" 96.10.in-addr.arpa.", ".6.9.0.0.0.1.0.0.0.0.d.f.ip6.arpa."];
            let (_, zone) = asked.ours.rsplit_once("SOA").unwrap_or_default();
            let zone = zone.to_lowercase();
            asked.recorded == "FORWARD" && zones.iter().any(|suffix| zone.ends_with(suffix))
        },
    },
    Deviation {
        reason: "an address with PTR records is a name, for questions of all types",
        includes: |asked| {
            let is_reverse = asked.name.ends_with(".arpa.");
            is_reverse && !asked.is(&["PTR"]) && asked.ours.starts_with("NOERROR")
        },
    },
    Deviation {
        reason: "the reverse zones are those of known networks and addresses",
        includes: |asked| {
            let zones = ["in-addr.arpa.", "ip6.arpa."];
            zones.contains(&&*asked.name) && asked.recorded != "FORWARD" && asked.ours == "FORWARD"
        },
    },
    Deviation {
        reason: "labels in front of an address are no part of it",
        includes: |asked| {
            let labels = asked.name.split('.').count();
            let is_longer = asked.name.ends_with(".ip6.arpa.") && labels == 33 + 3;
            is_longer && asked.recorded.contains("@ PTR ") && !asked.ours.contains("PTR")
        },
    },
    Deviation {
        reason: "weights are shares of the SRV records, and not of their addresses",
        includes: |asked| {
            asked.is(&["SRV"]) && without_weights(asked.recorded) == without_weights(asked.ours)
        },
    },
    Deviation {
        reason: "a port has SRV records only",
        includes: |asked| {
            let is_port = asked.name.starts_with('_') && asked.name.contains("._");
            is_port && !asked.is(&["SRV"]) && asked.ours.starts_with("NOERROR |  | SOA")
        },
    },
    Deviation {
        reason: "dns-version, dns and ns.dns exist for questions of all types, in any case",
        includes: |asked| {
            let names = ["dns-version", "dns", "ns.dns"];
            let name = asked.name.strip_suffix(".cluster.local.");
            name.is_some_and(|name| names.contains(&name))
                && asked.recorded.starts_with("NXDOMAIN")
                && asked.ours.starts_with("NOERROR")
        },
    },
    Deviation {
        reason: "a protocol in front of a Service is the parent of its ports, RFC 8020",
        includes: |asked| {
            let protocols = ["_tcp.", "_udp.", "_sctp."];
            protocols.iter().any(|label| asked.name.starts_with(label))
                && asked.recorded.starts_with("NXDOMAIN")
                && asked.ours.starts_with("NOERROR |  | SOA")
        },
    },
    Deviation {
        reason: "a port without a number does not exist",
        includes: |asked| {
            let is_port = asked.name.starts_with("_http._tcp.headless-nilport.");
            is_port && asked.ours.starts_with("NXDOMAIN")
        },
    },
    Deviation {
        reason: "names of ports begin with underscores",
        includes: |asked| {
            let underscores = asked
                .name
                .split('.')
                .take(2)
                .filter(|it| it.starts_with('_'));
            let is_service = asked.name.ends_with(".svc.cluster.local.");
            is_service
                && underscores.count() < 2
                && asked.name.split('.').count() == 8
                && asked.ours.starts_with("NXDOMAIN")
        },
    },
    Deviation {
        reason: "names of pods and their namespaces exist for questions of all types",
        includes: |asked| {
            asked.name.ends_with(".pod.cluster.local.")
                && asked.recorded.starts_with("NXDOMAIN")
                && asked.ours.starts_with("NOERROR")
        },
    },
    Deviation {
        reason: "the name of a pod is its address, without labels in front",
        includes: |asked| {
            let pod = asked.name.strip_suffix(".pod.cluster.local.");
            let has_more_labels = pod.is_some_and(|pod| pod.matches('.').count() > 1);
            has_more_labels && asked.ours.starts_with("NXDOMAIN")
        },
    },
    Deviation {
        reason: "the address of a pod has no port, so no SRV record",
        includes: |asked| {
            let is_pod = asked.name.ends_with(".pod.cluster.local.");
            is_pod && asked.is(&["SRV"]) && asked.recorded.contains("SRV 0 100 0 ")
        },
    },
];

/// Removes the weights of SRV records from an answer.
fn without_weights(answer: &str) -> String {
    let mut words: Vec<_> = answer.split(' ').collect();
    let weights: Vec<_> = (2..words.len())
        .filter(|at| words[at - 2] == "SRV")
        .collect();
    for at in weights {
        words[at] = "W";
    }
    let records: BTreeSet<_> = words.join(" ").split("; ").map(str::to_owned).collect();
    records.into_iter().collect::<Vec<_>>().join("; ")
}

/// A recorded question with both answers.
struct Asked<'a> {
    /// Name in lower case.
    name: String,
    record_type: &'a str,
    recorded: &'a str,
    ours: &'a str,
}

impl Asked<'_> {
    fn is(&self, record_types: &[&str]) -> bool {
        record_types.contains(&self.record_type)
    }

    /// Returns whether CoreDNS answered that the name exists, without records.
    fn recorded_no_data(&self) -> bool {
        self.recorded.starts_with("NOERROR |  | SOA")
    }
}

#[test]
fn answers_equal_those_of_coredns_with_insecure_pods() {
    let mut options = options();
    options.pods = PodRecords::Insecure;
    let used = compare(options, PODS_INSECURE);
    for Deviation { reason, .. } in DEVIATIONS {
        assert!(
            used.contains_key(reason),
            "no question differs because {reason}"
        );
    }
}

#[test]
fn answers_equal_those_of_coredns_without_pods() {
    let mut options = options();
    options.ttl = 30;
    compare(options, PODS_DISABLED);
}

fn options() -> Options {
    let mut options = Options::new("cluster.local".parse().expect("a name"));
    options.local_addresses = SERVER
        .map(|addr| addr.parse::<IpAddr>().expect("an address"))
        .into();
    options
}

/// Compares all recorded answers, and fails with the differences. Returns the number of
/// questions for each deviation.
fn compare(options: Options, recorded: &str) -> BTreeMap<&'static str, usize> {
    let ttl = options.ttl;
    let zone = zone(options);
    let mut used = BTreeMap::new();
    let mut differences = String::new();
    let mut count = 0;
    for line in recorded.lines() {
        let (question, recorded) = parse(line);
        let text = Text {
            ttl,
            name: question.name.to_string(),
        };
        let recorded = without_upstream(recorded);
        let ours = text.answer(zone.answer(&question, 0));
        count += 1;
        if ours == recorded {
            continue;
        }
        let words: Vec<_> = line.split(' ').collect();
        let asked = Asked {
            name: text.name.to_lowercase(),
            record_type: words[1],
            recorded: &recorded,
            ours: &ours,
        };
        match DEVIATIONS.iter().find(|each| (each.includes)(&asked)) {
            Some(deviation) => *used.entry(deviation.reason).or_default() += 1,
            None => writeln!(
                differences,
                "{} {}\n  CoreDNS {recorded}\n  zone    {ours}",
                words[0], words[1]
            )
            .expect("a string is written"),
        }
    }
    let number = differences.lines().count() / 3;
    assert!(
        differences.is_empty(),
        "{number} of {count} differ:\n{differences}"
    );
    assert!(count >= 300);
    // The deviations are a small part, or the comparison is worthless.
    assert!(5 * used.values().sum::<usize>() < count, "{used:#?}");
    used
}

/// Returns a zone with all recorded objects.
fn zone(options: Options) -> Zone {
    let mut zone = Zone::new(options);
    let mut warnings = Vec::new();
    for line in OBJECTS.lines() {
        let object: Value = serde_json::from_str(line).expect("a line is JSON");
        let event = match object["kind"].as_str() {
            Some("Service") => Event::from(read::<api::Service>(object)),
            Some("EndpointSlice") => Event::from(read::<api::EndpointSlice>(object)),
            Some("Namespace") => Event::from(read::<api::Namespace>(object)),
            Some("ServiceCIDR") => Event::from(read::<api::ServiceCidr>(object)),
            _ => continue,
        };
        warnings.extend(zone.apply(&event));
    }
    // An IP address is no canonical name.
    let objects: Vec<_> = warnings.iter().map(|each| each.name.to_string()).collect();
    assert_eq!(objects, ["default/address"], "{warnings:?}");
    zone.apply(&Event::Synced);
    zone
}

fn read<T: DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).expect("an API object")
}

/// Parses a line: the question, and the recorded answer in the format of [`Text`].
fn parse(line: &str) -> (Question, &str) {
    let mut words = line.splitn(3, ' ');
    let mut word = || words.next().expect("a line has three fields");
    let (name, record_type, answer) = (word(), word(), word());
    let record_type = match record_type {
        "A" => RecordType::A,
        "AAAA" => RecordType::Aaaa,
        "ANY" => RecordType::Any,
        "CNAME" => RecordType::Cname,
        "NS" => RecordType::Ns,
        "PTR" => RecordType::Ptr,
        "SOA" => RecordType::Soa,
        "SRV" => RecordType::Srv,
        "TXT" => RecordType::Txt,
        "MX" => RecordType::Other(15),
        "NAPTR" => RecordType::Other(35),
        "DS" => RecordType::Other(43),
        "HTTPS" => RecordType::Other(65),
        "CAA" => RecordType::Other(257),
        other => panic!("{other}"),
    };
    (
        Question::new(name.parse::<Name>().expect("a domain name"), record_type),
        answer,
    )
}

/// Removes records of upstream servers from a recorded answer.
fn without_upstream(recorded: &str) -> String {
    let is_ours = |record: &&str| !record.contains(".example.com. 60 ");
    let sections = recorded.split(" | ");
    let sections = sections.map(|section| {
        let records: Vec<_> = section.split("; ").filter(is_ours).collect();
        records.join("; ")
    });
    sections.collect::<Vec<_>>().join(" | ")
}

/// Format of the answer to a question in the recorded files.
struct Text {
    ttl: u32,
    /// Name of the question.
    name: String,
}

impl Text {
    fn answer(&self, answer: Option<Answer>) -> String {
        let Some(answer) = answer else {
            return "FORWARD".to_owned();
        };
        let code = match answer.code {
            ResponseCode::NoError => "NOERROR",
            ResponseCode::NameError => "NXDOMAIN",
        };
        let mut fields = vec![code.to_owned()];
        for section in [answer.answers, answer.authorities, answer.additionals] {
            let mut records: Vec<_> = section.iter().map(|each| self.record(each)).collect();
            records.sort();
            fields.push(records.join("; "));
        }
        while fields.last().is_some_and(String::is_empty) {
            fields.pop();
        }
        fields.join(" | ")
    }

    fn record(&self, record: &Record) -> String {
        let name = match record.name.to_string() {
            name if name == self.name => "@".to_owned(),
            name => name,
        };
        let (kind, data) = match &record.data {
            RecordData::A(addr) => ("A", addr.to_string()),
            RecordData::Aaaa(addr) => ("AAAA", addr.to_string()),
            RecordData::Cname(name) => ("CNAME", name.to_string()),
            RecordData::Ptr(name) => ("PTR", name.to_string()),
            RecordData::Ns(name) => ("NS", name.to_string()),
            RecordData::Txt(texts) => ("TXT", format!("\"{}\"", texts.join("\" \""))),
            RecordData::Srv {
                priority,
                weight,
                port,
                target,
            } => ("SRV", format!("{priority} {weight} {port} {target}")),
            RecordData::Soa(soa) => {
                let zone = record.name.to_string();
                // Reverse zones have the name server of the zone, and not one of their own.
                let main = match zone.to_lowercase().ends_with("arpa.") {
                    true => "cluster.local.",
                    false => &*zone,
                };
                assert_eq!(soa.name_server.to_string(), format!("ns.dns.{main}"));
                assert_eq!(soa.mailbox.to_string(), format!("hostmaster.{main}"));
                let times = [soa.refresh, soa.retry, soa.expire, soa.minimum, record.ttl];
                assert_eq!(times, [7200, 1800, 86400, self.ttl, self.ttl]);
                return format!("SOA {zone}");
            }
        };
        match record.ttl == self.ttl {
            true => format!("{name} {kind} {data}"),
            false => format!("{name} {} {kind} {data}", record.ttl),
        }
    }
}
