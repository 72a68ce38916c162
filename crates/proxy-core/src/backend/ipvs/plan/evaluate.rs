//! Evaluation of mode ipvs: rules of iptables, IP sets, virtual servers, and addresses on
//! `kube-ipvs0`.

use std::collections::{BTreeMap, HashMap};
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use vipline_evaluate::ipvs::{Balancer, Ipvs, Settings, TemplateKey};
use vipline_evaluate::{
    self as evaluate, Environment, Evaluator, Interface, Limited, Loss, Packet, Question, Route,
    RouteQuery, SetEntry,
};
use vipline_ipset::{self as ipset, Member};
use vipline_ipvs as ipvs;
use vipline_nftables::expr::AddrType;

use super::object::Object;
use crate::backend::evaluate::{self as backend, AskedLists, NoClients, RecentLists};
use crate::evaluate::{Evaluate, Rules};

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
    let ipvs = Ipvs::new(balancer, templates);
    let evaluator = evaluator.with_function(Arc::new(ipvs));
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
