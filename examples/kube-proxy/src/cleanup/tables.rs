//! The tables of mode nftables, removed by netlink.

use std::fmt;

use anyhow::{Context, Result};
use proxy_core::backend::nftables::TABLE;
use vipline_nftables::{Client, Error, Family, Name, Object, Table, TableId, Transaction};
use vipline_reconcile::Edit;

/// A table to remove with its content.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Removal(TableId);

/// Displays as a shell command.
impl fmt::Display for Removal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nft delete table {}", self.0)
    }
}

impl Removal {
    /// Removes the table.
    ///
    /// # Errors
    ///
    /// The kernel rejects the removal.
    pub fn apply(&self, client: &mut Client) -> Result<()> {
        let table = Object::from(Table::new(self.0.clone()));
        let transaction = Transaction::from_edits([&Edit::Remove(table)]);
        client
            .commit(&transaction)
            .with_context(|| self.to_string())
    }
}

/// Returns the tables to remove.
///
/// # Errors
///
/// The tables cannot be dumped, or the kernel lacks nf_tables.
pub fn find(client: &mut Client) -> Result<Vec<Removal>, Error> {
    let mut found = Vec::new();
    for family in [Family::Ip, Family::Ip6] {
        let id = TableId::new(family, Name::new(TABLE).expect("a valid name"));
        let ruleset = client.dump(std::slice::from_ref(&id))?;
        if !ruleset.is_empty() {
            found.push(Removal(id));
        }
    }
    Ok(found)
}
