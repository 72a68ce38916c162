//! The client: dumps and commits over a netlink socket.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]

mod single;

mod rules;

mod destroy;

mod request;

#[cfg(test)]
mod tests;

use std::collections::HashSet;

use vipline_netlink::message::Message;
use vipline_netlink::{Dump, KernelError, Outcome, Protocol, Rejected, Requester};

use crate::error::rejected_transaction;
use crate::wire::added::{echo_buffer, request_echo};
use crate::wire::hooks::{self, HookEntry};
use crate::wire::{self, Query};
use crate::{
    Action, Assembler, Batch, DumpOptions, Element, Error, Family, Generation, Handle, Hook,
    Operation, RecordedDump, RecordedMessage, Ruleset, Set, Subject, TableId, Transaction,
};

use request::{Requested, may_be_unknown, operation};

/// Maximum number of attempts to get a consistent dump.
pub(crate) const ATTEMPTS: usize = 10;

/// A connection to nf_tables of one network namespace.
///
/// The client stays in the network namespace in which it was opened.
/// Reuse it: the first transaction on a new socket takes milliseconds.
/// Methods block until the kernel has replied, at most 10 s per request
/// ([`Error::Netlink`]).
#[derive(Debug)]
pub struct Client {
    requester: Requester<Operation>,
    /// Whether the kernel has the messages `NFT_MSG_DESTROY*`; `None`: not yet asked.
    has_destroy: Option<bool>,
}

impl Client {
    /// Opens a connection in the network namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`]: the kernel has no nfnetlink. Missing nf_tables or
    /// a missing capability is reported by the first dump or commit.
    pub fn open() -> Result<Self, Error> {
        Ok(Self {
            requester: Requester::open(Protocol::NETFILTER)?,
            has_destroy: None,
        })
    }

    /// Dumps all objects in `tables`: one table, or a list. Skips tables that do not exist.
    ///
    /// The result is a consistent snapshot: the dump restarts if the ruleset
    /// changes, up to ten times.
    /// Elements of [dynamic](Set::is_dynamic) sets and of meters are not included, because
    /// packets and timeouts change them. [`dump_with`](Self::dump_with) includes them, and
    /// [`elements`](Self::elements) returns those of one set.
    /// [`Ruleset::generation`] returns the generation of the snapshot, which
    /// [`commit_at`](Self::commit_at) can require.
    ///
    /// # Errors
    ///
    /// [`Error::Interrupted`]: the ruleset changed during every attempt.
    /// [`Error::Denied`], [`Error::Kernel`] and others: a request failed.
    pub fn dump(&mut self, tables: &(impl AsRef<[TableId]> + ?Sized)) -> Result<Ruleset, Error> {
        self.dump_with(tables, DumpOptions::default())
    }

    /// Dumps the objects in `tables` that the options select.
    ///
    /// # Errors
    ///
    /// As [`dump`](Self::dump).
    pub fn dump_with(
        &mut self,
        tables: &(impl AsRef<[TableId]> + ?Sized),
        options: DumpOptions,
    ) -> Result<Ruleset, Error> {
        let tables = tables.as_ref();
        let dump = Dump::repeat(ATTEMPTS, || {
            self.try_dump(Assembler::new(tables), tables, options)
        })?;
        let (ruleset, _) = dump.complete().ok_or_else(interrupted)?;
        Ok(ruleset)
    }

    /// Dumps the objects in `tables` that the options select, as the messages of the kernel.
    ///
    /// # Errors
    ///
    /// As [`dump`](Self::dump).
    pub fn record(
        &mut self,
        tables: &(impl AsRef<[TableId]> + ?Sized),
        options: DumpOptions,
    ) -> Result<RecordedDump, Error> {
        let tables = tables.as_ref();
        let dump = Dump::repeat(ATTEMPTS, || {
            self.try_dump(Assembler::recording(tables), tables, options)
        })?;
        let (_, messages) = dump.complete().ok_or_else(interrupted)?;
        let tables = tables.to_vec();
        Ok(RecordedDump { tables, messages })
    }

    /// Dumps the elements of a set. `set` must match the set in the kernel.
    ///
    /// # Errors
    ///
    /// [`Error::is_not_found`]: the set does not exist.
    /// [`Error::Interrupted`]: the ruleset changed during every attempt.
    /// [`Error::Denied`], [`Error::Kernel`] and others: a request failed.
    pub fn elements(&mut self, set: &Set) -> Result<Vec<Element>, Error> {
        let dump = Dump::repeat(ATTEMPTS, || {
            let mut assembler = Assembler::for_set(set);
            let is_complete = self.dump_query(Query::Elements(set), &mut assembler)?;
            let ruleset = assembler.finish();
            Ok::<_, Error>(match is_complete && has_no_duplicates(&ruleset) {
                true => Dump::Complete(ruleset),
                false => Dump::Interrupted(ruleset),
            })
        })?;
        let ruleset = dump.complete();
        ruleset
            .map(|ruleset| ruleset.into_elements().collect())
            .ok_or_else(interrupted)
    }

    /// Returns what the kernel runs at a hook for packets of a family, in order: base chains of
    /// all tables, also those with equal priorities, and functions of other modules.
    ///
    /// `family` is [`Family::Ip`] or [`Family::Ip6`]; tables of family `inet` have chains at the
    /// hooks of both. Hooks of devices are not listed.
    ///
    /// # Errors
    ///
    /// [`Error::KernelTooOld`]: the kernel is older than Linux 5.14, or lacks
    /// `CONFIG_NETFILTER_NETLINK_HOOK`.
    /// [`Error::Interrupted`]: the functions changed during every attempt.
    /// [`Error::Denied`], [`Error::Kernel`] and others: the request failed.
    pub fn hooks(&mut self, family: Family, hook: Hook) -> Result<Vec<HookEntry>, Error> {
        let mut payload = Vec::new();
        if hooks::encode_request(family, hook, &mut payload).is_none() {
            return Ok(Vec::new());
        }
        let object = format!("{hook} of family {family}");
        let operation = "list hook";
        let listed = self.requester.list(
            vipline_netlink::Request::new(hooks::GET_HOOK, operation, &object),
            ATTEMPTS,
            |out| out.extend_from_slice(&payload),
            Vec::new,
            |all, message| {
                if message.ty == hooks::GET_HOOK {
                    all.push(HookEntry::decode(message.payload, family, hook)?);
                }
                Ok(())
            },
        );
        listed.map_err(|error| match may_be_unknown(&error) {
            true => Error::KernelTooOld {
                operation,
                object: object.into(),
                since: hooks::SINCE,
            },
            false => error,
        })
    }

    /// Applies a transaction atomically, with a single system call.
    ///
    /// An empty transaction is not sent.
    ///
    /// # Errors
    ///
    /// [`Error::Rejected`] names every operation that the kernel rejected.
    /// [`Error::Denied`], [`Error::Unsupported`], and [`Error::Netlink`] with
    /// [`BatchTooLarge`](vipline_netlink::Error::BatchTooLarge): nothing was applied.
    /// [`Error::may_be_applied`] returns for each error whether the transaction may have
    /// been applied.
    pub fn commit(&mut self, transaction: &Transaction) -> Result<(), Error> {
        self.commit_with(transaction, None)
    }

    /// Applies a transaction if the ruleset still has this generation.
    ///
    /// Dump, difference and commit are then atomic: if another process changed any table
    /// of the network namespace since the dump, the kernel applies nothing.
    ///
    /// ```no_run
    /// use vipline_nftables::{Client, Error, Object, TableId, Transaction, diff};
    ///
    /// fn replace(client: &mut Client, table: TableId, desired: &[Object]) -> Result<(), Error> {
    ///     loop {
    ///         let installed = client.dump(&table)?;
    ///         let generation = installed.generation();
    ///         let transaction = Transaction::from_edits(&diff(installed, desired));
    ///         match client.commit_at(&transaction, generation) {
    ///             Err(Error::Outdated) => {}
    ///             result => return result,
    ///         }
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Outdated`]: the ruleset has another generation. Others as
    /// [`commit`](Self::commit).
    pub fn commit_at(
        &mut self,
        transaction: &Transaction,
        generation: Generation,
    ) -> Result<(), Error> {
        self.commit_with(transaction, Some(generation))
    }

    fn commit_with(
        &mut self,
        transaction: &Transaction,
        generation: Option<Generation>,
    ) -> Result<(), Error> {
        if transaction.is_empty() {
            return Ok(());
        }
        let first = self.requester.socket().sequence();
        let batch = transaction.encode(first, generation.map(|Generation(number)| number));
        match self.send_batch(batch.bytes())? {
            Outcome::Committed => Ok(()),
            Outcome::Rejected { errors, omitted } => {
                Err(rejected_operations(&batch, errors, omitted))
            }
            Outcome::Unknown(error) => Err(error.into()),
        }
    }

    /// Returns the sequence number of the next request.
    pub(crate) fn sequence(&self) -> u32 {
        self.requester.socket().sequence()
    }

    /// Sends a batch that this crate encoded.
    pub(crate) fn send_batch(&mut self, batch: &[u8]) -> Result<Outcome, Error> {
        Ok(self.requester.socket_mut().batch(batch)?)
    }

    /// Sends a batch that this crate encoded, and calls `each` for every notification
    /// that a message with `NLM_F_ECHO` requested.
    pub(crate) fn send_batch_with_echo(
        &mut self,
        batch: &[u8],
        each: impl FnMut(Message<'_>),
    ) -> Result<Outcome, Error> {
        Ok(self.requester.socket_mut().batch_with_echo(batch, each)?)
    }

    /// Sends a batch, and returns the handles of the added objects with the sequence numbers
    /// of their messages.
    pub(crate) fn send_batch_for_handles(
        &mut self,
        mut batch: Vec<u8>,
    ) -> Result<(Outcome, Vec<(u32, Handle)>), Error> {
        request_echo(&mut batch);
        self.requester
            .socket()
            .set_recv_buffer_size(echo_buffer(batch.len()))?;
        let mut handles = Vec::new();
        let outcome = self.send_batch_with_echo(&batch, |message| {
            if let Ok(Some(handle)) = Handle::read(&message) {
                handles.push((message.seq, handle));
            }
        })?;
        Ok((outcome, handles))
    }

    /// Returns the current generation of the ruleset.
    ///
    /// A generation that differs from that of the last dump or commit means that
    /// another process changed the ruleset.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`]: the kernel has no nf_tables.
    /// [`Error::Denied`]: `CAP_NET_ADMIN` is missing.
    pub fn generation(&mut self) -> Result<Generation, Error> {
        let query = Query::Generation;
        let generation = self.requester.get(
            vipline_netlink::Request::new(
                query.message_type(),
                operation(&query),
                &Requested(&query),
            ),
            |payload| query.encode(payload),
            |message| Ok(Some(wire::generation(message.payload)?)),
        );
        generation.map(Generation).map_err(Error::into_unsupported)
    }

    /// Dumps tables once, and detects changes of the ruleset meanwhile.
    fn try_dump(
        &mut self,
        assembler: Assembler,
        tables: &[TableId],
        options: DumpOptions,
    ) -> Result<Dump<(Ruleset, Vec<RecordedMessage>)>, Error> {
        let before = self.generation()?;
        match self.dump_parts(assembler, tables, options) {
            Ok(Some((mut ruleset, messages))) => {
                ruleset.generation = before;
                let is_current = self.generation()? == before;
                Ok(match is_current && has_no_duplicates(&ruleset) {
                    true => Dump::Complete((ruleset, messages)),
                    false => Dump::Interrupted((ruleset, messages)),
                })
            }
            Ok(None) => Ok(Dump::Interrupted(Default::default())),
            // An object was deleted during the dump.
            Err(error) if error.is_not_found() => Ok(Dump::Interrupted(Default::default())),
            Err(error) => Err(error),
        }
    }

    /// Dumps the parts of tables. Returns `None` if the kernel reports an interrupted
    /// dump.
    fn dump_parts(
        &mut self,
        mut assembler: Assembler,
        tables: &[TableId],
        options: DumpOptions,
    ) -> Result<Option<(Ruleset, Vec<RecordedMessage>)>, Error> {
        let mut present: Vec<&TableId> = Vec::new();
        for table in tables {
            let reply = self.request(Query::Table(table), |message| {
                Ok(assembler.push(message.ty, message.payload)?)
            });
            match reply {
                Ok(()) => present.push(table),
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        let mut families: Vec<Family> = present.iter().map(|table| table.family).collect();
        families.sort_unstable();
        families.dedup();
        let chains = families.into_iter().map(Query::Chains);
        let parts = present.into_iter().flat_map(|table| {
            let objects = [Query::Stateful(table), Query::Flowtables(table)];
            objects
                .into_iter()
                .chain([Query::Rules(table), Query::Sets(table)])
        });
        for query in chains.chain(parts) {
            if !self.dump_query(query, &mut assembler)? {
                return Ok(None);
            }
        }
        let is_selected = |set: &&Set| options.dynamic_elements || !set.is_dynamic();
        let sets = assembler.sets().iter().filter(is_selected);
        for set in sets.cloned().collect::<Vec<_>>() {
            if !self.dump_query(Query::Elements(&set), &mut assembler)? {
                return Ok(None);
            }
        }
        let messages = assembler.take_recorded();
        Ok(Some((assembler.finish(), messages)))
    }

    /// Sends a request for a single object.
    pub(crate) fn request(
        &mut self,
        query: Query<'_>,
        each: impl FnMut(Message<'_>) -> Result<(), vipline_netlink::Error>,
    ) -> Result<(), Error> {
        self.requester.request(
            vipline_netlink::Request::new(
                query.message_type(),
                operation(&query),
                &Requested(&query),
            ),
            |payload| query.encode(payload),
            each,
        )
    }

    /// Sends a dump request. Returns false if the dump was interrupted.
    fn dump_query(&mut self, query: Query<'_>, assembler: &mut Assembler) -> Result<bool, Error> {
        let dump = self.dump_messages(query, |message| {
            Ok(assembler.push(message.ty, message.payload)?)
        })?;
        Ok(matches!(dump, Dump::Complete(())))
    }

    /// Sends a dump request, and calls `each` for every message of the reply.
    pub(crate) fn dump_messages(
        &mut self,
        query: Query<'_>,
        mut each: impl FnMut(Message<'_>) -> Result<(), vipline_netlink::Error>,
    ) -> Result<Dump<()>, Error> {
        self.requester.dump(
            vipline_netlink::Request::new(
                query.message_type(),
                operation(&query),
                &Requested(&query),
            ),
            1,
            |payload| query.encode(payload),
            || (),
            |(), message| each(message),
        )
    }
}

vipline_netlink::impl_client!(Client, requester);

/// Returns the error if the ruleset changed during every attempt.
pub(crate) fn interrupted() -> Error {
    Error::Interrupted {
        operation: "read",
        object: "the ruleset".into(),
        attempts: ATTEMPTS,
    }
}

/// Returns whether no element was dumped twice.
///
/// The kernel resizes the hash table of a set after a commit. A resize during a
/// dump restarts the walk: some elements are dumped twice, others are missing.
fn has_no_duplicates(ruleset: &Ruleset) -> bool {
    let mut keys = HashSet::new();
    let mut sets = ruleset
        .tables
        .values()
        .flat_map(|content| content.sets.values());
    sets.all(|(_, elements)| {
        keys.clear();
        keys.reserve(elements.len());
        elements
            .iter()
            .all(|element| keys.insert(element.key_bytes()))
    })
}

/// Maps rejected messages to the operations of the batch.
pub(crate) fn rejected_operations(
    batch: &Batch<'_>,
    errors: Vec<KernelError>,
    more: Option<usize>,
) -> Error {
    let whole = || Operation::new(Action::Commit, Subject::Transaction);
    let rejected = errors
        .into_iter()
        .map(|error| {
            let operation = batch.operation(error.seq, error.offset);
            Rejected::from_kernel(operation.unwrap_or_else(whole), error)
        })
        .collect();
    rejected_transaction(rejected, more)
}
