//! Documents for `iptables-restore --noflush`.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::fmt;

use vipline_reconcile::Edit;

use crate::{Chain, Contents, Key, Object, Position, SharedRule, TableName};

/// A document for `iptables-restore --noflush`. `Display` prints its text.
///
/// The document names only chains with edits.
/// `iptables-restore` applies each section atomically.
/// The counters of all rules of a changed [`Chain`] start again; those of a chain with
/// [`SharedRule`]s stay.
///
/// ```
/// use vipline_iptables::{Chain, ChainName, Object, Restore, TableName};
/// use vipline_reconcile::Edit;
///
/// let rules = ["-p tcp -m tcp --dport 22 -j ACCEPT"].into_iter().collect();
/// let chain = Chain::new(TableName::FILTER, ChainName::new("MINE")?).with_rules(rules);
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

/// A section, from `*table` to `COMMIT`.
#[derive(Clone, Debug)]
struct Section<'a> {
    table: TableName,
    /// Chains to create or flush.
    declared: Vec<&'a Chain>,
    /// Shared rules to delete.
    deleted: Vec<&'a SharedRule>,
    /// Chains whose rules are appended.
    appended: Vec<&'a Chain>,
    /// Shared rules to add, those at the head first.
    added: Vec<Added<'a>>,
    /// Chains to delete, after they are flushed.
    removed: Vec<&'a Chain>,
}

/// A shared rule to add.
#[derive(Clone, Copy, Debug)]
struct Added<'a> {
    entry: &'a SharedRule,
    /// Whether it is inserted before all existing rules.
    inserts: bool,
}

/// The edits of one table, grouped by operation.
#[derive(Debug)]
struct Parts<'a> {
    made: Vec<&'a Chain>,
    changed: Vec<&'a Chain>,
    removed: Vec<&'a Chain>,
    added: Vec<&'a SharedRule>,
    deleted: Vec<&'a SharedRule>,
}

impl<'a> Restore<'a> {
    /// Returns the document that applies edits, with one section per table.
    ///
    /// Chains are created before rules jump to them, and deleted after those rules.
    /// The order of the edits does not matter.
    pub fn from_edits(edits: &'a [Edit<Object>]) -> Self {
        Self::in_sections(edits, usize::MAX)
    }

    /// Like [`from_edits`](Self::from_edits), with at most `limit` chains and shared
    /// rules per section.
    ///
    /// After each section all rules are valid: chains exist before rules jump to
    /// them, and shared rules are added last.
    ///
    /// The nft variant searches each name among all names of the section, so one
    /// large section is much slower than many small ones.
    /// The legacy variant reads and writes the whole table for each section.
    pub fn in_sections(edits: &'a [Edit<Object>], limit: usize) -> Self {
        let mut sections = Vec::new();
        for (table, parts) in tables(edits) {
            parts.into_sections(table, limit.max(1), &mut sections);
        }
        Self { sections }
    }

    /// Returns whether the document is empty.
    pub fn is_empty(&self) -> bool {
        self.sections.is_empty()
    }

    /// Returns the number of sections. Each is a separate commit.
    pub fn sections(&self) -> usize {
        self.sections.len()
    }

    /// Returns the keys of the objects that the first `sections` sections create,
    /// change or delete.
    pub fn objects_of(&self, sections: usize) -> impl Iterator<Item = Key<'a>> {
        self.sections.iter().take(sections).flat_map(|section| {
            let chains = section.declared.iter().copied();
            let entries = section.deleted.iter().copied();
            let entries = entries.chain(section.added.iter().map(|it| it.entry));
            chains.map(Chain::key).chain(entries.map(SharedRule::key))
        })
    }

    /// Returns the number of chains that are created, flushed or deleted.
    pub fn chains(&self) -> usize {
        self.sections.iter().map(|it| it.declared.len()).sum()
    }
}

/// Groups edits by table, in name order.
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
            added: Vec::new(),
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
            Edit::Add(Object::SharedRule(entry)) => self.added.push(entry),
            Edit::Remove(Object::SharedRule(entry)) => self.deleted.push(entry),
            // Shared rules with equal keys are equal.
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
                section.appended.push(chain);
            }
        }
        for entry in self.deleted {
            if !emptied.contains(&entry.chain) {
                filling.section().deleted.push(entry);
            }
        }
        let is_head = |entry: &&&SharedRule| entry.position == Position::Head;
        let heads = self.added.iter().filter(is_head);
        let tails = self.added.iter().filter(|entry| !is_head(entry));
        for &entry in heads.chain(tails) {
            let inserts = entry.position == Position::Head && !empty.contains(&entry.chain);
            filling.section().added.push(Added { entry, inserts });
        }
        // A chain is deleted after all chains that jump to it.
        for chain in targets_first(&self.removed).into_iter().rev() {
            let section = filling.section();
            section.declared.push(chain);
            // A built-in chain is flushed but not deleted.
            if chain.policy.is_none() {
                section.removed.push(chain);
            }
        }
    }
}

/// Distributes objects over the sections of one table.
struct Filling<'o, 'a> {
    table: TableName,
    limit: usize,
    /// Number of objects in the last section.
    len: usize,
    sections: &'o mut Vec<Section<'a>>,
}

impl<'o, 'a> Filling<'o, 'a> {
    const fn new(table: TableName, limit: usize, sections: &'o mut Vec<Section<'a>>) -> Self {
        Self {
            table,
            limit,
            len: limit,
            sections,
        }
    }

    /// Returns a section with room for one more object.
    fn section(&mut self) -> &mut Section<'a> {
        if self.len == self.limit {
            self.len = 0;
            self.sections.push(Section::new(self.table));
        }
        self.len += 1;
        self.sections.last_mut().expect("one was pushed")
    }
}

impl Section<'_> {
    const fn new(table: TableName) -> Self {
        Self {
            table,
            declared: Vec::new(),
            deleted: Vec::new(),
            appended: Vec::new(),
            added: Vec::new(),
            removed: Vec::new(),
        }
    }
}

/// Sorts chains topologically: each after the chains that its rules jump to.
fn targets_first<'a>(chains: &[&'a Chain]) -> Vec<&'a Chain> {
    let places: HashMap<&str, usize> = (0..)
        .zip(chains)
        .map(|(place, chain)| (chain.name.as_str(), place))
        .collect();
    let mut is_seen = vec![false; chains.len()];
    let mut sorted = Vec::with_capacity(chains.len());
    for start in 0..chains.len() {
        // The current path, with the remaining targets of each chain.
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

/// Returns the jump targets of a chain's rules.
fn targets(chain: &Chain) -> impl Iterator<Item = &str> {
    chain.rules().filter_map(jump_target)
}

/// Returns the target of `-j` or `-g` if the rule ends with it: a chain, or a target
/// without options.
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

/// The input of `iptables-restore`.
impl fmt::Display for Restore<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.sections.iter().try_for_each(|section| section.fmt(f))
    }
}

impl fmt::Display for Section<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "*{}", self.table)?;
        // Reverse order: the nft variant inserts into a sorted list, and finds the
        // position of the smallest name at once.
        let mut declared = self.declared.clone();
        declared.sort_unstable_by_key(|chain| Reverse(chain.name));
        for chain in declared {
            match chain.policy {
                None => writeln!(f, ":{} - [0:0]", chain.name)?,
                // Declaring a built-in chain sets its policy and keeps its rules.
                Some(policy) => writeln!(f, ":{} {policy} [0:0]\n-F {0}", chain.name)?,
            }
        }
        for entry in &self.deleted {
            writeln!(f, "-D {} {}", entry.chain, entry.rule)?;
        }
        for chain in &self.appended {
            let name = chain.name.as_str();
            for rule in chain.rules() {
                for part in ["-A ", name, " ", rule, "\n"] {
                    f.write_str(part)?;
                }
            }
        }
        for Added { entry, inserts } in &self.added {
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
