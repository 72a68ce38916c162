//! Single objects: one call adds, deletes or returns one object. Commits that return handles.

use vipline_netlink::Outcome;

use super::rejected_operations;
use super::request::{may_be_unknown, too_old};
use super::rules::found_unless_missing;
use crate::wire::{self, Query};
use crate::{
    Added, Assembler, Client, Edit, Element, Error, Generation, Object, StatefulObject, TableId,
    Transaction,
};

impl Client {
    /// Returns an element of the kernel with the key of `element`, including its data,
    /// its counters and its remaining lifetime.
    ///
    /// In a set with intervals, returns the element that contains the key. Returns `None`
    /// if there is no such element, or no such set.
    ///
    /// # Errors
    ///
    /// [`Error::Denied`], [`Error::Kernel`] and others: the request failed.
    pub fn element(&mut self, element: &Element) -> Result<Option<Element>, Error> {
        let mut assembler = Assembler::for_set(element.set());
        let reply = self.request(Query::Element(element), |message| {
            Ok(assembler.push(message.ty, message.payload)?)
        });
        found_unless_missing(reply, || assembler.finish().into_elements().next())
    }

    /// Resets the counters and quotas of one element. Returns the element of the kernel with
    /// the values before the reset, or `None` if there is no such element or set.
    ///
    /// The key is that of `element`, as for [`element`](Self::element). No packet is lost:
    /// the kernel reads and resets a value in one step.
    ///
    /// # Errors
    ///
    /// [`Error::KernelTooOld`]: the kernel is older than Linux 6.5.
    /// [`Error::Denied`], [`Error::Kernel`] and others: the request failed.
    pub fn reset_element(&mut self, element: &Element) -> Result<Option<Element>, Error> {
        let mut assembler = Assembler::for_set(element.set());
        let query = Query::ResetElement(element);
        let reply = self.request(query, |message| {
            Ok(assembler.push(message.ty, message.payload)?)
        });
        let probe = Query::Element(element);
        let reply = self.explain_unknown(reply, (query, "6.5"), probe);
        found_unless_missing(reply, || assembler.finish().into_elements().next())
    }

    /// Replaces the error of a request that the kernel does not know.
    ///
    /// The kernel also rejects invalid requests with `EINVAL`. It knows the request if it
    /// rejects `probe`, which has the same content, in the same way.
    pub(crate) fn explain_unknown<T>(
        &mut self,
        reply: Result<T, Error>,
        (query, since): (Query<'_>, &'static str),
        probe: Query<'_>,
    ) -> Result<T, Error> {
        match reply {
            Err(error) if may_be_unknown(&error) => {
                let probed = self.request(probe, |_| Ok(()));
                Err(match probed.is_err_and(|error| may_be_unknown(&error)) {
                    true => error,
                    false => too_old(&query, since),
                })
            }
            reply => reply,
        }
    }

    /// Resets the named counters and quotas of a table. Returns all stateful objects of the
    /// table with the values before the reset. A missing table has no objects.
    ///
    /// No packet is lost: the kernel reads and resets a value in one step.
    ///
    /// # Errors
    ///
    /// [`Error::Denied`], [`Error::Kernel`] and others: the request failed.
    pub fn reset_objects(&mut self, table: &TableId) -> Result<Vec<StatefulObject>, Error> {
        let mut objects = Vec::new();
        // A repetition would return zeros. Values of an interrupted dump are correct.
        let dump = self.dump_messages(Query::ResetStateful(table), |message| {
            let (_, attrs) = wire::split_header(message.payload)?;
            objects.push(wire::stateful::decode(table.family, attrs)?);
            Ok(())
        })?;
        dump.into_inner();
        Ok(objects)
    }

    /// Adds one object: a table, a chain with its rules, a set, an element, a stateful
    /// object or a flowtable.
    ///
    /// An existing table, set or element remains as it is. An existing chain gets the
    /// policy and the rules in addition to its own. [`add_rule`](Self::add_rule) adds a
    /// single rule.
    ///
    /// # Errors
    ///
    /// As [`commit`](Self::commit). [`Error::is_already_exists`]: an object of this name
    /// has other properties, or an element has other data.
    pub fn add(&mut self, object: impl Into<Object>) -> Result<(), Error> {
        self.commit(&Transaction::from_edits(&[Edit::Add(object.into())]))
    }

    /// Deletes one object: a table with its content, a chain with its rules, a set with
    /// its elements, an element, a stateful object or a flowtable.
    ///
    /// # Errors
    ///
    /// As [`commit`](Self::commit). [`Error::is_not_found`]: there is no such object.
    /// [`Error::is_busy`]: a rule uses the chain or the set.
    pub fn delete(&mut self, object: impl Into<Object>) -> Result<(), Error> {
        self.commit(&Transaction::from_edits(&[Edit::Remove(object.into())]))
    }

    /// Applies a transaction, and returns the handles of the tables, chains and rules that
    /// the commit added, in the order of the transaction.
    ///
    /// With a `generation`, applies the transaction as [`commit_at`](Self::commit_at). A
    /// table that existed before is not in the list; a chain is.
    ///
    /// ```no_run
    /// use vipline_nftables::{Added, Client, Error, RuleHandle, Transaction};
    ///
    /// fn rules(client: &mut Client, transaction: &Transaction) -> Result<Vec<RuleHandle>, Error> {
    ///     let added = client.commit_with_handles(transaction, None)?;
    ///     Ok(added.iter().filter_map(Added::rule_handle).collect())
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Overrun`]: the transaction may have been applied, but handles were lost. Others as
    /// [`commit_at`](Self::commit_at).
    pub fn commit_with_handles(
        &mut self,
        transaction: &Transaction,
        generation: Option<Generation>,
    ) -> Result<Vec<Added>, Error> {
        if transaction.is_empty() {
            return Ok(Vec::new());
        }
        let first = self.sequence();
        let batch = transaction.encode(first, generation.map(|Generation(number)| number));
        let bytes = batch.bytes().to_vec();
        let (outcome, handles) = self.send_batch_for_handles(bytes)?;
        match outcome {
            Outcome::Committed => {
                let added = handles.into_iter().filter_map(|(sequence, handle)| {
                    let operation = batch.operation(sequence, None)?;
                    Some(Added { operation, handle })
                });
                Ok(added.collect())
            }
            Outcome::Rejected { errors, omitted } => {
                Err(rejected_operations(&batch, errors, omitted))
            }
            Outcome::Unknown(error) => Err(error.into()),
        }
    }
}
