//! Batches: encoded transactions.

use vipline_netlink::attr::{Attr, Attrs};
use vipline_netlink::message::NLM_F_ACK;

use super::element::{self, NFTA_SET_ELEM_LIST_ELEMENTS};
use crate::transaction::Step;
use crate::transaction::{Action, Operation, Subject};
use crate::{Element, Object, Transaction};

/// Length of `struct nlmsghdr` and `struct nfgenmsg`.
const HEADERS: usize = 16 + 4;
/// Length of `struct nlattr`.
const ATTR: usize = 4;

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
    /// Creates a batch from encoded messages.
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
        let index = usize::try_from(sequence.wrapping_sub(self.sequence)).ok()?;
        let message = self.messages.get(index)?;
        let Some(step) = message.step else {
            let (action, subject) = (Action::Commit, Subject::Transaction);
            return Some(Operation { action, subject });
        };
        let step = self.transaction.steps.get(usize::try_from(step).ok()?)?;
        let subject = match step {
            Step::AddElements(all) | Step::DeleteElements(all) => {
                self.elements(message, all, offset)?
            }
            step => subject(step)?,
        };
        let action = self.transaction.action(step);
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
        let offset = usize::try_from(offset).ok()?;
        let payload = self.bytes.get(message.start + HEADERS..)?;
        let (start, list) = element_list(payload)?;
        let mut end = HEADERS + start;
        let ends = list.attrs().map_while(Result::ok).map(|entry| {
            end += ATTR + entry.value.len().next_multiple_of(4);
            end
        });
        let entries = elements.iter().zip(1..).flat_map(|(element, next)| {
            let count = element::list_entries(element, elements.get(next));
            std::iter::repeat_n(element, count)
        });
        entries
            .zip(ends)
            .find(|(_, end)| offset < *end)
            .map(|(element, _)| element)
    }
}

/// Returns the subject of a step without elements.
fn subject(step: &Step) -> Option<Subject> {
    let object: Object = match step {
        Step::AddTable(table) | Step::DeleteTable(table) => table.clone().into(),
        Step::AddStateful(object) | Step::DeleteStateful(object) => object.clone().into(),
        Step::AddFlowtable(flowtable) | Step::DeleteFlowtable(flowtable) => {
            flowtable.clone().into()
        }
        Step::AddSet(set) | Step::DeleteSet(set) => set.clone().into(),
        Step::AddChain(chain) | Step::FlushChain(chain) | Step::DeleteChain(chain) => {
            chain.clone().into()
        }
        Step::AddRule(chain, index) => {
            let rule = chain.rules.get(*index)?.clone();
            return Some(Subject::Rule(Box::new(chain.clone()), Box::new(rule)));
        }
        Step::AddElements(_) | Step::DeleteElements(_) => return None,
    };
    Some(Subject::Object(Box::new(object)))
}

/// Returns the element list of a payload, and the offset of its first entry.
fn element_list(payload: &[u8]) -> Option<(usize, Attr<'_>)> {
    let mut at = 0;
    for attr in Attrs::new(payload) {
        let attr = attr.ok()?;
        if attr.kind == NFTA_SET_ELEM_LIST_ELEMENTS {
            return Some((at + ATTR, attr));
        }
        at += ATTR + attr.value.len().next_multiple_of(4);
    }
    None
}

/// Sets `NLM_F_ACK` in the message at offset `start`.
pub(crate) fn acknowledge(messages: &mut [u8], start: usize) {
    // The flags follow length and type in `struct nlmsghdr`.
    if let Some([low, high]) = messages.get_mut(start + 6..start + 8) {
        let flags = u16::from_ne_bytes([*low, *high]) | NLM_F_ACK;
        [*low, *high] = flags.to_ne_bytes();
    }
}

#[cfg(test)]
mod tests {
    use vipline_netlink::message::Messages;
    use vipline_reconcile::Edit;

    use super::*;
    use crate::wire::encoder::{NFNL_MSG_BATCH_BEGIN, NFNL_MSG_BATCH_END};
    use crate::wire::message_types::*;
    use crate::{Datatype, Family, Name, Set, SetFlags, Table, TableId};

    fn table() -> TableId {
        TableId::new(Family::Ip, Name::new("t").unwrap())
    }

    /// Returns a transaction that adds a table and `count` ports to a set.
    fn ports(count: u16, flags: SetFlags) -> Transaction {
        let name = Name::new("s").unwrap();
        let set = Set::new(table(), name, [Datatype::InetService]).with_flags(flags);
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
        assert_eq!(
            types,
            [NFNL_MSG_BATCH_BEGIN, 0x0a00, 0x0a0c, NFNL_MSG_BATCH_END]
        );
        let acks: Vec<_> = messages
            .iter()
            .map(|message| message.flags & NLM_F_ACK != 0)
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
            if message.ty == message_type(NFT_MSG_NEWSETELEM) {
                assert!(message.payload.len() <= usize::from(u16::MAX));
                element::decode_list(message.payload, |_| count += 1).unwrap();
            }
        }
        assert_eq!(count, 60_000);
        let last = batch.messages[batch.messages.len() - 2].elements;
        assert_eq!(last.0 + last.1, 30_000);
    }
}
