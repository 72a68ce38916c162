//! Answers to questions: the reason by the objects, and the evaluations of both sides.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use proxy_core::evaluate::{self, Arrival, Rules};
use proxy_core::evaluator::{Environment, Host, Interface, Packet, ReversePath, Route, RouteQuery};
use proxy_core::reason::{self, Expectation, Finding, Origin, Reason, Scene};
use proxy_core::{AddressKind, Config, Context, Engine, Family, Mode};
use vipline_service_model::{EndpointDetails, LocalTraffic, ObjectName, Transport};

use super::answer::{
    Answer, Endpoint, Masquerade, Outcome, Question, Reached, Reply, ServicePort, Side, Step,
};
use super::stale::{Entry, Stale};
use super::{owner, sentence, side};

/// Prefixes of the sets that lead a recorded client to its endpoint: ours for cluster IPs and
/// external IPs, with and without the short circuit, the same for node ports, and upstream's.
const RECORDED_ENDPOINTS: [&str; 5] = [
    "@recorded ",
    "@short-recorded ",
    "@nodeport-recorded ",
    "@short-nodeport-recorded ",
    "@affinity-",
];

/// Part of an update of our clients. It has a hash instead of the endpoint.
const CLIENTS: &str = " @clients-";

/// Prefix of the lists of match `recent` with the clients of an endpoint.
const LISTS: &str = "KUBE-SEP-";

/// Begin of a line about a recorded client.
const RECORDED: &str = "recorded: ";

/// Everything that the engine knows about a connection.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) question: reason::Question,
    pub(super) finding: Finding,
    pub(super) packet: Packet,
    details: Vec<EndpointDetails>,
    /// Why the node cannot send packets to the source.
    pub(super) no_way_back: Option<String>,
    /// Interfaces, besides the assumed one, whose reverse path filter drops packets from the
    /// source.
    filtered: Vec<String>,
    /// Whether the destination is an address of the node.
    is_to_node: bool,
    /// Priorities of rules of policy routing, which routes do not consider.
    policies: Vec<u32>,
    /// Whether the client is on this node.
    is_client_here: bool,
    /// Networks of the bridge that receives the packet, if packets between its ports pass no
    /// rules.
    bridged: Vec<IpNet>,
    /// Whether the rules distinguish the pods of this node.
    detects_pods: bool,
    pub(super) mode: Mode,
    node: String,
    config: Config,
}

/// Kernel's rules, or the reason why they were not read.
#[derive(Debug)]
pub(super) enum Kernel {
    Read {
        side: Side,
        /// That no proxy in the mode has rules, which the sentence says first.
        absence: Option<String>,
        /// Rules that could not be read.
        unread: Option<String>,
    },
    Skipped {
        note: Option<String>,
        /// Whether the reason is that no proxy has rules, in a sentence.
        absence: Option<String>,
    },
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
        config: &Config,
        host: &Host,
        (protocol, destination): (Transport, SocketAddr),
        (source, interface): (Source, Option<&str>),
        asked: Option<&ObjectName>,
    ) -> Result<Self, String> {
        let is_node = source == Source::Node;
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
        let arrival = evaluate::arrival(host, source, destination.ip());
        let no_way_back = match &arrival {
            Arrival::NoWayBack(obstacle) => Some(obstacle.to_string()),
            _ => None,
        };
        let packet = match (interface, &arrival) {
            (Some(name), _) => {
                let known = host.interface(name).cloned();
                let input = known.ok_or_else(|| {
                    format!("this node has no interface {name:?} with an address or a route")
                })?;
                evaluate::received(packet, input)
            }
            // The packet comes from outside all the same.
            (None, Arrival::NoWayBack(_)) if !is_node => {
                evaluate::received(packet, Interface::new("unknown"))
            }
            _ => packet,
        };
        let context = engine.context(Family::of(source));
        let question = reason::Question {
            protocol,
            destination,
            source,
            origin: origin(&context, &packet),
        };
        let scene = Scene::new(engine, config, Family::of(destination.ip()));
        let mut finding = scene.find(&question);
        if let (Some(asked), Some(port)) = (asked, &finding.port)
            && !finding.is_of(asked)
        {
            let owner = std::sync::Arc::clone(&port.name);
            let kind = finding.kind.unwrap_or(AddressKind::ClusterIp);
            finding.reason = Reason::Contested { owner, kind };
            finding.expectation = Expectation::Unserved;
        }
        let details = finding.port.as_ref();
        let details = details.map(|port| engine.store().endpoint_details(port));
        let details = details.unwrap_or_default();
        let node = engine.store().node();
        let mut pod_networks = node.pod_cidrs.iter();
        let is_client_here = question.origin != Origin::Outside
            || pod_networks.any(|network| network.contains(&source))
            || details
                .iter()
                .any(|it| it.endpoint.is_local && it.endpoint.addr == source);
        let filtered = match interface {
            None if question.origin == Origin::Outside => filtered(host, &packet, &details),
            _ => Vec::new(),
        };
        let input = packet
            .input()
            .filter(|it| host.is_unfiltered_bridge(&it.name));
        let bridged = input.map(|it| host.addrs_of(&it.name).collect());
        Ok(Self {
            bridged: bridged.unwrap_or_default(),
            policies: host.policies().to_vec(),
            is_to_node: finding.kind == Some(AddressKind::NodePort)
                || node.addresses.contains(&destination.ip()),
            question,
            finding,
            packet,
            no_way_back,
            filtered,
            is_client_here,
            detects_pods: context.local.is_some(),
            details,
            mode: config.mode,
            node: config.engine.node_name.to_string(),
            config: config.clone(),
        })
    }

    /// Returns why replies of an endpoint do not pass this node, so that the client gets them
    /// from an address to which it did not connect: the endpoint is on another node, and sees
    /// an address that does not lead back to this one.
    pub(super) fn bypass(
        &self,
        endpoint: SocketAddr,
        outcome: &evaluate::Outcome,
    ) -> Option<Reply> {
        let mut details = self.details.iter();
        let details = details
            .find(|it| (it.endpoint.addr, it.endpoint.port) == (endpoint.ip(), endpoint.port()))?;
        let seen = outcome.packet.source();
        let is_beside = |net: &&IpNet| net.contains(&seen) && net.contains(&endpoint.ip());
        if let Some(network) = self.bridged.iter().find(is_beside) {
            return Some(Reply::Lost {
                reason: format!(
                    "client {seen} and endpoint {endpoint} are at the same bridge, in {network}: \
                     replies pass the bridge without rules, are not translated back, and the \
                     client discards them (net.bridge.bridge-nf-call-iptables, or that of \
                     ip6tables, must be 1; it needs module br_netfilter)"
                ),
                field: None,
                foreign: false,
            });
        }
        let node = details.node.as_ref()?;
        if details.endpoint.is_local || *node == self.node {
            return None;
        }
        // A virtual address leads to each node, and not back to this one.
        let is_service_address =
            !self.is_to_node && !outcome.is_masqueraded && seen == self.question.destination.ip();
        let is_external = self
            .finding
            .kind
            .is_some_and(|it| it != AddressKind::ClusterIp);
        let is_from_outside =
            !outcome.is_masqueraded && !self.is_client_here && (self.detects_pods || is_external);
        if !is_service_address && !is_from_outside {
            return None;
        }
        let port = self.finding.port.as_ref();
        let is_local = is_external && port.is_some_and(|it| it.external_policy_local);
        let policy = match is_local {
            true => format!(
                " (externalTrafficPolicy is Local, and mode {} then keeps the source, also for \
                 endpoints on other nodes, which it uses because no usable one is on this node)",
                self.mode
            ),
            false => String::new(),
        };
        Some(Reply::Lost {
            reason: format!(
                "endpoint {endpoint} is on node {node} and sees the source {seen}, so that its \
                 replies do not come back through this node, and the client discards them{policy}"
            ),
            field: is_local.then_some("spec.externalTrafficPolicy"),
            foreign: false,
        })
    }

    /// Returns the entries of connection tracking that lead packets to addresses that are no
    /// endpoints.
    pub(super) fn stale<'e>(&self, entries: &'e [Entry]) -> Vec<&'e Entry> {
        if self.details.is_empty() {
            return Vec::new();
        }
        entries
            .iter()
            .filter(|it| !self.is_endpoint(it.server))
            .collect()
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
    pub(super) fn answer(self, plan: Side, kernel: Kernel, entries: &[Entry]) -> Answer {
        let (kernel, kernel_note, absence) = match kernel {
            Kernel::Read {
                side,
                absence,
                unread,
            } => (Some(side), unread, absence),
            Kernel::Skipped { note, absence } => (None, note, absence),
        };
        let evaluated = kernel.as_ref().filter(|it| it.error.is_none());
        let truth = evaluated.unwrap_or(&plan);
        let is_known = |side: &Side| side.error.is_none();
        let outcome = match is_known(&plan) && kernel.as_ref().is_none_or(is_known) {
            true => whole(truth, &self.finding),
            false => Outcome::Unknown,
        };
        let outcome = match self.no_way_back {
            Some(_) => Outcome::Dropped,
            None => outcome,
        };
        let masquerade = truth.masquerade;
        let endpoints = self.endpoints(&truth.endpoints);
        let affinity = affinity(truth);
        let agrees = evaluated.filter(|_| is_known(&plan));
        let agrees = agrees.map(|kernel| is_same(kernel, &plan));
        let family = Family::of(self.question.source);
        let reason = sentence::reason(&self, &plan, kernel.as_ref());
        let field = match truth.reply() {
            Some((_, Reply::Lost { field, .. })) => *field,
            _ => self.finding.reason.field(),
        };
        let field = field.map(str::to_owned);
        let stale = self.stale(entries);
        let stale = Stale::of(&stale, &self.question);
        let assumed = self.assumed();
        let finding = self.finding.clone();
        let way_back = self.no_way_back.clone();
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
            conntrack: entries.iter().filter_map(|it| it.text.clone()).collect(),
            assumed,
            probes: Vec::new(),
            plan,
            kernel,
            kernel_note,
            agrees,
            sentence: String::new(),
            mode: self.mode.to_string(),
            node: self.node,
        };
        let kernel = answer.kernel.as_ref();
        let leftover = kernel
            .filter(|_| answer.agrees == Some(false))
            .and_then(|kernel| owner::leftover(&self.config, family, kernel))
            .cloned();
        answer.sentence =
            sentence::sentence(&answer, &finding, way_back.as_deref(), leftover.as_ref());
        if let Some(absence) = absence {
            sentence::add_absence(&mut answer, &finding, &absence);
        }
        if let (Some(_), Some(unread)) = (&answer.kernel, &answer.kernel_note) {
            answer.sentence += &format!(" Besides, {unread}.");
        }
        if answer.outcome == Outcome::Reachable {
            for assumed in &answer.assumed {
                answer.sentence += &format!(" This assumes that {assumed}.");
            }
        }
        sentence::add_stale(&mut answer, &finding, stale);
        answer
    }

    /// Returns what the answer assumes about the packet.
    fn assumed(&self) -> Vec<String> {
        let mut assumed = Vec::new();
        if let Some(input) = self.packet.input().filter(|_| !self.filtered.is_empty()) {
            assumed.push(format!(
                "the packet arrives through {}, to which the route to its source leads; the \
                 reverse path filter of {} would drop it (rp_filter; --interface says which \
                 interface receives it)",
                input.name,
                self.filtered.join(" and ")
            ));
        }
        if !self.policies.is_empty() {
            let list = self.policies.iter().map(u32::to_string);
            assumed.push(format!(
                "none of the rules of policy routing on this node applies (ip rule: {})",
                list.collect::<Vec<_>>().join(", ")
            ));
        }
        assumed
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

/// Returns the interfaces, other than the one that receives the packet, whose strict reverse
/// path filter drops packets of the source. Interfaces that lead to endpoints on this node
/// receive no packets of others.
fn filtered(host: &Host, packet: &Packet, details: &[EndpointDetails]) -> Vec<String> {
    let Some(input) = packet.input() else {
        return Vec::new();
    };
    let routed = |it: &EndpointDetails| {
        let query = RouteQuery::new(packet.source(), it.endpoint.addr);
        match host.route(&query).filter(|_| it.endpoint.is_local) {
            Some(Route::Interface(interface)) => Some(interface.name),
            _ => None,
        }
    };
    let pods: Vec<String> = details.iter().filter_map(routed).collect();
    let is_uplink = |name: &str| {
        let has_addr = host.addrs_of(name).any(|net| net.addr().is_ipv4());
        name != input.name && has_addr && !pods.iter().any(|it| it == name)
    };
    let filters = host
        .reverse_paths()
        .filter(|(_, filter)| *filter == ReversePath::Strict);
    let names = filters.map(|(name, _)| name).filter(|name| is_uplink(name));
    match packet.source() {
        IpAddr::V4(_) => names.map(str::to_owned).collect(),
        IpAddr::V6(_) => Vec::new(),
    }
}

/// Returns the result of a side with the first reply and the limits on which it depends.
fn whole(side: &Side, finding: &Finding) -> Outcome {
    let outcome = outcome(side, finding);
    match (outcome, side.reply(), &side.limit) {
        (Outcome::Reachable, Some((_, Reply::Lost { .. })), _) => Outcome::Dropped,
        (Outcome::Reachable, Some((_, Reply::Unknown { .. })), _) => Outcome::Unknown,
        (_, _, Some(_)) => Outcome::Unknown,
        _ => outcome,
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
        let updates = path.updates.iter().map(|it| {
            if let Some(client) = it.strip_prefix("delete ") {
                format!("forgets: {client}, whose endpoint was removed")
            } else if it.contains(CLIENTS) {
                format!("records: {it} {}", path.end)
            } else {
                format!("records: {it}")
            }
        });
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
    let is_recorded =
        |element: &&String| RECORDED_ENDPOINTS.iter().any(|it| element.starts_with(it));
    let elements = step.elements.iter().filter(is_recorded).cloned();
    let template = step.template.map(|it| format!("template {it}"));
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
    use proxy_core::evaluator;
    use proxy_core::evaluator::ipvs::{IpvsEvent, Template};
    use proxy_core::nftables::Hook;
    use proxy_core::service_model::api;
    use proxy_core::{Config, Event};

    use super::*;

    /// Returns the answer about a Service without endpoints.
    fn answer(plan_is_known: bool, kernel: Option<&str>) -> Answer {
        let config = Config::new("node-1");
        let mut engine = config.plan_only().unwrap();
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
        let to = (Transport::Tcp, "10.96.0.10:80".parse().unwrap());
        let source = Source::Address("192.0.2.7".parse().unwrap());
        let facts = Facts::new(&engine, &config, &host, to, (source, None), None).unwrap();
        let rules = engine.desired_rules(Family::V4);
        let known = facts.side(rules.as_ref(), &host);
        let plan = match plan_is_known {
            true => known.clone(),
            false => facts.side(None, &host),
        };
        let kernel = match kernel {
            None => Kernel::Skipped {
                note: None,
                absence: None,
            },
            Some(error) => Kernel::Read {
                side: match error {
                    "" => known,
                    error => side::failed(error.to_owned()),
                },
                absence: None,
                unread: None,
            },
        };
        facts.answer(plan, kernel, &[])
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
            template: None,
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
        let template = Template {
            client: "10.0.0.1".parse().unwrap(),
            server: "10.0.0.2:80".parse().unwrap(),
        };
        let ipvs = |event| {
            let hook = Hook::Input;
            side::step(&evaluator::Event::Ipvs { hook, event })
        };
        let found = ipvs(IpvsEvent::TemplateFound(template)).text;
        assert_eq!(found, "ipvs template found: 10.0.0.1 to 10.0.0.2:80");
        for (step, expected) in [
            (
                step(
                    "goto a",
                    &["@recorded { 10.0.0.1 }", "@services { 10.0.0.1 }"],
                ),
                &["@recorded { 10.0.0.1 }"][..],
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
                ipvs(IpvsEvent::TemplateFound(template)),
                &["template 10.0.0.1 to 10.0.0.2:80"],
            ),
            (ipvs(IpvsEvent::TemplateCreated(template)), &[]),
        ] {
            assert_eq!(recorded(&step), expected, "{step:?}");
        }
    }
}
