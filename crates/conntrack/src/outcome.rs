//! Results of several changes.

use vipline_netlink::Errno;

use crate::client::Deleted;
use crate::error::Refused;
use crate::{Error, Key};

/// Results of several changes.
#[derive(Debug)]
pub(crate) struct Outcome {
    operation: &'static str,
    /// Number of applied changes.
    pub(crate) done: usize,
    missing: usize,
    refused: usize,
    first: Vec<Refused>,
}

impl Outcome {
    pub(crate) fn new(operation: &'static str) -> Self {
        Self {
            operation,
            done: 0,
            missing: 0,
            refused: 0,
            first: Vec::new(),
        }
    }

    /// Records an error. `ENOENT` counts as missing, except for creations.
    pub(crate) fn add_error(&mut self, errno: Errno, key: impl FnOnce() -> Key) {
        if errno == Errno::NOENT && self.operation != "create" {
            self.missing += 1;
            return;
        }
        self.refused += 1;
        if self.first.len() < Error::MAX_REPORTED_ERRORS {
            self.first.push(Refused::new(key(), errno));
        }
    }

    pub(crate) fn into_deleted(self) -> Result<Deleted, Error> {
        match self.refused {
            0 => Ok(Deleted {
                deleted: self.done,
                missing: self.missing,
            }),
            count => Err(Error::Refused {
                operation: self.operation,
                count,
                first: self.first,
                done: self.done,
            }),
        }
    }
}
