//! What a sync did.

use std::fmt;

use vipline_service_model::Family;

use crate::{Contested, Due, Error};

/// What a sync did; displays as one line per family.
#[derive(Debug)]
#[non_exhaustive]
pub struct Report {
    /// Why it was due.
    pub due: Due,
    /// How many service ports changed since the last sync, in all families.
    pub ports: usize,
    /// What was done in each family, in the order of the configuration.
    pub families: Vec<Done>,
    /// Which addresses are found to be claimed by several Services.
    pub contested: Vec<Contested>,
}

/// What a sync did in one family.
#[derive(Debug)]
#[non_exhaustive]
pub struct Done {
    /// The family.
    pub family: Family,
    /// What was done; after an error it will be tried again.
    pub outcome: Result<Outcome, Error>,
}

/// What was done to a kernel.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Outcome {
    /// How many edits were committed; with none the kernel was not written to.
    pub edits: usize,
    /// Whether the kernel's state had to be dumped.
    pub dumped: bool,
    /// How many objects the kernel now holds for us.
    pub objects: usize,
}

/// How the kernel differs from the plan; displays as what would be committed.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Difference {
    /// How many edits there are; none means that the kernel equals the plan.
    pub edits: usize,
    /// The edits as text that the mode's native tool applies.
    pub script: String,
}

impl Report {
    /// Tells whether the kernel now equals the plan in all families.
    pub fn is_success(&self) -> bool {
        self.families.iter().all(|done| done.outcome.is_ok())
    }

    /// Returns the errors and the families they are about.
    pub fn errors(&self) -> impl Iterator<Item = (Family, &Error)> {
        let outcomes = self.families.iter();
        outcomes.filter_map(|done| Some((done.family, done.outcome.as_ref().err()?)))
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

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.family)?;
        match &self.outcome {
            Ok(outcome) => outcome.fmt(f),
            Err(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.dumped { "after a dump" } else { "known" };
        let (edits, objects) = (self.edits, self.objects);
        write!(f, "{edits} edits, {objects} objects, {how}")
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.script)
    }
}
