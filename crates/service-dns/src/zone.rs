//! The zone: events in, answers out.

use std::collections::HashMap;
use std::net::IpAddr;

use vipline_service_model::{Event, ObjectName, Warning, api, parse_address};

use crate::{Answer, Name, Options, Question, Record, RecordData, RecordType, ResponseCode, Soa};

/// The DNS zone of a cluster.
///
/// The cost of an event depends on its object only.
#[derive(Debug)]
pub struct Zone {
    options: Options,
    serial: u32,
    synced: bool,
    cluster_ips: HashMap<ObjectName, Vec<IpAddr>>,
}

impl Zone {
    /// Returns an empty zone.
    pub fn new(options: Options) -> Self {
        Self {
            serial: options.first_serial,
            options,
            synced: false,
            cluster_ips: HashMap::new(),
        }
    }

    /// Returns the options.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Returns the serial number. Each event increments it.
    pub fn serial(&self) -> u32 {
        self.serial
    }

    /// Returns whether the initial list of objects is complete. Before, a server must
    /// not report that a name does not exist.
    pub fn is_synced(&self) -> bool {
        self.synced
    }

    /// Applies an event and returns warnings about its object.
    pub fn apply(&mut self, event: &Event) -> Vec<Warning> {
        self.serial = self.serial.wrapping_add(1);
        match event {
            Event::ServiceApplied(service) => self.apply_service(service),
            Event::ServiceDeleted(name) => drop(self.cluster_ips.remove(name)),
            Event::Synced => self.synced = true,
            _ => {}
        }
        Vec::new()
    }

    /// Answers a question. Returns `None` if the name is not in a zone of this server, so
    /// that the server forwards the question.
    ///
    /// `rotation` rotates the records of a set, for a random or round-robin order.
    pub fn answer(&self, question: &Question, rotation: usize) -> Option<Answer> {
        if !question.name.is_within(&self.options.zone) {
            return None;
        }
        let labels: Vec<_> = question.name.labels().collect();
        let depth = labels.len() - self.options.zone.labels().count();
        let found = match labels.get(..depth) {
            Some([service, namespace, svc]) if svc.eq_ignore_ascii_case(b"svc") => {
                let text = |label: &[u8]| String::from_utf8_lossy(label).to_ascii_lowercase();
                self.cluster_ips
                    .get(&ObjectName::new(text(namespace), text(service)))
            }
            _ => None,
        };
        let mut answer = Answer {
            code: ResponseCode::NoError,
            answers: Vec::new(),
            authorities: Vec::new(),
            additionals: Vec::new(),
            unresolved: None,
        };
        for &addr in found.into_iter().flatten() {
            let data = match addr {
                IpAddr::V4(addr) => RecordData::A(addr),
                IpAddr::V6(addr) => RecordData::Aaaa(addr),
            };
            if data.record_type() == question.record_type || question.record_type == RecordType::Any
            {
                answer.answers.push(self.record(&question.name, data));
            }
        }
        if answer.answers.is_empty() {
            let apex = question.name.skip_labels(depth);
            if found.is_none() && depth > 0 {
                answer.code = ResponseCode::NameError;
            }
            let soa = RecordData::Soa(self.soa(&apex)?);
            answer.authorities.push(self.record(&apex, soa));
        } else {
            let length = answer.answers.len();
            answer.answers.rotate_left(rotation % length);
        }
        Some(answer)
    }

    fn record(&self, name: &Name, data: RecordData) -> Record {
        Record {
            name: name.clone(),
            ttl: self.options.ttl,
            data,
        }
    }

    fn soa(&self, apex: &Name) -> Option<Soa> {
        Some(Soa {
            name_server: apex.below(["ns", "dns"])?,
            mailbox: apex.below(["hostmaster"])?,
            serial: self.serial,
            refresh: 7200,
            retry: 1800,
            expire: 86_400,
            minimum: self.options.ttl,
        })
    }

    fn apply_service(&mut self, service: &api::Service) {
        let spec = &service.spec;
        let addresses = if spec.cluster_ips.is_empty() {
            std::slice::from_ref(&spec.cluster_ip)
        } else {
            &spec.cluster_ips
        };
        let addresses = addresses.iter().filter_map(|text| parse_address(text));
        self.cluster_ips
            .insert(service.metadata.object_name(), addresses.collect());
    }
}
