//! iptables as the kernel of one family: our chains and the jumps to them.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use vipline_iptables::{Client, Error, Object, Restore, Variant, nfacct};
use vipline_nftables as nftables;
use vipline_reconcile::{self as reconcile, Edit};
use vipline_service_model::Family;

use super::installed::Installed;
use super::layout::Layout;
use super::names;
use super::rules::iptables_family;
use crate::backend::tally::Tally;

/// How many chains and entries a section of a document has at most, where the
/// program takes longer for each the more there are.
const SECTION: usize = 150;

/// How many processes of ours are remembered.
const PROCESSES: usize = 64;

/// Our chains of one family, in the tables that iptables shares with others.
#[derive(Debug)]
pub struct Kernel {
    client: Client,
    family: Family,
    layout: Layout,
    pub(super) trace: Trace,
    /// Whether nothing was committed since the last dump.
    is_fresh: bool,
    /// Whether the last dump did not lead to a commit that succeeds: then
    /// chains are written anew, whatever is in them.
    is_doubted: bool,
}

/// What tells our commits from those of others, where the kernel tells of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Trace {
    pub(super) tally: Tally,
    /// The last processes that wrote for us.
    processes: Arc<Mutex<VecDeque<u32>>>,
}

impl Trace {
    /// Returns the trace of another kernel in the same network namespace.
    pub(super) fn of_another(&self) -> Self {
        Self {
            tally: self.tally.of_another(),
            processes: Arc::clone(&self.processes),
        }
    }

    /// Tells whether a process wrote for us.
    pub(super) fn is_ours(&self, process: u32) -> bool {
        let processes = self.processes.lock();
        let processes = processes.unwrap_or_else(PoisonError::into_inner);
        processes.contains(&process)
    }

    fn wrote(&self, process: u32) {
        let processes = self.processes.lock();
        let mut processes = processes.unwrap_or_else(PoisonError::into_inner);
        if processes.len() == PROCESSES {
            processes.pop_front();
        }
        processes.push_back(process);
    }
}

impl Kernel {
    /// Finds the programs of iptables, for the network namespace of the calling
    /// thread.
    ///
    /// # Errors
    ///
    /// There are none, or they are too old.
    pub fn open(family: Family) -> Result<Self, Error> {
        let client = Client::open(iptables_family(family))?;
        Ok(Self::with(client, family))
    }

    /// Takes programs of the caller's own.
    pub fn with(client: Client, family: Family) -> Self {
        Self {
            client,
            family,
            layout: Layout::IPTABLES,
            trace: Trace::default(),
            is_fresh: false,
            is_doubted: false,
        }
    }

    /// Takes the chains of another mode for ours.
    pub(in crate::backend) fn of_layout(mut self, layout: Layout) -> Self {
        self.layout = layout;
        self
    }

    /// Returns the programs.
    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// Returns how much a section of a document holds.
    ///
    /// The nft variant looks for each name among all of the section, and the
    /// legacy variant reads and writes a whole table for each section.
    fn section(&self) -> usize {
        match self.client.variant() {
            Variant::Nft => SECTION,
            _ => usize::MAX,
        }
    }

    /// Returns how many commits of others there were, where the kernel counts.
    fn others(&self) -> Option<u32> {
        if self.client.variant() != Variant::Nft {
            return None;
        }
        let generation = nftables::Client::open().and_then(|mut client| client.generation());
        // Who cannot be told of commits dumps once more.
        generation.ok().map(|it| self.trace.tally.others_at(it))
    }
}

impl reconcile::Kernel for Kernel {
    type Object = Object;
    type Error = Error;

    fn dump(&mut self) -> Result<Vec<Object>, Error> {
        let others = self.others();
        let mut installed = Installed::new(self.family, self.layout);
        for table in self.layout.tables.iter().map(|name| names::table(name)) {
            self.client
                .save_lines(table, |line| installed.take::<Error>(table, line))?;
        }
        if let Some(others) = others {
            self.trace.tally.dumped(others);
        }
        self.is_fresh = true;
        Ok(match self.is_doubted {
            true => installed.into_whole_chains(),
            false => installed.into_objects(),
        })
    }

    fn commit(&mut self, edits: &[Edit<Object>]) -> Result<(), Error> {
        let restore = Restore::in_sections(edits, self.section());
        let done = self.client.restore(&restore);
        if let Some(process) = self.client.last_pid() {
            self.trace.wrote(process);
        }
        let was_fresh = std::mem::take(&mut self.is_fresh);
        self.is_doubted = done.is_err() && was_fresh;
        done?;
        let sections = u32::try_from(restore.sections()).unwrap_or(u32::MAX);
        self.trace.tally.committed(sections);
        Ok(())
    }
}

/// Makes the counters that rules count packets by; tells whether there are any.
///
/// Without the module of the kernel there are none, and rules do without.
pub(crate) fn make_counters() -> bool {
    let Ok(mut client) = nfacct::Client::open() else {
        return false;
    };
    let counters = [names::INVALID_DROPPED, names::LOCALHOST_ACCEPTED].map(names::counter);
    counters.iter().all(|name| client.ensure(name).is_ok())
}
