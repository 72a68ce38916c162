//! Operations on single rules and chains.

use vipline_netlink::{Dump, Errno, Rejected};
use vipline_nftables::{Generation, InstalledRule, Name, RulePosition};
use vipline_reconcile::Edit;

use super::batch::Plan;
use super::client::{ATTEMPTS, Client};
use super::error::{Error, Operation};
use super::{encode_with, table_id};
use crate::{
    Chain, ChainName, Contents, Counters, Object, Position, Rule, Rules, SharedRule, TableName,
};

impl Client {
    /// Returns whether a rule exists: `iptables-nft -C`.
    ///
    /// A chain that does not exist has no rules.
    ///
    /// # Errors
    ///
    /// The same as [`commit`](Self::commit).
    pub fn check(
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
                Err(error) => return Err(error),
            }
        }
        Err(Error::Interrupted { attempts: ATTEMPTS })
    }

    /// Appends a rule: `iptables-nft -A`.
    ///
    /// # Errors
    ///
    /// The same as [`commit`](Self::commit).
    pub fn append(
        &mut self,
        table: TableName,
        chain: ChainName,
        rule: &Rule<'_>,
    ) -> Result<Generation, Error> {
        self.commit(&[Edit::Add(shared(table, chain, rule, Position::Tail))])
    }

    /// Appends a rule unless it exists. Returns whether it was appended.
    ///
    /// Another program can append the same rule between check and append.
    ///
    /// ```no_run
    /// use vipline_iptables::targets::Target;
    /// use vipline_iptables::{ChainName, Family, Rule, TableName, Transport, nft};
    ///
    /// let ssh = Rule::new()
    ///     .protocol(Transport::Tcp)
    ///     .matching(Transport::Tcp.dport(22))
    ///     .target(Target::Accept);
    /// let (filter, input) = (TableName::new("filter")?, ChainName::new("INPUT")?);
    /// nft::Client::open(Family::V4)?.ensure(filter, input, &ssh)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The same as [`commit`](Self::commit).
    pub fn ensure(
        &mut self,
        table: TableName,
        chain: ChainName,
        rule: &Rule<'_>,
    ) -> Result<bool, Error> {
        let exists = self.check(table, chain, rule)?;
        if !exists {
            self.append(table, chain, rule)?;
        }
        Ok(!exists)
    }

    /// Inserts a rule, which gets the number, from 1: `iptables-nft -I`.
    ///
    /// # Errors
    ///
    /// The same as [`commit`](Self::commit); [`Error::Rejected`] with `ENOENT` if the
    /// chain has fewer than `number - 1` rules.
    pub fn insert(
        &mut self,
        table: TableName,
        chain: ChainName,
        number: u32,
        rule: &Rule<'_>,
    ) -> Result<Generation, Error> {
        if number <= 1 {
            return self.commit(&[Edit::Add(shared(table, chain, rule, Position::Head))]);
        }
        let line = format!("-I {chain} {number} {rule}");
        let operation = Operation {
            edit: None,
            table: Some(table),
            line: line.into(),
        };
        for _ in 0..ATTEMPTS {
            let done = self.insert_once(table, chain, (number - 2, &operation), rule)?;
            if let Some(generation) = done {
                return Ok(generation);
            }
        }
        Err(Error::Interrupted { attempts: ATTEMPTS })
    }

    /// Inserts a rule after the one with an index. Returns `None` if another program
    /// committed meanwhile.
    fn insert_once(
        &mut self,
        table: TableName,
        chain: ChainName,
        (index, operation): (u32, &Operation),
        rule: &Rule<'_>,
    ) -> Result<Option<Generation>, Error> {
        let generation = self.generation()?;
        let id = table_id(self.family, table);
        let chain = Name::new(chain.as_str()).expect("chain names are short");
        let mut handles = Vec::new();
        let each = |rule: InstalledRule<'_>| handles.push(rule.handle);
        let dump = self.nftables.rules(&id, Some(&chain), each)?;
        if dump == Dump::Interrupted(()) || self.generation()? != generation {
            return Ok(None);
        }
        let before = usize::try_from(index).ok().and_then(|at| handles.get(at));
        let Some(before) = before else {
            let rejected = Rejected::new(operation.clone(), Errno::NOENT);
            return Err(Error::Rejected {
                rejected: vec![rejected.with_message("the rule number is too large")],
                more: Some(0),
            });
        };
        let sets = self.sets.get_mut();
        sets.read()?;
        let encoded = encode_with(rule, self.family, &sets.indexes);
        let encoded = encoded.map_err(|source| Error::not_encoded(operation.clone(), source))?;
        let mut batch = self.nftables.batch(Some(generation));
        batch.add_rule(&id, &chain, RulePosition::After(*before), &encoded);
        match self.nftables.commit_batch(batch) {
            Ok(()) => Ok(Some(generation.next())),
            Err(error) if error.is_outdated() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Deletes the first rule that equals a rule: `iptables-nft -D`.
    ///
    /// # Errors
    ///
    /// The same as [`commit`](Self::commit): [`Error::Rejected`] with `ENOENT` if no rule
    /// equals it.
    pub fn delete(
        &mut self,
        table: TableName,
        chain: ChainName,
        rule: &Rule<'_>,
    ) -> Result<Generation, Error> {
        self.commit(&[Edit::Remove(shared(table, chain, rule, Position::Tail))])
    }

    /// Creates an empty user-defined chain, or flushes an existing one: `:CHAIN -` of a
    /// restore document.
    ///
    /// # Errors
    ///
    /// The same as [`commit`](Self::commit).
    pub fn new_chain(&mut self, table: TableName, chain: ChainName) -> Result<Generation, Error> {
        let chain = Chain::with(table, chain, Contents::Rules(Rules::default()));
        self.commit(&[Edit::Add(chain.into())])
    }

    /// Flushes and deletes a user-defined chain.
    ///
    /// # Errors
    ///
    /// The same as [`commit`](Self::commit): [`Error::Rejected`] with `EBUSY` if a rule
    /// jumps to the chain.
    pub fn delete_chain(
        &mut self,
        table: TableName,
        chain: ChainName,
    ) -> Result<Generation, Error> {
        let chain = Chain::with(table, chain, Contents::Rules(Rules::default()));
        self.commit(&[Edit::Remove(chain.into())])
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
