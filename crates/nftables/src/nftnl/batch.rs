//! Encoding of transactions with libnftnl.
#![forbid(unsafe_code)]

use vipline_netlink::message::{APPEND, CREATE};

use super::{Kind as ObjectKind, Message, Object, exprs, objects, unsupported};
use crate::expr::{AnonymousSet, SetRef};
use crate::transaction::Step;
use crate::wire::Kind;
use crate::wire::batch;
use crate::wire::element::{
    self, NFTA_SET_ELEM_LIST_ELEMENTS, NFTA_SET_ELEM_LIST_SET, NFTA_SET_ELEM_LIST_SET_ID,
    NFTA_SET_ELEM_LIST_TABLE,
};
use crate::wire::encoder::{BATCH_GENERATION, LIST_LIMIT};
use crate::{Batch, Chain, Element, Error, Name, Rule, SetFlags, TableId, Transaction};

/// Encodes a transaction: see [`encode`](super::encode).
pub(super) fn encode(
    transaction: &Transaction,
    sequence: u32,
    generation: Option<u32>,
) -> Result<Batch<'_>, Error> {
    if transaction.destroys {
        return Err(unsupported("the deletion of objects that may not exist"));
    }
    let mut encoder = Encoder {
        out: Vec::new(),
        sequence,
        messages: Vec::new(),
        next_set_id: 1,
    };
    let mut begin = Message::batch_begin(encoder.next_sequence());
    if let Some(generation) = generation {
        begin.put(BATCH_GENERATION, &generation.to_be_bytes());
    }
    encoder.take(&begin, None, (0, 0));
    for (step, place) in transaction.steps.iter().zip(0..) {
        encoder.step(step, place)?;
    }
    encoder.acknowledge_last();
    let end = Message::batch_end(encoder.next_sequence());
    encoder.take(&end, None, (0, 0));
    Ok(Batch::from_parts(
        transaction,
        encoder.out,
        sequence,
        encoder.messages,
    ))
}

/// Encodes a batch.
struct Encoder {
    out: Vec<u8>,
    sequence: u32,
    messages: Vec<batch::Message>,
    next_set_id: u32,
}

impl Encoder {
    /// Returns the sequence number of the next message.
    fn next_sequence(&self) -> u32 {
        let done = u32::try_from(self.messages.len()).unwrap_or(u32::MAX);
        self.sequence.wrapping_add(done)
    }

    /// Appends a message and records its operation.
    fn take(&mut self, message: &Message, step: Option<u32>, elements: (u32, u32)) {
        self.messages.push(batch::Message {
            start: self.out.len(),
            step,
            elements,
        });
        let bytes = message.words().iter().flat_map(|word| word.to_ne_bytes());
        self.out.extend(bytes);
    }

    /// Sets `NLM_F_ACK` in the last message.
    fn acknowledge_last(&mut self) {
        let start = self.messages.last().map_or(0, |message| message.start);
        batch::acknowledge(&mut self.out, start);
    }

    fn begin(&self, kind: Kind, flags: u16, table: &TableId) -> Message {
        let family = table.family.number();
        Message::new(kind as u16, family, flags, self.next_sequence())
    }

    /// Appends the message for one object.
    fn object<K: ObjectKind>(
        &mut self,
        kind: Kind,
        flags: u16,
        step: u32,
        table: &TableId,
        object: &Object<K>,
    ) {
        let mut message = self.begin(kind, flags, table);
        message.push(object);
        self.take(&message, Some(step), (0, 0));
    }

    fn step(&mut self, step: &Step, at: u32) -> Result<(), Error> {
        match step {
            Step::AddTable(table) => {
                let object = objects::table(table);
                self.object(Kind::NewTable, CREATE, at, &table.id, &object);
            }
            Step::DeleteTable(table) => {
                let object = objects::table_name(&table.id);
                self.object(Kind::DelTable, 0, at, &table.id, &object);
            }
            Step::AddStateful(_)
            | Step::DeleteStateful(_)
            | Step::AddFlowtable(_)
            | Step::DeleteFlowtable(_) => {
                return Err(unsupported("stateful objects and flowtables"));
            }
            Step::AddSet(set) => {
                let object = objects::set(&set.table, set, self.set_id(), set.size)?;
                self.object(Kind::NewSet, CREATE, at, &set.table, &object);
            }
            Step::DeleteSet(set) => {
                let object = objects::set_name(&set.table, &set.name);
                self.object(Kind::DelSet, 0, at, &set.table, &object);
            }
            Step::AddChain(chain) => {
                let object = objects::chain(chain)?;
                self.object(Kind::NewChain, CREATE, at, &chain.table, &object);
            }
            Step::FlushChain(chain) => {
                let object = exprs::rules_of(chain);
                self.object(Kind::DelRule, 0, at, &chain.table, &object);
            }
            Step::DeleteChain(chain) => {
                let object = objects::chain_name(chain);
                self.object(Kind::DelChain, 0, at, &chain.table, &object);
            }
            Step::AddRule(chain, place) => {
                if let Some(rule) = chain.rules.get(*place) {
                    self.rule(chain, rule, at)?;
                }
            }
            Step::AddElements(elements) => {
                self.elements(Kind::NewSetElem, CREATE, elements, None, at)?;
            }
            Step::DeleteElements(elements) => {
                self.elements(Kind::DelSetElem, 0, elements, None, at)?;
            }
        }
        Ok(())
    }

    fn set_id(&mut self) -> u32 {
        let id = self.next_set_id;
        self.next_set_id += 1;
        id
    }

    /// Appends a rule, after its anonymous sets.
    fn rule(&mut self, chain: &Chain, rule: &Rule, at: u32) -> Result<(), Error> {
        let mut ids = Vec::new();
        for set in rule.sets() {
            if let SetRef::Anonymous(anonymous) = set {
                ids.push(self.anonymous(&chain.table, anonymous, at)?);
            }
        }
        let object = exprs::rule(chain, rule, &ids)?;
        self.object(Kind::NewRule, CREATE | APPEND, at, &chain.table, &object);
        Ok(())
    }

    fn anonymous(&mut self, table: &TableId, set: &AnonymousSet, at: u32) -> Result<u32, Error> {
        let id = self.set_id();
        let AnonymousSet { set, elements } = set;
        let members: usize = elements
            .iter()
            .zip(1..)
            .map(|(element, next)| element::list_entries(element, elements.get(next)))
            .sum();
        let members = u32::try_from(members).ok();
        let is_constant = set.flags.contains(SetFlags::CONSTANT);
        let size = set.size.max(members.filter(|_| is_constant));
        let object = objects::set(table, set, id, size)?;
        self.object(Kind::NewSet, CREATE, at, table, &object);
        let place = Some((table, &set.name, id));
        self.elements(Kind::NewSetElem, CREATE, elements, place, at)?;
        Ok(id)
    }

    /// Appends elements of one set, split into messages at [`LIST_LIMIT`].
    ///
    /// `place` is table, name and ID of an anonymous set.
    fn elements(
        &mut self,
        kind: Kind,
        flags: u16,
        elements: &[Element],
        place: Option<(&TableId, &Name, u32)>,
        at: u32,
    ) -> Result<(), Error> {
        let mut done = 0;
        while let Some(first) = elements.get(done) {
            let set = first.set();
            let (table, name) =
                place.map_or((&set.table, &set.name), |(table, name, _)| (table, name));
            let start = done;
            let mut message = self.begin(kind, flags, table);
            let text = |text: &str| [text.as_bytes(), &[0]].concat();
            message.put(NFTA_SET_ELEM_LIST_TABLE, &text(table.name.as_str()));
            message.put(NFTA_SET_ELEM_LIST_SET, &text(name.as_str()));
            if let Some((_, _, id)) = place {
                message.put(NFTA_SET_ELEM_LIST_SET_ID, &id.to_be_bytes());
            }
            let mut result = Ok(());
            message.nest(NFTA_SET_ELEM_LIST_ELEMENTS, |message| {
                let limit = message.len() + LIST_LIMIT;
                for element in elements.get(start..).unwrap_or(&[]) {
                    result = objects::element(element).map(|(first, end)| {
                        message.push(&first);
                        end.iter().for_each(|end| message.push(end));
                    });
                    done += 1;
                    if result.is_err() || message.len() > limit {
                        break;
                    }
                }
            });
            result?;
            let [start, count] = [start, done - start].map(|n| u32::try_from(n).unwrap_or(0));
            self.take(&message, Some(at), (start, count));
        }
        Ok(())
    }
}
