//! Operations on single rules and chains.

use vipline_netlink::{Dump, Errno, Rejected};
use vipline_nftables::{BatchBuilder, InstalledRule, Name, RulePosition, TableId};
use vipline_reconcile::Edit;

use super::batch::Plan;
use super::client::{ATTEMPTS, Client, interrupted};
use super::error::{Error, Operation, from_nftables, not_encoded};
use super::{encode_with, table_id};
use crate::{ChainName, Counters, Object, Position, Rule, SharedRule, SingleCommands, TableName};

impl SingleCommands for Client {
    type Error = Error;

    fn check(
        &mut self,
        table: TableName,
        chain: ChainName,
        rule: &Rule<'_>,
    ) -> Result<bool, Error> {
        if !self.has_chain(table, chain)? {
            return Ok(false);
        }
        let edits = [Edit::Remove(shared(table, chain, rule, Position::Tail))];
        let plan = Plan::new(&edits, self.family);
        self.read_sets(&plan)?;
        for _ in 0..ATTEMPTS {
            let generation = self.generation()?;
            match self.state(&plan, generation) {
                Ok(Some(_)) => return Ok(true),
                Ok(None) => {}
                Err(Error::Rejected { .. }) => return Ok(false),
                Err(error) if error.is_not_found() => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Err(interrupted())
    }

    fn append(&mut self, table: TableName, chain: ChainName, rule: &Rule<'_>) -> Result<(), Error> {
        self.commit(&[Edit::Add(shared(table, chain, rule, Position::Tail))])
            .map(drop)
    }

    fn insert(
        &mut self,
        table: TableName,
        chain: ChainName,
        number: u32,
        rule: &Rule<'_>,
    ) -> Result<(), Error> {
        if number <= 1 {
            let edit = Edit::Add(shared(table, chain, rule, Position::Head));
            return self.commit(&[edit]).map(drop);
        }
        let line = format!("-I {chain} {number} {rule}");
        let operation = operation(table, line);
        for _ in 0..ATTEMPTS {
            let place = (number - 2, &operation);
            if self.insert_once(table, chain, place, rule)?.is_some() {
                return Ok(());
            }
        }
        Err(interrupted())
    }

    fn delete(&mut self, table: TableName, chain: ChainName, rule: &Rule<'_>) -> Result<(), Error> {
        self.commit(&[Edit::Remove(shared(table, chain, rule, Position::Tail))])
            .map(drop)
    }

    fn new_chain(&mut self, table: TableName, chain: ChainName) -> Result<(), Error> {
        self.change(table, format!("-N {chain}"), |batch, table| {
            // A namespace without rules has no tables of iptables.
            batch.add_table(table);
            batch.create_regular_chain(table, &nftables_name(chain));
        })
    }

    fn flush_chain(&mut self, table: TableName, chain: ChainName) -> Result<(), Error> {
        self.change(table, format!("-F {chain}"), |batch, table| {
            batch.flush_chain(table, &nftables_name(chain));
        })
    }

    fn delete_chain(&mut self, table: TableName, chain: ChainName) -> Result<(), Error> {
        self.change(table, format!("-X {chain}"), |batch, table| {
            batch.delete_empty_chain(table, &nftables_name(chain));
        })
    }
}

impl Client {
    /// Commits a batch. `line` is the command in the error.
    fn change(
        &mut self,
        table: TableName,
        line: String,
        fill: impl FnOnce(&mut BatchBuilder, &TableId),
    ) -> Result<(), Error> {
        let mut batch = self.nftables.batch(None);
        fill(&mut batch, &table_id(self.family, table));
        let committed = self.nftables.commit_batch(batch);
        committed.map_err(|error| error.map(|_| operation(table, line.clone())))
    }

    /// Inserts a rule after the one with an index. Returns `None` if another program
    /// committed meanwhile.
    fn insert_once(
        &mut self,
        table: TableName,
        chain: ChainName,
        (index, operation): (u32, &Operation),
        rule: &Rule<'_>,
    ) -> Result<Option<()>, Error> {
        let generation = self.generation()?;
        let id = table_id(self.family, table);
        let chain = nftables_name(chain);
        let mut handles = Vec::new();
        let each = |rule: InstalledRule<'_>| handles.push(rule.handle);
        let dump = self.nftables.rules(&id, Some(&chain), each);
        let dump = dump.map_err(from_nftables)?;
        if dump == Dump::Interrupted(()) || self.generation()? != generation {
            return Ok(None);
        }
        let before = usize::try_from(index).ok().and_then(|at| handles.get(at));
        let Some(before) = before else {
            let rejected = Rejected::new(operation.clone(), Errno::NOENT);
            let rejected = rejected.with_message("the rule number is too large");
            return Err(Error::from_rejected(vec![rejected]));
        };
        let sets = self.sets.get_mut();
        sets.read()?;
        let encoded = encode_with(rule, self.family, &sets.indexes);
        let encoded = encoded.map_err(|source| not_encoded(operation.clone(), source))?;
        let mut batch = self.nftables.batch(Some(generation));
        batch.add_rule(&id, &chain, RulePosition::After(*before), &encoded);
        match self.nftables.commit_batch(batch) {
            Ok(()) => Ok(Some(())),
            Err(error) if error.is_outdated() => Ok(None),
            Err(error) => Err(from_nftables(error)),
        }
    }
}

fn nftables_name(chain: ChainName) -> Name {
    Name::new(chain.as_str()).expect("chain names are short")
}

fn operation(table: TableName, line: String) -> Operation {
    Operation {
        edit: None,
        table: Some(table),
        line: line.into(),
    }
}

fn shared(table: TableName, chain: ChainName, rule: &Rule<'_>, position: Position) -> Object {
    // A printed rule lacks its counters.
    let text = match rule.counters {
        Some(Counters { packets, bytes }) => format!("-c {packets} {bytes} {rule}"),
        None => rule.to_string(),
    };
    Object::from(SharedRule {
        table,
        chain,
        position,
        occurrence: 0,
        rule: text.into(),
    })
}
