//! The native encoder of transactions.

use vipline_netlink::attr::{nest, put_be32, put_str};
use vipline_netlink::message::{NLM_F_APPEND, NLM_F_CREATE, NLM_F_REQUEST, begin, end};

use super::NFNL_SUBSYS_NFTABLES;
use super::batch::{Message, acknowledge};
use super::element::{
    self, NFTA_SET_ELEM_LIST_ELEMENTS, NFTA_SET_ELEM_LIST_SET, NFTA_SET_ELEM_LIST_SET_ID,
    NFTA_SET_ELEM_LIST_TABLE,
};
use super::message_types::*;
use super::rule::AnonymousIds;
use crate::expr::{AnonymousSet, SetRef};
use crate::transaction::Step;
use crate::{Batch, Chain, Element, Name, Rule, SetFlags, TableId, Transaction, wire};

// linux/netfilter/nfnetlink.h
pub(crate) const NFNL_MSG_BATCH_BEGIN: u16 = 0x10;
pub(crate) const NFNL_MSG_BATCH_END: u16 = 0x11;
// enum nfnl_batch_attributes
const NFNL_BATCH_GENID: u16 = 1;
/// Length at which an element list is split: attribute lengths have 16 bits.
pub(crate) const LIST_LIMIT: usize = 48 << 10;
/// Estimated encoded length of an element, to allocate the buffer.
const ELEMENT_LEN_ESTIMATE: usize = 112;

impl Transaction {
    /// Encodes the transaction as one batch.
    ///
    /// Sequence numbers start at `sequence`.
    /// With a `generation` the kernel rejects the batch unless that is the current
    /// generation ([`wire::generation`](crate::wire::generation)).
    /// Only the last message before the end message requests an ACK; the kernel
    /// reports errors of all messages.
    pub fn encode(&self, sequence: u32, generation: Option<u32>) -> Batch<'_> {
        let mut encoder = Encoder::new(self, sequence);
        encoder.batch_message(NFNL_MSG_BATCH_BEGIN, generation);
        for (step, index) in self.steps.iter().zip(0..) {
            encoder.step(step, index);
        }
        encoder.acknowledge_last();
        encoder.batch_message(NFNL_MSG_BATCH_END, None);
        Batch::from_parts(self, encoder.out, sequence, encoder.messages)
    }
}

/// Appends one message.
pub(crate) fn put_message(
    out: &mut Vec<u8>,
    ty: u16,
    flags: u16,
    sequence: u32,
    body: impl FnOnce(&mut Vec<u8>),
) {
    let start = begin(out, ty, NLM_F_REQUEST | flags, sequence);
    body(out);
    end(out, start);
}

/// Appends the begin or end message of a batch.
pub(crate) fn put_batch_message(
    out: &mut Vec<u8>,
    ty: u16,
    sequence: u32,
    generation: Option<u32>,
) {
    put_message(out, ty, 0, sequence, |out| {
        put_batch_body(out, generation);
    });
}

fn put_batch_body(out: &mut Vec<u8>, generation: Option<u32>) {
    wire::put_header(out, 0, NFNL_SUBSYS_NFTABLES.into());
    if let Some(generation) = generation {
        put_be32(out, NFNL_BATCH_GENID, generation);
    }
}

/// Appends the attributes of the anonymous set of a rule, without its elements.
pub(crate) fn put_anonymous_set(
    out: &mut Vec<u8>,
    table: &TableId,
    anonymous: &AnonymousSet,
    id: u32,
) {
    let AnonymousSet { set, elements } = anonymous;
    let members = elements.iter().zip(1..);
    let members = members.map(|(element, next)| element::list_entries(element, elements.get(next)));
    let members = u32::try_from(members.sum::<usize>()).ok();
    let is_constant = set.flags.contains(SetFlags::CONSTANT);
    let size = set.size.max(members.filter(|_| is_constant));
    wire::set::put(out, table, set, id, size);
}

/// Appends the attributes of elements of one set, up to [`LIST_LIMIT`]. Returns the number
/// of elements.
///
/// `place` is the table, the name of the set, and its ID if the set is anonymous.
pub(crate) fn put_elements(
    out: &mut Vec<u8>,
    (table, set, set_id): (&TableId, &Name, Option<u32>),
    elements: &[Element],
    scratch: &mut Vec<u8>,
) -> usize {
    put_str(out, NFTA_SET_ELEM_LIST_TABLE, table.name.as_str());
    put_str(out, NFTA_SET_ELEM_LIST_SET, set.as_str());
    if let Some(id) = set_id {
        put_be32(out, NFTA_SET_ELEM_LIST_SET_ID, id);
    }
    let mut count = 0;
    nest(out, NFTA_SET_ELEM_LIST_ELEMENTS, |out| {
        let limit = out.len() + LIST_LIMIT;
        for (element, next) in elements.iter().zip(1..) {
            element::encode(out, element, elements.get(next), scratch);
            count += 1;
            if out.len() > limit {
                break;
            }
        }
    });
    count
}

/// Encodes a batch.
struct Encoder {
    /// Whether deletions of objects that do not exist succeed.
    destroys: bool,
    out: Vec<u8>,
    sequence: u32,
    messages: Vec<Message>,
    next_id: u32,
    scratch: Vec<u8>,
}

impl Encoder {
    fn new(transaction: &Transaction, sequence: u32) -> Self {
        let steps = &transaction.steps;
        let elements: usize = steps.iter().map(|step| step.elements().len()).sum();
        Self {
            destroys: transaction.destroys,
            out: Vec::with_capacity(elements * ELEMENT_LEN_ESTIMATE + (steps.len() + 2) * 64),
            sequence,
            messages: Vec::with_capacity(steps.len() + 2),
            next_id: 1,
            scratch: Vec::new(),
        }
    }

    /// Sets `NLM_F_ACK` in the last message.
    fn acknowledge_last(&mut self) {
        let start = self.messages.last().map_or(0, |message| message.start);
        acknowledge(&mut self.out, start);
    }

    /// Returns the type of the messages that delete an object.
    fn deletion(&self, kind: u8) -> u8 {
        match self.destroys {
            true => destroy(kind),
            false => kind,
        }
    }

    /// Appends one message.
    fn message(
        &mut self,
        ty: u16,
        flags: u16,
        about: (Option<u32>, (u32, u32)),
        body: impl FnOnce(&mut Vec<u8>, &mut Vec<u8>),
    ) {
        let seq = self
            .sequence
            .wrapping_add(u32::try_from(self.messages.len()).unwrap_or(u32::MAX));
        let (step, elements) = about;
        self.messages.push(Message {
            start: self.out.len(),
            step,
            elements,
        });
        let scratch = &mut self.scratch;
        put_message(&mut self.out, ty, flags, seq, |out| body(out, scratch));
    }

    /// Appends the begin or end message of the batch.
    fn batch_message(&mut self, ty: u16, generation: Option<u32>) {
        self.message(ty, 0, (None, (0, 0)), |out, _| {
            put_batch_body(out, generation);
        });
    }

    fn simple(
        &mut self,
        kind: u8,
        flags: u16,
        step: u32,
        table: &TableId,
        body: impl FnOnce(&mut Vec<u8>),
    ) {
        self.message(message_type(kind), flags, (Some(step), (0, 0)), |out, _| {
            wire::put_header(out, table.family.number(), 0);
            body(out);
        });
    }

    fn step(&mut self, step: &Step, at: u32) {
        match step {
            Step::AddTable(table) => {
                self.simple(NFT_MSG_NEWTABLE, NLM_F_CREATE, at, &table.id, |out| {
                    wire::put_table(out, table);
                })
            }
            Step::DeleteTable(table) => {
                self.simple(self.deletion(NFT_MSG_DELTABLE), 0, at, &table.id, |out| {
                    wire::put_table_name(out, &table.id);
                })
            }
            Step::AddSet(set) => {
                let id = self.id();
                self.simple(NFT_MSG_NEWSET, NLM_F_CREATE, at, &set.table, |out| {
                    wire::set::put(out, &set.table, set, id, set.size);
                });
            }
            Step::DeleteSet(set) => {
                self.simple(self.deletion(NFT_MSG_DELSET), 0, at, &set.table, |out| {
                    wire::set::put_name(out, &set.table, &set.name);
                })
            }
            Step::AddChain(chain) => {
                self.simple(NFT_MSG_NEWCHAIN, NLM_F_CREATE, at, &chain.table, |out| {
                    wire::put_chain(out, chain);
                })
            }
            Step::FlushChain(chain) => {
                self.simple(self.deletion(NFT_MSG_DELRULE), 0, at, &chain.table, |out| {
                    wire::rule::put_chain(out, &chain.table, &chain.name);
                })
            }
            Step::DeleteChain(chain) => self.simple(
                self.deletion(NFT_MSG_DELCHAIN),
                0,
                at,
                &chain.table,
                |out| {
                    wire::put_chain_id(out, &chain.table, &chain.name);
                },
            ),
            Step::AddRule(chain, place) => {
                if let Some(rule) = chain.rules.get(*place) {
                    self.rule(chain, None, rule, at);
                }
            }
            Step::AddStateful(object) => {
                self.simple(NFT_MSG_NEWOBJ, NLM_F_CREATE, at, &object.table, |out| {
                    wire::stateful::put_object(out, object);
                })
            }
            Step::DeleteStateful(object) => {
                self.simple(self.deletion(NFT_MSG_DELOBJ), 0, at, &object.table, |out| {
                    wire::stateful::put_id(out, object);
                })
            }
            Step::AddFlowtable(flowtable) => {
                self.simple(
                    NFT_MSG_NEWFLOWTABLE,
                    NLM_F_CREATE,
                    at,
                    &flowtable.table,
                    |out| {
                        wire::flowtable::put(out, flowtable);
                    },
                );
            }
            Step::DeleteFlowtable(flowtable) => {
                self.simple(
                    self.deletion(NFT_MSG_DELFLOWTABLE),
                    0,
                    at,
                    &flowtable.table,
                    |out| {
                        wire::flowtable::put_id(out, flowtable);
                    },
                );
            }
            Step::AddElements(elements) => {
                self.elements(NFT_MSG_NEWSETELEM, NLM_F_CREATE, elements, None, at);
            }
            Step::DeleteElements(elements) => {
                self.elements(self.deletion(NFT_MSG_DELSETELEM), 0, elements, None, at);
            }
        }
    }

    /// Returns an ID for a set or a chain of the transaction.
    fn id(&mut self) -> u32 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    /// Appends a rule, after its anonymous sets and chains.
    ///
    /// `chain_id` is the ID of the chain if the chain is anonymous.
    fn rule(&mut self, chain: &Chain, chain_id: Option<u32>, rule: &Rule, at: u32) {
        let mut ids = AnonymousIds::default();
        for set in rule.sets() {
            if let SetRef::Anonymous(anonymous) = set {
                ids.sets.push(self.anonymous(&chain.table, anonymous, at));
            }
        }
        for anonymous in &rule.chains {
            let id = self.anonymous_chain(&chain.table, anonymous, at);
            ids.chains.push((anonymous.name.clone(), id));
        }
        self.simple(
            NFT_MSG_NEWRULE,
            NLM_F_CREATE | NLM_F_APPEND,
            at,
            &chain.table,
            |out| {
                match chain_id {
                    None => wire::rule::put_chain(out, &chain.table, &chain.name),
                    Some(id) => wire::rule::put_chain_id(out, &chain.table, id),
                }
                wire::rule::put_body(out, rule, &ids);
            },
        );
    }

    /// Appends an anonymous chain with its rules. Returns its ID.
    fn anonymous_chain(&mut self, table: &TableId, chain: &Chain, at: u32) -> u32 {
        let id = self.id();
        self.simple(NFT_MSG_NEWCHAIN, NLM_F_CREATE, at, table, |out| {
            wire::put_anonymous_chain(out, table, chain, id);
        });
        let mut chain = chain.clone();
        chain.table = table.clone();
        for rule in &*chain.rules {
            self.rule(&chain, Some(id), rule, at);
        }
        id
    }

    fn anonymous(&mut self, table: &TableId, anonymous: &AnonymousSet, at: u32) -> u32 {
        let id = self.id();
        let AnonymousSet { set, elements } = anonymous;
        self.simple(NFT_MSG_NEWSET, NLM_F_CREATE, at, table, |out| {
            put_anonymous_set(out, table, anonymous, id);
        });
        self.elements(
            NFT_MSG_NEWSETELEM,
            NLM_F_CREATE,
            elements,
            Some((table, &set.name, id)),
            at,
        );
        id
    }

    /// Appends elements of one set, split into messages at [`LIST_LIMIT`].
    ///
    /// `place` is table, name and ID of an anonymous set.
    fn elements(
        &mut self,
        kind: u8,
        flags: u16,
        elements: &[Element],
        place: Option<(&TableId, &Name, u32)>,
        at: u32,
    ) {
        let mut done = 0;
        while let Some(first) = elements.get(done) {
            let set = first.set();
            let (table, name) =
                place.map_or((&set.table, &set.name), |(table, name, _)| (table, name));
            let start = done;
            let rest = elements.get(done..).unwrap_or(&[]);
            self.message(
                message_type(kind),
                flags,
                (Some(at), (0, 0)),
                |out, scratch| {
                    wire::put_header(out, table.family.number(), 0);
                    let place = (table, name, place.map(|(_, _, id)| id));
                    done += put_elements(out, place, rest, scratch);
                },
            );
            if let Some(message) = self.messages.last_mut() {
                let [start, count] = [start, done - start].map(|n| u32::try_from(n).unwrap_or(0));
                message.elements = (start, count);
            }
        }
    }
}
