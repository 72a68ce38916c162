//! Questions about one connection, or about all addresses of a Service.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use ipnet::IpNet;
use proxy_core::evaluate::Rules;
use proxy_core::evaluator::Host;
use proxy_core::reason::Scene;
use proxy_core::{Config, Engine, Family};
use vipline_service_model::{Counted, DetectLocal, ObjectName, Transport};

use super::answer::{Answer, Explanation, Masquerade, Outcome, ServiceAnswer};
use super::inquiry::{Facts, Source};
use super::observed::Observed;
use crate::cli::Subject;

/// Addresses for documentation (RFC 5737, RFC 3849), as a typical client outside of the
/// cluster.
const OUTSIDE_V4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
const OUTSIDE_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7);

/// Maximum number of connections in an explanation of a Service.
const MAX_ITEMS: usize = 256;

/// Maximum number of addresses that are considered for a pod.
const MAX_CANDIDATES: usize = 1024;

/// Asks an engine.
pub(super) struct Inquirer {
    /// Configuration of the proxy.
    pub(super) config: Config,
    /// Whole plans by family. Without them, each destination gets a plan of its own, with the
    /// same outcomes.
    pub(super) plans: BTreeMap<Family, Arc<Rules>>,
    pub(super) from: Option<IpAddr>,
    pub(super) from_node: bool,
    /// Interface that receives the packets, instead of that of the route to the source.
    pub(super) interface: Option<String>,
}

/// What an engine knows about a subject.
#[derive(Debug)]
pub(super) enum Prepared {
    /// A connection.
    Connection(Box<Item>),
    /// Connections to the addresses of a Service.
    Service {
        name: ObjectName,
        families: Vec<String>,
        items: Vec<Item>,
        /// Why connections are left out.
        left_out: Option<String>,
    },
    /// A Service that the proxy does not serve.
    Skipped(Box<ServiceAnswer>),
}

/// A connection with the plan for its destination.
#[derive(Debug)]
pub(super) struct Item {
    facts: Facts,
    plan: Option<Arc<Rules>>,
}

impl Inquirer {
    /// Asks the engine about a subject.
    pub(super) fn prepare(
        &self,
        engine: &Engine,
        host: &Host,
        subject: &Subject,
    ) -> Result<Prepared, String> {
        match subject {
            Subject::Connection(protocol, destination) => {
                let typical = || {
                    let sources = self.sources(engine, Family::of(destination.ip()));
                    sources.into_iter().next().unwrap_or(Source::Node)
                };
                let source = self.given().unwrap_or_else(typical);
                let to = (*protocol, *destination);
                let item = self.item(engine, host, to, source, None)?;
                Ok(Prepared::Connection(Box::new(item)))
            }
            Subject::Service(name) => self.service(engine, host, name),
        }
    }

    /// Returns the source that the caller names.
    fn given(&self) -> Option<Source> {
        match self.from_node {
            true => Some(Source::Node),
            false => self.from.map(Source::Address),
        }
    }

    fn service(&self, engine: &Engine, host: &Host, name: &ObjectName) -> Result<Prepared, String> {
        let (mut items, mut families, mut left_out) = (Vec::new(), Vec::new(), None);
        for &family in &engine.config().families {
            let addresses = Scene::new(engine, &self.config, family).addresses_of(name);
            if !addresses.is_empty() {
                families.push(family.to_string());
            }
            let sources = match self.given() {
                Some(source) => vec![source],
                None => self.sources(engine, family),
            };
            let is_family = |source: &Source| match *source {
                Source::Address(addr) => Family::of(addr) == family,
                Source::Node => true,
            };
            for (protocol, destination, _) in addresses {
                for &source in sources.iter().filter(|it| is_family(it)) {
                    if items.len() < MAX_ITEMS {
                        let to = (protocol, destination);
                        match self.item(engine, host, to, source, Some(name)) {
                            Ok(item) => items.push(item),
                            Err(reason) => left_out = left_out.or(Some(reason)),
                        }
                    }
                }
            }
        }
        if let (true, Some(reason)) = (items.is_empty(), &left_out) {
            return Err(reason.clone());
        }
        if items.is_empty() {
            return skipped(engine, &self.config, name).map(|it| Prepared::Skipped(Box::new(it)));
        }
        Ok(Prepared::Service {
            name: name.clone(),
            families,
            items,
            left_out,
        })
    }

    /// Returns typical sources: a pod of this node, the node, and a host outside of the
    /// cluster.
    fn sources(&self, engine: &Engine, family: Family) -> Vec<Source> {
        let outside = match family {
            Family::V4 => OUTSIDE_V4.into(),
            Family::V6 => OUTSIDE_V6.into(),
        };
        let pod = pod(engine, family).map(Source::Address);
        let has_node = engine.store().node().address(family).is_some();
        let node = has_node.then_some(Source::Node);
        let sources = pod.into_iter().chain(node);
        sources.chain([Source::Address(outside)]).collect()
    }
}

/// Returns the address of a pod on this node that is no endpoint: in its pod network, in that
/// of the cluster, or beside an endpoint on this node.
fn pod(engine: &Engine, family: Family) -> Option<IpAddr> {
    let node = engine.store().node();
    let cluster = match &engine.config().detect_local {
        DetectLocal::ClusterCidr(networks) => networks.as_slice(),
        _ => &[],
    };
    let is_family = |network: &&IpNet| Family::of(network.addr()) == family;
    let cluster = cluster.iter().find(is_family).copied();
    let networks = node.pod_cidr(family).or(cluster);
    let network = networks.or_else(|| beside_endpoint(engine, family))?;
    let is_endpoint = |addr: &IpAddr| {
        let mut ports = engine.store().ports();
        ports.any(|port| port.serving.iter().any(|it| it.addr == *addr))
    };
    // The first addresses usually belong to the bridge.
    let candidates = network.hosts().skip(4).take(MAX_CANDIDATES);
    let mut candidates = candidates.filter(|addr| !node.addresses.contains(addr));
    candidates.find(|addr| !is_endpoint(addr))
}

/// Returns the network of typical size of an endpoint on this node.
fn beside_endpoint(engine: &Engine, family: Family) -> Option<IpNet> {
    let node = engine.store().node();
    let ports = engine.store().ports().filter(|port| port.family == family);
    let mut endpoints = ports.flat_map(|port| port.reachable_local());
    let endpoint = endpoints.find(|it| !node.addresses.contains(&it.addr))?;
    let length = match family {
        Family::V4 => 24,
        Family::V6 => 64,
    };
    IpNet::new(endpoint.addr, length).ok().map(|it| it.trunc())
}

impl Inquirer {
    fn item(
        &self,
        engine: &Engine,
        host: &Host,
        to: (Transport, SocketAddr),
        source: Source,
        asked: Option<&ObjectName>,
    ) -> Result<Item, String> {
        let known = self.plans.get(&Family::of(to.1.ip()));
        let own = || engine.desired_rules_of(to.1).map(Arc::new);
        Ok(Item {
            facts: Facts::new(
                engine,
                &self.config,
                host,
                to,
                (source, self.interface.as_deref()),
                asked,
            )?,
            plan: known.cloned().or_else(own),
        })
    }
}

impl Prepared {
    /// Evaluates both sides.
    pub(super) fn finish(self, observed: &Observed) -> Explanation {
        let mut kernels = BTreeMap::new();
        let mut answer = |item: Item| {
            let Item { facts, plan } = item;
            let family = Family::of(facts.question.destination.ip());
            let kernel = kernels
                .entry(family)
                .or_insert_with(|| observed.rules(family));
            let kernel = kernel.as_ref().map(Option::as_ref);
            observed.answer(facts, plan.as_deref(), kernel)
        };
        match self {
            Self::Connection(item) => Explanation::Connection(Box::new(answer(*item))),
            Self::Skipped(service) => Explanation::Service(service),
            Self::Service {
                name,
                families,
                items,
                left_out,
            } => {
                let answers = items.into_iter().map(answer).collect();
                let answer = summary(&name, families, answers, left_out);
                Explanation::Service(Box::new(answer))
            }
        }
    }
}

/// Returns the answer about a Service that the proxy does not serve.
fn skipped(engine: &Engine, config: &Config, name: &ObjectName) -> Result<ServiceAnswer, String> {
    let family = engine.config().families.first().copied();
    let scene = Scene::new(engine, config, family.unwrap_or(Family::V4));
    let found = scene
        .skipped_service(name)
        .or_else(|| scene.unserved_service(name));
    let Some(finding) = found else {
        return Err(format!("Service {name} does not exist"));
    };
    let unspecified = Ipv4Addr::UNSPECIFIED.into();
    let reason = finding.reason.sentence(unspecified);
    let field = finding.reason.field().map(str::to_owned);
    let in_field = field
        .as_ref()
        .map(|it| format!(" ({it})"))
        .unwrap_or_default();
    Ok(ServiceAnswer {
        service: name.to_string(),
        families: Vec::new(),
        outcome: Outcome::Dropped,
        endpoints: Vec::new(),
        masquerade: Masquerade::Never,
        sentence: format!("Not served by this proxy: {reason}{in_field}."),
        reason,
        field,
        answers: Vec::new(),
        left_out: None,
    })
}

/// Returns the answer about a Service from those about its addresses.
fn summary(
    name: &ObjectName,
    families: Vec<String>,
    answers: Vec<Answer>,
    left_out: Option<String>,
) -> ServiceAnswer {
    let mut answer = ServiceAnswer {
        service: name.to_string(),
        families,
        outcome: Outcome::Dropped,
        endpoints: Vec::new(),
        masquerade: masquerade(&answers),
        reason: String::new(),
        field: None,
        sentence: String::new(),
        answers,
        left_out,
    };
    answer.summarize();
    answer
}

impl ServiceAnswer {
    /// Sets what the answers about single connections determine.
    pub(super) fn summarize(&mut self) {
        let is_failed = |it: &&Answer| !matches!(it.outcome, Outcome::Reachable | Outcome::Unknown);
        let is_unknown = |it: &&Answer| it.outcome == Outcome::Unknown;
        let answers = &self.answers;
        let failed = answers.iter().filter(is_failed).count();
        let unknown = answers.iter().filter(is_unknown).count();
        let deciding = answers.iter().find(is_failed);
        let deciding = deciding.or_else(|| answers.iter().find(is_unknown));
        let deciding = deciding.or_else(|| answers.first());
        let (total, name) = (answers.len(), &self.service);
        let is = |count| if count == 1 { "is" } else { "are" };
        let does_not = |count| match count {
            1 => "does not work",
            _ => "do not work",
        };
        let problem = match (failed, unknown) {
            (0, 0) => None,
            (0, unknown) => Some((unknown, is(unknown).to_owned() + " unknown")),
            (failed, 0) => Some((failed, does_not(failed).to_owned())),
            (failed, unknown) => {
                let (fail, is) = (does_not(failed), is(unknown));
                Some((failed, format!("{fail}, and {unknown} {is} unknown")))
            }
        };
        let mut sentence = match (problem, deciding) {
            (None, _) if total == 1 => format!(
                "Works for the first packet: the only connection to Service {name} reaches an \
                 endpoint."
            ),
            (None, _) => format!(
                "Works for the first packets: all {total} connections to Service {name} reach an \
                 endpoint."
            ),
            (Some((count, problem)), Some(answer)) => format!(
                "{count} of {} to Service {name} {problem}. The first, from {} ({}): {}",
                Counted(total, "connection"),
                answer.question.source,
                answer.question.from,
                answer.sentence
            ),
            (Some(_), None) => String::new(),
        };
        if let Some(reason) = &self.left_out {
            sentence += &format!(" Connections are left out: {reason}.");
        }
        let deciding = deciding.cloned();
        self.outcome = deciding.as_ref().map_or(Outcome::Dropped, |it| it.outcome);
        self.sentence = sentence;
        if let Some(deciding) = deciding {
            self.endpoints = deciding.endpoints;
            self.reason = deciding.reason;
            self.field = deciding.field;
        }
    }
}

/// Returns whether the connections that reach an endpoint are masqueraded.
fn masquerade(answers: &[Answer]) -> Masquerade {
    let reached = answers.iter().filter(|it| !it.endpoints.is_empty());
    let mut all = reached.map(|it| it.masquerade);
    let first = all.next().unwrap_or(Masquerade::Never);
    match all.all(|it| it == first) {
        true => first,
        false => Masquerade::Mixed,
    }
}
