//! What somebody changed: the kernel's notices, put together to commits.

mod client;

use std::fmt;

use vipline_netlink::DecodeError;
use vipline_netlink::message::Message;

use crate::wire::{self, Kind, SUBSYSTEM};
use crate::{Generation, TableId, element};

pub use client::{Monitor, Notification};

/// A commit that changed tables which are watched.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Commit {
    /// The state that it made.
    pub generation: Generation,
    /// Process that made it.
    pub process: Process,
    /// Port ID of the netlink socket that made it.
    ///
    /// By default a socket gets the process ID as the process itself sees it, so
    /// this number is comparable across PID namespaces where [`Process::id`] is not.
    pub port_id: u32,
    /// What it changed in each table, in no order.
    pub changes: Vec<(TableId, ChangeCounts)>,
}

/// A process as the kernel names it; displays as name and number.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct Process {
    /// Process ID in the initial PID namespace.
    ///
    /// A program in another PID namespace has another number for the same process.
    pub id: u32,
    /// Its name, at most 15 bytes.
    pub name: Box<str>,
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.id)
    }
}

/// How many objects of each kind were made, changed or removed.
///
/// Elements that vanish with their set are not told by the kernel.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct ChangeCounts {
    /// The table itself.
    pub tables: usize,
    /// Chains.
    pub chains: usize,
    /// Rules.
    pub rules: usize,
    /// Sets and maps.
    pub sets: usize,
    /// Elements of sets and maps.
    pub elements: usize,
    /// Flowtables, counters and whatever else there is.
    pub others: usize,
}

impl ChangeCounts {
    /// Returns the number of changes of all kinds.
    pub fn total(&self) -> usize {
        self.tables + self.chains + self.rules + self.sets + self.elements + self.others
    }
}

/// A chain that was changed, or a rule in it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Change<'a> {
    /// The table.
    pub table: &'a TableId,
    /// The chain.
    pub chain: &'a str,
    /// Whether the chain or the rule is gone.
    pub is_removed: bool,
}

/// Puts the kernel's notices about changes together to [`Commit`]s.
///
/// Sans-IO: feed it the messages that the kernel sends to the group
/// `NFNLGRP_NFTABLES`.
/// It tells nothing of commits that leave its tables alone.
#[derive(Clone, Debug, Default)]
pub struct Notifications {
    tables: Vec<TableId>,
    /// Which changes of chains and rules count; `None`: all.
    filter: Option<fn(Change<'_>) -> bool>,
    /// What was changed by the commit whose end did not come yet.
    changes: Vec<(TableId, ChangeCounts)>,
}

impl Notifications {
    /// Watches these tables.
    pub fn new(tables: &[TableId]) -> Self {
        Self {
            tables: tables.to_vec(),
            filter: None,
            changes: Vec::new(),
        }
    }

    /// Looks only at some changes of chains and rules, and at all others: for
    /// tables that several programs share.
    #[must_use]
    pub fn with_filter(mut self, filter: fn(Change<'_>) -> bool) -> Self {
        self.filter = Some(filter);
        self
    }

    /// Takes a message. Returns the commit with the last message about it.
    ///
    /// # Errors
    ///
    /// The message has not the form of a notice.
    pub fn push(&mut self, message: Message<'_>) -> Result<Option<Commit>, DecodeError> {
        let (message_type, payload) = (message.ty, message.payload);
        let [kind, subsystem] = message_type.to_le_bytes();
        if subsystem != SUBSYSTEM {
            return Ok(None);
        }
        if message_type == Kind::NewGen.message_type() {
            return self.end(message);
        }
        let (family, attrs) = wire::split_header(payload)?;
        let mut attrs = attrs;
        // The name of the table is the first attribute of all objects, and has
        // the same number.
        let Some(name) = attrs.next().transpose()? else {
            return Ok(None);
        };
        if name.kind != wire::NFTA_TABLE_NAME {
            return Ok(None);
        }
        let name = name.str()?;
        let is_it = |table: &TableId| Some(table.family) == family && table.name.as_str() == name;
        let Some(table) = self.tables.iter().find(|table| is_it(table)) else {
            return Ok(None);
        };
        if !self.counts(table, kind, payload)? {
            return Ok(None);
        }
        let place = self.changes.iter().position(|(known, _)| known == table);
        let place = place.unwrap_or_else(|| {
            self.changes.push((table.clone(), ChangeCounts::default()));
            self.changes.len() - 1
        });
        if let Some((_, changes)) = self.changes.get_mut(place) {
            changes.add(kind, payload)?;
        }
        Ok(None)
    }

    /// Tells whether a change in a table counts.
    fn counts(&self, table: &TableId, kind: u8, payload: &[u8]) -> Result<bool, DecodeError> {
        let Some(filter) = self.filter else {
            return Ok(true);
        };
        let is = |other: Kind| kind == other as u8;
        let attribute = match kind {
            _ if is(Kind::NewChain) || is(Kind::DelChain) => wire::NFTA_CHAIN_NAME,
            _ if is(Kind::NewRule) || is(Kind::DelRule) => wire::NFTA_RULE_CHAIN,
            _ => return Ok(true),
        };
        let (_, attrs) = wire::split_header(payload)?;
        for attr in attrs {
            let attr = attr?;
            if attr.kind == attribute {
                return Ok(filter(Change {
                    table,
                    chain: attr.str()?,
                    is_removed: is(Kind::DelChain) || is(Kind::DelRule),
                }));
            }
        }
        Ok(true)
    }

    /// Forgets a commit whose end is lost.
    pub fn reset(&mut self) {
        self.changes.clear();
    }

    /// Takes the message that ends a commit.
    fn end(&mut self, message: Message<'_>) -> Result<Option<Commit>, DecodeError> {
        let payload = message.payload;
        let changes = std::mem::take(&mut self.changes);
        if changes.is_empty() {
            return Ok(None);
        }
        let (id, name) = wire::process(payload)?;
        Ok(Some(Commit {
            generation: Generation(wire::generation(payload)?),
            process: Process {
                id,
                name: name.into(),
            },
            port_id: message.port,
            changes,
        }))
    }
}

impl ChangeCounts {
    /// Counts what a message is about.
    fn add(&mut self, kind: u8, payload: &[u8]) -> Result<(), DecodeError> {
        let is = |one: Kind, other: Kind| kind == one as u8 || kind == other as u8;
        if is(Kind::NewSetElem, Kind::DelSetElem) {
            self.elements += element::count(payload)?;
        } else if is(Kind::NewTable, Kind::DelTable) {
            self.tables += 1;
        } else if is(Kind::NewChain, Kind::DelChain) {
            self.chains += 1;
        } else if is(Kind::NewRule, Kind::DelRule) {
            self.rules += 1;
        } else if is(Kind::NewSet, Kind::DelSet) {
            self.sets += 1;
        } else {
            self.others += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use vipline_netlink::attr::{nest, put, put_be32, put_str};

    use super::*;
    use crate::{Family, Name};

    fn table(name: &str) -> TableId {
        TableId::new(Family::Ip, Name::new(name).unwrap())
    }

    /// A message of the socket with port ID 7.
    fn message(ty: u16, payload: &[u8]) -> Message<'_> {
        Message {
            ty,
            flags: 0,
            seq: 0,
            port: 7,
            payload,
        }
    }

    /// A message about something in a table of family `ip`.
    fn notice(kind: u8, table: &str) -> (u16, Vec<u8>) {
        let mut payload = Vec::new();
        wire::put_header(&mut payload, Family::Ip.number(), 0);
        put_str(&mut payload, 1, table);
        (u16::from(SUBSYSTEM) << 8 | u16::from(kind), payload)
    }

    /// The message that ends the commit of `nft` with process number 42.
    fn end(generation: u32) -> (u16, Vec<u8>) {
        let mut payload = Vec::new();
        wire::put_header(&mut payload, 0, 0);
        put_be32(&mut payload, 1, generation);
        put_be32(&mut payload, 2, 42);
        put_str(&mut payload, 3, "nft");
        (Kind::NewGen.message_type(), payload)
    }

    fn commits(messages: impl IntoIterator<Item = (u16, Vec<u8>)>) -> Vec<Commit> {
        let mut notices = Notifications::new(&[table("ours"), table("too")]);
        let take = |(ty, payload): (u16, Vec<u8>)| notices.push(message(ty, &payload)).unwrap();
        messages.into_iter().filter_map(take).collect()
    }

    /// A message about a chain, or about a rule in it.
    fn of_chain(kind: Kind, chain: &str) -> (u16, Vec<u8>) {
        let (ty, mut payload) = notice(kind as u8, "ours");
        let attribute = match kind {
            Kind::NewChain | Kind::DelChain => wire::NFTA_CHAIN_NAME,
            _ => wire::NFTA_RULE_CHAIN,
        };
        put_str(&mut payload, attribute, chain);
        (ty, payload)
    }

    #[test]
    fn of_a_table_that_is_shared_only_some_chains_count() {
        let ours = |touched: Change<'_>| touched.chain == "mine" || touched.is_removed;
        let mut notices = Notifications::new(&[table("ours")]).with_filter(ours);
        let messages = [
            of_chain(Kind::NewChain, "theirs"),
            of_chain(Kind::NewRule, "theirs"),
            end(1),
            of_chain(Kind::NewRule, "mine"),
            of_chain(Kind::NewRule, "theirs"),
            of_chain(Kind::DelRule, "theirs"),
            of_chain(Kind::NewChain, "mine"),
            notice(Kind::DelTable as u8, "ours"),
            end(2),
        ];
        let take = |(ty, payload): (u16, Vec<u8>)| notices.push(message(ty, &payload)).unwrap();
        let told: Vec<_> = messages.into_iter().filter_map(take).collect();
        let [commit] = &*told else { panic!("{told:?}") };
        let (_, changes) = &commit.changes[0];
        let counted = (changes.tables, changes.chains, changes.rules);
        assert_eq!(counted, (1, 1, 2));
    }

    #[test]
    fn a_commit_is_told_with_its_last_message_and_counts_by_kind() {
        let (elements, mut payload) = notice(Kind::DelSetElem as u8, "ours");
        nest(&mut payload, 3, |out| {
            put(out, 1, &[]);
            put(out, 1, &[]);
        });
        let of = |kind: Kind| notice(kind as u8, "ours");
        let told = commits([
            of(Kind::NewTable),
            of(Kind::DelRule),
            of(Kind::NewRule),
            of(Kind::DelChain),
            of(Kind::NewSet),
            (elements, payload),
            notice(77, "ours"),
            notice(Kind::DelTable as u8, "too"),
            end(9),
        ]);
        let [commit] = &*told else { panic!("{told:?}") };
        assert_eq!(commit.generation, Generation(9));
        assert_eq!(commit.process.to_string(), "nft (42)");
        assert_eq!(commit.port_id, 7);
        let changes = ChangeCounts {
            tables: 1,
            chains: 1,
            rules: 2,
            sets: 1,
            elements: 2,
            others: 1,
        };
        assert_eq!(commit.changes[0], (table("ours"), changes));
        assert_eq!(commit.changes[1].0, table("too"));
        assert_eq!((changes.total(), commit.changes[1].1.total()), (8, 1));
    }

    #[test]
    fn what_leaves_the_tables_alone_is_not_told() {
        let mut other_family = notice(Kind::DelTable as u8, "ours");
        other_family.1[0] = Family::Ip6.number();
        let other_subsystem = (0x0100, notice(0, "ours").1);
        let nameless = (Kind::NewTable.message_type(), vec![2, 0, 0, 0]);
        let told = commits([
            notice(0, "other"),
            other_family,
            other_subsystem,
            nameless,
            end(9),
        ]);
        assert_eq!(told, []);
    }

    #[test]
    fn one_commit_after_the_other_is_told_for_itself() {
        let told = commits([
            notice(0, "ours"),
            end(9),
            end(10),
            notice(2, "ours"),
            end(11),
        ]);
        let generations: Vec<_> = told.iter().map(|commit| commit.generation.0).collect();
        assert_eq!(generations, [9, 11]);
    }

    #[test]
    fn what_is_forgotten_is_not_told() {
        let mut notices = Notifications::new(&[table("ours")]);
        let (ty, payload) = notice(0, "ours");
        notices.push(message(ty, &payload)).unwrap();
        notices.reset();
        let (ty, payload) = end(9);
        assert_eq!(notices.push(message(ty, &payload)), Ok(None));
    }

    #[test]
    fn a_message_cut_off_is_an_error() {
        let (ty, payload) = notice(0, "ours");
        let mut notices = Notifications::new(&[table("ours")]);
        assert!(notices.push(message(ty, &payload[..3])).is_err());
        assert!(notices.push(message(ty, &payload[..7])).is_err());
    }
}
