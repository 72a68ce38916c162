//! Batches: encoded transactions.

use vipline_netlink::attr::{Attrs, nest, put_be32, put_str};
use vipline_netlink::message::{ACK, APPEND, CREATE, REQUEST, begin, end};

use crate::element::{
    self, NFTA_SET_ELEM_LIST_ELEMENTS, NFTA_SET_ELEM_LIST_SET, NFTA_SET_ELEM_LIST_SET_ID,
    NFTA_SET_ELEM_LIST_TABLE,
};
use crate::expr::{AnonymousSet, SetRef};
use crate::operation::{Action, Operation, Subject};
use crate::transaction::Step;
use crate::wire::{self, Kind, SUBSYSTEM};
use crate::{Chain, Element, Object, Rule, SetFlags, TableId, Transaction};

/// `NFNL_MSG_BATCH_BEGIN` of `linux/netfilter/nfnetlink.h`.
const BATCH_BEGIN: u16 = 0x10;
/// `NFNL_MSG_BATCH_END`
const BATCH_END: u16 = 0x11;
/// `NFNL_BATCH_GENID`
pub(crate) const BATCH_GENERATION: u16 = 1;
/// Length at which an element list is split: attribute lengths have 16 bits.
pub(crate) const LIST_LIMIT: usize = 48 << 10;
/// Estimated encoded length of an element, to allocate the buffer.
const ELEMENT_LEN_ESTIMATE: usize = 112;

/// An encoded transaction. Maps each message to its operation.
#[derive(Debug)]
pub struct Batch<'t> {
    transaction: &'t Transaction,
    bytes: Vec<u8>,
    sequence: u32,
    messages: Vec<Message>,
}

/// The operation of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    /// Offset in the batch.
    pub(crate) start: usize,
    /// Step of the transaction; `None` for the begin and end messages.
    pub(crate) step: Option<u32>,
    /// Index of the first element and number of elements.
    pub(crate) elements: (u32, u32),
}

impl<'t> Batch<'t> {
    /// Encodes a transaction: see [`Transaction::encode`].
    pub(crate) fn new(
        transaction: &'t Transaction,
        sequence: u32,
        generation: Option<u32>,
    ) -> Self {
        let elements: usize = transaction
            .steps
            .iter()
            .map(|step| step.elements().len())
            .sum();
        let mut encoder = Encoder {
            out: Vec::with_capacity(
                elements * ELEMENT_LEN_ESTIMATE + (transaction.steps.len() + 2) * 64,
            ),
            sequence,
            messages: Vec::with_capacity(transaction.steps.len() + 2),
            next_set_id: 1,
            scratch: Vec::new(),
        };
        encoder.batch_message(BATCH_BEGIN, generation);
        for (step, place) in transaction.steps.iter().zip(0..) {
            encoder.step(step, place);
        }
        let last = encoder.messages.last().map_or(0, |message| message.start);
        acknowledge(&mut encoder.out, last);
        encoder.batch_message(BATCH_END, None);
        Self {
            transaction,
            bytes: encoder.out,
            sequence,
            messages: encoder.messages,
        }
    }

    /// Wraps a batch of another encoder.
    #[cfg(feature = "nftnl")]
    pub(crate) fn from_parts(
        transaction: &'t Transaction,
        bytes: Vec<u8>,
        sequence: u32,
        messages: Vec<Message>,
    ) -> Self {
        Self {
            transaction,
            bytes,
            sequence,
            messages,
        }
    }
}

impl Batch<'_> {
    /// Returns the netlink messages, including the begin and end messages.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the operation of the message with this sequence number.
    ///
    /// `offset` is the offset in the extended ACK: the distance in bytes from the
    /// start of the message to the faulty attribute. It identifies one element of
    /// a list.
    pub fn operation(&self, sequence: u32, offset: Option<u32>) -> Option<Operation> {
        let place = usize::try_from(sequence.wrapping_sub(self.sequence)).ok()?;
        let message = self.messages.get(place)?;
        let Some(step) = message.step else {
            let (action, subject) = (Action::Commit, Subject::Transaction);
            return Some(Operation { action, subject });
        };
        let step = self.transaction.steps.get(usize::try_from(step).ok()?)?;
        let object = |object: Object| Subject::Object(Box::new(object));
        let (action, subject) = match step {
            Step::AddTable(table) => (Action::Add, object(table.clone().into())),
            Step::DeleteTable(table) => (Action::Delete, object(table.clone().into())),
            Step::AddSet(set) => (Action::Add, object(set.clone().into())),
            Step::DeleteSet(set) => (Action::Delete, object(set.clone().into())),
            Step::AddChain(chain) => (Action::Add, object(chain.clone().into())),
            Step::FlushChain(chain) => (Action::Flush, object(chain.clone().into())),
            Step::DeleteChain(chain) => (Action::Delete, object(chain.clone().into())),
            Step::AddRule(chain, at) => {
                let rule = chain.rules.get(*at)?.clone();
                (
                    Action::Add,
                    Subject::Rule(Box::new(chain.clone()), Box::new(rule)),
                )
            }
            Step::AddElements(all) => (Action::Add, self.elements(message, all, offset)?),
            Step::DeleteElements(all) => (Action::Delete, self.elements(message, all, offset)?),
        };
        Some(Operation { action, subject })
    }

    /// Returns the element at an offset, otherwise all elements of the message.
    fn elements(&self, message: &Message, all: &[Element], offset: Option<u32>) -> Option<Subject> {
        let (first, count) = message.elements;
        let (first, count) = (usize::try_from(first).ok()?, usize::try_from(count).ok()?);
        let elements = all.get(first..first + count)?;
        let found = offset.and_then(|offset| self.element_at(message, elements, offset));
        if let Some(element) = found.or_else(|| elements.first().filter(|_| count == 1)) {
            return Some(Subject::Object(Box::new(element.clone().into())));
        }
        Some(Subject::Elements {
            first: Box::new(elements.first()?.clone()),
            last: Box::new(elements.last()?.clone()),
            count,
        })
    }

    /// Returns the element whose encoding contains the offset.
    fn element_at<'a>(
        &self,
        message: &Message,
        elements: &'a [Element],
        offset: u32,
    ) -> Option<&'a Element> {
        /// Length of `struct nlmsghdr` and `struct nfgenmsg`.
        const HEADERS: usize = 16 + 4;
        const ATTR: usize = 4;
        let offset = usize::try_from(offset).ok()?;
        let payload = self.bytes.get(message.start + HEADERS..)?;
        let mut at = HEADERS;
        for attr in Attrs::new(payload) {
            let attr = attr.ok()?;
            at += ATTR;
            if attr.kind != NFTA_SET_ELEM_LIST_ELEMENTS {
                at += attr.value.len().next_multiple_of(4);
                continue;
            }
            let mut ends = attr.attrs().map_while(Result::ok).map(|member| {
                at += ATTR + member.value.len().next_multiple_of(4);
                at
            });
            let members = elements
                .iter()
                .flat_map(|element| std::iter::repeat_n(element, element::list_entries(element)));
            return members
                .zip(&mut ends)
                .find(|(_, end)| offset < *end)
                .map(|(found, _)| found);
        }
        None
    }
}

/// Sets `NLM_F_ACK` in the message at offset `start`.
pub(crate) fn acknowledge(messages: &mut [u8], start: usize) {
    // The flags follow length and type in `struct nlmsghdr`.
    if let Some([low, high]) = messages.get_mut(start + 6..start + 8) {
        let flags = u16::from_ne_bytes([*low, *high]) | ACK;
        [*low, *high] = flags.to_ne_bytes();
    }
}

/// Encodes a batch.
struct Encoder {
    out: Vec<u8>,
    sequence: u32,
    messages: Vec<Message>,
    next_set_id: u32,
    scratch: Vec<u8>,
}

impl Encoder {
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
        let start = begin(&mut self.out, ty, REQUEST | flags, seq);
        body(&mut self.out, &mut self.scratch);
        end(&mut self.out, start);
    }

    /// Appends the begin or end message of the batch.
    fn batch_message(&mut self, ty: u16, generation: Option<u32>) {
        self.message(ty, 0, (None, (0, 0)), |out, _| {
            wire::put_header(out, 0, SUBSYSTEM.into());
            if let Some(generation) = generation {
                put_be32(out, BATCH_GENERATION, generation);
            }
        });
    }

    fn simple(
        &mut self,
        kind: Kind,
        flags: u16,
        step: u32,
        table: &TableId,
        body: impl FnOnce(&mut Vec<u8>),
    ) {
        self.message(
            kind.message_type(),
            flags,
            (Some(step), (0, 0)),
            |out, _| {
                wire::put_header(out, table.family.number(), 0);
                body(out);
            },
        );
    }

    fn step(&mut self, step: &Step, at: u32) {
        match step {
            Step::AddTable(table) => self.simple(Kind::NewTable, CREATE, at, &table.id, |out| {
                wire::put_table(out, table);
            }),
            Step::DeleteTable(table) => self.simple(Kind::DelTable, 0, at, &table.id, |out| {
                wire::put_table_name(out, &table.id);
            }),
            Step::AddSet(set) => {
                let id = self.set_id();
                self.simple(Kind::NewSet, CREATE, at, &set.table, |out| {
                    wire::put_set(out, &set.table, set, id, set.size);
                });
            }
            Step::DeleteSet(set) => self.simple(Kind::DelSet, 0, at, &set.table, |out| {
                wire::put_set_name(out, &set.table, &set.name);
            }),
            Step::AddChain(chain) => self.simple(Kind::NewChain, CREATE, at, &chain.table, |out| {
                wire::put_chain(out, chain);
            }),
            Step::FlushChain(chain) => self.simple(Kind::DelRule, 0, at, &chain.table, |out| {
                wire::put_rules_of(out, chain);
            }),
            Step::DeleteChain(chain) => self.simple(Kind::DelChain, 0, at, &chain.table, |out| {
                wire::put_chain_name(out, chain);
            }),
            Step::AddRule(chain, place) => {
                if let Some(rule) = chain.rules.get(*place) {
                    self.rule(chain, rule, at);
                }
            }
            Step::AddElements(elements) => {
                self.elements(Kind::NewSetElem, CREATE, elements, None, None, at);
            }
            Step::DeleteElements(elements) => {
                self.elements(Kind::DelSetElem, 0, elements, None, None, at);
            }
        }
    }

    fn set_id(&mut self) -> u32 {
        let id = self.next_set_id;
        self.next_set_id += 1;
        id
    }

    /// Appends a rule, after its anonymous sets.
    fn rule(&mut self, chain: &Chain, rule: &Rule, at: u32) {
        let mut ids = Vec::new();
        for set in rule.sets() {
            if let SetRef::Anonymous(anonymous) = set {
                ids.push(self.anonymous(&chain.table, anonymous, at));
            }
        }
        self.simple(Kind::NewRule, CREATE | APPEND, at, &chain.table, |out| {
            wire::put_rule(out, chain, rule, &ids);
        });
    }

    fn anonymous(&mut self, table: &TableId, anonymous: &AnonymousSet, at: u32) -> u32 {
        let id = self.set_id();
        let AnonymousSet { set, elements } = anonymous;
        let members: usize = elements.iter().map(element::list_entries).sum();
        let size = set.flags.contains(SetFlags::CONSTANT).then_some(members);
        let size = size.and_then(|size| u32::try_from(size).ok());
        self.simple(Kind::NewSet, CREATE, at, table, |out| {
            wire::put_set(out, table, set, id, size);
        });
        self.elements(
            Kind::NewSetElem,
            CREATE,
            elements,
            Some(table),
            Some(id),
            at,
        );
        id
    }

    /// Appends elements of one set, split into messages at [`LIST_LIMIT`].
    fn elements(
        &mut self,
        kind: Kind,
        flags: u16,
        elements: &[Element],
        table: Option<&TableId>,
        set_id: Option<u32>,
        at: u32,
    ) {
        let mut done = 0;
        while let Some(first) = elements.get(done) {
            let table = table.unwrap_or(&first.set().table);
            let start = done;
            let rest = elements.get(done..).unwrap_or(&[]);
            self.message(
                kind.message_type(),
                flags,
                (Some(at), (0, 0)),
                |out, scratch| {
                    wire::put_header(out, table.family.number(), 0);
                    put_str(out, NFTA_SET_ELEM_LIST_TABLE, table.name.as_str());
                    put_str(out, NFTA_SET_ELEM_LIST_SET, first.set().name.as_str());
                    if let Some(id) = set_id {
                        put_be32(out, NFTA_SET_ELEM_LIST_SET_ID, id);
                    }
                    nest(out, NFTA_SET_ELEM_LIST_ELEMENTS, |out| {
                        let limit = out.len() + LIST_LIMIT;
                        for element in rest {
                            element::encode(out, element, scratch);
                            done += 1;
                            if out.len() > limit {
                                break;
                            }
                        }
                    });
                },
            );
            if let Some(message) = self.messages.last_mut() {
                let [start, count] = [start, done - start].map(|n| u32::try_from(n).unwrap_or(0));
                message.elements = (start, count);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use vipline_netlink::message::Messages;
    use vipline_reconcile::Edit;

    use super::*;
    use crate::{Datatype, Family, Name, Set, Table};

    fn table() -> TableId {
        TableId::new(Family::Ip, Name::new("t").unwrap())
    }

    /// Returns a transaction that adds a table and `count` ports to a set.
    fn ports(count: u16, flags: SetFlags) -> Transaction {
        let name = Name::new("s").unwrap();
        let set = Set::set(table(), name, [Datatype::InetService.into()]).with_flags(flags);
        let mut edits = vec![Edit::Add(Object::from(Table::new(table())))];
        edits.extend(
            (0..count).map(|port| Edit::Add(Object::from(set.element(&[port.into()]).unwrap()))),
        );
        Transaction::from_edits(&edits)
    }

    /// Returns the offset of an element in a message.
    fn place(batch: &Batch<'_>, message: usize, element: usize) -> usize {
        let start = batch.messages[message].start;
        let payload = &batch.bytes[start + 20..];
        let mut at = 20;
        for attr in Attrs::new(payload).map(Result::unwrap) {
            if attr.kind == NFTA_SET_ELEM_LIST_ELEMENTS {
                at += 4;
                for member in attr.attrs().map(Result::unwrap).take(element) {
                    at += 4 + member.value.len().next_multiple_of(4);
                }
                return at;
            }
            at += 4 + attr.value.len().next_multiple_of(4);
        }
        panic!("no elements");
    }

    #[test]
    fn only_the_last_message_requests_an_ack() {
        let transaction = ports(3, SetFlags::empty());
        let batch = transaction.encode(40, Some(9));
        let messages: Vec<_> = Messages::new(batch.bytes()).map(Result::unwrap).collect();
        let types: Vec<_> = messages.iter().map(|message| message.ty).collect();
        assert_eq!(types, [BATCH_BEGIN, 0x0a00, 0x0a0c, BATCH_END]);
        let acks: Vec<_> = messages
            .iter()
            .map(|message| message.flags & ACK != 0)
            .collect();
        assert_eq!(acks, [false, false, true, false]);
        let numbers: Vec<_> = messages.iter().map(|message| message.seq).collect();
        assert_eq!(numbers, [40, 41, 42, 43]);
        assert_eq!(messages[0].payload, [0, 0, 0, 10, 8, 0, 1, 0, 0, 0, 0, 9]);
    }

    #[test]
    fn an_offset_identifies_one_element_of_a_list() {
        let transaction = ports(9, SetFlags::empty());
        let batch = transaction.encode(40, None);
        let offset = |element| u32::try_from(place(&batch, 2, element)).unwrap() + 4;
        let named = |offset| batch.operation(42, offset).unwrap().to_string();
        assert_eq!(named(Some(offset(0))), "add element ip t s { 0 }");
        assert_eq!(named(Some(offset(8))), "add element ip t s { 8 }");
        assert_eq!(named(None), "add 9 elements ip t s { 0, …, 8 }");
        assert_eq!(named(Some(1 << 20)), named(None));
    }

    #[test]
    fn an_offset_in_either_end_identifies_the_interval() {
        let transaction = ports(9, SetFlags::INTERVAL);
        let batch = transaction.encode(40, None);
        for end in [10, 11] {
            let offset = u32::try_from(place(&batch, 2, end)).unwrap();
            let operation = batch.operation(42, Some(offset)).unwrap();
            assert_eq!(operation.to_string(), "add element ip t s { 5 }");
        }
    }

    #[test]
    fn an_unknown_sequence_number_has_no_operation() {
        let transaction = ports(1, SetFlags::empty());
        let batch = transaction.encode(40, None);
        assert_eq!(batch.operation(39, None), None);
        assert_eq!(batch.operation(44, None), None);
        assert_eq!(
            batch.operation(43, None).unwrap().to_string(),
            "commit transaction"
        );
        assert_eq!(
            batch.operation(41, None).unwrap().to_string(),
            "add table ip t"
        );
    }

    #[test]
    fn long_lists_are_split_before_their_length_overflows() {
        let transaction = ports(30_000, SetFlags::INTERVAL);
        let batch = transaction.encode(0, None);
        let mut count = 0;
        for message in Messages::new(batch.bytes()).map(Result::unwrap) {
            if message.ty == Kind::NewSetElem.message_type() {
                assert!(message.payload.len() <= usize::from(u16::MAX));
                element::decode_list(message.payload, |_| count += 1).unwrap();
            }
        }
        assert_eq!(count, 60_000);
        let last = batch.messages[batch.messages.len() - 2].elements;
        assert_eq!(last.0 + last.1, 30_000);
    }
}
