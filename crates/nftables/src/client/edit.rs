//! Changes of single rules: one call is one transaction.

use vipline_netlink::{Outcome, Rejected};

use crate::error::rejected_transaction;
use crate::wire::message_types::*;
use crate::{
    Action, BatchBuilder, Chain, Client, Error, InstalledRule, Name, Operation, Rule, RuleHandle,
    RulePosition, Subject, TableId,
};

impl Client {
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
    /// reports, if requested.
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
            if operation.action != Action::Commit {
                operation = Operation::new(operation.action, subject.clone());
            }
            Rejected::from_kernel(operation, error)
        });
        Err(rejected_transaction(rejected.collect(), Some(0)))
    }
}

fn handle(table: &TableId, chain: &Name, handle: RuleHandle) -> Subject {
    Subject::RuleHandle {
        table: table.clone(),
        chain: chain.clone(),
        handle,
    }
}
