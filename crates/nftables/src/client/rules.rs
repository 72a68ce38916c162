//! Single tables, chains and rules: dumps, changes of one rule, and commits of batches.
//!
//! For callers who change a chain that others write, too, such as the nft variant of iptables:
//! they name a rule by its handle, which a dump tells, or for a new rule the echo of the caller's
//! own message. `commit` of edits does not need any of this, because it names objects by their
//! keys.
//!
//! What must stay true: an error names the caller's operation, not a message of the batch. So the
//! subject of a rejection is replaced, except where it is the whole transaction: [`Error::Denied`]
//! and [`Error::Outdated`] are told by that.

use vipline_netlink::{Dump, Outcome, Rejected};

use super::{ATTEMPTS, interrupted};
use crate::error::rejected_transaction;
use crate::wire::message_types::*;
use crate::wire::{self, Query};
use crate::{
    Action, Added, BatchBuilder, Chain, Client, Error, Family, Generation, InstalledRule, Name,
    Operation, Operations, Rule, RuleHandle, RulePosition, Subject, Table, TableId,
};

impl Client {
    /// Returns the tables of all families, without their content.
    ///
    /// # Errors
    ///
    /// [`Error::Interrupted`]: tables were added or deleted during every attempt.
    /// [`Error::Denied`], [`Error::Unsupported`], [`Error::Kernel`] and others: the request
    /// failed.
    pub fn tables(&mut self) -> Result<Vec<Table>, Error> {
        let dump = Dump::repeat(ATTEMPTS, || {
            // Inside of the closure: each attempt begins with an empty list.
            let mut tables = Vec::new();
            let dump = self.dump_messages(Query::Tables, |message| {
                let (family, attrs) = wire::split_header(message.payload)?;
                // A table of a family that this crate does not know is left out.
                if let Some(family) = family {
                    tables.push(wire::table(family, attrs)?);
                }
                Ok(())
            });
            Ok::<_, Error>(match dump.map_err(Error::into_unsupported)? {
                Dump::Complete(()) => Dump::Complete(tables),
                Dump::Interrupted(()) => Dump::Interrupted(tables),
            })
        })?;
        dump.complete().ok_or_else(interrupted)
    }

    /// Returns a table. Returns `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// [`Error::Denied`], [`Error::Unsupported`], [`Error::Kernel`] and others: the request
    /// failed.
    pub fn table(&mut self, table: &TableId) -> Result<Option<Table>, Error> {
        let mut found = None;
        let query = Query::Table(table);
        let reply = self.request(query, |message| {
            let (_, attrs) = wire::split_header(message.payload)?;
            found = Some(wire::table(table.family, attrs)?);
            Ok(())
        });
        found_unless_missing(reply.map_err(Error::into_unsupported), || found)
    }

    /// Returns a chain without its rules. Returns `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// As [`table`](Self::table).
    pub fn chain(&mut self, table: &TableId, chain: &Name) -> Result<Option<Chain>, Error> {
        let mut found = None;
        let reply = self.request(Query::Chain(table, chain), |message| {
            let (_, attrs) = wire::split_header(message.payload)?;
            found = Some(wire::chain(table.family, attrs)?);
            Ok(())
        });
        found_unless_missing(reply.map_err(Error::into_unsupported), || found)
    }

    /// Dumps all chains of a family without their rules, and calls `each` for every
    /// chain.
    ///
    /// The dump is a snapshot only if the [generation](Self::generation) is the same
    /// before and after it.
    ///
    /// # Errors
    ///
    /// As [`table`](Self::table).
    pub fn chains(
        &mut self,
        family: Family,
        mut each: impl FnMut(Chain),
    ) -> Result<Dump<()>, Error> {
        self.dump_messages(Query::Chains(family), |message| {
            let (_, attrs) = wire::split_header(message.payload)?;
            each(wire::chain(family, attrs)?);
            Ok(())
        })
    }

    /// Dumps the rules of a table or of one of its chains, and calls `each` for every
    /// rule. Rules of a chain come in order.
    ///
    /// The dump is a snapshot only if the [generation](Self::generation) is the same
    /// before and after it. A missing table or chain has no rules.
    ///
    /// # Errors
    ///
    /// As [`table`](Self::table).
    pub fn rules(
        &mut self,
        table: &TableId,
        chain: Option<&Name>,
        mut each: impl FnMut(InstalledRule<'_>),
    ) -> Result<Dump<()>, Error> {
        let query = match chain {
            Some(chain) => Query::RulesOf(table, chain),
            None => Query::Rules(table),
        };
        self.dump_rules(query, &mut each)
    }

    /// Resets the counters and quotas of the rules of a table or of one of its chains.
    /// Calls `each` for every rule with the values before the reset.
    ///
    /// No packet is lost: the kernel reads and resets a value in one step.
    ///
    /// # Errors
    ///
    /// [`Error::KernelTooOld`]: the kernel is older than Linux 6.2. Others as
    /// [`table`](Self::table).
    pub fn reset_rules(
        &mut self,
        table: &TableId,
        chain: Option<&Name>,
        mut each: impl FnMut(InstalledRule<'_>),
    ) -> Result<Dump<()>, Error> {
        let query = Query::ResetRules(table, chain);
        let dump = self.dump_rules(query, &mut each);
        // Every nf_tables answers a request for the generation. If that one is unknown, too,
        // nf_tables is missing, not too old.
        self.explain_unknown(dump, (query, "6.2"), Query::Generation)
            .map_err(Error::into_unsupported)
    }

    /// Returns a rule. Returns `None` if there is no rule with this handle.
    ///
    /// Anonymous sets of the rule have no elements. [`dump`](Self::dump) includes them.
    ///
    /// # Errors
    ///
    /// As [`table`](Self::table).
    pub fn rule(
        &mut self,
        table: &TableId,
        chain: &Name,
        handle: RuleHandle,
    ) -> Result<Option<Rule>, Error> {
        let mut found = None;
        let reply = self.request_rule(Query::Rule(table, chain, handle), &mut found);
        found_unless_missing(reply, || found)
    }

    /// Resets the counters and quotas of one rule. Returns the rule with the values before
    /// the reset, or `None` if there is no rule with this handle.
    ///
    /// No packet is lost: the kernel reads and resets a value in one step.
    /// Anonymous sets of the rule have no elements.
    ///
    /// # Errors
    ///
    /// [`Error::KernelTooOld`]: the kernel is older than Linux 6.2. Others as
    /// [`table`](Self::table).
    pub fn reset_rule(
        &mut self,
        table: &TableId,
        chain: &Name,
        handle: RuleHandle,
    ) -> Result<Option<Rule>, Error> {
        let mut found = None;
        let query = Query::ResetRule(table, chain, handle);
        let reply = self.request_rule(query, &mut found);
        // The same request without the reset, which every nf_tables knows.
        let probe = Query::Rule(table, chain, handle);
        let reply = self.explain_unknown(reply, (query, "6.2"), probe);
        found_unless_missing(reply, || found)
    }

    fn request_rule(&mut self, query: Query<'_>, found: &mut Option<Rule>) -> Result<(), Error> {
        self.request(query, |message| {
            *found = Some(InstalledRule::read(message.payload)?.decode()?);
            Ok(())
        })
    }

    fn dump_rules(
        &mut self,
        query: Query<'_>,
        each: &mut dyn FnMut(InstalledRule<'_>),
    ) -> Result<Dump<()>, Error> {
        let dump = self.dump_messages(query, |message| {
            each(InstalledRule::read(message.payload)?);
            Ok(())
        });
        match dump {
            // The contract of `rules`: what does not exist has no rules.
            Err(error) if error.is_not_found() => Ok(Dump::Complete(())),
            dump => dump,
        }
    }

    /// Returns an empty batch for [`commit_batch`](Self::commit_batch).
    ///
    /// With a `generation` the kernel rejects the batch unless that is the current
    /// generation ([`Error::is_outdated`]).
    pub fn batch(&self, generation: Option<Generation>) -> BatchBuilder {
        BatchBuilder::new(self.sequence(), generation)
    }

    /// Applies a batch atomically, with a single system call.
    ///
    /// An empty batch is not sent.
    ///
    /// # Errors
    ///
    /// As [`commit`](Self::commit). [`Error::Rejected`] names operations by their index
    /// ([`Subject::Index`](crate::Subject::Index)).
    pub fn commit_batch(&mut self, batch: BatchBuilder) -> Result<(), Error> {
        if batch.is_empty() {
            return Ok(());
        }
        let (bytes, operations) = batch.finish();
        let outcome = self.send_batch(&bytes)?;
        check(outcome, &operations)
    }

    /// Applies a batch, and returns the handles of the tables, chains and rules that the
    /// commit added, in the order of the batch.
    ///
    /// A table that existed before is not in the list; a chain is. Operations are named by
    /// their index ([`Subject::Index`](crate::Subject::Index)).
    ///
    /// ```no_run
    /// use vipline_nftables::{Added, BatchBuilder, Client, Error, RuleHandle};
    ///
    /// fn rules(client: &mut Client, batch: BatchBuilder) -> Result<Vec<RuleHandle>, Error> {
    ///     let added = client.commit_batch_with_handles(batch)?;
    ///     Ok(added.iter().filter_map(Added::rule_handle).collect())
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Overrun`]: the batch may have been applied, but handles were lost. Others as
    /// [`commit_batch`](Self::commit_batch).
    pub fn commit_batch_with_handles(&mut self, batch: BatchBuilder) -> Result<Vec<Added>, Error> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        let (bytes, operations) = batch.finish();
        let (outcome, handles) = self.send_batch_for_handles(bytes)?;
        check(outcome, &operations)?;
        let added = handles.into_iter().map(|(sequence, handle)| Added {
            operation: operations.operation(sequence),
            handle,
        });
        Ok(added.collect())
    }

    /// Adds a rule at a position of a chain. Returns the handle, with which the rule can
    /// be replaced and deleted.
    ///
    /// The other rules of the chain and their counters stay as they are.
    ///
    /// ```no_run
    /// use vipline_nftables::expression::tcp_dport;
    /// use vipline_nftables::statement::accept;
    /// use vipline_nftables::{Client, Family, Name, Rule, RulePosition, TableId};
    ///
    /// let (filter, input) = (TableId::new(Family::Inet, Name::new("filter")?), Name::new("input")?);
    /// let ssh = Rule::new(filter.family, [tcp_dport().is(22), accept()])?;
    ///
    /// let mut client = Client::open()?;
    /// let handle = client.add_rule(&filter, &input, RulePosition::Head, &ssh)?;
    /// client.delete_rule(&filter, &input, handle)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Rejected`] with the rule as its subject. [`Error::is_not_found`]: there is
    /// no such chain, or no rule with the handle of the position.
    /// [`Error::Overrun`]: the rule was added, but its handle was lost.
    /// Others as [`commit`](Self::commit).
    pub fn add_rule(
        &mut self,
        table: &TableId,
        chain: &Name,
        position: RulePosition,
        rule: &Rule,
    ) -> Result<RuleHandle, Error> {
        let subject = || {
            let chain = Chain::new(table.clone(), chain.clone());
            Subject::Rule(chain.into(), rule.clone().into())
        };
        // Only the echo has the handle that the kernel assigned.
        let batch = self.batch(None).with_echo();
        self.change_rule(batch, subject, |batch| {
            batch.add_rule(table, chain, position, rule);
        })?
        .ok_or(Error::Overrun)
    }

    /// Replaces a rule at its position. Returns the handle of the new rule.
    ///
    /// # Errors
    ///
    /// [`Error::Rejected`] with the old handle as its subject. [`Error::is_not_found`]:
    /// there is no such rule. Others as [`add_rule`](Self::add_rule).
    pub fn replace_rule(
        &mut self,
        table: &TableId,
        chain: &Name,
        old: RuleHandle,
        rule: &Rule,
    ) -> Result<RuleHandle, Error> {
        let batch = self.batch(None).with_echo();
        self.change_rule(
            batch,
            || handle(table, chain, old),
            |batch| {
                batch.replace_rule(table, chain, old, rule);
            },
        )?
        .ok_or(Error::Overrun)
    }

    /// Deletes a rule. The other rules of the chain and their counters stay as they are.
    ///
    /// # Errors
    ///
    /// [`Error::Rejected`] with the handle as its subject. [`Error::is_not_found`]: there
    /// is no such rule. Others as [`commit`](Self::commit).
    pub fn delete_rule(
        &mut self,
        table: &TableId,
        chain: &Name,
        rule: RuleHandle,
    ) -> Result<(), Error> {
        let batch = self.batch(None);
        self.change_rule(
            batch,
            || handle(table, chain, rule),
            |batch| {
                batch.delete_rule(table, chain, rule);
            },
        )?;
        Ok(())
    }

    /// Applies a batch of one operation. Returns the handle of the rule that the kernel
    /// reports, if the batch requests an echo. `None` otherwise, and if the echo was lost.
    fn change_rule(
        &mut self,
        mut batch: BatchBuilder,
        subject: impl FnOnce() -> Subject,
        fill: impl FnOnce(&mut BatchBuilder),
    ) -> Result<Option<RuleHandle>, Error> {
        fill(&mut batch);
        let (bytes, operations) = batch.finish();
        let mut handle = None;
        let outcome = self.send_batch_with_echo(&bytes, |message| {
            // The replacement of a rule also reports the deletion of the old one.
            if message.ty == message_type(NFT_MSG_NEWRULE) {
                handle = InstalledRule::read(message.payload)
                    .map(|rule| rule.handle)
                    .ok();
            }
        })?;
        let errors = match outcome {
            Outcome::Committed => return Ok(handle),
            Outcome::Rejected { errors, .. } => errors,
            Outcome::Unknown(error) => return Err(error.into()),
        };
        let subject = subject();
        let rejected = errors.into_iter().map(|error| {
            let mut operation = operations.operation(error.seq);
            // The begin and the end of the batch keep the transaction as their subject, see above.
            if operation.action != Action::Commit {
                operation = Operation::new(operation.action, subject.clone());
            }
            Rejected::from_kernel(operation, error)
        });
        // None omitted: the batch has one operation.
        Err(rejected_transaction(rejected.collect(), Some(0)))
    }
}

/// Returns the error of a batch that the kernel did not apply.
fn check(outcome: Outcome, operations: &Operations) -> Result<(), Error> {
    match outcome {
        Outcome::Committed => Ok(()),
        Outcome::Rejected { errors, omitted } => {
            let rejected = errors
                .into_iter()
                .map(|error| Rejected::from_kernel(operations.operation(error.seq), error));
            Err(rejected_transaction(rejected.collect(), omitted))
        }
        Outcome::Unknown(error) => Err(error.into()),
    }
}

/// Returns the object of a reply, or `None` if the kernel has no such object.
pub(crate) fn found_unless_missing<T>(
    reply: Result<(), Error>,
    found: impl FnOnce() -> Option<T>,
) -> Result<Option<T>, Error> {
    match reply {
        Ok(()) => Ok(found()),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the subject of an error about an existing rule. The rule itself is not known here.
fn handle(table: &TableId, chain: &Name, handle: RuleHandle) -> Subject {
    Subject::RuleHandle {
        table: table.clone(),
        chain: chain.clone(),
        handle,
    }
}
