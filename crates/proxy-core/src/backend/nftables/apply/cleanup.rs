//! Removal of the tables of the mode, by netlink.

use std::fmt;

use ipnet::IpNet;
use vipline_nftables::{Client, Error, Family, Name, Object, Table, TableId, Transaction};
use vipline_reconcile::Edit;

use super::super::plan::names::TABLE;
use crate::Mode;
use crate::cleanup::{Found, Leftovers, Removal, Remove, Search, Step};

/// The mode's part of a removal.
pub(in crate::backend) const LEFTOVERS: Leftovers = Leftovers { find };

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
    fn remove(&self) -> Result<(), crate::Error> {
        let table = Object::from(Table::new(self.0.clone()));
        let transaction = Transaction::from_edits([&Edit::Remove(table)]);
        Client::open()
            .and_then(|mut client| client.commit(&transaction))
            .map_err(crate::Error::of(self))
    }
}

/// Finds the tables of both families. Finds none if the kernel lacks nf_tables.
///
/// The tables are read in every scope: if nf_tables cannot be read, the chains of the nft
/// variant of iptables cannot be read, either.
fn find(search: &mut Search) -> Result<(), crate::Error> {
    match tables() {
        Ok(tables) if search.includes(Mode::Nftables) => search.found(Tables(tables)),
        Ok(_) | Err(Error::Unsupported { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
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
