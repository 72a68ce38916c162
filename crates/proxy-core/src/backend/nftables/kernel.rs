//! nf_tables as the kernel of one family: our table and nothing else.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]

use std::borrow::Cow;
use std::os::fd::{AsFd, BorrowedFd};
use std::slice;

use vipline_netlink::Counters;
use vipline_nftables::{Client, Error, Object, TableId};
use vipline_reconcile::{self as reconcile, Edit};
use vipline_service_model::Family;

use super::batches::{is_set_exchanged, transactions, with_users};
use super::table::Table;

/// Our table of one family in the kernel's nf_tables.
#[derive(Debug)]
pub struct Kernel {
    client: Client,
    table: TableId,
}

impl Kernel {
    /// Opens nf_tables in the network namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// What the kernel says to opening a netlink socket.
    pub fn open(family: Family) -> Result<Self, Error> {
        let client = Client::open()?;
        let table = Table::of(family).id.clone();
        Ok(Self { client, table })
    }

    /// Returns how often and how much was sent and received.
    pub fn counters(&self) -> Counters {
        self.client.counters()
    }
}

impl AsFd for Kernel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.client.as_fd()
    }
}

impl reconcile::Kernel for Kernel {
    type Object = Object;
    type Error = Error;

    fn dump(&mut self) -> Result<Vec<Object>, Error> {
        let ruleset = self.client.dump(slice::from_ref(&self.table))?;
        Ok(ruleset.into_objects().collect())
    }

    fn commit(&mut self, edits: &[Edit<Object>]) -> Result<(), Error> {
        let edits = match edits.iter().any(is_set_exchanged) {
            true => Cow::Owned(with_users(edits, self.dump()?)),
            false => Cow::Borrowed(edits),
        };
        for transaction in transactions(&edits) {
            self.client.commit(&transaction)?;
        }
        Ok(())
    }
}
