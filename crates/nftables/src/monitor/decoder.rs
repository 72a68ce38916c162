//! Decoding of notifications to events.

use std::collections::HashMap;

use vipline_netlink::DecodeError;

use super::{Event, EventObject};
use crate::expr::{AnonymousSet, SetRef};
use crate::object::rule::set_of_mut;
use crate::wire;
use crate::wire::assembler::with_pattern;
use crate::wire::element::{self, Received};
use crate::wire::message_types::*;
use crate::{
    Assembler, Element, InstalledRule, Name, Object, Rule, Ruleset, Set, SetFlags, TableId,
};

/// Decodes notifications to events of one commit after another.
#[derive(Clone, Debug, Default)]
pub(super) struct EventDecoder {
    /// Sets by table and name. Notifications of elements contain no type.
    sets: HashMap<(TableId, Name), Set>,
    /// Anonymous sets of rules that were added since the monitor was opened, or learned.
    anonymous: HashMap<(TableId, Name), SetRef>,
    pending: Option<Pending>,
    events: Vec<Event>,
}

/// Consecutive notifications of elements of one set.
///
/// The start and the end of an interval are two notifications.
#[derive(Clone, Debug)]
struct Pending {
    set: Set,
    is_removed: bool,
    payloads: Vec<Box<[u8]>>,
}

impl EventDecoder {
    /// Learns the sets of a ruleset.
    pub(super) fn learn_sets(&mut self, ruleset: &Ruleset) {
        let tables = ruleset.tables.values();
        for (set, _) in tables.flat_map(|content| content.sets.values()) {
            set.iter().for_each(|set| self.learn(set));
        }
        let is_kept = |table: &TableId| !ruleset.tables.contains_key(table);
        self.anonymous.retain(|(table, _), _| is_kept(table));
        let anonymous = ruleset.anonymous.iter();
        self.anonymous
            .extend(anonymous.map(|(key, set)| (key.clone(), set.clone())));
    }

    /// Discards the events of an unfinished commit.
    pub(super) fn reset(&mut self) {
        self.pending = None;
        self.events.clear();
    }

    /// Returns the events of the commit.
    pub(super) fn take(&mut self) -> Result<Vec<Event>, DecodeError> {
        self.flush()?;
        Ok(std::mem::take(&mut self.events))
    }

    /// Processes a notification about an object of a table: its type within nf_tables,
    /// and the message without the netlink header.
    pub(super) fn push(
        &mut self,
        table: &TableId,
        kind: u8,
        payload: &[u8],
    ) -> Result<(), DecodeError> {
        let (new, is_removed) = object_kind(kind);
        if new == NFT_MSG_NEWSETELEM {
            return self.elements(table, kind, payload);
        }
        self.flush()?;
        let object = match new {
            NFT_MSG_NEWRULE => Some(self.rule(table, payload)?),
            NFT_MSG_NEWSET => match self.set(table, is_removed, payload)? {
                Some(set) if set.flags.contains(SetFlags::ANONYMOUS) => return Ok(()),
                set => set.map(|set| EventObject::Object(set.into())),
            },
            _ => object(table, new, is_removed, payload)?.map(EventObject::Object),
        };
        let object = object.unwrap_or_else(|| other(kind, payload));
        self.event(table, is_removed, object);
        Ok(())
    }

    fn event(&mut self, table: &TableId, is_removed: bool, object: EventObject) {
        let table = table.clone();
        self.events.push(Event {
            table,
            is_removed,
            object,
        });
    }

    fn learn(&mut self, set: &Set) {
        let key = (set.table.clone(), set.name.clone());
        self.sets.insert(key, set.clone());
    }

    fn learn_anonymous(&mut self, set: &Set, elements: Vec<Element>) {
        let key = (set.table.clone(), set.name.clone());
        let set = with_pattern(set.clone());
        let anonymous = AnonymousSet { set, elements };
        self.anonymous
            .insert(key, SetRef::Anonymous(anonymous.into()));
    }

    /// Decodes a set. Returns `None` for a deleted set without a type.
    fn set(
        &mut self,
        table: &TableId,
        is_removed: bool,
        payload: &[u8],
    ) -> Result<Option<Set>, DecodeError> {
        let (_, attrs) = wire::split_header(payload)?;
        let set = wire::set::decode(table.family, attrs);
        if !is_removed {
            let set = set?;
            self.learn(&set);
            if set.flags.contains(SetFlags::ANONYMOUS) {
                // Meters, and sets whose elements follow.
                self.learn_anonymous(&set, Vec::new());
            }
            return Ok(Some(set));
        }
        let Some(name) = wire::set::name_in(payload)? else {
            return Ok(None);
        };
        let key = (table.clone(), name);
        let known = self.sets.remove(&key);
        self.anonymous.remove(&key);
        // Recent kernels report only the name of a deleted set.
        Ok(known.or_else(|| set.ok().map(with_flag)))
    }

    /// Decodes a rule with its anonymous sets.
    fn rule(&self, table: &TableId, payload: &[u8]) -> Result<EventObject, DecodeError> {
        let handle = InstalledRule::read(payload)?.handle;
        let (_, attrs) = wire::split_header(payload)?;
        let (_, chain, mut rule) = wire::rule::decode(attrs)?;
        let chain = wire::rule::chain_name(chain)?;
        self.resolve(table, &mut rule);
        Ok(EventObject::Rule {
            chain,
            handle,
            rule,
        })
    }

    /// Replaces the names of anonymous sets by the sets.
    fn resolve(&self, table: &TableId, rule: &mut Rule) {
        for set in rule.exprs.iter_mut().filter_map(set_of_mut) {
            let key = (table.clone(), set.name().clone());
            if let Some(anonymous) = self.anonymous.get(&key) {
                *set = anonymous.clone();
            }
        }
    }

    /// Keeps elements until the last one of their set.
    fn elements(&mut self, table: &TableId, kind: u8, payload: &[u8]) -> Result<(), DecodeError> {
        let (_, is_removed) = object_kind(kind);
        let (_, name) = element::list_names(payload)?;
        if let Some(pending) = &mut self.pending
            && (pending.is_removed, &pending.set.table) == (is_removed, table)
            && pending.set.name.as_str() == name
        {
            pending.payloads.push(payload.into());
            return Ok(());
        }
        self.flush()?;
        let name = Name::new(name).ok();
        match name.and_then(|name| self.sets.get(&(table.clone(), name))) {
            Some(set) => {
                self.pending = Some(Pending {
                    set: set.clone(),
                    is_removed,
                    payloads: vec![payload.into()],
                });
            }
            None => self.event(table, is_removed, other(kind, payload)),
        }
        Ok(())
    }

    /// Decodes the pending elements.
    fn flush(&mut self) -> Result<(), DecodeError> {
        let Some(pending) = self.pending.take() else {
            return Ok(());
        };
        let Pending {
            set,
            is_removed,
            payloads,
        } = pending;
        let mut received = Received::new(&set);
        for payload in &payloads {
            element::decode_list(payload, |raw| received.push(&set, raw))?;
        }
        if set.flags.contains(SetFlags::ANONYMOUS) {
            let elements = received.into_elements(&with_pattern(set.clone()));
            self.learn_anonymous(&set, elements);
            return Ok(());
        }
        for element in received.into_elements(&set) {
            let object = EventObject::Object(element.into());
            self.event(&set.table, is_removed, object);
        }
        Ok(())
    }
}

/// Adds the flag of anonymous sets to a set of which only the name is known, if the name
/// is one of those that the kernel gives to anonymous sets.
fn with_flag(set: Set) -> Set {
    match with_pattern(set.clone()).name == set.name {
        true => set,
        false => set.with_flags(SetFlags::ANONYMOUS),
    }
}

/// Decodes an object that is neither a rule, nor a set, nor an element.
///
/// Returns `None` for an unknown kind, and for a deleted object if the kernel reports only
/// its name and that is not sufficient.
fn object(
    table: &TableId,
    new: u8,
    is_removed: bool,
    payload: &[u8],
) -> Result<Option<Object>, DecodeError> {
    let (_, attrs) = wire::split_header(payload)?;
    if new == NFT_MSG_NEWCHAIN {
        return Ok(Some(wire::chain(table.family, attrs)?.into()));
    }
    let mut assembler = Assembler::new(table);
    match assembler.push(message_type(new), payload) {
        Err(_) if is_removed => Ok(None),
        result => {
            result?;
            Ok(assembler.finish().into_objects().next())
        }
    }
}

fn other(kind: u8, payload: &[u8]) -> EventObject {
    EventObject::Other {
        message_type: message_type(kind),
        payload: payload.into(),
    }
}
