//! Removal of chains and jumps of all modes: over netlink, or by the iptables programs.
//!
//! A host may have rules of both variants of iptables, so both are checked: the legacy
//! tables of xtables, and those in nf_tables.
#![allow(clippy::disallowed_methods, reason = "IO file")]

use std::path::PathBuf;

use std::{env, fmt};

use vipline_iptables::{Client, TableName, Variant, nft, program_name};
use vipline_netlink::Dump;
use vipline_nftables as nftables;
use vipline_service_model::{Counted, Family};

use super::choice::has_compat;
use super::legacy::{legacy_tables, may_have_tables, names_path};
use super::netlink;
use super::program_error::of_program;
use crate::Error;
use crate::IptablesBackend;
use crate::Mode;
use crate::backend::iptables::plan::cleanup::{Document, Saved, SavedRules};
use crate::cleanup::names::Selection;
use crate::cleanup::{Leftovers, Remove, Scope, Search};

/// The mode's part of a removal: the rules of all modes.
pub(in crate::backend) const LEFTOVERS: Leftovers = Leftovers { find };

/// The tables that contain upstream's chains.
const TABLES: [&str; 3] = ["mangle", "filter", "nat"];

/// Traces of rules that are visible without an iptables program.
enum Trace {
    /// No rules exist.
    None,
    /// Rules exist, or may exist, in these tables; with a description.
    Rules(Vec<&'static str>, String),
}

impl Trace {
    /// Rules may exist in any table, because of an error.
    fn unknown(rules: impl fmt::Display, error: impl fmt::Display) -> Self {
        let what = format!("{rules}, of which it is unknown whether they exist ({error})");
        Self::Rules(TABLES.to_vec(), what)
    }
}

/// Finds the chains and jumps in the scope.
fn find(search: &mut Search) -> Result<(), Error> {
    let mut unchecked = Vec::new();
    let rules = read(search.scope(), &mut unchecked);
    search.found(SavedRules(rules));
    unchecked
        .into_iter()
        .for_each(|error| search.unchecked(error));
    Ok(())
}

/// Returns the variant whose tables a backend reads and writes. `None` if it is unknown:
/// [`IptablesBackend::Auto`] is not resolved, or the programs cannot be run.
fn variant_of(backend: IptablesBackend, family: Family) -> Option<Variant> {
    match backend {
        IptablesBackend::Auto => None,
        IptablesBackend::Netlink => Some(Variant::Nft),
        IptablesBackend::Programs => {
            let client = Client::open(family).ok()?;
            Some(client.variant())
        }
    }
}

/// Returns whether a chain of iptables is left from another kube-proxy, for a proxy in a mode
/// with this backend: the proxy neither reads nor changes it, but the kernel evaluates its
/// rules.
///
/// `variant` is the variant of the tables that contain the chain. May run
/// `iptables-restore --version`, to determine the variant of the backend.
pub fn is_leftover_chain(
    mode: Mode,
    backend: IptablesBackend,
    family: Family,
    variant: Variant,
    (table, chain): (&str, &str),
) -> bool {
    let scope = Scope::AllExcept(mode, backend);
    let own = variant_of(backend, family);
    let is_in_use = own.is_none_or(|own| own == variant);
    Selection::new(scope, is_in_use).has_chain(table, chain)
}

/// Returns whether the mode that a scope excepts has its rules in a variant. If that is
/// unknown, it counts as having them in both, so that none of its rules are removed.
fn is_in_use(scope: Scope, family: Family, variant: Variant) -> bool {
    match scope {
        Scope::AllModes => true,
        Scope::AllExcept(_, backend) => {
            variant_of(backend, family).is_none_or(|own| own == variant)
        }
    }
}

/// Returns the tables of both families and variants. Adds an error for each failed check.
fn read(scope: Scope, unchecked: &mut Vec<Error>) -> Vec<Saved> {
    let mut found = Vec::new();
    let mut nft = NftRules::open();
    for family in Family::ALL {
        for variant in Variant::ALL {
            let selection = Selection::new(scope, is_in_use(scope, family, variant));
            let trace = match variant {
                Variant::Legacy => legacy_trace(family),
                Variant::Nft => nft.trace(selection, family),
            };
            let Trace::Rules(tables, objects) = trace else {
                continue;
            };
            if variant == Variant::Nft && matches!(has_compat(family), Ok(true)) {
                let saved = netlink::save(family, &tables);
                let saved = saved.map_err(Error::of(format_args!("read {family} tables")));
                match saved {
                    Ok(text) => found.push(Saved {
                        restore: format!("{}-nft-restore", program_name(family)),
                        text,
                        over_netlink: Some(family),
                        selection,
                    }),
                    Err(error) => unchecked.push(error),
                }
                continue;
            }
            match programs(family, variant) {
                Ok(Some((name, mut client))) => {
                    let text = save(&name, &mut client, &tables, unchecked);
                    found.push(Saved {
                        restore: format!("{name}-restore"),
                        text,
                        over_netlink: None,
                        selection,
                    });
                }
                Ok(None) => {
                    let program = format!("{}-{variant}-save", program_name(family));
                    unchecked.push(Error::NotChecked {
                        objects: objects.into(),
                        program: program.into(),
                    });
                }
                Err(error) => unchecked.push(error),
            }
        }
    }
    found
}

/// Saves tables. Adds an error for each failure.
fn save(name: &str, client: &mut Client, tables: &[&str], unchecked: &mut Vec<Error>) -> String {
    let mut text = String::new();
    for table in tables {
        match client.save(TableName::new(table).expect("a valid name")) {
            Ok(saved) => text += &saved,
            Err(error) => unchecked.push(Error::of(format_args!("{name}-save"))(of_program(error))),
        }
    }
    text
}

impl Remove for Document {
    /// Applies the removals. After an error nothing is removed.
    fn remove(&self) -> Result<(), Error> {
        if let Some(family) = self.over_netlink() {
            let done = nft::Client::open(family).and_then(|mut client| client.commit(self.edits()));
            return done.map(drop).map_err(Error::from);
        }
        let name = self.program();
        let client = open(name)?;
        let mut client = client.ok_or_else(|| Error::NotInstalled { name: name.into() })?;
        let restored = client.restore(&self.text());
        restored.map_err(of_program)
    }

    fn summary(&self) -> String {
        self.counts()
    }
}

/// Finds the programs of a variant, and the prefix of their names.
///
/// If only one variant is installed, its programs may have names without the
/// variant.
pub(super) fn programs(
    family: Family,
    variant: Variant,
) -> Result<Option<(String, Client)>, Error> {
    let name = program_name(family);
    let own = format!("{name}-{variant}");
    if let Some(client) = open(&own)? {
        return Ok(Some((own, client)));
    }
    let client = open(name)?.filter(|client| client.variant() == variant);
    Ok(client.map(|client| (name.to_owned(), client)))
}

/// Opens the programs whose names have this prefix, if they are installed.
fn open(name: &str) -> Result<Option<Client>, Error> {
    let find = |end| find_program(&format!("{name}-{end}"));
    let programs = find("save").zip(find("restore"));
    let client = programs.map(|(save, restore)| Client::open_at(save, restore));
    client.transpose().map_err(of_program)
}

/// Finds a program in the directories of `PATH`.
fn find_program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// Returns the legacy tables with a description.
fn legacy_trace(family: Family) -> Trace {
    let shown = match family {
        Family::V4 => "IPv4",
        Family::V6 => "IPv6",
    };
    let found = match legacy_tables(family) {
        Ok(found) => found,
        Err(_) if !may_have_tables(family) => return Trace::None,
        Err(error) => {
            let path = names_path(family);
            return Trace::unknown(
                format_args!("legacy {shown} iptables tables"),
                format_args!("{path} cannot be read: {error}"),
            );
        }
    };
    let is_there = |table: &&str| found.iter().any(|it| it == table);
    let tables: Vec<_> = TABLES.into_iter().filter(is_there).collect();
    match tables.is_empty() {
        true => Trace::None,
        false => {
            let what = format!("legacy {shown} iptables tables {}", tables.join(", "));
            Trace::Rules(tables, what)
        }
    }
}

/// The rules of the nft variant, as nf_tables shows them.
enum NftRules {
    /// The kernel lacks nf_tables.
    Unsupported,
    /// nf_tables cannot be read.
    Unknown(nftables::Error),
    /// A client of nf_tables.
    Open(nftables::Client),
}

impl NftRules {
    fn open() -> Self {
        let opened = nftables::Client::open().and_then(|mut client| {
            client.generation()?;
            Ok(client)
        });
        match opened {
            Ok(client) => Self::Open(client),
            Err(nftables::Error::Unsupported { .. }) => Self::Unsupported,
            Err(error) => Self::Unknown(error),
        }
    }

    /// Returns the tables that contain upstream's chains.
    ///
    /// Reads only chains: the time of a dump of all rules of a table is quadratic in their
    /// number.
    fn trace(&mut self, selection: Selection, family: Family) -> Trace {
        let rules = format!("chains of iptables in {family} of nf_tables");
        let client = match self {
            Self::Open(client) => client,
            Self::Unsupported => return Trace::None,
            Self::Unknown(error) => return Trace::unknown(rules, error),
        };
        let mut tables = Vec::new();
        let dump = client.chains(family.into(), |chain| {
            let mut own = TABLES.into_iter();
            let table = own.find(|table| *table == chain.table.name.as_str());
            tables.extend(table.filter(|table| selection.has_chain(table, chain.name.as_str())));
        });
        match dump {
            Ok(Dump::Complete(())) => {}
            Err(nftables::Error::Unsupported { .. }) => return Trace::None,
            Ok(Dump::Interrupted(())) => {
                return Trace::unknown(rules, "other programs changed them during each attempt");
            }
            Err(error) => return Trace::unknown(rules, error),
        }
        let tables_with_chains = TABLES.into_iter().filter(|table| tables.contains(table));
        match tables.len() {
            0 => Trace::None,
            count => {
                let what = format!(
                    "{} of iptables in {family} of nf_tables",
                    Counted(count, "chain")
                );
                Trace::Rules(tables_with_chains.collect(), what)
            }
        }
    }
}
