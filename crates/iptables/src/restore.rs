//! Documents that `iptables-restore --noflush` applies.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::fmt;

use vipline_reconcile::Edit;

use crate::{Chain, Contents, Key, Object, Position, SharedRule, TableName};

/// A document that `iptables-restore --noflush` applies; displays as its text.
///
/// Of each table it names only the chains that edits are about.
/// What a section says is applied as a whole or not at all.
///
/// ```
/// use vipline_iptables::{Chain, ChainName, Object, Restore, TableName};
/// use vipline_reconcile::Edit;
///
/// let rules = ["-p tcp -m tcp --dport 22 -j ACCEPT"].into_iter().collect();
/// let chain = Chain::new(TableName::new("filter")?, ChainName::new("MINE")?, rules);
/// let edits = [Edit::Add(Object::from(chain))];
/// assert_eq!(
///     Restore::from_edits(&edits).to_string(),
///     "*filter\n:MINE - [0:0]\n-A MINE -p tcp -m tcp --dport 22 -j ACCEPT\nCOMMIT\n"
/// );
/// # Ok::<(), vipline_iptables::InvalidName>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Restore<'a> {
    sections: Vec<Section<'a>>,
}

/// From `*table` to `COMMIT`.
#[derive(Clone, Debug)]
struct Section<'a> {
    table: TableName,
    /// Chains that are made, or emptied.
    declared: Vec<&'a Chain>,
    /// Entries that go.
    deleted: Vec<&'a SharedRule>,
    /// Chains whose rules are written.
    filled: Vec<&'a Chain>,
    /// Entries that come, those at the head first.
    entered: Vec<Entered<'a>>,
    /// Chains that go, empty as they are.
    removed: Vec<&'a Chain>,
}

/// An entry that comes.
#[derive(Clone, Copy, Debug)]
struct Entered<'a> {
    entry: &'a SharedRule,
    /// Whether it goes before all rules that are there.
    inserts: bool,
}

/// The edits of one table, by what becomes of them.
#[derive(Debug)]
struct Parts<'a> {
    made: Vec<&'a Chain>,
    changed: Vec<&'a Chain>,
    removed: Vec<&'a Chain>,
    entered: Vec<&'a SharedRule>,
    deleted: Vec<&'a SharedRule>,
}

impl<'a> Restore<'a> {
    /// Returns the document that makes edits happen, with one section per table.
    ///
    /// Chains come before the rules that jump to them and go after those, so
    /// edits may be in any order.
    pub fn from_edits(edits: &'a [Edit<Object>]) -> Self {
        Self::in_sections(edits, usize::MAX)
    }

    /// Returns the same in sections of at most so many chains and entries.
    ///
    /// After each section all rules make sense that did so before: chains are
    /// there before rules jump to them, and entries come last.
    ///
    /// The nft variant looks for each name among all of the section, so a large
    /// section takes it far longer than many small ones; the legacy variant
    /// reads and writes a whole table per section.
    pub fn in_sections(edits: &'a [Edit<Object>], limit: usize) -> Self {
        let mut sections = Vec::new();
        for (table, parts) in tables(edits) {
            parts.into_sections(table, limit.max(1), &mut sections);
        }
        Self { sections }
    }

    /// Tells whether there is nothing to apply.
    pub fn is_empty(&self) -> bool {
        self.sections.is_empty()
    }

    /// Returns how many sections there are: each is a commit.
    pub fn sections(&self) -> usize {
        self.sections.len()
    }

    /// Returns the objects that the first sections make, change or remove.
    pub fn objects_of(&self, sections: usize) -> impl Iterator<Item = Key<'a>> {
        self.sections.iter().take(sections).flat_map(|section| {
            let chains = section.declared.iter().copied();
            let entries = section.deleted.iter().copied();
            let entries = entries.chain(section.entered.iter().map(|it| it.entry));
            chains.map(Chain::key).chain(entries.map(SharedRule::key))
        })
    }

    /// Returns how many chains are made, emptied or removed.
    pub fn chains(&self) -> usize {
        self.sections.iter().map(|it| it.declared.len()).sum()
    }
}

/// Sorts edits by table, in the order of their names.
fn tables(edits: &[Edit<Object>]) -> Vec<(TableName, Parts<'_>)> {
    let mut tables: Vec<(TableName, Parts<'_>)> = Vec::new();
    for edit in edits {
        let table = match edit.object() {
            Object::Chain(chain) => chain.table,
            Object::SharedRule(entry) => entry.table,
        };
        let at = tables.iter().position(|(name, _)| *name == table);
        let at = at.unwrap_or_else(|| {
            tables.push((table, Parts::new()));
            tables.len() - 1
        });
        tables[at].1.add(edit);
    }
    tables.sort_unstable_by_key(|(name, _)| *name);
    tables
}

impl<'a> Parts<'a> {
    const fn new() -> Self {
        Self {
            made: Vec::new(),
            changed: Vec::new(),
            removed: Vec::new(),
            entered: Vec::new(),
            deleted: Vec::new(),
        }
    }

    fn add(&mut self, edit: &'a Edit<Object>) {
        match edit {
            Edit::Add(Object::Chain(chain)) => self.made.push(chain),
            Edit::Change {
                new: Object::Chain(chain),
                ..
            } => self.changed.push(chain),
            Edit::Remove(Object::Chain(chain)) => self.removed.push(chain),
            Edit::Add(Object::SharedRule(entry)) => self.entered.push(entry),
            Edit::Remove(Object::SharedRule(entry)) => self.deleted.push(entry),
            // Entries with equal keys are equal.
            Edit::Change {
                new: Object::SharedRule(_),
                ..
            } => {}
        }
    }

    fn into_sections(self, table: TableName, limit: usize, out: &mut Vec<Section<'a>>) {
        let empty: HashSet<_> = self.made.iter().map(|chain| chain.name).collect();
        let emptied: HashSet<_> = self.changed.iter().map(|chain| chain.name).collect();
        let mut filling = Filling::new(table, limit, out);
        for chain in targets_first(&self.made).into_iter().chain(self.changed) {
            let section = filling.section();
            section.declared.push(chain);
            if matches!(chain.contents, Contents::Rules(_)) {
                section.filled.push(chain);
            }
        }
        for entry in self.deleted {
            if !emptied.contains(&entry.chain) {
                filling.section().deleted.push(entry);
            }
        }
        let is_head = |entry: &&&SharedRule| entry.position == Position::Head;
        let heads = self.entered.iter().filter(is_head);
        let tails = self.entered.iter().filter(|entry| !is_head(entry));
        for &entry in heads.chain(tails) {
            let inserts = entry.position == Position::Head && !empty.contains(&entry.chain);
            filling.section().entered.push(Entered { entry, inserts });
        }
        // A chain goes after all that lead to it.
        for chain in targets_first(&self.removed).into_iter().rev() {
            let section = filling.section();
            section.declared.push(chain);
            // A built-in chain stays, without rules.
            if chain.policy.is_none() {
                section.removed.push(chain);
            }
        }
    }
}

/// Sections of one table while they are filled.
struct Filling<'o, 'a> {
    table: TableName,
    limit: usize,
    /// How much the last section holds.
    held: usize,
    sections: &'o mut Vec<Section<'a>>,
}

impl<'o, 'a> Filling<'o, 'a> {
    const fn new(table: TableName, limit: usize, sections: &'o mut Vec<Section<'a>>) -> Self {
        Self {
            table,
            limit,
            held: limit,
            sections,
        }
    }

    /// Returns a section that has room for one more.
    fn section(&mut self) -> &mut Section<'a> {
        if self.held == self.limit {
            self.held = 0;
            self.sections.push(Section::new(self.table));
        }
        self.held += 1;
        self.sections.last_mut().expect("one was pushed")
    }
}

impl Section<'_> {
    const fn new(table: TableName) -> Self {
        Self {
            table,
            declared: Vec::new(),
            deleted: Vec::new(),
            filled: Vec::new(),
            entered: Vec::new(),
            removed: Vec::new(),
        }
    }
}

/// Sorts chains so that each comes after those that its rules lead to.
fn targets_first<'a>(chains: &[&'a Chain]) -> Vec<&'a Chain> {
    let places: HashMap<&str, usize> = (0..)
        .zip(chains)
        .map(|(place, chain)| (chain.name.as_str(), place))
        .collect();
    let mut is_seen = vec![false; chains.len()];
    let mut sorted = Vec::with_capacity(chains.len());
    for start in 0..chains.len() {
        // The targets of the chains on the way that are still to be looked at.
        let mut way = Vec::new();
        let mut next = Some(start);
        loop {
            match next.take().filter(|&place| !is_seen[place]) {
                Some(place) => {
                    is_seen[place] = true;
                    let targets = targets(chains[place]).filter_map(|name| places.get(name));
                    way.push((place, targets));
                }
                None if way.is_empty() => break,
                None => {}
            }
            let Some((place, targets)) = way.last_mut() else {
                break;
            };
            match targets.next() {
                Some(&target) => next = Some(target),
                None => {
                    sorted.push(chains[*place]);
                    way.pop();
                }
            }
        }
    }
    sorted
}

/// Returns the names that rules of a chain lead to, chains or not.
fn targets(chain: &Chain) -> impl Iterator<Item = &str> {
    chain.rules().filter_map(jump_target)
}

/// Returns the chain or target without options that a rule jumps or goes to.
///
/// ```
/// use vipline_iptables::jump_target;
///
/// assert_eq!(jump_target("-p tcp -m tcp --dport 80 -j MINE"), Some("MINE"));
/// assert_eq!(jump_target("-p tcp -j DNAT --to-destination 10.1.0.1:80"), None);
/// ```
pub fn jump_target(rule: &str) -> Option<&str> {
    let (rest, target) = rule.rsplit_once(' ')?;
    matches!(rest.rsplit(' ').next(), Some("-j" | "-g")).then_some(target)
}

/// Displays as what `iptables-restore` reads.
impl fmt::Display for Restore<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.sections.iter().try_for_each(|section| section.fmt(f))
    }
}

impl fmt::Display for Section<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "*{}", self.table)?;
        // The nft variant keeps names in order, and finds room for the least at once.
        let mut declared = self.declared.clone();
        declared.sort_unstable_by_key(|chain| Reverse(chain.name));
        for chain in declared {
            match chain.policy {
                None => writeln!(f, ":{} - [0:0]", chain.name)?,
                // Declaring a built-in chain sets its policy and leaves its rules.
                Some(policy) => writeln!(f, ":{} {policy} [0:0]\n-F {0}", chain.name)?,
            }
        }
        for entry in &self.deleted {
            writeln!(f, "-D {} {}", entry.chain, entry.rule)?;
        }
        for chain in &self.filled {
            let name = chain.name.as_str();
            for rule in chain.rules() {
                for part in ["-A ", name, " ", rule, "\n"] {
                    f.write_str(part)?;
                }
            }
        }
        for Entered { entry, inserts } in &self.entered {
            let command = if *inserts { "-I" } else { "-A" };
            writeln!(f, "{command} {} {}", entry.chain, entry.rule)?;
        }
        for chain in &self.removed {
            writeln!(f, "-X {}", chain.name)?;
        }
        f.write_str("COMMIT\n")
    }
}

#[cfg(test)]
mod tests;
