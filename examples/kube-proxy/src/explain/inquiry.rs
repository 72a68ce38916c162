//! Answers to questions: the reason by the objects, and the evaluations of both sides.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use proxy_core::evaluate::{self, Rules};
use proxy_core::nftables::evaluate::{Environment, Packet};
use proxy_core::reason::{self, Expectation, Finding, Origin, Reason};
use proxy_core::{Context, Engine, Family};
use vipline_service_model::{EndpointDetails, LocalTraffic, ObjectName, Protocol};

use super::answer::{
    Answer, Endpoint, Masquerade, Outcome, Question, Reached, ServicePort, Side, Step,
};
use super::sentence;
use super::side;

/// Prefixes of the sets with the clients of session affinity: ours and upstream's.
const CLIENTS: [&str; 2] = ["@clients-", "@affinity-"];

/// Prefix of the lists of match `recent` with the clients of an endpoint.
const LISTS: &str = "KUBE-SEP-";

/// Begin of the step that found a persistence template of IPVS.
const FOUND: &str = "ipvs template found: ";

/// Begin of a line about a recorded client.
const RECORDED: &str = "recorded: ";

/// Everything that the engine knows about a connection.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) question: reason::Question,
    pub(super) finding: Finding,
    pub(super) packet: Packet,
    details: Vec<EndpointDetails>,
    mode: String,
    node: String,
}

/// Kernel's rules, or the reason why they were not read.
#[derive(Debug)]
pub(super) enum Kernel {
    Read(Side),
    Skipped(Option<String>),
}

/// Source of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Source {
    Address(IpAddr),
    Node,
}

impl Facts {
    /// Asks the engine about a connection. With `asked`, the answer is about this Service:
    /// it does not work if another one owns the destination.
    pub(super) fn new(
        engine: &Engine,
        host: &dyn Environment,
        (protocol, destination): (Protocol, SocketAddr),
        source: Source,
        asked: Option<&ObjectName>,
    ) -> Result<Self, String> {
        let source = match source {
            Source::Address(addr) => addr,
            Source::Node => evaluate::node_source(host, destination.ip()).ok_or_else(|| {
                let family = Family::of(destination.ip());
                format!("this node has no route to {destination}, or no {family} address")
            })?,
        };
        if source.is_ipv4() != destination.is_ipv4() {
            return Err(format!(
                "source {source} and destination {destination} are of different IP families"
            ));
        }
        let packet = evaluate::packet(host, protocol, source, destination);
        let context = engine.context(Family::of(source));
        let question = reason::Question {
            protocol,
            destination,
            source,
            origin: origin(&context, &packet),
        };
        let mut finding = engine.reason(&question);
        if let (Some(asked), Some(port)) = (asked, &finding.port)
            && !finding.is_of(asked)
        {
            let owner = std::sync::Arc::clone(&port.name);
            let kind = finding.kind.unwrap_or(proxy_core::AddressKind::ClusterIp);
            finding.reason = Reason::Contested { owner, kind };
            finding.expectation = Expectation::Unserved;
        }
        let details = finding.port.as_ref();
        let details = details.map(|port| engine.store().endpoint_details(port));
        let config = engine.config();
        Ok(Self {
            question,
            finding,
            packet,
            details: details.unwrap_or_default(),
            mode: config.mode.to_string(),
            node: config.node_name.to_string(),
        })
    }

    /// Evaluates rules.
    pub(super) fn side(&self, rules: Option<&Rules>, host: &dyn Environment) -> Side {
        match rules {
            Some(rules) => side::evaluate(rules, host, self),
            None => side::failed(format!("rules of mode {} cannot be evaluated", self.mode)),
        }
    }

    /// Returns whether an address is an endpoint of the service port, ready or not.
    pub(super) fn is_endpoint(&self, addr: SocketAddr) -> bool {
        let mut endpoints = self.details.iter().map(|it| &it.endpoint);
        endpoints.any(|it| (it.addr, it.port) == (addr.ip(), addr.port()))
    }

    /// Returns the answer.
    pub(super) fn answer(self, plan: Side, kernel: Kernel, conntrack: Vec<String>) -> Answer {
        let (kernel, kernel_note) = match kernel {
            Kernel::Read(side) => (Some(side), None),
            Kernel::Skipped(note) => (None, note),
        };
        let evaluated = kernel.as_ref().filter(|it| it.error.is_none());
        let truth = evaluated.unwrap_or(&plan);
        let is_known = |side: &Side| side.error.is_none();
        let outcome = match is_known(&plan) && kernel.as_ref().is_none_or(is_known) {
            true => outcome(truth, &self.finding),
            false => Outcome::Unknown,
        };
        let masquerade = truth.masquerade;
        let endpoints = self.endpoints(&truth.endpoints);
        let affinity = affinity(truth);
        let agrees = evaluated.filter(|_| is_known(&plan));
        let agrees = agrees.map(|kernel| is_same(kernel, &plan));
        let reason = sentence::reason(&self, &plan, kernel.as_ref());
        let field = self.finding.reason.field().map(str::to_owned);
        let mut answer = Answer {
            question: self.question(),
            service: self.service_port(),
            outcome,
            other_endpoints: self.others(&endpoints),
            endpoints,
            masquerade,
            reason,
            field,
            rivals: self
                .finding
                .rivals
                .iter()
                .map(|it| it.to_string())
                .collect(),
            affinity,
            conntrack,
            plan,
            kernel,
            kernel_note,
            agrees,
            sentence: String::new(),
            mode: self.mode,
            node: self.node,
        };
        answer.sentence = sentence::sentence(&answer, &self.finding);
        answer
    }

    fn question(&self) -> Question {
        let reason::Question {
            protocol,
            destination,
            source,
            origin,
        } = self.question;
        Question {
            protocol: protocol.to_string().to_lowercase(),
            destination: destination.to_string(),
            source: source.to_string(),
            from: origin.to_string(),
        }
    }

    fn service_port(&self) -> Option<ServicePort> {
        let port = self.finding.port.as_ref()?;
        let policy = |is_local| if is_local { "Local" } else { "Cluster" };
        Some(ServicePort {
            namespace: port.name.namespace.to_string(),
            name: port.name.service.to_string(),
            port: port.name.port.to_string(),
            address: self
                .finding
                .kind
                .map(|it| it.to_string())
                .unwrap_or_default(),
            internal_traffic_policy: policy(port.internal_policy_local),
            external_traffic_policy: policy(port.external_policy_local),
            affinity_seconds: port.affinity,
            source_ranges: port.source_ranges.iter().map(IpNet::to_string).collect(),
        })
    }

    /// Returns the endpoints of an evaluation with their properties.
    fn endpoints(&self, reached: &[Reached]) -> Vec<Endpoint> {
        let details = |it: &Reached| {
            let mut details = self.details.iter();
            details.find(|details| details.endpoint.to_string() == it.address)
        };
        let endpoint = |it: &Reached| Endpoint {
            probability: it.probability,
            fraction: it.fraction.clone(),
            ..endpoint(it.address.clone(), details(it))
        };
        reached.iter().map(endpoint).collect()
    }

    /// Returns the endpoints that are not among those of an evaluation.
    fn others(&self, endpoints: &[Endpoint]) -> Vec<Endpoint> {
        let all = self.details.iter();
        let all = all.map(|it| endpoint(it.endpoint.to_string(), Some(it)));
        let is_reached = |it: &Endpoint| endpoints.iter().any(|each| each.address == it.address);
        all.filter(|it| !is_reached(it)).collect()
    }
}

/// Returns the result of a side for the Service of the question, which does not work if
/// another one owns the destination.
pub(super) fn outcome(side: &Side, finding: &Finding) -> Outcome {
    match finding.reason {
        Reason::Contested { .. } => Outcome::Dropped,
        _ => side.outcome,
    }
}

fn endpoint(address: String, details: Option<&EndpointDetails>) -> Endpoint {
    Endpoint {
        address,
        probability: 0.0,
        fraction: Some("0".to_owned()),
        ready: details.map(|it| it.ready),
        serving: details.map(|it| it.serving),
        terminating: details.map(|it| it.terminating),
        node: details.and_then(|it| it.node.clone()),
        zone: details.and_then(|it| it.zone.clone()),
        local: details.is_some_and(|it| it.endpoint.is_local),
    }
}

/// Returns the recorded clients that matched, and the updates.
fn affinity(side: &Side) -> Vec<String> {
    let mut found = Vec::new();
    for path in &side.paths {
        let recorded = path.steps.iter().flat_map(recorded);
        let recorded = recorded.map(|it| format!("{RECORDED}{it}"));
        let updates = path.updates.iter().map(|it| format!("records: {it}"));
        for line in recorded.chain(updates) {
            if !found.contains(&line) {
                found.push(line);
            }
        }
    }
    found
}

/// Returns the recorded clients that a step found: elements of a set, an entry of a list of
/// match `recent`, or a persistence template of IPVS.
fn recorded(step: &Step) -> Vec<String> {
    let is_recorded = |element: &&String| CLIENTS.iter().any(|it| element.starts_with(it));
    let elements = step.elements.iter().filter(is_recorded).cloned();
    let template = step.text.strip_prefix(FOUND);
    let template = template.map(|it| format!("template {it}"));
    let list = list_with_client(&step.text);
    let list = list.map(|name| format!("the client is in list {name}"));
    elements.chain(template).chain(list).collect()
}

/// Returns the name of the list in which a rule of session affinity found the client.
fn list_with_client(rule: &str) -> Option<&str> {
    let (_, found) = rule.split_once(" -m recent --rcheck ")?;
    let (_, name) = found.split_once("--name ")?;
    let name = name.split(' ').next()?;
    name.starts_with(LISTS).then_some(name)
}

/// Returns whether kernel and plan, both evaluated, give the same result.
///
/// The plan has no recorded clients. So the endpoint of a recorded client need only be one
/// of the plan.
pub(super) fn is_same(kernel: &Side, plan: &Side) -> bool {
    let is_planned = |it: &Reached| plan.endpoints.iter().any(|each| each.address == it.address);
    let is_equal = match is_recorded(kernel) {
        true => {
            let is_possible = [kernel.masquerade, Masquerade::Mixed].contains(&plan.masquerade);
            kernel.endpoints.iter().all(is_planned) && is_possible
        }
        false => kernel.endpoints == plan.endpoints && kernel.masquerade == plan.masquerade,
    };
    kernel.outcome == plan.outcome && is_equal
}

/// Returns whether session affinity chose the endpoint: the client is recorded.
pub(super) fn is_recorded(side: &Side) -> bool {
    affinity(side).iter().any(|line| line.starts_with(RECORDED))
}

/// Returns the origin of a packet, as the rules distinguish it.
fn origin(context: &Context, packet: &Packet) -> Origin {
    let Some(input) = packet.input() else {
        return Origin::Node;
    };
    let is_pod = match &context.local {
        None => false,
        Some(LocalTraffic::Cidr(network)) => network.contains(&packet.source()),
        Some(LocalTraffic::Interface(name)) => *input.name == **name,
        Some(LocalTraffic::InterfacePrefix(prefix)) => input.name.starts_with(&**prefix),
    };
    if is_pod { Origin::Pod } else { Origin::Outside }
}

/// Returns whether connections to endpoints are masqueraded, in words.
pub(super) fn masquerade_words(masquerade: Masquerade) -> &'static str {
    match masquerade {
        Masquerade::Never => "source address kept",
        Masquerade::Always => "source address masqueraded",
        Masquerade::Mixed => "source address masqueraded for some endpoints",
    }
}

#[cfg(test)]
mod tests {
    use proxy_core::service_model::api;
    use proxy_core::{Config, Event};

    use super::*;

    /// Returns the answer about a Service without endpoints.
    fn answer(plan_is_known: bool, kernel: Option<&str>) -> Answer {
        let mut engine = Engine::plan_only(Config::new("node-1")).unwrap();
        let port = api::ServicePortSpec {
            port: 80,
            ..api::ServicePortSpec::default()
        };
        let service = api::Service {
            metadata: api::ObjectMeta::named("default", "web"),
            spec: api::ServiceSpec {
                cluster_ip: "10.96.0.10".into(),
                ports: vec![port],
                ..api::ServiceSpec::default()
            },
            ..api::Service::default()
        };
        engine.apply(service.into());
        engine.apply(Event::Synced);
        engine.plan_changes();
        let host = engine.assumed_host();
        let to = (Protocol::Tcp, "10.96.0.10:80".parse().unwrap());
        let source = Source::Address("192.0.2.7".parse().unwrap());
        let facts = Facts::new(&engine, &host, to, source, None).unwrap();
        let rules = engine.desired_rules(Family::V4);
        let known = facts.side(rules.as_ref(), &host);
        let plan = match plan_is_known {
            true => known.clone(),
            false => facts.side(None, &host),
        };
        let kernel = match kernel {
            None => Kernel::Skipped(None),
            Some("") => Kernel::Read(known),
            Some(error) => Kernel::Read(side::failed(error.to_owned())),
        };
        facts.answer(plan, kernel, Vec::new())
    }

    #[test]
    fn an_answer_is_unknown_if_a_side_cannot_be_evaluated() {
        let refused = "does not work: 10.96.0.10:80 is the cluster IP of default/web, and \
                       connections are refused: the service port has no endpoints (endpoints).";
        let plan = "Unknown: the plan cannot be evaluated: rules of mode nftables cannot be \
                    evaluated.";
        let kernel = "Unknown: the rules of the kernel cannot be evaluated: rule 1: expression rt.";
        for (plan_is_known, error, expected) in [
            (
                true,
                Some("rule 1: expression rt"),
                format!("{kernel} By the plan, {refused}"),
            ),
            (
                false,
                Some(""),
                format!("{plan} By the rules of the kernel, {refused}"),
            ),
            (false, None, plan.to_owned()),
            (false, Some("rule 1: expression rt"), kernel.to_owned()),
        ] {
            let answer = answer(plan_is_known, error);
            assert_eq!(answer.sentence, expected);
            assert_eq!(answer.outcome, Outcome::Unknown, "{expected}");
            assert_eq!(answer.agrees, None, "{expected}");
        }
        let known = answer(true, Some(""));
        assert_eq!(
            (known.outcome, known.agrees),
            (Outcome::Refused, Some(true))
        );
    }

    fn step(text: &str, elements: &[&str]) -> Step {
        Step {
            place: "prerouting".to_owned(),
            handle: None,
            text: text.to_owned(),
            elements: elements.iter().map(|&it| it.to_owned()).collect(),
            counter: None,
        }
    }

    #[test]
    fn recorded_clients_of_all_modes_are_found() {
        let rule = |condition: &str, name: &str| {
            format!(
                "-A KUBE-SVC-A -m comment --comment \"a -> b\" -m recent {condition} --seconds 10 \
                 --reap --name {name} --mask 255.255.255.255 --rsource -j {name}"
            )
        };
        for (step, expected) in [
            (
                step(
                    "goto a",
                    &["@clients-2 { 10.0.0.1 }", "@services { 10.0.0.1 }"],
                ),
                &["@clients-2 { 10.0.0.1 }"][..],
            ),
            (
                step("goto a", &["@affinity-A { 10.0.0.1 }"]),
                &["@affinity-A { 10.0.0.1 }"],
            ),
            (
                step(&rule("--rcheck", "KUBE-SEP-A"), &[]),
                &["the client is in list KUBE-SEP-A"],
            ),
            (step(&rule("! --rcheck", "KUBE-SEP-A"), &[]), &[]),
            (step(&rule("--set", "KUBE-SEP-A"), &[]), &[]),
            (step(&rule("--rcheck", "ssh"), &[]), &[]),
            (
                step("ipvs template found: 10.0.0.1 to 10.0.0.2:80", &[]),
                &["template 10.0.0.1 to 10.0.0.2:80"],
            ),
            (
                step("ipvs template created: 10.0.0.1 to 10.0.0.2:80", &[]),
                &[],
            ),
        ] {
            assert_eq!(recorded(&step), expected, "{step:?}");
        }
    }
}
