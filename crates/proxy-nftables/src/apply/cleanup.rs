//! Removal of the tables of the mode, by netlink.

use std::fmt;

use ipnet::IpNet;
use vipline_nftables::{Client, Error, Family, Name, Object, Table, TableId, Transaction};
use vipline_reconcile::Edit;

use super::super::plan::names::TABLE;
use proxy_engine::cleanup::{Found, Removal, Remove, Step};

/// The tables that were found.
struct Tables(Vec<TableId>);

impl Found for Tables {
    fn plan(&self, _excluded: &[IpNet], removal: &mut Removal) {
        let steps = self.0.iter().cloned().map(RemoveTable).map(Step::new);
        removal.steps.extend(steps);
    }
}

/// Removes a table with its content.
#[derive(Debug)]
struct RemoveTable(TableId);

/// Displays as a shell command.
impl fmt::Display for RemoveTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nft delete table {}", self.0)
    }
}

impl Remove for RemoveTable {
    fn remove(&self) -> Result<(), proxy_engine::Error> {
        let table = Object::from(Table::new(self.0.clone()));
        let transaction = Transaction::from_edits([&Edit::Remove(table)]);
        Client::open()
            .and_then(|mut client| client.commit(&transaction))
            .map_err(proxy_engine::Error::of(self))
    }
}

/// Finds the tables of both families. Finds none if the kernel lacks nf_tables.
///
/// # Errors
///
/// nf_tables cannot be read, although the kernel has it.
pub fn leftovers() -> Result<impl Found, proxy_engine::Error> {
    match tables() {
        Ok(tables) => Ok(Tables(tables)),
        Err(Error::Unsupported { .. }) => Ok(Tables(Vec::new())),
        Err(error) => Err(error.into()),
    }
}

fn tables() -> Result<Vec<TableId>, Error> {
    let mut client = Client::open()?;
    let mut found = Vec::new();
    for family in [Family::Ip, Family::Ip6] {
        let id = TableId::new(family, Name::new(TABLE).expect("a valid name"));
        if client.table(&id)?.is_some() {
            found.push(id);
        }
    }
    Ok(found)
}
