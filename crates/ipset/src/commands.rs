//! Commands, and the order in which edits become commands.

use std::collections::{BTreeMap, BTreeSet};

use vipline_reconcile::Edit;

use crate::wire::{self, Request};
use crate::{Entry, Name, Object, Set, SetType, Sets};

/// Behavior if an object already exists, or is already missing.
///
/// Exhaustive: a command rejects an existing or missing object, or ignores it.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Strictness {
    /// Creating or adding an existing object, and deleting a missing one, are errors.
    #[default]
    Strict,
    /// `-exist`: such commands succeed. Adding an existing entry updates its
    /// timeout, counters and comment.
    Exist,
}

/// A command, like a line of `ipset restore` input.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Command {
    /// Creates a set.
    Create(Box<Set>, Strictness),
    /// Destroys a set with its entries.
    Destroy(Name, Strictness),
    /// Destroys all sets. The kernel rejects it while a rule uses any of them.
    DestroyAll,
    /// Removes the entries of a set.
    Flush(Name),
    /// Removes the entries of all sets.
    FlushAll,
    /// Renames the first set to the second name, which must be free.
    Rename(Name, Name),
    /// Swaps two sets of one type: rules that use the first set then use the second,
    /// and vice versa.
    Swap(Name, Name),
    /// Adds an entry.
    Add(Box<Entry>, Strictness),
    /// Removes an entry.
    Delete(Box<Entry>, Strictness),
    /// Tests for an entry. The kernel rejects the command if the set lacks the entry.
    Test(Box<Entry>),
    /// Copies entries of a set to another set, except those that do not fit.
    ///
    /// The kernel has no such command: [`Client`](crate::Client) dumps the entries and
    /// adds them with `-exist`. Callers with their own socket replace it with
    /// [`Commands::resolve_copies`].
    Copy {
        /// The set to read.
        from: Name,
        /// The set to add to.
        to: Box<Set>,
    },
}

/// An ordered list of commands.
///
/// The list is not atomic: the kernel applies all commands before a rejected one.
/// `Display` prints the input of `ipset restore`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Commands {
    commands: Vec<Command>,
}

impl Commands {
    /// Creates an empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the commands that apply these edits.
    ///
    /// Sets are created first.
    /// Entries are deleted before others are added.
    /// Lists are destroyed before the sets that they contain, and all other sets
    /// last.
    /// If the properties of a set change, a successor is created, receives the
    /// entries of the old set and the edits, and is swapped with the old set.
    /// If the type or family changes, the successor is renamed after the old set is
    /// destroyed. The kernel rejects that while a rule or list uses the set.
    ///
    /// Entries of a removed set need no command of their own.
    pub fn from_edits(edits: &[Edit<Object>]) -> Self {
        let mut plan = Plan::default();
        for edit in edits {
            plan.take(edit);
        }
        plan.commands()
    }

    /// Returns the messages of the commands, for callers with their own socket.
    ///
    /// `protocol` is the negotiated protocol version, 6 or 7.
    /// The kernel acknowledges each message. Send the next one after the
    /// acknowledgment.
    ///
    /// # Errors
    ///
    /// [`UnresolvedCopy`] if the list contains a [`Command::Copy`], which has no
    /// message. Replace it with [`Self::resolve_copies`] first.
    ///
    /// ```
    /// use vipline_ipset::{DumpDecoder, Commands};
    ///
    /// let text = "create web hash:ip family inet\nadd web 10.0.0.1\n";
    /// let mut decoder = DumpDecoder::new();
    /// for request in Commands::parse(text, &[])?.requests(7)? {
    ///     decoder.push(&request.payload)?;
    /// }
    /// assert_eq!(decoder.finish().to_string(), text);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn requests(&self, protocol: u8) -> Result<Vec<Request>, UnresolvedCopy> {
        let (mut requests, mut rest) = (Vec::new(), self.as_slice());
        while let Some(first) = rest.first() {
            if let Command::Copy { from, .. } = first {
                return Err(UnresolvedCopy { from: from.clone() });
            }
            let (request, count) = wire::encode(rest, 1, protocol);
            requests.extend(request);
            rest = rest.get(count..).unwrap_or_default();
        }
        Ok(requests)
    }

    /// Replaces each [`Command::Copy`] with additions of the entries that `installed`
    /// has for the set.
    ///
    /// `installed` is the dump from which the edits were made. A set that is not in
    /// `installed` has no entries.
    #[must_use]
    pub fn resolve_copies(self, installed: &Sets) -> Self {
        let resolve = |command: Command| match command {
            Command::Copy { from, to } => match installed.get(from.as_str()) {
                Some(listed) => copies(listed.entries.iter().cloned(), &to).collect(),
                None => Vec::new(),
            },
            other => vec![other],
        };
        let commands: Vec<Command> = self.commands.into_iter().flat_map(resolve).collect();
        commands.into()
    }

    /// Appends a command.
    pub fn push(&mut self, command: Command) {
        self.commands.push(command);
    }

    /// Returns the commands.
    pub fn as_slice(&self) -> &[Command] {
        &self.commands
    }

    /// Returns the number of commands.
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    /// Returns whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }
}

impl FromIterator<Command> for Commands {
    fn from_iter<I: IntoIterator<Item = Command>>(commands: I) -> Self {
        Self {
            commands: commands.into_iter().collect(),
        }
    }
}

impl From<Vec<Command>> for Commands {
    fn from(commands: Vec<Command>) -> Self {
        Self { commands }
    }
}

impl Extend<Command> for Commands {
    fn extend<I: IntoIterator<Item = Command>>(&mut self, commands: I) {
        self.commands.extend(commands);
    }
}

/// A [`Command::Copy`] in a list of commands that are encoded to messages.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("entries of set {from} are not copied yet: resolve copies before encoding messages")]
#[non_exhaustive]
pub struct UnresolvedCopy {
    /// The set whose entries are to be copied.
    pub from: Name,
}

/// Returns additions of those entries that a set can contain.
pub(crate) fn copies(
    entries: impl Iterator<Item = Entry>,
    to: &Set,
) -> impl Iterator<Item = Command> {
    let admitted = entries.filter_map(|entry| to.admit(entry));
    admitted.map(|entry| Command::Add(Box::new(entry), Strictness::Exist))
}

/// Edits, grouped by the phase in which they are applied.
#[derive(Default)]
struct Plan<'e> {
    made: Vec<&'e Set>,
    changed: BTreeMap<&'e Name, (&'e Set, &'e Set)>,
    removed: Vec<&'e Set>,
    /// Deletions and additions of each set, in their order.
    entries: BTreeMap<&'e Name, (Vec<Command>, Vec<Command>)>,
}

impl<'e> Plan<'e> {
    fn take(&mut self, edit: &'e Edit<Object>) {
        match edit {
            Edit::Add(Object::Set(set)) => self.made.push(set),
            Edit::Remove(Object::Set(set)) => self.removed.push(set),
            Edit::Change {
                old: Object::Set(old),
                new: Object::Set(new),
            } => {
                self.changed.insert(&new.name, (old, new));
            }
            Edit::Add(Object::Entry(entry)) => {
                let add = Command::Add(entry.clone(), Strictness::Strict);
                self.entries(&entry.set).1.push(add);
            }
            Edit::Remove(Object::Entry(entry)) => {
                // Without options: the set may not support those of the entry.
                let bare = Entry::new(entry.set.clone(), entry.member.clone());
                let delete = Command::Delete(Box::new(bare), Strictness::Strict);
                self.entries(&entry.set).0.push(delete);
            }
            Edit::Change {
                new: Object::Entry(entry),
                ..
            } => {
                let add = Command::Add(entry.clone(), Strictness::Exist);
                self.entries(&entry.set).1.push(add);
            }
            // A set and an entry never have equal keys.
            Edit::Change { .. } => {}
        }
    }

    fn entries(&mut self, set: &'e Name) -> &mut (Vec<Command>, Vec<Command>) {
        self.entries.entry(set).or_default()
    }

    fn commands(mut self) -> Commands {
        let removed: BTreeSet<&Name> = self.removed.iter().map(|set| &set.name).collect();
        self.entries.retain(|set, _| !removed.contains(set));
        let made = self.made.iter().map(|set| (*set).clone());
        let mut commands: Vec<Command> = made
            .map(|set| Command::Create(Box::new(set), Strictness::Strict))
            .collect();
        // A successor left over from a failed commit is destroyed with the change of
        // its set.
        let successors: BTreeSet<Name> = self.changed.keys().map(|name| name.successor()).collect();
        self.removed.retain(|set| !successors.contains(&set.name));
        let mut added = Vec::new();
        for (deletes, adds) in self.unchanged() {
            commands.extend(deletes);
            added.extend(adds);
        }
        let is_list = |set: &Set| set.set_type == SetType::ListSet;
        let (lists, others): (Vec<&Set>, Vec<&Set>) =
            self.removed.iter().partition(|set| is_list(set));
        let destroy = |set: &Set| Command::Destroy(set.name.clone(), Strictness::Strict);
        commands.extend(lists.into_iter().map(destroy));
        let mut changed: Vec<_> = self.changed.into_values().collect();
        changed.sort_by_key(|(old, new)| (!is_list(old), is_list(new)));
        for (old, new) in changed {
            let edits = self.entries.remove(&new.name).unwrap_or_default();
            succeed(&mut commands, old, new, edits);
        }
        commands.extend(added);
        commands.extend(others.into_iter().map(destroy));
        commands.into()
    }

    /// Removes and returns the deletions and additions of sets whose properties do
    /// not change.
    fn unchanged(&mut self) -> Vec<(Vec<Command>, Vec<Command>)> {
        let changed = &self.changed;
        let (stay, unchanged) = std::mem::take(&mut self.entries)
            .into_iter()
            .partition(|(set, _)| changed.contains_key(set));
        self.entries = stay;
        let unchanged: BTreeMap<_, _> = unchanged;
        unchanged.into_values().collect()
    }
}

/// Appends the commands that change the properties of a set.
fn succeed(
    commands: &mut Vec<Command>,
    old: &Set,
    new: &Set,
    (deletes, adds): (Vec<Command>, Vec<Command>),
) {
    let name = &new.name;
    let successor = name.successor();
    let mut set = Box::new(new.clone());
    set.name = successor.clone();
    commands.extend([
        // A failed commit may have left a successor.
        Command::Destroy(successor.clone(), Strictness::Exist),
        Command::Create(set.clone(), Strictness::Strict),
        Command::Copy {
            from: name.clone(),
            to: set,
        },
    ]);
    // Entries that the new set cannot hold were not copied.
    let copied = |command: &Command| match command {
        Command::Delete(entry, _) => new.admit((**entry).clone()).is_some(),
        _ => true,
    };
    let edits = deletes.into_iter().filter(copied).chain(adds);
    commands.extend(edits.map(|command| command.within(&successor)));
    if old.set_type == new.set_type && old.family == new.family {
        commands.extend([
            Command::Swap(name.clone(), successor.clone()),
            Command::Destroy(successor, Strictness::Strict),
        ]);
    } else {
        commands.extend([
            Command::Destroy(name.clone(), Strictness::Strict),
            Command::Rename(successor, name.clone()),
        ]);
    }
}

impl Command {
    /// Redirects an addition or deletion to another set, with `-exist`: the entries
    /// that the other set has depend on what was copied.
    fn within(self, set: &Name) -> Self {
        let moved = |mut entry: Box<Entry>| {
            entry.set = set.clone();
            entry
        };
        match self {
            Self::Add(entry, _) => Self::Add(moved(entry), Strictness::Exist),
            Self::Delete(entry, _) => Self::Delete(moved(entry), Strictness::Exist),
            other => other,
        }
    }

    /// Returns the name of the set that the command applies to; `None` for all sets.
    pub fn set(&self) -> Option<&Name> {
        match self {
            Self::Create(set, _) => Some(&set.name),
            Self::Add(entry, _) | Self::Delete(entry, _) | Self::Test(entry) => Some(&entry.set),
            Self::Destroy(name, _)
            | Self::Flush(name)
            | Self::Rename(name, _)
            | Self::Swap(name, _)
            | Self::Copy { from: name, .. } => Some(name),
            Self::DestroyAll | Self::FlushAll => None,
        }
    }
}
