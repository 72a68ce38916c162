//! A change: commands, and the order that edits have as such.

use std::collections::{BTreeMap, BTreeSet};

use vipline_reconcile::Edit;

use crate::wire::{self, Request};
use crate::{Entry, Name, Object, Set, SetType};

/// Whether a command minds that there is nothing to do.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Strictness {
    /// What exists is not made again, what is missing cannot be removed.
    #[default]
    Strict,
    /// It is fine when it is so already, as with `-exist`; what is known about
    /// an entry that exists is written anew.
    Exist,
}

/// One command.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Command {
    /// Makes a set.
    Create(Box<Set>, Strictness),
    /// Removes a set with its entries.
    Destroy(Name, Strictness),
    /// Removes the entries of a set.
    Flush(Name),
    /// Gives the first set the second name, which must be free.
    Rename(Name, Name),
    /// Exchanges two sets of one type under whoever uses them.
    Swap(Name, Name),
    /// Adds an entry.
    Add(Box<Entry>, Strictness),
    /// Removes an entry.
    Delete(Box<Entry>, Strictness),
    /// Adds the entries of a set to another, as far as that can have them.
    ///
    /// The kernel has no such command: they are read and written.
    Copy {
        /// The set to read.
        from: Name,
        /// The set to add to.
        to: Box<Set>,
    },
}

/// Commands in their order.
///
/// They are not done as a whole: what stands before one that is refused is
/// done.
/// `Display` is what `ipset restore` reads.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Commands {
    commands: Vec<Command>,
}

impl Commands {
    /// Returns no commands.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the commands that make these edits.
    ///
    /// Sets are made first, entries are deleted before others are added, lists
    /// are destroyed before what they list, and other sets last.
    /// Where the properties of a set change, one is made beside it, gets the
    /// entries of the old one and the edits of entries, and is swapped with it
    /// under whoever uses it; one of another type takes its place when it is
    /// gone, which the kernel refuses as long as it is in use.
    ///
    /// Entries of a set that is removed need no command of their own.
    pub fn from_edits(edits: &[Edit<Object>]) -> Self {
        let mut plan = Plan::default();
        for edit in edits {
            plan.take(edit);
        }
        plan.commands()
    }

    /// Returns the messages of the commands, for those with a socket of their own.
    ///
    /// Each is answered, and the next is to be sent when it was done.
    /// [`Command::Copy`] has none.
    ///
    /// ```
    /// use vipline_ipset::{DumpDecoder, Commands};
    ///
    /// let text = "create web hash:ip family inet\nadd web 10.0.0.1\n";
    /// let mut decoder = DumpDecoder::new();
    /// for request in Commands::parse(text, &[])?.requests(7) {
    ///     decoder.push(&request.payload)?;
    /// }
    /// assert_eq!(decoder.finish().to_string(), text);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn requests(&self, protocol: u8) -> Vec<Request> {
        let (mut requests, mut rest) = (Vec::new(), self.as_slice());
        while !rest.is_empty() {
            let (request, count) = wire::encode(rest, 1, protocol);
            requests.extend(request);
            rest = rest.get(count..).unwrap_or_default();
        }
        requests
    }

    /// Adds a command at the end.
    pub fn push(&mut self, command: Command) {
        self.commands.push(command);
    }

    /// Returns the commands.
    pub fn as_slice(&self) -> &[Command] {
        &self.commands
    }

    /// Returns how many commands there are.
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    /// Tells whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
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

/// Edits by what has to be done at which time.
#[derive(Default)]
struct Plan<'e> {
    made: Vec<&'e Set>,
    changed: BTreeMap<&'e Name, (&'e Set, &'e Set)>,
    removed: Vec<&'e Set>,
    /// Deletions and additions by set, for each in their order.
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
                // The set that it is deleted from may not know its options.
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
            // A key is of a set or of an entry, so nothing becomes the other.
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
        // One that is left over from an attempt that ended early goes with it.
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

    /// Takes the deletions and additions of sets whose properties stay.
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

/// Appends what gives a set other properties.
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
        // It may be left over from an attempt that ended early.
        Command::Destroy(successor.clone(), Strictness::Exist),
        Command::Create(set.clone(), Strictness::Strict),
        Command::Copy {
            from: name.clone(),
            to: set,
        },
    ]);
    // What the new set cannot have was not copied to it.
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
    /// Has an entry added to or deleted from this set, and does not mind if it
    /// is so already: what the set has depends on what could be copied.
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

    /// Returns the set that the command is about.
    pub fn set(&self) -> &Name {
        match self {
            Self::Create(set, _) => &set.name,
            Self::Add(entry, _) | Self::Delete(entry, _) => &entry.set,
            Self::Destroy(name, _)
            | Self::Flush(name)
            | Self::Rename(name, _)
            | Self::Swap(name, _)
            | Self::Copy { from: name, .. } => name,
        }
    }
}
