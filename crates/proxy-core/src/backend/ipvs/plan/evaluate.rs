//! Evaluation of mode ipvs: rules of iptables, IP sets, virtual servers, and addresses on
//! `kube-ipvs0`.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::{fmt, mem};

use vipline_evaluate::ipvs::{
    self as evaluated, Balancer, Decision, Servers, Settings, Target, TemplateKey,
};
use vipline_evaluate::{
    self as evaluate, Cause, Context, Disposition, Environment, Evaluator, HookFunction,
    HookVerdict, Interface, IpvsConnection, Limited, ListUpdate, Loss, Packet, Question, Route,
    RouteQuery, SetEntry,
};
use vipline_ipset::{self as ipset, Member, Protocol};
use vipline_ipvs::{self as ipvs, Forwarding};
use vipline_nftables::Hook;
use vipline_nftables::expr::{AddrType, Direction, RejectType};
use vipline_service_model::Transport;

use super::object::Object;
use crate::backend::evaluate::{self as backend, AskedLists, NoClients, RecentLists};
use crate::evaluate::{Evaluate, Rules};

/// `ICMP_PORT_UNREACH` of `linux/icmp.h` and `ICMPV6_PORT_UNREACH` of `linux/icmpv6.h`.
const PORT_UNREACHABLE: [u8; 2] = [3, 4];

/// Hooks at which IPVS schedules connections, `ip_vs_remote_request4` and
/// `ip_vs_local_request4`, and those at which it translates replies, `ip_vs_reply4` and
/// `ip_vs_local_reply4`, of `net/netfilter/ipvs/ip_vs_core.c`.
const PLACES: [(Hook, i32); 5] = [
    (Hook::Input, 99),
    (Hook::Output, -98),
    (Hook::Input, 98),
    (Hook::Output, -99),
    (Hook::Forward, 100),
];

/// Priorities of the functions that translate replies.
const REPLIES: [i32; 3] = [98, -99, 100];

/// State of the kernel besides rules.
#[derive(Default)]
pub(in crate::backend::ipvs) struct State {
    sets: HashMap<String, Vec<Member>>,
    addresses: Vec<IpAddr>,
    servers: ipvs::Table,
    templates: BTreeMap<TemplateKey, SocketAddr>,
    recent: Option<Box<dyn RecentLists>>,
}

impl State {
    /// Adds an object of a plan. Rules are ignored.
    pub(super) fn add(&mut self, object: &Object) {
        if let Some(ipset::Object::Entry(entry)) = object.set() {
            self.add_entry(entry);
        }
        match object.server() {
            Some(ipvs::Object::VirtualServer(server)) => self.servers.insert(*server),
            Some(ipvs::Object::Destination(service, real)) => {
                self.servers.insert_destination(service, *real);
            }
            None => {}
        }
        if let Some(vipline_rtnl::Object::Address(address)) = object.address() {
            self.addresses.push(address.ip());
        }
    }

    /// Adds an entry of an IP set.
    pub(in crate::backend::ipvs) fn add_entry(&mut self, entry: &ipset::Entry) {
        let set = entry.set.to_string();
        self.sets.entry(set).or_default().push(entry.member.clone());
    }

    /// Sets the virtual servers.
    pub(in crate::backend::ipvs) fn set_servers(&mut self, servers: ipvs::Table) {
        self.servers = servers;
    }

    /// Adds the persistence templates of a connection table.
    pub(in crate::backend::ipvs) fn add_templates(&mut self, connections: &[ipvs::Connection]) {
        let templates = connections.iter().filter_map(|connection| {
            let key = TemplateKey::of(connection)?;
            Some((key, connection.destination))
        });
        self.templates.extend(templates);
    }

    /// Sets the lists of match `recent`. Without them, all lists are empty.
    pub(in crate::backend::ipvs) fn set_recent(&mut self, recent: impl RecentLists + 'static) {
        self.recent = Some(Box::new(recent));
    }

    /// Returns whether there are virtual servers.
    pub(in crate::backend::ipvs) fn has_servers(&self) -> bool {
        self.servers.servers().next().is_some()
    }

    /// Returns whether a set contains the values of a packet. A missing set is empty.
    fn contains(&self, set: &str, entry: &SetEntry) -> bool {
        let members = self.sets.get(set).into_iter().flatten();
        members.into_iter().any(|member| matches(member, entry))
    }
}

/// Returns whether an element of a set matches the values of a packet.
fn matches(member: &Member, entry: &SetEntry) -> bool {
    let addr = |index: usize| entry.fields.get(index).map(|field| field.addr);
    let port = |index: usize| entry.fields.get(index).and_then(|field| field.port);
    let is_port = |index: usize, own: &ipset::Port| {
        own.protocol.0 == entry.protocol && port(index) == Some(own.number)
    };
    let is_in = |index: usize, net: &ipnet::IpNet| addr(index).is_some_and(|it| net.contains(&it));
    match member {
        Member::Ip(ip) => addr(0) == Some(*ip),
        Member::Net(net) => is_in(0, net),
        Member::Port(number) => port(0) == Some(*number),
        Member::IpPort(ip, own) => addr(0) == Some(*ip) && is_port(1, own),
        Member::NetPort(net, own) => is_in(0, net) && is_port(1, own),
        Member::IpPortIp(ip, own, other) => {
            addr(0) == Some(*ip) && is_port(1, own) && addr(2) == Some(*other)
        }
        Member::IpPortNet(ip, own, net) => addr(0) == Some(*ip) && is_port(1, own) && is_in(2, net),
        _ => false,
    }
}

/// Wraps rules with the other state.
pub(in crate::backend::ipvs) fn rules(
    evaluator: Evaluator,
    mut state: State,
    has_proxy: bool,
) -> Rules {
    let balancer = Balancer::from(&state.servers).with_settings(settings());
    let templates = mem::take(&mut state.templates);
    let evaluator = evaluator.with_function(Arc::new(Ipvs {
        balancer,
        templates,
    }));
    Rules::new(WithState { evaluator, state }, has_proxy)
}

/// Returns the sysctls that the mode sets.
fn settings() -> Settings {
    Settings {
        expire_quiescent_template: true,
        ..Settings::default()
    }
}

/// Rules with the other state of mode ipvs.
struct WithState {
    evaluator: Evaluator,
    state: State,
}

impl Evaluate for WithState {
    fn evaluate(
        &self,
        packet: &Packet,
        environment: &dyn Environment,
    ) -> Result<Vec<evaluate::Outcome>, evaluate::Error> {
        let node = Node {
            environment,
            state: &self.state,
            recent: AskedLists::new(self.state.recent.as_deref().unwrap_or(&NoClients)),
        };
        let outcomes = self.evaluator.evaluate(packet, &node);
        outcomes.map_err(|error| node.recent.explain(error))
    }
}

/// An environment with IP sets, lists of match `recent`, and addresses on `kube-ipvs0`.
struct Node<'a> {
    environment: &'a dyn Environment,
    state: &'a State,
    recent: AskedLists<'a>,
}

impl Node<'_> {
    fn is_bound(&self, addr: IpAddr) -> bool {
        self.state.addresses.contains(&addr)
    }
}

impl Environment for Node<'_> {
    fn route(&self, query: &RouteQuery<'_>) -> Option<Route> {
        match self.is_bound(query.destination) {
            true => Some(Route::Local),
            false => self.environment.route(query),
        }
    }

    fn preferred_source(&self, query: &RouteQuery<'_>) -> Option<IpAddr> {
        self.environment.preferred_source(query)
    }

    fn is_bridge(&self, interface: &Interface) -> bool {
        self.environment.is_bridge(interface)
    }

    fn receive_loss(&self, input: &Interface) -> Option<Loss> {
        self.environment.receive_loss(input)
    }

    fn route_loss(&self, query: &RouteQuery<'_>, is_local: bool) -> Option<Loss> {
        self.environment.route_loss(query, is_local)
    }

    fn send_loss(&self, output: &Interface) -> Option<Loss> {
        self.environment.send_loss(output)
    }

    fn addr_type(&self, addr: IpAddr, interface: Option<&Interface>) -> Option<AddrType> {
        match self.is_bound(addr) && interface.is_none() {
            true => Some(AddrType::Local),
            false => self.environment.addr_type(addr, interface),
        }
    }

    fn interface_addr(&self, interface: &Interface, destination: IpAddr) -> Option<IpAddr> {
        self.environment.interface_addr(interface, destination)
    }

    fn is_over(&self, limited: Limited<'_>) -> Option<bool> {
        self.environment.is_over(limited)
    }

    fn answer(&self, question: &Question<'_>) -> Option<bool> {
        match question {
            Question::Set(lookup) => Some(self.state.contains(lookup.name, lookup.entry)),
            Question::Recent(lookup) => self.recent.has(lookup),
            Question::Match { text, packet } => self
                .environment
                .answer(question)
                .or_else(|| backend::assumed(text, packet, self.environment)),
            _ => self.environment.answer(question),
        }
    }
}

/// The scheduling of connections by IPVS.
struct Ipvs {
    balancer: Balancer,
    templates: BTreeMap<TemplateKey, SocketAddr>,
}

impl fmt::Debug for Ipvs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ipvs")
    }
}

impl HookFunction for Ipvs {
    fn places(&self) -> &[(Hook, i32)] {
        &PLACES
    }

    /// Schedules the first packet of a connection, and translates replies.
    fn call(&self, priority: i32, context: &mut Context<'_, '_>) -> Result<HookVerdict, Cause> {
        if REPLIES.contains(&priority) {
            self.answer(context);
            return Ok(HookVerdict::Accept);
        }
        // A packet that IPVS has forwarded is not scheduled again.
        let packet = scheduled(context.packet()).filter(|_| context.ipvs().is_none());
        let Some(packet) = packet else {
            return Ok(HookVerdict::Accept);
        };
        let decision = self.balancer.decide(&packet, &self.templates);
        let decision = decision.map_err(|error| Cause::Unknown(error.to_string()))?;
        match decision {
            Decision::Forwarded {
                service,
                servers,
                template,
            } => {
                let (targets, weights) = options(servers);
                let chosen = context.choose(&weights)?;
                let target = targets.get(chosen).ok_or(Cause::Operand)?;
                if let Some(key) = template {
                    self.keep(&key, target, context);
                }
                forward(context, service, target)
            }
            Decision::Rejected(server) => {
                context.record(format!("ipvs -A {server}: no real server"));
                let [v4, v6] = PORT_UNREACHABLE;
                let code = if packet.destination.is_ipv4() { v4 } else { v6 };
                let reject = Disposition::Rejected(RejectType::Icmp(code));
                Ok(HookVerdict::End(reject))
            }
            Decision::Dropped => Ok(HookVerdict::End(Disposition::Dropped)),
            _ => Ok(HookVerdict::Accept),
        }
    }
}

impl Ipvs {
    /// Sets the address of the virtual server as the source of a reply.
    ///
    /// The entry of connection tracking has the address as the destination of the connection:
    /// with the sysctl `net.ipv4.vs.conntrack`, which the mode sets, IPVS changes only the
    /// source of its replies.
    fn answer(&self, context: &mut Context<'_, '_>) {
        let is_reply = context.direction() == Some(Direction::Reply);
        let Some(original) = context
            .connection()
            .map(|it| it.original)
            .filter(|_| is_reply)
        else {
            return;
        };
        let packet = context.packet();
        let (source, destination) = (packet.source(), packet.destination());
        let port = original.destination_port.unwrap_or_default();
        let server = SocketAddr::new(original.destination, port);
        let client = SocketAddr::new(original.source, original.source_port.unwrap_or_default());
        let request = Packet::with_protocol(packet.protocol(), client, server);
        let is_of_server =
            scheduled(&request).is_some_and(|it| self.balancer.server(&it).is_some());
        if is_of_server && source != server.ip() && destination == original.source {
            context.record(format!("ipvs translates the reply to come from {server}"));
            context.set_source(server);
        }
    }

    /// Records the template that a packet found or creates.
    fn keep(&self, key: &TemplateKey, target: &Target<'_>, context: &mut Context<'_, '_>) {
        let (client, server) = (key.client, target.server.endpoint());
        if self.templates.get(key) == Some(&server) {
            context.record(format!("ipvs template found: {client} to {server}"));
            return;
        }
        context.record(format!("ipvs template created: {client} to {server}"));
        context.update_list(ListUpdate::IpvsTemplate {
            client,
            protocol: key.protocol,
            address: key.address,
            mark: key.mark,
            port: key.port,
            server,
        });
    }
}

/// Returns the packet as IPVS sees it, or `None` for a protocol that IPVS ignores.
fn scheduled(packet: &Packet) -> Option<evaluated::Packet> {
    let protocol = Transport::of(Protocol(packet.protocol()))?;
    let source = SocketAddr::new(packet.source(), packet.source_port()?);
    let destination = SocketAddr::new(packet.destination(), packet.destination_port()?);
    let scheduled = evaluated::Packet::new(protocol, source, destination);
    Some(scheduled.with_mark(packet.mark()))
}

/// Returns the real servers with their weights. Without known shares they are equal.
fn options(servers: Servers<'_>) -> (Vec<Target<'_>>, Vec<u128>) {
    match servers {
        Servers::Shares(shares) => {
            let shares = shares.into_iter();
            shares
                .map(|(target, weight)| (target, u128::from(weight)))
                .unzip()
        }
        Servers::Possible(targets) => {
            let weights = vec![1; targets.len()];
            (targets, weights)
        }
    }
}

/// Forwards the packet to a real server.
fn forward(
    context: &mut Context<'_, '_>,
    server: &ipvs::VirtualServer,
    target: &Target<'_>,
) -> Result<HookVerdict, Cause> {
    let packet = context.packet();
    let connection = IpvsConnection {
        protocol: packet.protocol(),
        address: packet.destination(),
        port: packet.destination_port().unwrap_or_default(),
        method: 0,
        control_port: None,
    };
    context.record(format!("ipvs -A {server}, -r {}", target.address));
    context.set_ipvs(connection);
    if target.server.forwarding == Forwarding::Masquerade {
        context.set_destination(target.address);
        context.set_reply_source(target.address);
    }
    // A route to a broadcast address is local (`RTCF_LOCAL`): the packet stays on its path, as
    // in `ip_vs_nat_send_or_cont` of `net/netfilter/ipvs/ip_vs_xmit.c`.
    let to = target.address.ip();
    Ok(match context.addr_type(to, None)? {
        AddrType::Broadcast => HookVerdict::Accept,
        _ => HookVerdict::Send(to),
    })
}
