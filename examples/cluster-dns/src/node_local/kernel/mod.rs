//! Interface, addresses and table in the kernel.

use std::fmt;
use std::net::IpAddr;

use vipline_nftables::{Object, Ruleset, Table, Transaction};
use vipline_reconcile::{Edit, diff};
use vipline_rtnl::{Address, Command, Commands, Kind, Link, Name, Snapshot};
use vipline_service_model::Counted;

use super::journal::Journal;
use super::rules::{self, table};
use super::{Error, Options};

/// Attempts to apply a state, if other programs change the kernel at the same time.
const ATTEMPTS: usize = 5;

/// Connections to nf_tables and rtnetlink of one network namespace.
#[derive(Debug)]
pub(super) struct Kernel {
    nftables: vipline_nftables::Client,
    rtnl: vipline_rtnl::Client,
    /// Record of additions. `None` until it was read.
    journal: Option<Journal>,
    /// Type of the interface, if it must be created.
    kind: Kind,
}

/// Changes that were necessary to reach a state.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Changes {
    /// Changed objects of the table.
    pub(super) objects: usize,
    /// Changed interfaces and addresses.
    pub(super) commands: Vec<Command>,
}

impl Kernel {
    /// Opens the connections in the network namespace of the calling thread.
    pub(super) fn open() -> Result<Self, Error> {
        let interface = Name::new(Options::INTERFACE).expect("a valid name");
        Ok(Self {
            nftables: vipline_nftables::Client::open().map_err(rules_error)?,
            rtnl: vipline_rtnl::Client::open().map_err(interface_error(&interface))?,
            journal: None,
            kind: Kind::Dummy,
        })
    }

    /// Returns the netlink port IDs of the connections to nf_tables and rtnetlink.
    pub(super) fn port_ids(&self) -> (u32, u32) {
        (self.nftables.port_id(), self.rtnl.port_id())
    }

    /// Returns whether the rules are installed, such as those of an earlier process.
    pub(super) fn has_rules(&mut self) -> Result<bool, Error> {
        let ruleset = self.dump()?;
        Ok(ruleset
            .objects()
            .any(|object| matches!(object, Object::Chain(_))))
    }

    /// Adds interface and addresses, and `with_rules` also the rules. Removes what this
    /// program added with other options.
    pub(super) fn apply(&mut self, options: &Options, with_rules: bool) -> Result<Changes, Error> {
        for _ in 1..ATTEMPTS {
            match self.try_apply(options, with_rules) {
                Err(error) if is_race(&error) => {}
                done => return done,
            }
        }
        self.try_apply(options, with_rules)
    }

    /// Removes everything that this program added.
    pub(super) fn remove(&mut self) -> Result<Changes, Error> {
        let ruleset = self.dump()?;
        let journal = self.journal.take();
        let journal = journal.unwrap_or_else(|| Journal::read(&ruleset));
        let mut changes = Changes::default();
        let removed = self.removal_of(&journal);
        let removed = removed.and_then(|commands| self.execute(&commands, &mut changes));
        if let Err(error) = removed {
            self.journal = Some(journal);
            return Err(error);
        }
        if ruleset.objects().next().is_some() {
            let edit = Edit::Remove(Object::from(Table::new(table())));
            let transaction = Transaction::from_edits([&edit]);
            match self.nftables.commit(&transaction) {
                Err(error) if error.is_not_found() => {}
                done => done.map_err(rules_error)?,
            }
            changes.objects += 1;
        }
        Ok(changes)
    }

    fn try_apply(&mut self, options: &Options, with_rules: bool) -> Result<Changes, Error> {
        let ruleset = self.dump()?;
        let journal = self.journal.take();
        let mut journal = journal.unwrap_or_else(|| Journal::read(&ruleset));
        let mut changes = Changes::default();
        let target = Target {
            options,
            with_rules,
        };
        let done = self.reach(&target, ruleset, &mut journal, &mut changes);
        self.journal = Some(journal);
        done.map(|()| changes)
    }

    fn reach(
        &mut self,
        target: &Target<'_>,
        ruleset: Ruleset,
        journal: &mut Journal,
        changes: &mut Changes,
    ) -> Result<(), Error> {
        let interface = &target.options.interface;
        let installed = self.rtnl.dump_link(interface);
        let installed = installed.map_err(interface_error(interface))?;
        let additions = additions(target.options, &installed, &self.kind);
        // First the record, so that a later process can remove what this one adds.
        journal.record(&additions);
        self.commit(target, ruleset, journal, changes)?;
        if let Err(error) = self.execute(&additions, changes) {
            // These were not added, or by another program.
            let is_left = |command: &&Command| !changes.commands.contains(command);
            additions
                .iter()
                .filter(is_left)
                .for_each(|command| journal.forget(command));
            return Err(error);
        }
        let unused = journal.without(target.options);
        if unused == Journal::default() {
            return Ok(());
        }
        let removals = self.removal_of(&unused)?;
        self.execute(&removals, changes)?;
        journal.remove(&unused);
        let ruleset = self.dump()?;
        self.commit(target, ruleset, journal, changes)
    }

    fn dump(&mut self) -> Result<Ruleset, Error> {
        let dump = self.nftables.dump(&table());
        dump.map_err(rules_error)
    }

    /// Commits the difference between a dump and the desired table.
    fn commit(
        &mut self,
        target: &Target<'_>,
        installed: Ruleset,
        journal: &Journal,
        changes: &mut Changes,
    ) -> Result<(), Error> {
        let mut desired = vec![rules::table_object()];
        desired.extend(journal.objects());
        if target.with_rules {
            desired.extend(rules::objects(target.options));
        }
        let generation = installed.generation();
        let edits = diff(installed, &desired);
        let transaction = Transaction::from_edits(&edits);
        self.nftables
            .commit_at(&transaction, generation)
            .map_err(rules_error)?;
        changes.objects += edits.len();
        Ok(())
    }

    /// Returns the commands that remove what a record contains and the kernel has.
    fn removal_of(&mut self, journal: &Journal) -> Result<Vec<Command>, Error> {
        let mut names: Vec<Name> = journal.addresses.iter().map(|(name, _)| *name).collect();
        names.extend(&journal.interfaces);
        names.sort_unstable();
        names.dedup();
        let mut commands = Vec::new();
        for name in names {
            let installed = self.rtnl.dump_link(&name);
            let installed = installed.map_err(interface_error(&name))?;
            // Another program may have replaced the interface.
            let is_ours = |link: &Link| link.kind == self.kind;
            if journal.interfaces.contains(&name) && installed.link(&name).is_some_and(is_ours) {
                commands.push(Command::RemoveLink(name));
                continue;
            }
            let is_ours = |address: &&Address| journal.addresses.contains(&(name, address.ip()));
            let addresses = installed.of(&name).filter(is_ours);
            commands.extend(addresses.map(|address| Command::RemoveAddress(*address)));
        }
        Ok(commands)
    }

    /// Executes commands. Objects that do not exist anymore count as removed.
    fn execute(&mut self, commands: &[Command], changes: &mut Changes) -> Result<(), Error> {
        for command in commands {
            let interface = command.interface();
            match self.rtnl.commit(&Commands::from_edits(&[edit(command)])) {
                Err(error) if error.is_not_found() && is_removal(command) => continue,
                Err(error) if error.is_unsupported() && is_dummy(command) => {
                    return Err(Error::NoDummy(interface));
                }
                done => done.map_err(interface_error(&interface))?,
            }
            changes.commands.push(command.clone());
        }
        Ok(())
    }
}

/// State to reach.
struct Target<'a> {
    options: &'a Options,
    with_rules: bool,
}

impl Changes {
    /// Returns whether nothing was changed.
    pub(super) fn is_empty(&self) -> bool {
        self.objects == 0 && self.commands.is_empty()
    }
}

/// Displays as words of a log line.
impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { objects, commands } = self;
        write!(f, "{} of table {}", Counted(*objects, "object"), table())?;
        commands
            .iter()
            .try_for_each(|command| write!(f, ", {command}"))
    }
}

/// Removes everything that a process of this program added and did not remove: interfaces,
/// addresses and the table. Returns whether there was anything.
///
/// Another running process repairs the removal.
///
/// # Errors
///
/// [`Error`] if the kernel cannot be read or changed, such as without `CAP_NET_ADMIN`.
pub fn cleanup() -> Result<bool, Error> {
    Ok(!Kernel::open()?.remove()?.is_empty())
}

/// Returns the commands that add interface and addresses to what is installed.
fn additions(options: &Options, installed: &Snapshot, kind: &Kind) -> Vec<Command> {
    let interface = options.interface;
    let mut commands = Vec::new();
    if installed.link(&interface).is_none() {
        let link = Link::new(interface, kind.clone());
        commands.push(Command::AddLink(link));
    }
    let is_missing = |address: &&IpAddr| {
        let mut installed = installed.of(&interface);
        !installed.any(|it| it.ip() == **address)
    };
    let missing = options.addresses.iter().filter(is_missing);
    commands.extend(missing.map(|address| {
        let address = Address::new(interface, (*address).into());
        Command::AddAddress(address)
    }));
    commands
}

/// Returns the edit that a command makes.
fn edit(command: &Command) -> Edit<vipline_rtnl::Object> {
    match command.clone() {
        Command::AddLink(link) => Edit::Add(link.into()),
        Command::RemoveLink(name) => Edit::Remove(Link::dummy(name).into()),
        Command::AddAddress(address) => Edit::Add(address.into()),
        Command::RemoveAddress(address) => Edit::Remove(address.into()),
    }
}

fn is_dummy(command: &Command) -> bool {
    matches!(command, Command::AddLink(link) if link.kind == Kind::Dummy)
}

fn is_removal(command: &Command) -> bool {
    matches!(command, Command::RemoveLink(_) | Command::RemoveAddress(_))
}

/// Returns whether an error may be the result of a concurrent change by another program.
fn is_race(error: &Error) -> bool {
    match error {
        Error::Interface { error, .. } => error.is_already_exists() || error.is_not_found(),
        Error::Rules { error, .. } => {
            error.is_outdated() || error.is_not_found() || error.is_already_exists()
        }
        _ => false,
    }
}

fn rules_error(error: vipline_nftables::Error) -> Error {
    Error::Rules {
        table: table().to_string(),
        error,
    }
}

fn interface_error(interface: &Name) -> impl FnOnce(vipline_rtnl::Error) -> Error + use<> {
    let interface = *interface;
    move |error| Error::Interface { interface, error }
}

#[cfg(test)]
mod tests;
