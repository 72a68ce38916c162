//! The iptables kernel of one family, limited to our chains and the jumps to them.

use std::collections::HashSet;

use vipline_iptables::{Client, Object, nfacct};
use vipline_reconcile::{self as reconcile, Atomic, Attempt, Edit, Rejection, isolate};
use vipline_service_model::Family;

use super::batch::Batch;
use super::own_commits::Trace;
use super::rejections::Groups;
use super::shared_chains::SharedChains;
use super::tables::Tables;
use crate::backend::iptables::plan::layout::Layout;
use crate::backend::iptables::plan::names;
use crate::{Error, IptablesBackend};

/// Maximum number of rejected batches in a commit.
const ATTEMPTS: usize = 24;

/// The chains of kube-proxy in one family. Other programs have chains in the same tables.
#[derive(Debug)]
pub struct Kernel {
    tables: Tables,
    family: Family,
    layout: Layout,
    pub(super) trace: Trace,
    /// Whether nothing was committed since the last dump.
    is_fresh: bool,
    /// Whether the commit after the last dump failed. If so, shared chains are rewritten
    /// regardless of their contents.
    must_rewrite: bool,
    shared_chains: SharedChains,
}

impl Kernel {
    /// Finds the iptables programs, for the network namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// [`Error::Permanent`] if no programs are found, or if their version is too old.
    pub fn open(family: Family) -> Result<Self, Error> {
        Self::open_with(family, IptablesBackend::Programs)
    }

    /// Opens a kernel with a backend. [`IptablesBackend::Auto`] counts as the programs.
    ///
    /// # Errors
    ///
    /// The same as [`open`](Self::open), and the error of vipline-iptables if a netlink socket
    /// cannot be opened.
    pub fn open_with(family: Family, backend: IptablesBackend) -> Result<Self, Error> {
        Ok(Self::with_tables(Tables::open(family, backend)?, family))
    }

    /// Creates a kernel with a client of the caller.
    pub fn with_client(client: Client, family: Family) -> Self {
        Self::with_tables(Tables::Programs(client), family)
    }

    fn with_tables(tables: Tables, family: Family) -> Self {
        Self {
            tables,
            family,
            layout: Layout::IPTABLES,
            trace: Trace::default(),
            is_fresh: false,
            must_rewrite: false,
            shared_chains: SharedChains::default(),
        }
    }

    /// Sets the layout, to own the chains of another mode.
    pub(in crate::backend) fn of_layout(mut self, layout: Layout) -> Self {
        self.layout = layout;
        self
    }

    /// Returns the netlink port ID of the socket that commits, if there is one.
    pub(super) fn port_id(&self) -> Option<u32> {
        self.tables.port_id()
    }

    /// Returns whether iptables supports `--random-fully`.
    pub(in crate::backend) fn has_random_fully(&self) -> bool {
        self.tables.has_random_fully()
    }

    /// Returns whether rules can count packets with nfacct.
    pub(in crate::backend) fn has_nfacct(&mut self) -> bool {
        self.tables.has_nfacct()
    }
}

impl reconcile::Target for Kernel {
    type Object = Object;
    type Error = Error;

    fn dump(&mut self) -> Result<Vec<Object>, Error> {
        let generation = self.tables.generation();
        let installed = self.tables.read(self.family, self.layout)?;
        if let Some(generation) = generation {
            let commit_counter = &self.trace.commit_counter;
            commit_counter.dumped(commit_counter.foreign_at(generation));
        }
        self.is_fresh = true;
        let objects = match self.must_rewrite {
            true => installed.into_whole_chains(),
            false => installed.into_objects(),
        };
        self.shared_chains.dumped(&objects);
        Ok(objects)
    }

    fn commit(&mut self, edits: &[Edit<Object>]) -> Result<Vec<Rejection>, Error> {
        let was_fresh = std::mem::take(&mut self.is_fresh);
        let done = self.commit_most(edits);
        self.must_rewrite = done.is_err() && was_fresh;
        match &done {
            Ok(rejections) => {
                let rejected: HashSet<_> = rejections.iter().map(|it| it.index).collect();
                let is_committed = |(index, _): &(usize, _)| !rejected.contains(index);
                let committed = edits.iter().enumerate().filter(is_committed);
                self.shared_chains
                    .committed(committed.map(|(_, edit)| edit));
            }
            Err(_) => self.shared_chains.forget(),
        }
        done
    }
}

impl Kernel {
    /// Commits edits. If any is rejected, isolates the rejected ones.
    fn commit_most(&mut self, edits: &[Edit<Object>]) -> Result<Vec<Rejection>, Error> {
        let mut all: Vec<_> = (0..edits.len()).collect();
        // Isolation deletes single rules, so that it learns which of them the kernel rejects.
        let rewritten = self.shared_chains.to_rewrite(edits);
        let batch = Batch::rewriting(edits, &all, &rewritten);
        let first = self.tables.attempt(&self.trace, &batch)?;
        if matches!(first, Attempt::Applied) {
            return Ok(Vec::new());
        }
        let groups = Groups::new(edits);
        groups.sort(&mut all);
        let mut committer = Committer {
            kernel: self,
            edits,
            groups,
            first: Some(first),
        };
        let mut budget = ATTEMPTS;
        isolate(&mut committer, all, &mut budget)
    }
}

/// Commits edits without those that are rejected.
struct Committer<'a> {
    kernel: &'a mut Kernel,
    edits: &'a [Edit<Object>],
    groups: Groups<'a>,
    /// Result of the first attempt.
    first: Option<Attempt>,
}

impl Atomic for Committer<'_> {
    type Error = Error;

    fn attempt(&mut self, batch: &[usize]) -> Result<Attempt, Error> {
        if let Some(first) = self.first.take() {
            return Ok(first);
        }
        let Kernel { tables, trace, .. } = &mut *self.kernel;
        tables.attempt(trace, &Batch::new(self.edits, batch))
    }

    fn dependents(&self, rejected: &[usize]) -> Vec<usize> {
        self.groups.dependents(rejected)
    }

    fn split(&self, part: &[usize]) -> usize {
        self.groups.split(part)
    }
}

/// Creates the nfacct counters of rules. Returns whether counters are supported.
///
/// Rules omit the counters if the kernel module is missing.
pub(crate) fn make_counters() -> bool {
    let Ok(mut client) = nfacct::Client::open() else {
        return false;
    };
    let counters = [names::INVALID_DROPPED, names::LOCALHOST_ACCEPTED].map(names::counter);
    counters.iter().all(|name| client.ensure(name).is_ok())
}
