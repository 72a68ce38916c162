//! Results of several changes.

use vipline_netlink::Errno;

use crate::client::Deleted;
use crate::{Error, RejectedFlow};

/// Results of several changes.
#[derive(Debug)]
pub(crate) struct Outcome {
    operation: &'static str,
    /// Number of applied changes.
    pub(crate) done: usize,
    missing: usize,
    rejected: Vec<RejectedFlow>,
}

impl Outcome {
    pub(crate) fn new(operation: &'static str) -> Self {
        Self {
            operation,
            done: 0,
            missing: 0,
            rejected: Vec::new(),
        }
    }

    /// Records a rejected change. `ENOENT` counts as missing, except for creations.
    pub(crate) fn add(&mut self, rejected: RejectedFlow) {
        if rejected.errno == Errno::NOENT && self.operation != "create" {
            self.missing += 1;
            return;
        }
        self.rejected.push(rejected);
    }

    pub(crate) fn into_deleted(self) -> Result<Deleted, Error> {
        if self.rejected.is_empty() {
            return Ok(Deleted {
                deleted: self.done,
                missing: self.missing,
            });
        }
        Err(Error::Rejected {
            operation: self.operation,
            rejected: self.rejected,
            done: self.done,
        })
    }
}
