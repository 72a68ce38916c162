//! Access to the tables of iptables of one family.

use vipline_iptables::{Client, Object, TableName, Variant};
use vipline_nftables::Generation;
use vipline_reconcile::{Attempt, Edit};
use vipline_service_model::Family;

use super::installed::Installed;
use super::own_commits::Trace;
use super::programs;
use crate::Error;
use crate::backend::iptables::plan::layout::Layout;
use crate::backend::iptables::plan::names;
use crate::backend::iptables::plan::rules::iptables_family;

/// Access to the tables of one family.
#[derive(Debug)]
pub(super) enum Tables {
    /// The programs of iptables.
    Programs(Client),
}

impl Tables {
    /// Opens the tables in the network namespace of the calling thread.
    pub(super) fn open(family: Family) -> Result<Self, Error> {
        Ok(Self::Programs(Client::open(iptables_family(family))?))
    }

    /// Returns whether the kernel sends notifications about changes.
    pub(super) fn has_notifications(&self) -> bool {
        match self {
            Self::Programs(client) => client.variant() == Variant::Nft,
        }
    }

    /// Returns whether `MASQUERADE` has the option `--random-fully`.
    pub(super) fn has_random_fully(&self) -> bool {
        match self {
            Self::Programs(client) => client.version().has_random_fully(),
        }
    }

    /// Returns the generation of nf_tables, if the tables are in nf_tables.
    ///
    /// `None` after a failure, whose only consequence is an additional dump.
    pub(super) fn generation(&mut self) -> Option<Generation> {
        match self {
            Self::Programs(client) => programs::generation(client),
        }
    }

    /// Reads the chains of a layout and the jumps to them.
    pub(super) fn read(&mut self, family: Family, layout: Layout) -> Result<Installed, Error> {
        let mut installed = Installed::new(layout);
        for table in layout.tables.iter().map(|name| names::table(name)) {
            match self {
                Self::Programs(client) => programs::read(client, family, table, &mut installed)?,
            }
        }
        Ok(installed)
    }

    /// Returns whether a table has a chain.
    pub(super) fn has_chain(&mut self, table: TableName, chain: &str) -> Result<bool, Error> {
        match self {
            Self::Programs(client) => Ok(programs::has_chain(client, table, chain)?),
        }
    }

    /// Commits the edits that the indices in `batch` select.
    pub(super) fn attempt(
        &mut self,
        trace: &Trace,
        edits: &[Edit<Object>],
        batch: &[usize],
    ) -> Result<Attempt, Error> {
        match self {
            Self::Programs(client) => Ok(programs::attempt(client, trace, edits, batch)?),
        }
    }
}
