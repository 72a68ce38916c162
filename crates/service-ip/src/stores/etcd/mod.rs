//! In etcd, for many processes: the objects that Kubernetes keeps there.
//!
//! A range is one key, and a change of it one transaction: it compares the
//! revision of the key with the one that the change was planned with, and then
//! writes, or else reads what is there instead.

use crate::{
    Allocator, Change, CommitError, Range, RangeAllocation, RepairReason, Snapshot, SnapshotError,
    Store, StoreError, Version,
};

mod setup;

mod client;

mod message;

mod envelope;

use client::{Client, NoAnswer, Repeat};
pub use envelope::Envelope;
use message::{Stored, Written};
pub use setup::{EtcdCluster, EtcdSetupError, EtcdTls};

/// What is allocated from a range, as Kubernetes keeps it in etcd v3.
///
/// Etcd is asked over HTTP, by the JSON gateway that each member has at its
/// client address (etcd 3.4 and later); who asks is known by a certificate, and
/// not by a name and a password.
/// A value is written in the form that was read, JSON or protobuf.
/// The store does not know who has an item.
///
/// Without the key, or with a value of another range, nothing is allocated or
/// released before a [`Repair`](crate::Repair) pass has written the key:
/// [`Error::RepairRequired`](crate::Error::RepairRequired).
///
/// [`EtcdCluster`] says which versions of Kubernetes use which key.
///
/// An endpoint that cannot be reached is followed by the next one.
/// A change whose answer was lost may have been made, and is never made again:
/// [`CommitError::Unknown`].
///
/// ```no_run
/// # use std::time::Duration;
/// use vipline_service_ip::{Etcd, EtcdCluster, PortRange, Registry};
///
/// let cluster = EtcdCluster::new(&["http://127.0.0.1:2379"], Duration::from_secs(5));
/// let range = PortRange::new(30_000, 32_767)?;
/// let store = Etcd::new(&cluster, EtcdCluster::SERVICE_NODE_PORTS, range)?;
/// let mut registry = Registry::new(store);
/// # registry.refresh()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Etcd<R> {
    client: Client,
    key: Box<str>,
    range: R,
    /// What is around the value of a version.
    last: (Version, Envelope),
}

impl<R: Range> Etcd<R> {
    /// Returns the store of a range at a key of a cluster, that is not asked
    /// yet.
    ///
    /// Of a range of IPv6 that is larger, it allocates the first 65,535
    /// addresses, as API servers do: [`Range::bitmap_range`].
    ///
    /// # Errors
    ///
    /// [`EtcdSetupError::Range`] of a range that API servers keep in no bitmap,
    /// beyond /12 and /108; any other [`EtcdSetupError`] if the cluster cannot be
    /// asked that way.
    pub fn new(cluster: &EtcdCluster, key: &str, range: R) -> Result<Self, EtcdSetupError> {
        Ok(Self {
            client: Client::new(cluster)?,
            key: key.into(),
            range: range.bitmap_range()?,
            last: (Version::default(), Envelope::new()),
        })
    }

    /// Reads what is stored, and notes its form.
    fn snapshot(&mut self, stored: Option<Stored>) -> Result<Snapshot<Allocator<R>>, StoreError> {
        let (version, envelope, allocation) = match stored {
            None => Default::default(),
            Some(stored) => {
                let (envelope, allocation) =
                    Envelope::decode(&stored.bytes).map_err(|error| self.corrupt(error))?;
                (stored.version, envelope, allocation)
            }
        };
        let repair_reason = self.repair_reason(&allocation);
        let allocator = match repair_reason {
            Some(RepairReason::OtherRange { .. }) => allocation.migrate(self.range.clone()),
            _ => allocation.allocator(self.range.clone()),
        };
        let allocator = allocator.map_err(|error| self.corrupt(error))?;
        self.last = (version, envelope);
        Ok(Snapshot {
            repair_reason,
            ..Snapshot::new(allocator, version)
        })
    }

    /// Returns why a value has to be repaired first, if it has.
    fn repair_reason(&self, allocation: &RangeAllocation) -> Option<RepairReason> {
        let (object, expected) = (self.key.clone(), self.range.to_string().into());
        if allocation.is_uninitialized() {
            Some(RepairReason::Uninitialized { object })
        } else if allocation.range != expected {
            let found = allocation.range.clone();
            Some(RepairReason::OtherRange {
                object,
                found,
                expected,
            })
        } else {
            None
        }
    }

    /// Returns what is around the value of a version, or what is there instead.
    fn envelope(&mut self, base: Version) -> Result<Envelope, CommitError<Allocator<R>>> {
        if self.last.0 != base {
            let now = self.load().map_err(CommitError::Failed)?;
            if now.version != base {
                let now = Some(Box::new(now));
                return Err(CommitError::Conflict { now });
            }
        }
        Ok(self.last.1.clone())
    }

    fn corrupt(&self, source: SnapshotError) -> StoreError {
        StoreError::Snapshot {
            object: self.key.clone(),
            source,
        }
    }

    fn unavailable(&self, operation: &'static str, source: NoAnswer) -> StoreError {
        StoreError::Unavailable {
            operation,
            object: self.key.clone(),
            source: source.into(),
        }
    }
}

impl<R: Range> Store<Allocator<R>> for Etcd<R> {
    fn load(&mut self) -> Result<Snapshot<Allocator<R>>, StoreError> {
        let body = message::range(&self.key);
        let stored = self
            .client
            .ask("/v3/kv/range", &body, Repeat::Always, message::stored)
            .map_err(|error| self.unavailable("read", error))?;
        self.snapshot(stored)
    }

    fn commit(
        &mut self,
        base: Version,
        _: &Change<R::Item>,
        after: &Snapshot<Allocator<R>>,
    ) -> Result<Version, CommitError<Allocator<R>>> {
        let allocation = RangeAllocation::of(&after.pool)
            .map_err(|error| CommitError::Failed(self.corrupt(error)))?;
        let envelope = self.envelope(base)?;
        let body = message::txn(&self.key, base, &envelope.encode(&allocation));
        let written = self
            .client
            .ask("/v3/kv/txn", &body, Repeat::IfNotSent, message::written);
        match written {
            Ok(Written::Now(version)) => {
                self.last = (version, envelope);
                Ok(version)
            }
            Ok(Written::Instead(stored)) => {
                let now = self.snapshot(stored).map_err(CommitError::Failed)?;
                let now = Some(Box::new(now));
                Err(CommitError::Conflict { now })
            }
            Err(error) if error.is_nothing_done() => {
                Err(CommitError::Failed(self.unavailable("write", error)))
            }
            Err(error) => Err(CommitError::Unknown(self.unavailable("write", error))),
        }
    }
}
