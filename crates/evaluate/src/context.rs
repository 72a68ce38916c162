//! A packet as a match or target sees it.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use vipline_nftables::Hook;
use vipline_nftables::expr::{AddrType, CtState, CtStatus, Direction, NatType, PayloadBase};

use super::cause::Cause;
use super::environment::{Limited, Route, RouteQuery};
use super::function::IpvsConnection;
use super::interface::Interface;
use super::nat::{self, NatRange};
use super::packet::Packet;
use super::packet::connection::{Connection, Part, Tracked};
use super::question::{ListUpdate, Question, RecentLookup};
use super::trace::Event;
use super::walk::{Flow, Walk};
#[cfg(feature = "ipvs")]
use crate::ipvs::IpvsEvent;

/// A packet at a rule: what a match or target can read and change.
///
/// Methods that ask the environment return [`Cause::Unknown`] if it has no answer.
pub struct Context<'c, 'w> {
    walk: &'c mut Walk<'w>,
}

impl<'c, 'w> Context<'c, 'w> {
    pub(super) fn new(walk: &'c mut Walk<'w>) -> Self {
        Self { walk }
    }

    /// Returns the packet in its current form.
    pub fn packet(&self) -> &Packet {
        &self.walk.packet
    }

    /// Returns the hook.
    pub fn hook(&self) -> Hook {
        self.walk.place.hook
    }

    /// Returns the input interface at the hook.
    pub fn input(&self) -> Option<&Interface> {
        self.walk.place.input.as_ref()
    }

    /// Returns the output interface at the hook.
    pub fn output(&self) -> Option<&Interface> {
        self.walk.place.output.as_ref()
    }

    /// Returns the state of the packet in its connection.
    ///
    /// A packet that connection tracking has not seen yet has state `invalid`.
    pub fn ct_state(&self) -> CtState {
        match &self.walk.tracked {
            Tracked::Unseen | Tracked::Invalid => CtState::INVALID,
            Tracked::Untracked => CtState::UNTRACKED,
            Tracked::Entry(entry) => entry.state,
        }
    }

    /// Returns the entry of connection tracking.
    pub fn connection(&self) -> Option<&Connection> {
        self.walk.tracked.entry().map(|entry| &entry.connection)
    }

    /// Returns the direction of the packet in its connection.
    pub fn direction(&self) -> Option<Direction> {
        self.walk.tracked.entry().map(|entry| entry.direction)
    }

    /// Returns the type of an address. With an interface, only its addresses are local.
    ///
    /// # Errors
    ///
    /// [`Cause::Unknown`].
    pub fn addr_type(
        &self,
        addr: IpAddr,
        interface: Option<&Interface>,
    ) -> Result<AddrType, Cause> {
        let unknown = || Cause::unknown(format_args!("type of address {addr}"));
        let answer = self.walk.environment.addr_type(addr, interface);
        answer.ok_or_else(unknown)
    }

    /// Returns the route from one address to another, for a packet of this host.
    ///
    /// # Errors
    ///
    /// [`Cause::Unknown`].
    pub fn route(&self, source: IpAddr, destination: IpAddr, mark: u32) -> Result<Route, Cause> {
        let query = RouteQuery {
            destination,
            source,
            mark,
            input: None,
        };
        let unknown = || Cause::unknown(format_args!("route to {destination}"));
        self.walk.environment.route(&query).ok_or_else(unknown)
    }

    /// Returns the address of an interface for packets to a destination.
    ///
    /// # Errors
    ///
    /// [`Cause::Unknown`].
    pub fn interface_addr(
        &self,
        interface: Option<&Interface>,
        destination: IpAddr,
    ) -> Result<IpAddr, Cause> {
        nat::interface_addr(self.walk, interface, destination)
    }

    /// Returns whether the packet exceeds a limit, which is stated in the syntax of
    /// iptables.
    ///
    /// # Errors
    ///
    /// [`Cause::Unknown`].
    pub fn is_over(&self, text: &str) -> Result<bool, Cause> {
        self.walk.is_over(Limited::Xtables(text), text)
    }

    /// Asks the environment.
    ///
    /// # Errors
    ///
    /// [`Cause::Unknown`] with the subject.
    pub fn ask(&self, question: &Question<'_>) -> Result<bool, Cause> {
        let unknown = || {
            Cause::Unknown(match question {
                Question::Set(lookup) => {
                    format!("whether IP set {} contains the packet", lookup.name)
                }
                Question::SameEntry { set, .. } => {
                    format!("whether a change of IP set {set} applies to the packet")
                }
                Question::Recent(lookup) => {
                    let RecentLookup { name, addr, .. } = lookup;
                    format!("whether recent list {name} has {addr}")
                }
                Question::Match { text, .. } => format!("whether the packet matches {text}"),
            })
        };
        self.walk.environment.answer(question).ok_or_else(unknown)
    }

    /// Returns the updates outside of nf_tables so far.
    pub fn list_updates(&self) -> &[ListUpdate] {
        &self.walk.lists
    }

    /// Records an update outside of nf_tables.
    pub fn update_list(&mut self, update: ListUpdate) {
        self.walk.lists.push(update);
    }

    /// Chooses one of several options at random. `weights` is proportional to their
    /// probabilities.
    ///
    /// The evaluation continues with each option. An option of weight zero is never chosen.
    ///
    /// # Errors
    ///
    /// [`Cause::Operand`] if no weight is positive.
    pub fn choose(&mut self, weights: &[u128]) -> Result<usize, Cause> {
        let options = weights
            .iter()
            .enumerate()
            .filter(|(_, weight)| **weight > 0);
        let (options, weights): (Vec<usize>, Vec<u128>) = options.unzip();
        let chosen = match weights.len() {
            1 => 0,
            _ => self.walk.choices.choose(weights),
        };
        options.get(chosen).copied().ok_or(Cause::Operand)
    }

    /// Sets the packet mark.
    pub fn set_mark(&mut self, mark: u32) {
        self.walk.packet.mark = mark;
    }

    /// Sets the priority.
    pub fn set_priority(&mut self, priority: u32) {
        self.walk.packet.priority = Some(priority);
    }

    /// Sets the mark of the connection, if the packet has one.
    pub fn set_connection_mark(&mut self, mark: u32) {
        if let Some(entry) = self.walk.tracked.entry_mut() {
            entry.connection.mark = mark;
        }
    }

    /// Disables connection tracking, unless it has seen the packet.
    pub fn untrack(&mut self) {
        if self.walk.tracked == Tracked::Unseen {
            self.walk.tracked = Tracked::Untracked;
        }
    }

    /// Returns the IPVS connection, if IPVS handled the packet.
    pub fn ipvs(&self) -> Option<&IpvsConnection> {
        self.walk.ipvs.as_ref()
    }

    /// Returns whether the evaluator has functions of other kernel modules.
    pub fn has_functions(&self) -> bool {
        !self.walk.index.functions().is_empty()
    }

    /// Records that IPVS handled the packet.
    pub fn set_ipvs(&mut self, connection: IpvsConnection) {
        self.walk.ipvs = Some(connection);
    }

    /// Adds an event of IPVS to the trace.
    #[cfg(feature = "ipvs")]
    pub(crate) fn record_ipvs(&mut self, event: IpvsEvent) {
        let hook = self.hook();
        self.walk.trace.events.push(Event::Ipvs { hook, event });
    }

    /// Adds an event of a function of the caller to the trace.
    pub fn record(&mut self, text: impl Into<String>) {
        let (hook, text) = (self.hook(), text.into());
        self.walk.trace.events.push(Event::Function { hook, text });
    }

    /// Changes the source of the packet, without connection tracking.
    pub fn set_source(&mut self, source: SocketAddr) {
        self.walk.packet.set_source(source.ip());
        self.walk.packet.set_source_port(Some(source.port()));
    }

    /// Changes the destination of the packet, without connection tracking.
    pub fn set_destination(&mut self, destination: SocketAddr) {
        self.walk.packet.set_destination(destination.ip());
        let port = Some(destination.port());
        self.walk.packet.set_destination_port(port);
    }

    /// Sets the source of replies in an entry that is not confirmed, as
    /// `ip_vs_update_conntrack` does with the sysctl `net.ipv4.vs.conntrack`.
    pub fn set_reply_source(&mut self, source: SocketAddr) {
        let entry = self.walk.tracked.entry_mut();
        let is_new = |status: CtStatus| !status.contains(CtStatus::CONFIRMED);
        if let Some(entry) = entry.filter(|it| is_new(it.connection.status)) {
            entry.connection.reply.source = source.ip();
            entry.connection.reply.source_port = Some(source.port());
        }
    }

    /// Removes the packet from its connection: it is not tracked from now on.
    pub fn forget_connection(&mut self) {
        self.walk.tracked = Tracked::Untracked;
    }

    /// Overwrites bytes of the packet. Returns false if they are beyond its end.
    ///
    /// # Errors
    ///
    /// [`Cause::Unknown`] if the length of the packet is unknown.
    pub fn overwrite(
        &mut self,
        base: PayloadBase,
        offset: u32,
        bytes: &[u8],
    ) -> Result<bool, Cause> {
        self.walk.packet.overwrite(base, offset, bytes)
    }

    /// Decides the translation of the connection, and accepts the packet.
    ///
    /// # Errors
    ///
    /// [`Cause::Outcomes`] for a range with too many addresses.
    pub fn translate(&mut self, kind: NatType, range: NatRange) -> Result<Flow, Cause> {
        let part = match kind {
            NatType::Snat => Part::Source,
            NatType::Dnat => Part::Destination,
        };
        nat::decide(self.walk, part, range)
    }
}

impl fmt::Debug for Context<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = f.debug_struct("Context");
        all.field("packet", self.packet());
        all.field("place", &self.walk.place).finish_non_exhaustive()
    }
}
