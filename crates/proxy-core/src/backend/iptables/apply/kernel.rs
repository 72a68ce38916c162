//! The iptables kernel of one family, limited to our chains and the jumps to them.

use vipline_iptables::{Client, Error, Object, Restore, Variant, nfacct};
use vipline_nftables::{self as nftables, Generation};
use vipline_reconcile::{self as reconcile, Atomic, Attempt, Edit, Rejection, isolate};
use vipline_service_model::Family;

use super::installed::Installed;
use super::own_commits::{OwnCommits, Run};
use super::rejections::{self, Groups};
use crate::backend::apply::foreign_commits::CommitCounter;
use crate::backend::iptables::plan::layout::Layout;
use crate::backend::iptables::plan::names;
use crate::backend::iptables::plan::rules::iptables_family;

/// Maximum number of chains and entries in a section of a document for the nft variant,
/// whose time per object grows with the size of the section.
const SECTION: usize = 150;

/// Maximum number of rejected documents in a commit.
const RESTORES: usize = 24;

/// The chains of kube-proxy in one family, over the programs of iptables. Other programs
/// have chains in the same tables.
#[derive(Debug)]
pub struct Kernel {
    client: Client,
    family: Family,
    layout: Layout,
    pub(super) trace: Trace,
    /// Whether nothing was committed since the last dump.
    is_fresh: bool,
    /// Whether the commit after the last dump failed. If so, shared chains are rewritten
    /// regardless of their contents.
    must_rewrite: bool,
}

/// Commits of this process, for the nft variant.
#[derive(Clone, Debug, Default)]
pub(super) struct Trace {
    pub(super) commit_counter: CommitCounter,
    pub(super) own: OwnCommits,
}

impl Trace {
    /// Returns the trace of another kernel in the same network namespace.
    pub(super) fn sibling(&self) -> Self {
        Self {
            commit_counter: self.commit_counter.sibling(),
            own: self.own.clone(),
        }
    }
}

impl Kernel {
    /// Finds the iptables programs, for the network namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if no programs are found, and [`Error::Outdated`] if their
    /// version is too old.
    pub fn open(family: Family) -> Result<Self, Error> {
        let client = Client::open(iptables_family(family))?;
        Ok(Self::with_client(client, family))
    }

    /// Creates a kernel with a client of the caller.
    pub fn with_client(client: Client, family: Family) -> Self {
        Self {
            client,
            family,
            layout: Layout::IPTABLES,
            trace: Trace::default(),
            is_fresh: false,
            must_rewrite: false,
        }
    }

    /// Sets the layout, to own the chains of another mode.
    pub(in crate::backend) fn of_layout(mut self, layout: Layout) -> Self {
        self.layout = layout;
        self
    }

    /// Returns the iptables client.
    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// Returns whether iptables supports `--random-fully`.
    pub(in crate::backend) fn has_random_fully(&self) -> bool {
        self.client.version().has_random_fully()
    }

    /// Returns the maximum size of a section of a document.
    ///
    /// The nft variant searches each name in the whole section. The legacy variant reads
    /// and writes a whole table for each section.
    fn section(&self) -> usize {
        match self.client.variant() {
            Variant::Nft => SECTION,
            _ => usize::MAX,
        }
    }

    /// Returns the generation of nf_tables. `None` for the legacy variant.
    ///
    /// Also `None` after a failure, whose only consequence is an additional dump.
    fn generation(&self) -> Option<Generation> {
        if self.client.variant() != Variant::Nft {
            return None;
        }
        let generation = nftables::Client::open().and_then(|mut client| client.generation());
        generation.ok()
    }
}

impl reconcile::Target for Kernel {
    type Object = Object;
    type Error = Error;

    fn dump(&mut self) -> Result<Vec<Object>, Error> {
        let generation = self.generation();
        let mut installed = Installed::new(self.family, self.layout);
        for table in self.layout.tables.iter().map(|name| names::table(name)) {
            self.client
                .save_lines(table, |line| installed.take::<Error>(table, line))?;
        }
        if let Some(generation) = generation {
            let commit_counter = &self.trace.commit_counter;
            commit_counter.dumped(commit_counter.foreign_at(generation));
        }
        self.is_fresh = true;
        Ok(match self.must_rewrite {
            true => installed.into_whole_chains(),
            false => installed.into_objects(),
        })
    }

    fn commit(&mut self, edits: &[Edit<Object>]) -> Result<Vec<Rejection>, Error> {
        let was_fresh = std::mem::take(&mut self.is_fresh);
        let done = self.commit_most(edits);
        self.must_rewrite = done.is_err() && was_fresh;
        done
    }
}

impl Kernel {
    /// Commits edits. If any is rejected, isolates the rejected ones.
    fn commit_most(&mut self, edits: &[Edit<Object>]) -> Result<Vec<Rejection>, Error> {
        let mut all: Vec<_> = (0..edits.len()).collect();
        let first = self.attempt(edits, edits, &all)?;
        if matches!(first, Attempt::Applied) {
            return Ok(Vec::new());
        }
        let groups = Groups::new(edits);
        groups.sort(&mut all);
        let mut restorer = Restorer {
            kernel: self,
            edits,
            groups,
            first: Some(first),
        };
        let mut budget = RESTORES;
        isolate(&mut restorer, all, &mut budget)
    }

    /// Restores a document with the `part` of `edits` that the indices in `batch` select.
    fn attempt(
        &mut self,
        edits: &[Edit<Object>],
        part: &[Edit<Object>],
        batch: &[usize],
    ) -> Result<Attempt, Error> {
        let restore = Restore::in_sections(part, self.section());
        let sections = u32::try_from(restore.sections()).unwrap_or(u32::MAX);
        let before = self.generation();
        let done = self.client.restore(&restore);
        let program = (before, self.generation(), self.client.last_restore_pid());
        if let (Some(before), Some(after), Some(process)) = program {
            self.trace.own.record(Run {
                before,
                after,
                process,
                commits: sections,
            });
        }
        let (commits, attempt) = match done {
            Ok(()) => (restore.sections(), Ok(Attempt::Applied)),
            Err(error) => refused(edits, batch, &restore, error),
        };
        let commits = u32::try_from(commits).unwrap_or(u32::MAX);
        self.trace.commit_counter.committed(commits);
        attempt
    }
}

/// Returns the number of committed sections and the rejected edits.
fn refused(
    edits: &[Edit<Object>],
    batch: &[usize],
    restore: &Restore<'_>,
    error: Error,
) -> (usize, Result<Attempt, Error>) {
    let Error::Rejected {
        line: Some(line),
        message,
        ..
    } = &error
    else {
        return (0, Err(error));
    };
    let applied = rejections::applied(edits, batch, restore.objects_of(line.commits));
    let (text, reason) = (line.text.as_deref(), rejections::reason(message));
    let attempt = rejections::attempt(edits, batch, applied, text, reason);
    (line.commits, attempt.ok_or(error))
}

/// Restores edits without those that are rejected.
struct Restorer<'a> {
    kernel: &'a mut Kernel,
    edits: &'a [Edit<Object>],
    groups: Groups<'a>,
    /// Result of the first attempt.
    first: Option<Attempt>,
}

impl Atomic for Restorer<'_> {
    type Error = Error;

    fn attempt(&mut self, batch: &[usize]) -> Result<Attempt, Error> {
        if let Some(first) = self.first.take() {
            return Ok(first);
        }
        let part: Vec<_> = batch
            .iter()
            .map(|&index| self.edits[index].clone())
            .collect();
        self.kernel.attempt(self.edits, &part, batch)
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
