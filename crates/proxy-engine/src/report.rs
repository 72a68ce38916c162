//! Reports: the results of a sync.

use std::fmt;
use std::sync::Arc;

use vipline_conntrack::Flow;
use vipline_service_model::{Counted, Family};

use crate::{CleanupReport, ContestedAddress, Error, LostAddresses, RejectedObject, Trigger};

/// Result of a sync. Displays as one line per family.
#[derive(Debug)]
#[non_exhaustive]
pub struct Report {
    /// Reason for the sync.
    pub trigger: Trigger,
    /// Number of service ports with changes that this sync completed, in all families.
    pub ports: usize,
    /// Whether the sync included all changes. Otherwise the rest of a large change follows
    /// in the next sync, which is due at once.
    pub is_complete: bool,
    /// Results by family, in the order of [`Config::families`](crate::Config::families).
    pub families: Vec<FamilyReport>,
    /// Contested addresses that are new since the last sync or have a new owner.
    pub contested: Vec<ContestedAddress>,
    /// Services that lost an address since the last sync, one entry per Service.
    pub lost_addresses: Vec<LostAddresses>,
    /// Features that Services request and the kernel does not have. Each feature is
    /// reported once.
    pub missing_features: Vec<MissingFeature>,
}

/// A feature that a Service requests and the kernel does not have. The mode replaces it.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum MissingFeature {
    /// The IPVS scheduler of this name. Its Services use the default scheduler.
    Scheduler(Box<str>),
}

impl fmt::Display for MissingFeature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scheduler(name) => write!(f, "IPVS scheduler {name}"),
        }
    }
}

/// Result of a sync in one family.
#[derive(Debug)]
#[non_exhaustive]
pub struct FamilyReport {
    /// The family.
    pub family: Family,
    /// Changes by other processes that this sync repaired.
    pub drift: Option<Drift>,
    /// Whether the kernel's state was known, so that only changes were committed.
    pub was_state_known: bool,
    /// Result of the sync. After an error the sync is retried.
    pub outcome: Result<Outcome, Error>,
    /// Objects that the kernel rejected for the first time.
    ///
    /// All other objects are installed. A rejected object is retried with a backoff, and
    /// when its Service changes.
    pub rejected: Vec<Arc<RejectedObject>>,
    /// Beginning or end of a conflict with a program that undoes repairs.
    pub repair_conflict: Option<RepairConflictChange>,
    /// Result of the search for stale flows. `None` if no search was made: no flow can be
    /// stale, the sync failed, or the caller runs
    /// [searches](crate::Engine::defer_flow_searches).
    ///
    /// After an error the search is retried.
    pub cleanup: Option<Result<CleanupReport, Error>>,
}

/// Changes that other processes made to programmed objects.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Drift {
    /// Number of objects that were created, changed or removed.
    pub changes: usize,
    /// The first eight processes that made changes, such as `nft (4711)`, if the kernel
    /// reports them.
    pub processes: Vec<Box<str>>,
    /// Whether notifications were lost, so that there may be more changes.
    pub is_incomplete: bool,
}

/// Beginning or end of a conflict with a program that undoes repairs.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum RepairConflictChange {
    /// The same program undid three repairs of an object within 10 s. The object is repaired
    /// after 1 s, and then after waits that double up to 60 s. Other objects do not wait.
    Began(RepairConflict),
    /// No repair was undone for 10 s, or for the last wait if that is longer. Repairs are
    /// immediate again.
    Ended {
        /// The processes that undid repairs, such as `nft (4711)`. Empty if the kernel does
        /// not report them.
        processes: Vec<Box<str>>,
    },
}

/// Objects whose repairs another program keeps undoing.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct RepairConflict {
    /// The processes that made the last changes, such as `nft (4711)`. Empty if the kernel
    /// does not report them.
    pub processes: Vec<Box<str>>,
    /// Number of objects.
    pub objects: usize,
    /// The first of them, as the mode's native tool names it.
    pub first: String,
}

/// Displays as one sentence for the operator of the node.
impl fmt::Display for RepairConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.processes {
            [] => f.write_str("another program")?,
            processes => f.write_str(&processes.join(", "))?,
        }
        write!(f, " undoes each repair of {}", self.first)?;
        match self.objects {
            0 | 1 => Ok(()),
            objects => write!(f, " and of {}", Counted(objects - 1, "more object")),
        }
    }
}

/// Result of programming the kernel.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Outcome {
    /// Number of committed edits; 0 if nothing was written.
    pub edits: usize,
    /// Whether the kernel's state was dumped.
    pub dumped: bool,
    /// Number of installed objects.
    pub objects: usize,
    /// Number of objects that the kernel rejects.
    pub rejected: usize,
    /// Number of objects that wait for their repair, because another program
    /// [undid](RepairConflictChange::Began) the last ones.
    pub waiting: usize,
    /// Whether all edits were one commit that replaced the objects of another proxy.
    ///
    /// Only such a commit may block other users of nf_tables for a noticeable time.
    pub took_over: bool,
    /// Number of installed rules by table, in modes with rules per Service.
    pub rules: Vec<RuleCount>,
}

/// Number of installed rules of a table.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct RuleCount {
    /// Name of the table.
    pub table: &'static str,
    /// Number of installed rules.
    pub total: usize,
    /// Number of rules in the chains and rules that the last commit wrote.
    pub written: usize,
}

/// Difference between kernel and plan. Displays as the script.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Difference {
    /// Number of edits; 0 if the kernel equals the plan.
    pub edits: usize,
    /// The edits in the format that the mode's native tool applies.
    pub script: String,
    /// Number of edits that the script omits because their objects are
    /// [known](crate::KnownRejections) to be rejected.
    pub rejected: usize,
    /// Flows that lead to endpoints that no longer serve.
    pub stale_flows: Vec<Flow>,
}

impl Report {
    /// Returns whether the kernel now equals the plan in all families, except for
    /// rejected objects. Does not consider the search for stale flows.
    pub fn is_success(&self) -> bool {
        self.families.iter().all(|done| done.outcome.is_ok())
    }

    /// Returns the report if the sync succeeded in all families.
    ///
    /// # Errors
    ///
    /// The error of the first family whose sync failed.
    pub fn into_result(mut self) -> Result<Self, Error> {
        let failed = self.families.iter().position(|done| done.outcome.is_err());
        match failed.map(|failed| self.families.swap_remove(failed).outcome) {
            Some(Err(error)) => Err(error),
            _ => Ok(self),
        }
    }

    /// Returns the errors of the syncs with their families. Errors of the
    /// [cleanup](FamilyReport::cleanup) are not included.
    pub fn errors(&self) -> impl Iterator<Item = (Family, &Error)> {
        let outcomes = self.families.iter();
        outcomes.filter_map(|done| Some((done.family, done.outcome.as_ref().err()?)))
    }
}

impl Drift {
    /// Maximum number of processes in a report.
    const NAMED: usize = 8;

    /// Returns changes by unknown processes, possibly without some that were not noticed.
    pub fn new(changes: usize, is_incomplete: bool) -> Self {
        Self {
            changes,
            processes: Vec::new(),
            is_incomplete,
        }
    }

    /// Adds up changes by processes. Returns `None` if there are none and none were lost.
    pub fn of_processes(
        is_incomplete: bool,
        changes: impl IntoIterator<Item = (usize, String)>,
    ) -> Option<Self> {
        let mut drift = Self::new(0, is_incomplete);
        for (count, process) in changes {
            drift.add(Self::new(count, false).with_process(process));
        }
        (drift != Self::default()).then_some(drift)
    }

    /// Adds the process that made the changes, such as `nft (4711)`.
    #[must_use]
    pub fn with_process(mut self, process: impl Into<Box<str>>) -> Self {
        self.processes.push(process.into());
        self
    }

    /// Adds later changes.
    pub fn add(&mut self, later: Self) {
        self.changes += later.changes;
        self.is_incomplete |= later.is_incomplete;
        for process in later.processes {
            if self.processes.len() < Self::NAMED && !self.processes.contains(&process) {
                self.processes.push(process);
            }
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, done) in self.families.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            done.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for FamilyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.family)?;
        match &self.outcome {
            Ok(outcome) => outcome.fmt(f),
            Err(error) => error.fmt(f),
        }?;
        match &self.drift {
            Some(drift) => write!(f, "; drift: {drift}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.dumped {
            "after a dump"
        } else {
            "without a dump"
        };
        let (edits, objects) = (Counted(self.edits, "edit"), Counted(self.objects, "object"));
        write!(f, "{edits}, {objects}, {how}")?;
        if self.rejected > 0 {
            write!(f, ", {} rejected", self.rejected)?;
        }
        if self.took_over {
            f.write_str(", replacing the objects of another program")?;
        }
        Ok(())
    }
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_incomplete {
            write!(f, "at least ")?;
        }
        Counted(self.changes, "change").fmt(f)?;
        for (index, process) in self.processes.iter().enumerate() {
            let before = if index == 0 { " by" } else { "," };
            write!(f, "{before} {process}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.script)
    }
}

/// A match or target of iptables that the kernel or the programs lack, or an expression of
/// nf_tables that the kernel lacks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct MissingExtension {
    /// The name, such as `recent`.
    pub name: &'static str,
    /// The option of the kernel, such as `CONFIG_NETFILTER_XT_MATCH_RECENT`.
    pub option: &'static str,
    /// What is not served without it. `None` if the mode does not work.
    pub affected: Option<&'static str>,
}

impl MissingExtension {
    /// Describes an extension.
    pub const fn new(
        name: &'static str,
        option: &'static str,
        affected: Option<&'static str>,
    ) -> Self {
        Self {
            name,
            option,
            affected,
        }
    }
}

/// Displays as `CONFIG_NETFILTER_XT_MATCH_RECENT (recent) is off, or its module is missing`.
impl fmt::Display for MissingExtension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, option, .. } = self;
        write!(f, "{option} ({name}) is off, or its module is missing")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drift_adds_up_and_names_each_process_once() {
        let drift = |changes, by: &str| Drift {
            changes,
            processes: vec![by.into()],
            is_incomplete: false,
        };
        let mut sum = drift(2, "nft (7)");
        assert_eq!(sum.to_string(), "2 changes by nft (7)");
        sum.add(drift(3, "nft (7)"));
        sum.add(Drift {
            is_incomplete: true,
            ..drift(1, "perl (9)")
        });
        assert_eq!(sum.to_string(), "at least 6 changes by nft (7), perl (9)");
        for process in 0..100 {
            sum.add(drift(1, &format!("nft ({process})")));
        }
        assert_eq!((sum.changes, sum.processes.len()), (106, Drift::NAMED));
    }
}
