//! Monitoring of changes: nf_tables notifications, grouped by commit.

#[cfg(target_os = "linux")]
mod client;

mod commit_counter;

mod counts;

mod decoder;

mod event;

use std::fmt;
use std::sync::Arc;

use vipline_netlink::DecodeError;
use vipline_netlink::message::Message;

use crate::wire::message_types::*;
use crate::wire::{self, NFNL_SUBSYS_NFTABLES};
use crate::{Generation, Name, Ruleset, TableId};

#[cfg(target_os = "linux")]
pub use client::{Monitor, Notification};
pub use commit_counter::CommitCounter;
pub use counts::ChangeCounts;
pub use event::{Event, EventObject};

use decoder::EventDecoder;

/// A commit that changed monitored tables.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Commit {
    /// Generation that the commit created.
    pub generation: Generation,
    /// Process that sent the commit.
    pub process: Process,
    /// Port ID of the netlink socket that sent the commit.
    ///
    /// By default the port ID of a socket is the PID of its process in the process's
    /// own PID namespace. A program in the same namespace can compare it with PIDs, but
    /// not [`Process::id`].
    pub port_id: u32,
    /// Number of changes per table, in no particular order.
    pub changes: Vec<(TableId, ChangeCounts)>,
    /// The changes, in the order of the kernel. Empty without
    /// [`Notifications::with_events`].
    pub events: Vec<Event>,
}

/// A process, as reported by the kernel. Displays as `name (id)`.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct Process {
    /// PID in the initial PID namespace.
    ///
    /// Programs in other PID namespaces see another PID for the same process.
    pub id: u32,
    /// Command name, at most 15 bytes.
    pub name: Box<str>,
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.id)
    }
}

/// A change of a chain or of one of its rules.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Change<'a> {
    /// Table.
    pub table: &'a TableId,
    /// Name of the chain.
    pub chain: &'a str,
    /// Whether the chain or rule was deleted.
    pub is_removed: bool,
}

/// Decodes nf_tables notifications and groups them by [`Commit`].
///
/// Sans-IO: push the messages of multicast group `NFNLGRP_NFTABLES`.
/// Commits that do not change the monitored tables are not reported.
#[derive(Clone, Debug, Default)]
pub struct Notifications {
    tables: Vec<TableId>,
    /// Whether all tables are monitored.
    has_all_tables: bool,
    /// Filter for changes of chains and rules; `None` accepts all.
    filter: Option<Filter>,
    /// Changes of the commit that has not ended yet.
    changes: Vec<(TableId, ChangeCounts)>,
    /// Decoder of events; `None`: changes are only counted.
    decoder: Option<EventDecoder>,
}

#[derive(Clone)]
struct Filter(Arc<dyn Fn(Change<'_>) -> bool + Send + Sync>);

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Filter")
    }
}

impl Notifications {
    /// Creates a decoder for these tables.
    pub fn new(tables: &(impl AsRef<[TableId]> + ?Sized)) -> Self {
        Self {
            tables: tables.as_ref().to_vec(),
            ..Self::default()
        }
    }

    /// Creates a decoder for all tables of all families.
    pub fn all() -> Self {
        Self {
            has_all_tables: true,
            ..Self::default()
        }
    }

    /// Decodes the changed objects: [`Commit::events`].
    ///
    /// Notifications of elements do not contain the type of their set. A
    /// [`Monitor`](crate::Monitor) learns the sets that exist when it is opened; without one,
    /// [`learn_sets`](Self::learn_sets) adds them. Sets that are added later are learned from
    /// notifications.
    #[must_use]
    pub fn with_events(mut self) -> Self {
        self.decoder = Some(EventDecoder::default());
        self
    }

    /// Returns the tables; `None`: all.
    pub(super) fn tables(&self) -> Option<&[TableId]> {
        (!self.has_all_tables).then_some(&*self.tables)
    }

    /// Returns whether changed objects are decoded.
    pub(super) fn has_events(&self) -> bool {
        self.decoder.is_some()
    }

    /// Learns the sets of a dump, to decode their elements, and the anonymous sets of its
    /// rules, to decode deletions of the rules.
    ///
    /// Call it again with a new dump after lost notifications.
    /// Without [`with_events`](Self::with_events) the method has no effect.
    pub fn learn_sets(&mut self, installed: &Ruleset) {
        if let Some(decoder) = &mut self.decoder {
            decoder.learn_sets(installed);
        }
    }

    /// Ignores changes of chains and rules that `filter` rejects.
    ///
    /// For tables that several programs share. The filter does not apply to other
    /// changes, such as those of sets and elements.
    #[must_use]
    pub fn with_filter(
        mut self,
        filter: impl Fn(Change<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.filter = Some(Filter(Arc::new(filter)));
        self
    }

    /// Processes a message. Returns the commit with its last message.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the message is malformed.
    pub fn push(&mut self, message: Message<'_>) -> Result<Option<Commit>, DecodeError> {
        let payload = message.payload;
        let [NFNL_SUBSYS_NFTABLES, kind] = message.ty.to_be_bytes() else {
            return Ok(None);
        };
        if kind == NFT_MSG_NEWGEN {
            return self.end(message);
        }
        let (family, attrs) = wire::split_header(payload)?;
        let mut attrs = attrs;
        // All objects have the table name as first attribute, with the same number.
        let Some(name) = attrs.next().transpose()? else {
            return Ok(None);
        };
        if name.kind != wire::NFTA_TABLE_NAME {
            return Ok(None);
        }
        let name = name.str()?;
        let matches = |table: &TableId| Some(table.family) == family && table.name.as_str() == name;
        let table = match self.tables.iter().find(|table| matches(table)) {
            Some(table) => table.clone(),
            None => match (self.has_all_tables, family, Name::new(name)) {
                (true, Some(family), Ok(name)) => TableId::new(family, name),
                _ => return Ok(None),
            },
        };
        if !self.accepts(&table, kind, payload)? {
            return Ok(None);
        }
        if let Some(decoder) = &mut self.decoder {
            decoder.push(&table, kind, payload)?;
        }
        let index = self.changes.iter().position(|(id, _)| *id == table);
        let index = index.unwrap_or_else(|| {
            self.changes.push((table.clone(), ChangeCounts::default()));
            self.changes.len() - 1
        });
        if let Some((_, changes)) = self.changes.get_mut(index) {
            changes.add(kind, payload)?;
        }
        Ok(None)
    }

    /// Returns whether the filter accepts a change.
    fn accepts(&self, table: &TableId, kind: u8, payload: &[u8]) -> Result<bool, DecodeError> {
        let Some(Filter(filter)) = &self.filter else {
            return Ok(true);
        };
        let (new, is_removed) = object_kind(kind);
        let attribute = match new {
            NFT_MSG_NEWCHAIN => wire::NFTA_CHAIN_NAME,
            NFT_MSG_NEWRULE => wire::rule::NFTA_RULE_CHAIN,
            _ => return Ok(true),
        };
        let (_, attrs) = wire::split_header(payload)?;
        for attr in attrs {
            let attr = attr?;
            if attr.kind == attribute {
                return Ok(filter(Change {
                    table,
                    chain: attr.str()?,
                    is_removed,
                }));
            }
        }
        Ok(true)
    }

    /// Discards an unfinished commit whose end message was lost.
    pub fn reset(&mut self) {
        self.changes.clear();
        if let Some(decoder) = &mut self.decoder {
            decoder.reset();
        }
    }

    /// Processes the last message of a commit.
    fn end(&mut self, message: Message<'_>) -> Result<Option<Commit>, DecodeError> {
        let payload = message.payload;
        let changes = std::mem::take(&mut self.changes);
        let events = self.decoder.as_mut().map(EventDecoder::take).transpose()?;
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
            port_id: message.port_id,
            changes,
            events: events.unwrap_or_default(),
        }))
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
            port_id: 7,
            payload,
        }
    }

    /// A message about an object in a table of family `ip`.
    fn message_about(kind: u8, table: &str) -> (u16, Vec<u8>) {
        let mut payload = Vec::new();
        wire::put_header(&mut payload, Family::Ip.number(), 0);
        put_str(&mut payload, 1, table);
        (message_type(kind), payload)
    }

    /// The last message of a commit by `nft` with PID 42.
    fn end(generation: u32) -> (u16, Vec<u8>) {
        let mut payload = Vec::new();
        wire::put_header(&mut payload, 0, 0);
        put_be32(&mut payload, wire::NFTA_GEN_ID, generation);
        put_be32(&mut payload, wire::NFTA_GEN_PROC_PID, 42);
        put_str(&mut payload, wire::NFTA_GEN_PROC_NAME, "nft");
        (message_type(NFT_MSG_NEWGEN), payload)
    }

    fn commits(messages: impl IntoIterator<Item = (u16, Vec<u8>)>) -> Vec<Commit> {
        let mut notifications = Notifications::new(&[table("ours"), table("too")]);
        let take =
            |(ty, payload): (u16, Vec<u8>)| notifications.push(message(ty, &payload)).unwrap();
        messages.into_iter().filter_map(take).collect()
    }

    /// A message about a chain or one of its rules.
    fn of_chain(kind: u8, chain: &str) -> (u16, Vec<u8>) {
        let (ty, mut payload) = message_about(kind, "ours");
        let attribute = match kind {
            NFT_MSG_NEWCHAIN | NFT_MSG_DELCHAIN => wire::NFTA_CHAIN_NAME,
            _ => wire::rule::NFTA_RULE_CHAIN,
        };
        put_str(&mut payload, attribute, chain);
        (ty, payload)
    }

    #[test]
    fn a_filter_ignores_chains_of_a_shared_table() {
        let ours = |touched: Change<'_>| touched.chain == "mine" || touched.is_removed;
        let mut notifications = Notifications::new(&[table("ours")]).with_filter(ours);
        let messages = [
            of_chain(NFT_MSG_NEWCHAIN, "theirs"),
            of_chain(NFT_MSG_NEWRULE, "theirs"),
            end(1),
            of_chain(NFT_MSG_NEWRULE, "mine"),
            of_chain(NFT_MSG_NEWRULE, "theirs"),
            of_chain(NFT_MSG_DELRULE, "theirs"),
            of_chain(NFT_MSG_NEWCHAIN, "mine"),
            message_about(NFT_MSG_DELTABLE, "ours"),
            end(2),
        ];
        let take =
            |(ty, payload): (u16, Vec<u8>)| notifications.push(message(ty, &payload)).unwrap();
        let commits: Vec<_> = messages.into_iter().filter_map(take).collect();
        let [commit] = &*commits else {
            panic!("{commits:?}")
        };
        let (_, changes) = &commit.changes[0];
        let counted = (changes.tables, changes.chains, changes.rules);
        assert_eq!(counted, (1, 1, 2));
    }

    #[test]
    fn a_commit_is_reported_with_its_last_message_and_counts_by_kind() {
        let (elements, mut payload) = message_about(NFT_MSG_DELSETELEM, "ours");
        nest(&mut payload, 3, |out| {
            put(out, 1, &[]);
            put(out, 1, &[]);
        });
        let of = |kind: u8| message_about(kind, "ours");
        let commits = commits([
            of(NFT_MSG_NEWTABLE),
            of(NFT_MSG_DELRULE),
            of(NFT_MSG_NEWRULE),
            of(NFT_MSG_DELCHAIN),
            of(NFT_MSG_NEWSET),
            (elements, payload),
            message_about(77, "ours"),
            message_about(NFT_MSG_DELTABLE, "too"),
            end(9),
        ]);
        let [commit] = &*commits else {
            panic!("{commits:?}")
        };
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
    fn commits_to_other_tables_are_not_reported() {
        let mut other_family = message_about(NFT_MSG_DELTABLE, "ours");
        other_family.1[0] = Family::Ip6.number();
        let other_subsystem = (0x0100, message_about(0, "ours").1);
        let nameless = (message_type(NFT_MSG_NEWTABLE), vec![2, 0, 0, 0]);
        let commits = commits([
            message_about(0, "other"),
            other_family,
            other_subsystem,
            nameless,
            end(9),
        ]);
        assert_eq!(commits, []);
    }

    #[test]
    fn consecutive_commits_are_reported_separately() {
        let commits = commits([
            message_about(0, "ours"),
            end(9),
            end(10),
            message_about(2, "ours"),
            end(11),
        ]);
        let generations: Vec<_> = commits.iter().map(|commit| commit.generation.0).collect();
        assert_eq!(generations, [9, 11]);
    }

    #[test]
    fn a_reset_discards_the_unfinished_commit() {
        let mut notifications = Notifications::new(&[table("ours")]);
        let (ty, payload) = message_about(0, "ours");
        notifications.push(message(ty, &payload)).unwrap();
        notifications.reset();
        let (ty, payload) = end(9);
        assert_eq!(notifications.push(message(ty, &payload)), Ok(None));
    }

    #[test]
    fn every_deletion_has_the_kind_of_its_object() {
        for (new, delete, destroy) in [
            (NFT_MSG_NEWTABLE, NFT_MSG_DELTABLE, NFT_MSG_DESTROYTABLE),
            (NFT_MSG_NEWCHAIN, NFT_MSG_DELCHAIN, NFT_MSG_DESTROYCHAIN),
            (NFT_MSG_NEWRULE, NFT_MSG_DELRULE, NFT_MSG_DESTROYRULE),
            (NFT_MSG_NEWSET, NFT_MSG_DELSET, NFT_MSG_DESTROYSET),
            (
                NFT_MSG_NEWSETELEM,
                NFT_MSG_DELSETELEM,
                NFT_MSG_DESTROYSETELEM,
            ),
            (NFT_MSG_NEWOBJ, NFT_MSG_DELOBJ, NFT_MSG_DESTROYOBJ),
            (
                NFT_MSG_NEWFLOWTABLE,
                NFT_MSG_DELFLOWTABLE,
                NFT_MSG_DESTROYFLOWTABLE,
            ),
        ] {
            assert_eq!(object_kind(new), (new, false));
            assert_eq!(object_kind(delete), (new, true));
            assert_eq!(object_kind(destroy), (new, true));
        }
    }

    #[test]
    fn a_truncated_message_is_an_error() {
        let (ty, payload) = message_about(0, "ours");
        let mut notifications = Notifications::new(&[table("ours")]);
        assert!(notifications.push(message(ty, &payload[..3])).is_err());
        assert!(notifications.push(message(ty, &payload[..7])).is_err());
    }
}
