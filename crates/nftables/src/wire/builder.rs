//! Batches of single operations.

use vipline_netlink::message::{
    NLM_F_APPEND, NLM_F_CREATE, NLM_F_ECHO, NLM_F_EXCL, NLM_F_NONREC, NLM_F_REPLACE,
};

use crate::expr::{AnonymousSet, SetRef};
use crate::wire::encoder::{
    NFNL_MSG_BATCH_BEGIN, NFNL_MSG_BATCH_END, put_anonymous_set, put_batch_message, put_elements,
    put_message,
};
use crate::wire::message_types::*;
use crate::wire::rule::AnonymousIds;
use crate::wire::{self, batch};
use crate::{
    Action, Chain, Generation, Name, Operation, Rule, RuleHandle, RulePosition, Subject, TableId,
};

/// An atomic batch of single operations, in the order of the calls.
///
/// Each operation is encoded at once and not kept, so a batch of many rules takes only
/// the memory of its messages. [`Transaction`](crate::Transaction) orders edits and
/// reports rejected ones by their objects; a builder does neither.
/// [`Client::commit_batch`](crate::Client::commit_batch) applies the batch.
///
/// ```no_run
/// use vipline_nftables::statement::{accept, counter};
/// use vipline_nftables::{Client, Family, Name, Rule, RulePosition, TableId};
///
/// let (table, chain) = (TableId::new(Family::Ip, Name::new("filter")?), Name::new("input")?);
/// let mut client = Client::open()?;
/// let mut batch = client.batch(None);
/// let rule = Rule::new(table.family, [counter(), accept()])?;
/// batch.add_rule(&table, &chain, RulePosition::Head, &rule);
/// client.commit_batch(batch)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct BatchBuilder {
    out: Vec<u8>,
    /// Sequence number of the begin message.
    first: u32,
    /// Action of each operation.
    actions: Vec<Action>,
    /// Indices of the messages about anonymous sets, which belong to the operation after
    /// them.
    sets: Vec<u32>,
    /// ID of the last anonymous set.
    set_id: u32,
    /// Offset of the last message.
    last: usize,
    /// Flags of the operations on rules.
    flags: u16,
}

impl BatchBuilder {
    /// Creates an empty batch. Sequence numbers start at `sequence`.
    ///
    /// With a `generation` the kernel rejects the batch unless that is the current
    /// generation.
    pub fn new(sequence: u32, generation: Option<Generation>) -> Self {
        let mut out = Vec::new();
        let generation = generation.map(|generation| generation.0);
        put_batch_message(&mut out, NFNL_MSG_BATCH_BEGIN, sequence, generation);
        Self {
            out,
            first: sequence,
            actions: Vec::new(),
            sets: Vec::new(),
            set_id: 0,
            last: 0,
            flags: 0,
        }
    }

    /// Requests notifications of the rules added from now on: `NLM_F_ECHO`.
    pub(crate) fn with_echo(mut self) -> Self {
        self.flags = NLM_F_ECHO;
        self
    }

    /// Returns the number of operations.
    pub fn len(&self) -> usize {
        self.actions.len()
    }

    /// Returns whether there are no operations.
    pub fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }

    /// Adds a table without flags. An existing table remains as it is.
    pub fn add_table(&mut self, table: &TableId) {
        self.push(Action::Add, NFT_MSG_NEWTABLE, NLM_F_CREATE, table, |out| {
            wire::put_table_name(out, table);
        });
    }

    /// Adds a chain, without its rules.
    ///
    /// An existing regular chain remains as it is. An existing base chain gets the policy
    /// and the counter.
    pub fn add_chain(&mut self, chain: &Chain) {
        self.push(
            Action::Add,
            NFT_MSG_NEWCHAIN,
            NLM_F_CREATE,
            &chain.table,
            |out| {
                wire::put_chain(out, chain);
            },
        );
    }

    /// Adds a regular chain. An existing chain remains as it is.
    pub fn add_regular_chain(&mut self, table: &TableId, chain: &Name) {
        self.push(Action::Add, NFT_MSG_NEWCHAIN, NLM_F_CREATE, table, |out| {
            wire::put_chain_id(out, table, chain);
        });
    }

    /// Creates a regular chain. The kernel rejects the operation if the chain exists.
    pub fn create_regular_chain(&mut self, table: &TableId, chain: &Name) {
        self.push(
            Action::Add,
            NFT_MSG_NEWCHAIN,
            NLM_F_CREATE | NLM_F_EXCL,
            table,
            |out| {
                wire::put_chain_id(out, table, chain);
            },
        );
    }

    /// Deletes all rules of a chain.
    pub fn flush_chain(&mut self, table: &TableId, chain: &Name) {
        self.push(Action::Flush, NFT_MSG_DELRULE, 0, table, |out| {
            wire::rule::put_chain(out, table, chain);
        });
    }

    /// Deletes a chain. The kernel rejects the operation while rules jump to the chain,
    /// and on some versions while the chain has rules.
    /// [`delete_empty_chain`](Self::delete_empty_chain) never deletes rules.
    pub fn delete_chain(&mut self, table: &TableId, chain: &Name) {
        self.push(Action::Delete, NFT_MSG_DELCHAIN, 0, table, |out| {
            wire::put_chain_id(out, table, chain);
        });
    }

    /// Deletes a chain without rules. The kernel rejects the operation (`EBUSY`) while the
    /// chain has rules, or rules jump to the chain.
    pub fn delete_empty_chain(&mut self, table: &TableId, chain: &Name) {
        self.push(
            Action::Delete,
            NFT_MSG_DELCHAIN,
            NLM_F_NONREC,
            table,
            |out| {
                wire::put_chain_id(out, table, chain);
            },
        );
    }

    /// Adds a rule at a position of a chain.
    pub fn add_rule(&mut self, table: &TableId, chain: &Name, position: RulePosition, rule: &Rule) {
        let (flags, near) = match position {
            RulePosition::Head => (NLM_F_CREATE, None),
            RulePosition::Tail => (NLM_F_CREATE | NLM_F_APPEND, None),
            RulePosition::Before(handle) => (NLM_F_CREATE, Some(handle)),
            RulePosition::After(handle) => (NLM_F_CREATE | NLM_F_APPEND, Some(handle)),
        };
        let (flags, sets) = (flags | self.flags, self.anonymous(table, rule));
        self.push(Action::Add, NFT_MSG_NEWRULE, flags, table, |out| {
            wire::rule::put_chain(out, table, chain);
            if let Some(RuleHandle(handle)) = near {
                wire::rule::put_position(out, handle);
            }
            wire::rule::put_body(out, rule, &sets);
        });
    }

    /// Replaces a rule at its position.
    pub fn replace_rule(&mut self, table: &TableId, chain: &Name, old: RuleHandle, rule: &Rule) {
        let (flags, sets) = (NLM_F_REPLACE | self.flags, self.anonymous(table, rule));
        self.push(Action::Replace, NFT_MSG_NEWRULE, flags, table, |out| {
            wire::rule::put_chain(out, table, chain);
            wire::rule::put_handle(out, old.0);
            wire::rule::put_body(out, rule, &sets);
        });
    }

    /// Deletes a rule.
    pub fn delete_rule(&mut self, table: &TableId, chain: &Name, rule: RuleHandle) {
        self.push(Action::Delete, NFT_MSG_DELRULE, 0, table, |out| {
            wire::rule::put_chain(out, table, chain);
            wire::rule::put_handle(out, rule.0);
        });
    }

    /// Adds the anonymous sets and chains of a rule. Returns their IDs.
    fn anonymous(&mut self, table: &TableId, rule: &Rule) -> AnonymousIds {
        let mut ids = AnonymousIds::default();
        for set in rule.sets() {
            if let SetRef::Anonymous(anonymous) = set {
                ids.sets.push(self.anonymous_set(table, anonymous));
            }
        }
        for chain in &rule.chains {
            let id = self.anonymous_chain(table, chain);
            ids.chains.push((chain.name.clone(), id));
        }
        ids
    }

    fn anonymous_chain(&mut self, table: &TableId, chain: &Chain) -> u32 {
        self.set_id += 1;
        let id = self.set_id;
        self.message_of_rule(NFT_MSG_NEWCHAIN, NLM_F_CREATE, table, |out| {
            wire::put_anonymous_chain(out, table, chain, id);
        });
        for rule in &*chain.rules {
            let ids = self.anonymous(table, rule);
            self.message_of_rule(NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND, table, |out| {
                wire::rule::put_chain_id(out, table, id);
                wire::rule::put_body(out, rule, &ids);
            });
        }
        id
    }

    fn anonymous_set(&mut self, table: &TableId, anonymous: &AnonymousSet) -> u32 {
        self.set_id += 1;
        let (id, mut rest) = (self.set_id, &*anonymous.elements);
        self.message_of_rule(NFT_MSG_NEWSET, NLM_F_CREATE, table, |out| {
            put_anonymous_set(out, table, anonymous, id);
        });
        while !rest.is_empty() {
            let mut count = 0;
            self.message_of_rule(NFT_MSG_NEWSETELEM, NLM_F_CREATE, table, |out| {
                let place = (table, &anonymous.set.name, Some(id));
                count = put_elements(out, place, rest, &mut Vec::new());
            });
            rest = rest.get(count..).unwrap_or(&[]);
        }
        id
    }

    /// Appends a message that belongs to the operation of a rule.
    fn message_of_rule(
        &mut self,
        kind: u8,
        flags: u16,
        table: &TableId,
        body: impl FnOnce(&mut Vec<u8>),
    ) {
        let index = self.next_sequence().wrapping_sub(self.first);
        self.sets.push(index);
        self.message(kind, flags, table, body);
    }

    fn push(
        &mut self,
        action: Action,
        kind: u8,
        flags: u16,
        table: &TableId,
        body: impl FnOnce(&mut Vec<u8>),
    ) {
        self.actions.push(action);
        self.message(kind, flags, table, body);
    }

    fn message(&mut self, kind: u8, flags: u16, table: &TableId, body: impl FnOnce(&mut Vec<u8>)) {
        self.last = self.out.len();
        let sequence = self.next_sequence();
        put_message(&mut self.out, message_type(kind), flags, sequence, |out| {
            wire::put_header(out, table.family.number(), 0);
            body(out);
        });
    }

    /// Returns the sequence number of the message that was counted last; after the last
    /// operation of the batch, one less than that of the end message.
    fn next_sequence(&self) -> u32 {
        let len = self.actions.len() + self.sets.len();
        self.first
            .wrapping_add(u32::try_from(len).unwrap_or(u32::MAX))
    }

    /// Returns the netlink messages, including the begin and end messages.
    ///
    /// Only the last operation requests an ACK; the kernel reports errors of all.
    pub fn finish(mut self) -> (Vec<u8>, Operations) {
        batch::acknowledge(&mut self.out, self.last);
        let sequence = self.next_sequence().wrapping_add(1);
        put_batch_message(&mut self.out, NFNL_MSG_BATCH_END, sequence, None);
        let operations = Operations {
            first: self.first,
            actions: self.actions,
            sets: self.sets,
        };
        (self.out, operations)
    }
}

/// The operations of a batch, to report errors.
#[derive(Debug)]
pub struct Operations {
    first: u32,
    actions: Vec<Action>,
    sets: Vec<u32>,
}

impl Operations {
    /// Returns the operation of the message with this sequence number, with its index as
    /// subject.
    pub fn operation(&self, sequence: u32) -> Operation {
        let message = sequence.wrapping_sub(self.first).wrapping_sub(1);
        let sets_before = self.sets.partition_point(|set| *set < message);
        let message = usize::try_from(message).unwrap_or(usize::MAX);
        let index = message.wrapping_sub(sets_before);
        match self.actions.get(index) {
            Some(action) => Operation::new(*action, Subject::Index(index)),
            None => Operation::new(Action::Commit, Subject::Transaction),
        }
    }
}

#[cfg(test)]
mod tests {
    use vipline_netlink::message::{Messages, NLM_F_ACK};

    use super::*;
    use crate::statement::accept;
    use crate::{Family, Transaction};
    use vipline_reconcile::Edit;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    #[test]
    fn rules_at_the_tail_are_encoded_like_those_of_a_transaction() {
        let table = TableId::new(Family::Ip, name("t"));
        let rule = Rule::new(Family::Ip, [accept()]).unwrap();
        let chain = Chain::new(table.clone(), name("c")).with_rules([rule.clone()]);
        let edits = [Edit::Add(chain.clone().into())];
        let transaction = Transaction::from_edits(&edits);
        let mut builder = BatchBuilder::new(5, Some(Generation(9)));
        builder.add_regular_chain(&table, &chain.name);
        builder.add_rule(&table, &chain.name, RulePosition::Tail, &rule);
        assert_eq!((builder.len(), builder.is_empty()), (2, false));
        let (bytes, operations) = builder.finish();
        assert_eq!(bytes, transaction.encode(5, Some(9)).bytes());
        let text = |sequence| operations.operation(sequence).to_string();
        let expected = ["commit transaction", "add operation 0", "add operation 1"];
        assert_eq!([text(5), text(6), text(7)], expected);
        assert_eq!([text(4), text(8)], ["commit transaction"; 2]);
    }

    #[test]
    fn only_the_last_operation_requests_an_ack() {
        let table = TableId::new(Family::Ip6, name("t"));
        let mut builder = BatchBuilder::new(u32::MAX, None);
        builder.add_table(&table);
        builder.flush_chain(&table, &name("c"));
        builder.delete_rule(&table, &name("c"), RuleHandle(7));
        let (bytes, _) = builder.finish();
        let messages = Messages::new(&bytes).map(Result::unwrap);
        let acks: Vec<_> = messages
            .map(|it| (it.seq, it.flags & NLM_F_ACK != 0))
            .collect();
        let expected = [
            (u32::MAX, false),
            (0, false),
            (1, false),
            (2, true),
            (3, false),
        ];
        assert_eq!(acks, expected);
    }
}
