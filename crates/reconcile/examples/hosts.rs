//! Keeps a file of names and addresses, like `/etc/hosts`, equal to what several owners
//! want.
//!
//! Run: `cargo run --example hosts -- FILE`. Lines that no owner wants
//! are removed. The second run finds the lines of the first one, and changes only what
//! differs.
#![allow(clippy::disallowed_methods, reason = "IO file")]

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;
use std::{fs, io};

use vipline_reconcile::{Edit, Keyed, Ledger, Reconciler, Rejection, Target};

/// A line of the file.
#[derive(Clone, Debug, PartialEq)]
struct Host {
    name: String,
    address: String,
}

impl Keyed for Host {
    type Key<'a> = &'a str;

    fn key(&self) -> &str {
        &self.name
    }

    fn is_equivalent(&self, other: &Self) -> bool {
        self == other
    }
}

/// The file, as the state that another program may change.
struct HostsFile<W> {
    path: PathBuf,
    out: W,
}

impl<W: io::Write> Target for HostsFile<W> {
    type Object = Host;
    type Error = io::Error;

    fn dump(&mut self) -> io::Result<Vec<Host>> {
        let host = |line: &str| {
            let (address, name) = line.split_once(' ')?;
            let (name, address) = (name.to_owned(), address.to_owned());
            Some(Host { name, address })
        };
        match fs::read_to_string(&self.path) {
            Ok(text) => Ok(text.lines().filter_map(host).collect()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    fn commit(&mut self, edits: &[Edit<Host>]) -> io::Result<Vec<Rejection>> {
        let mut hosts = self.dump()?;
        for edit in edits {
            let verb = match edit {
                Edit::Add(_) => "add",
                Edit::Change { .. } => "change",
                Edit::Remove(_) => "remove",
            };
            let Host { name, address } = edit.object();
            writeln!(self.out, "{verb} {address} {name}")?;
            hosts.retain(|host| host.name != *name);
            if !matches!(edit, Edit::Remove(_)) {
                hosts.push(edit.object().clone());
            }
        }
        let lines = hosts
            .iter()
            .map(|host| format!("{} {}\n", host.address, host.name));
        fs::write(&self.path, lines.collect::<String>())?;
        Ok(Vec::new())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: hosts FILE")?;
    Ok(run(path.into(), io::stdout())?)
}

/// Writes what the owners want, and then the changes of one owner.
pub(crate) fn run(path: PathBuf, out: impl io::Write) -> io::Result<()> {
    let host = |name: &str, address: &str| Host {
        name: name.into(),
        address: address.into(),
    };
    let mut ledger = Ledger::new();
    let mut reconciler = Reconciler::new(HostsFile { path, out });
    // The state of the file is unknown: this dumps the file and commits the difference.
    ledger.replace(
        "web",
        vec![host("www", "10.0.0.1"), host("api", "10.0.0.2")],
        None,
    );
    ledger.replace("mail", vec![host("mx", "10.0.0.3")], None);
    reconciler.reconcile(ledger.objects(), Duration::ZERO)?;
    // From now on, the cost of a change is that change. The owner `mail` also claims a name
    // of `web`: the least owner has it, here `mail`.
    let wanted = vec![host("mx", "10.0.0.4"), host("www", "10.0.0.9")];
    ledger.replace("mail", wanted, reconciler.pending());
    reconciler.reconcile(ledger.objects(), Duration::ZERO)?;
    // The name returns to its other owner.
    ledger.replace("mail", Vec::new(), reconciler.pending());
    reconciler.reconcile(ledger.objects(), Duration::ZERO)?;
    Ok(())
}
