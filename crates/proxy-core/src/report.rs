//! What a sync did.

use std::fmt;
use std::sync::Arc;

use vipline_conntrack::Flow;
use vipline_service_model::Family;

use crate::{CleanupReport, ContestedAddress, Error, LostAddresses, RejectedObject, Trigger};

/// What a sync did; displays as one line per family.
#[derive(Debug)]
#[non_exhaustive]
pub struct Report {
    /// Why it was due.
    pub trigger: Trigger,
    /// How many service ports changed since the last sync, in all families.
    pub ports: usize,
    /// What was done in each family, in the order of the configuration.
    pub families: Vec<FamilyReport>,
    /// Contested addresses that were not contested at the last sync or had another
    /// winner.
    pub contested: Vec<ContestedAddress>,
    /// Services that lost an address since the last sync, each once.
    pub lost_addresses: Vec<LostAddresses>,
    /// Which schedulers the kernel is found not to have: Services that ask for
    /// one get the usual one. Each is told of once.
    pub missing_schedulers: Vec<Box<str>>,
}

/// What a sync did in one family.
#[derive(Debug)]
#[non_exhaustive]
pub struct FamilyReport {
    /// The family.
    pub family: Family,
    /// What somebody else was heard to do before, and the sync has mended.
    pub drift: Option<Drift>,
    /// Whether the kernel's state was known, so that only what changed was to
    /// be committed.
    pub was_state_known: bool,
    /// What was done; after an error it will be tried again.
    pub outcome: Result<Outcome, Error>,
    /// Objects that the kernel rejected for the first time.
    ///
    /// All others are in the kernel.
    /// A rejected object is tried again with a backoff, and when its Service changes.
    pub rejected: Vec<Arc<RejectedObject>>,
    /// What the search for stale flows did that followed; `None`: there was none,
    /// for nothing had changed or the sync failed.
    ///
    /// After an error it will be made again.
    pub cleanup: Option<Result<CleanupReport, Error>>,
}

/// What somebody else did to what the engine programs.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Drift {
    /// How many objects were heard to be made, changed or removed.
    pub changes: usize,
    /// Who did it, as far as the kernel tells: the first few.
    pub processes: Vec<Box<str>>,
    /// Whether more may have been done than was heard.
    pub is_incomplete: bool,
}

/// What was done to a kernel.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Outcome {
    /// How many edits were committed; with none the kernel was not written to.
    pub edits: usize,
    /// Whether the kernel's state had to be dumped.
    pub dumped: bool,
    /// How many objects the kernel now holds for us.
    pub objects: usize,
    /// How many objects the kernel rejected and has not taken since.
    pub rejected: usize,
    /// Whether all edits were one commit that replaced what somebody else made.
    ///
    /// That commit alone may keep others waiting for more than a moment.
    pub took_over: bool,
    /// How many rules each table holds for us, in modes with rules per Service.
    pub rules: Vec<RuleCount>,
}

/// How many rules a table holds for us.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RuleCount {
    /// The table.
    pub table: &'static str,
    /// How many there are.
    pub total: usize,
    /// How many of them the last commit wrote.
    pub written: usize,
}

/// How the kernel differs from the plan; displays as what would be committed.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Difference {
    /// How many edits there are; none means that the kernel equals the plan.
    pub edits: usize,
    /// The edits as text that the mode's native tool applies.
    pub script: String,
    /// How many edits the script lacks, because their objects are
    /// [known](crate::KnownRejections) to be rejected.
    pub rejected: usize,
    /// The flows that lead where nobody serves any more.
    pub stale_flows: Vec<Flow>,
}

impl Report {
    /// Tells whether the kernel now equals the plan in all families, except for
    /// rejected objects.
    pub fn is_success(&self) -> bool {
        self.families.iter().all(|done| done.outcome.is_ok())
    }

    /// Returns the errors and the families they are about.
    pub fn errors(&self) -> impl Iterator<Item = (Family, &Error)> {
        let outcomes = self.families.iter();
        outcomes.filter_map(|done| Some((done.family, done.outcome.as_ref().err()?)))
    }
}

impl Drift {
    /// How many processes are named.
    const NAMED: usize = 8;

    /// Adds what was done later.
    pub(crate) fn add(&mut self, later: Self) {
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
        let how = if self.dumped { "after a dump" } else { "known" };
        let (edits, objects) = (self.edits, self.objects);
        write!(f, "{edits} edits, {objects} objects, {how}")?;
        if self.rejected > 0 {
            write!(f, ", {} rejected", self.rejected)?;
        }
        if self.took_over {
            f.write_str(", in place of what somebody else made")?;
        }
        Ok(())
    }
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} changes", self.changes)?;
        if self.is_incomplete {
            write!(f, " and more")?;
        }
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
        assert_eq!(sum.to_string(), "6 changes and more by nft (7), perl (9)");
        for process in 0..100 {
            sum.add(drift(1, &format!("nft ({process})")));
        }
        assert_eq!((sum.changes, sum.processes.len()), (106, Drift::NAMED));
    }
}
