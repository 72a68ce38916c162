//! Commands that change a ruleset.

use super::{ChainState, Problem, RestoreError, RestoreOptions, RuleState, Ruleset, TableState};
use crate::targets::Target;
use crate::{
    ChainLine, Command, Counters, Family, Line, ParseError, Rule, RuleSpec, Tables, Variant,
    jump_target,
};

impl Ruleset {
    /// Applies a document as `iptables-restore` does.
    ///
    /// Each table changes at its `COMMIT`.
    ///
    /// # Errors
    ///
    /// [`RestoreError`] for the first line that is rejected. Tables with a `COMMIT`
    /// before this line are changed.
    pub fn restore(
        &mut self,
        document: &Tables<'_>,
        options: RestoreOptions,
    ) -> Result<(), RestoreError> {
        let mut section: Option<(String, TableState)> = None;
        for (line, number) in document.lines().zip(1..) {
            let error = |problem| RestoreError {
                line: number,
                text: line.text().into(),
                problem,
            };
            match (line, &mut section) {
                (Line::Table(table), _) => {
                    let state = self.begin(table.name(), options).map_err(error)?;
                    section = Some((table.name().to_owned(), state));
                }
                (Line::Commit, section) => {
                    if let Some((name, state)) = section.take() {
                        self.tables.insert(name, state);
                    }
                }
                (Line::Chain(chain), Some((_, table))) => {
                    table.declare(chain, options).map_err(error)?;
                }
                (line, Some((_, table))) => {
                    let command = line.command(self.family).map_err(Problem::from);
                    let Some(mut command) = command.map_err(error)? else {
                        continue;
                    };
                    if !options.counters && line.text().starts_with('[') {
                        forget_counters(&mut command);
                    }
                    table.apply(&command, self.family).map_err(error)?;
                }
                (_, None) => {}
            }
        }
        Ok(())
    }

    /// Applies one command to a table as `iptables -t TABLE` does.
    ///
    /// # Errors
    ///
    /// [`Problem`] if the command is rejected. Nothing is changed.
    pub fn apply(&mut self, table: &str, command: &Command<'_>) -> Result<(), Problem> {
        let mut state = self.begin(table, RestoreOptions::new().with_noflush())?;
        state.apply(command, self.family)?;
        self.tables.insert(table.to_owned(), state);
        Ok(())
    }

    /// Returns the table at the beginning of its section.
    fn begin(&self, name: &str, options: RestoreOptions) -> Result<TableState, Problem> {
        let empty = TableState::new(name);
        let mut table = empty.ok_or_else(|| Problem::UnknownTable(name.into()))?;
        let Some(old) = self.tables.get(name) else {
            return Ok(table);
        };
        if options.noflush {
            return Ok(old.clone());
        }
        if self.variant == Variant::Nft {
            return Ok(table);
        }
        // A flush of the legacy variant keeps policies and their counters.
        for (chain, old) in table.chains.iter_mut().zip(&old.chains) {
            chain.policy = old.policy;
            chain.counters = old.counters;
        }
        Ok(table)
    }
}

impl TableState {
    /// Applies the declaration of a chain, such as `:INPUT ACCEPT [0:0]`.
    fn declare(&mut self, line: &ChainLine<'_>, options: RestoreOptions) -> Result<(), Problem> {
        let Some(chain) = self.chain_mut(line.name()) else {
            self.create(line.name());
            return Ok(());
        };
        if chain.policy.is_none() {
            chain.rules.clear();
            return Ok(());
        }
        let Some(policy) = line.policy() else {
            return Ok(());
        };
        if options.counters {
            chain.counters = line.counters().ok_or(Problem::MissingCounters)?;
        }
        chain.policy = Some(policy);
        Ok(())
    }

    fn create(&mut self, name: &str) {
        let chain = ChainState {
            name: name.to_owned(),
            policy: None,
            counters: Counters::default(),
            rules: Vec::new(),
        };
        let is_before = |one: &ChainState| one.policy.is_some() || *one.name < *name;
        let at = self.chains.partition_point(is_before);
        self.chains.insert(at, chain);
    }

    fn apply(&mut self, command: &Command<'_>, family: Family) -> Result<(), Problem> {
        match command {
            Command::Append { chain, spec } => {
                let rules = self.rules(spec, family)?;
                self.existing(chain)?.rules.extend(rules);
            }
            Command::Check { chain, spec } => {
                self.find(chain, spec, family)?;
            }
            Command::Delete { chain, spec } => {
                // Each pair of source and destination is a rule.
                for rule in rules(spec, family)? {
                    let at = self.position(chain, &rule.rule)?;
                    self.existing(chain)?.rules.remove(at);
                }
            }
            Command::DeleteNumber { chain, number } => {
                let chain = self.existing(chain)?;
                let at = chain.index(*number)?;
                chain.rules.remove(at);
            }
            Command::Insert {
                chain,
                number,
                spec,
            } => {
                let rules = self.rules(spec, family)?;
                let chain = self.existing(chain)?;
                let at = match number.unwrap_or(1) {
                    1 => 0,
                    // A rule can be inserted after the last one.
                    number => chain.index(number - 1)? + 1,
                };
                for rule in rules {
                    chain.rules.insert(at, rule);
                }
            }
            Command::Replace {
                chain,
                number,
                spec,
            } => {
                let mut rules = self.rules(spec, family)?;
                let chain = self.existing(chain)?;
                let at = chain.index(*number)?;
                let (Some(rule), true) = (rules.pop(), rules.is_empty()) else {
                    return Err(Problem::SeveralRules);
                };
                if let Some(place) = chain.rules.get_mut(at) {
                    *place = rule;
                }
            }
            _ => self.apply_to_chains(command)?,
        }
        Ok(())
    }

    /// Applies a command without a rule.
    fn apply_to_chains(&mut self, command: &Command<'_>) -> Result<(), Problem> {
        match command {
            Command::DeleteChain { chain: Some(name) } => self.delete(name)?,
            Command::DeleteChain { chain: None } => self.delete_all()?,
            Command::Flush { chain } => {
                self.each(chain.as_deref(), |chain| chain.rules.clear())?;
            }
            Command::List { chain, .. } => self.each(chain.as_deref(), |_| {})?,
            Command::NewChain { chain } => {
                if self.chain(chain).is_some() {
                    return Err(Problem::ChainExists(chain.as_ref().into()));
                }
                self.create(chain);
            }
            Command::RenameChain { chain, name } => self.rename(chain, name)?,
            Command::SetPolicy {
                chain,
                policy,
                counters,
            } => {
                let chain = self.existing(chain)?;
                if chain.policy.is_none() {
                    return Err(Problem::PolicyOfUserChain(chain.name.as_str().into()));
                }
                chain.policy = Some(*policy);
                if let Some(counters) = counters {
                    chain.counters = *counters;
                }
            }
            Command::Zero {
                chain: Some(name),
                number: Some(number),
            } => {
                let chain = self.existing(name)?;
                let at = chain.index(*number)?;
                if let Some(rule) = chain.rules.get_mut(at) {
                    rule.counters = Counters::default();
                }
            }
            Command::Zero { chain, .. } => self.each(chain.as_deref(), |chain| {
                chain.counters = Counters::default();
                for rule in &mut chain.rules {
                    rule.counters = Counters::default();
                }
            })?,
            _ => {}
        }
        Ok(())
    }

    /// Returns the rules of a specification. Their chains must exist.
    fn rules(&self, spec: &RuleSpec<'_>, family: Family) -> Result<Vec<RuleState>, Problem> {
        let rules = rules(spec, family)?;
        for rule in &rules {
            let target = Rule::parse(&rule.rule)?.target;
            let Some(Target::Jump(chain) | Target::Goto(chain)) = target else {
                continue;
            };
            if self.chain(chain.as_str()).is_none() {
                return Err(Problem::MissingChain(chain.as_str().into()));
            }
        }
        Ok(rules)
    }

    fn existing(&mut self, name: &str) -> Result<&mut ChainState, Problem> {
        self.chain_mut(name)
            .ok_or_else(|| Problem::MissingChain(name.into()))
    }

    /// Returns the index of the first rule that equals a specification.
    fn find(&mut self, chain: &str, spec: &RuleSpec<'_>, family: Family) -> Result<(), Problem> {
        for rule in rules(spec, family)? {
            self.position(chain, &rule.rule)?;
        }
        Ok(())
    }

    fn position(&mut self, chain: &str, rule: &str) -> Result<usize, Problem> {
        let chain = self.existing(chain)?;
        let found = chain.rules.iter().position(|one| one.rule == rule);
        found.ok_or(Problem::MissingRule)
    }

    fn each(
        &mut self,
        name: Option<&str>,
        mut change: impl FnMut(&mut ChainState),
    ) -> Result<(), Problem> {
        match name {
            Some(name) => change(self.existing(name)?),
            None => self.chains.iter_mut().for_each(change),
        }
        Ok(())
    }

    fn delete(&mut self, name: &str) -> Result<(), Problem> {
        self.require_user_defined(name)?;
        if !self.existing(name)?.rules.is_empty() {
            return Err(Problem::ChainNotEmpty(name.into()));
        }
        if self.chains.iter().any(|chain| chain.jumps_to(name)) {
            return Err(Problem::ChainInUse(name.into()));
        }
        self.chains.retain(|chain| chain.name != name);
        Ok(())
    }

    /// Deletes all user-defined chains.
    fn delete_all(&mut self) -> Result<(), Problem> {
        let names = self.chains.iter().filter(|chain| chain.policy.is_none());
        let names: Vec<_> = names.map(|chain| chain.name.clone()).collect();
        names.iter().try_for_each(|name| self.delete(name))
    }

    fn rename(&mut self, old: &str, new: &str) -> Result<(), Problem> {
        self.require_user_defined(old)?;
        if self.chain(new).is_some() {
            return Err(Problem::ChainExists(new.into()));
        }
        let at = self.chains.iter().position(|chain| chain.name == old);
        let rules = at.map(|at| self.chains.remove(at).rules);
        self.create(new);
        self.existing(new)?.rules = rules.unwrap_or_default();
        for chain in &mut self.chains {
            for rule in &mut chain.rules {
                rule.retarget(old, new);
            }
        }
        Ok(())
    }

    fn require_user_defined(&mut self, name: &str) -> Result<(), Problem> {
        match self.existing(name)?.policy {
            Some(_) => Err(Problem::BuiltInChain(name.into())),
            None => Ok(()),
        }
    }
}

impl ChainState {
    /// Returns the index of the rule with a number.
    fn index(&self, number: u32) -> Result<usize, Problem> {
        let at = usize::try_from(number)
            .ok()
            .and_then(|at| at.checked_sub(1));
        at.filter(|at| *at < self.rules.len())
            .ok_or_else(|| Problem::NumberTooLarge {
                chain: self.name.as_str().into(),
                count: self.rules.len(),
            })
    }

    fn jumps_to(&self, name: &str) -> bool {
        let mut rules = self.rules.iter();
        rules.any(|rule| jump_target(&rule.rule) == Some(name))
    }
}

impl RuleState {
    /// Replaces the chain that the rule jumps to.
    fn retarget(&mut self, old: &str, new: &str) {
        if jump_target(&self.rule) == Some(old) {
            let end = self.rule.len() - old.len();
            self.rule.replace_range(end.., new);
        }
    }
}

/// Removes the counters of a prefix, which a restore ignores without `--counters`.
fn forget_counters(command: &mut Command<'_>) {
    match command {
        Command::Append { spec, .. }
        | Command::Check { spec, .. }
        | Command::Delete { spec, .. }
        | Command::Insert { spec, .. }
        | Command::Replace { spec, .. } => spec.counters = None,
        Command::SetPolicy { counters, .. } => *counters = None,
        _ => {}
    }
}

/// Returns the rules of a specification, in the form of a save: one for each pair of
/// source and destination.
fn rules(spec: &RuleSpec<'_>, family: Family) -> Result<Vec<RuleState>, ParseError> {
    let rules = Rule::parse_all(&spec.text)?.into_iter();
    let state = |rule: Rule<'_>| RuleState {
        rule: rule.for_family(family).to_string(),
        counters: spec.counters.unwrap_or_default(),
    };
    Ok(rules.map(state).collect())
}
