//! The zone: events in, answers out.

mod question;

mod reverse;

mod node;

mod response;

use std::cmp::Reverse;

use vipline_service_model::{Event, Warning};

use crate::index::{Index, Networks};
use crate::{Answer, Options, PodRecords, Question};
use node::Node;
use question::Folded;
use response::Response;
use reverse::ReverseName;

/// Maximum number of aliases of an answer. Aliases within the zone may form a loop.
const MAX_ALIASES: usize = 10;

/// The DNS zone of a cluster, and the reverse zones of its Services.
///
/// The cost of an event depends on its object, times the logarithm of the number of objects.
/// An answer borrows nothing: readers may share the zone behind a lock.
///
/// A reverse zone is the network of a `ServiceCIDR`, split into networks with whole labels.
/// An address outside of these networks is a zone if it has records.
#[derive(Debug)]
pub struct Zone {
    options: Options,
    /// Names of the zone in wire format and in lower case, the longest first.
    suffixes: Box<[Box<[u8]>]>,
    serial: u32,
    synced: bool,
    index: Index,
    networks: Networks,
}

impl Zone {
    /// Returns an empty zone.
    pub fn new(options: Options) -> Self {
        let names = [&options.zone].into_iter().chain(&options.other_zones);
        let suffixes = names.map(|name| name.as_wire().to_ascii_lowercase().into());
        let mut suffixes: Box<[Box<[u8]>]> = suffixes.collect();
        suffixes.sort_unstable_by_key(|suffix| Reverse(suffix.len()));
        Self {
            suffixes,
            serial: options.first_serial,
            options,
            synced: false,
            index: Index::default(),
            networks: Networks::default(),
        }
    }

    /// Returns the options.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Returns the serial number. Each event about a Service, an EndpointSlice, a
    /// Namespace or a ServiceCIDR increments it.
    pub fn serial(&self) -> u32 {
        self.serial
    }

    /// Returns whether the initial list of objects is complete. Before, a server must
    /// not report that a name does not exist.
    pub fn is_synced(&self) -> bool {
        self.synced
    }

    /// Applies an event and returns warnings about its object.
    ///
    /// An invalid field is left out. All other objects keep their records.
    pub fn apply(&mut self, event: &Event) -> Vec<Warning> {
        let mut warnings = Vec::new();
        match event {
            Event::ServiceApplied(service) => warnings = self.index.apply_service(service),
            Event::ServiceDeleted(name) => self.index.delete_service(name),
            Event::SliceApplied(slice) => warnings = self.index.apply_slice(slice),
            Event::SliceDeleted(name) => self.index.delete_slice(name),
            Event::ServiceCidrApplied(cidr) => warnings = self.networks.apply(cidr),
            Event::ServiceCidrDeleted(name) => self.networks.delete(name),
            Event::NamespaceApplied(namespace) => self.index.apply_namespace(namespace),
            Event::NamespaceDeleted(name) => self.index.delete_namespace(name),
            Event::NodeApplied(_) | Event::NodeDeleted(_) => return warnings,
            Event::Synced => {
                self.synced = true;
                return warnings;
            }
        }
        self.serial = self.serial.wrapping_add(1);
        warnings
    }

    /// Answers a question. Returns `None` if the name is not in a zone of this server, so
    /// that the server forwards the question.
    ///
    /// `rotation` rotates the records of a set, for a random or round-robin order.
    pub fn answer(&self, question: &Question, rotation: usize) -> Option<Answer> {
        self.answer_within(question, rotation, usize::MAX)
    }

    /// Answers a question as [`answer`](Self::answer), for a message of at most `size` bytes.
    ///
    /// An answer that fits into the message is the same. Otherwise the cost depends on `size`
    /// and not on the number of endpoints: the answer has more records than fit, so that the
    /// server truncates the message, but not all records. Targets of SRV records must not be
    /// compressed (RFC 2782).
    pub fn answer_within(
        &self,
        question: &Question,
        rotation: usize,
        size: usize,
    ) -> Option<Answer> {
        let mut response = Response::new(self, question, rotation, size);
        let mut name = question.name.clone();
        for aliases in 0..=MAX_ALIASES {
            let Some((node, depth)) = self.locate(&Folded::new(&name)) else {
                if aliases == 0 {
                    return None;
                }
                response.answer.unresolved = Some(name);
                break;
            };
            response.set_zone(name.skip_labels(depth));
            let Some(canonical) = response.add(&name, &node) else {
                break;
            };
            name = canonical;
            let mut owners = response.answer.answers.iter();
            if owners.any(|record| record.name == name) {
                break;
            }
        }
        Some(response.answer)
    }

    /// Returns the node of a name, and the number of labels in front of its zone. `None` if
    /// the name is not in a zone.
    fn locate<'a>(&'a self, name: &Folded) -> Option<(Node<'a>, usize)> {
        let mut depths = self.suffixes.iter().map(|suffix| name.depth_below(suffix));
        if let Some(depth) = depths.find_map(|depth| depth) {
            let pods = self.options.pods == PodRecords::Insecure;
            return Some((Node::of_service(&self.index, name, depth, pods), depth));
        }
        let name = ReverseName::parse(name)?;
        match self.networks.largest_around(name.network) {
            Some(length) if name.is_within_zone(length) => {
                let depth = name.depth_below(length);
                Some((Node::of_address(&self.index, name, depth), depth))
            }
            _ => {
                let addr = name.address()?;
                let has_records = self.index.has_between(addr, addr);
                has_records.then_some((
                    Node::Address {
                        addr,
                        is_apex: true,
                    },
                    0,
                ))
            }
        }
    }
}
