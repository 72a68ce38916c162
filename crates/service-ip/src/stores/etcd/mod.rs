//! A store for the `RangeAllocation` objects of Kubernetes in etcd.
//!
//! A range is stored under one key. A change is one transaction, which compares the
//! `mod_revision` of the key with the expected one. It writes the key if both are
//! equal, and otherwise reads the current value.

use crate::{
    Allocator, Change, CommitError, InvalidValue, Range, RangeAllocation, RepairReason, Snapshot,
    Store, StoreError, Version,
};

mod setup;

mod client;

mod message;

mod envelope;

use client::{Client, NoResponse, Repeat};
pub use envelope::Envelope;
use message::{Stored, Written};
pub use setup::{EtcdCluster, EtcdTls};

/// A store for a range in etcd v3, in the format of Kubernetes.
///
/// The store uses the JSON gateway at the client URL of each member (etcd 3.4 and
/// later). It supports authentication by client certificate, but not by user name and
/// password.
/// A value is written in the encoding that was read, JSON or protobuf.
/// The store does not record owners of items.
///
/// Without the key, or with a value of another range, every change fails with
/// [`Error::RepairRequired`](crate::Error::RepairRequired) until a
/// [`Repair`](crate::Repair) pass has written the key.
///
/// [`EtcdCluster`] lists the keys of each version of Kubernetes.
///
/// If an endpoint cannot be reached, the next one is used.
/// A change without a response may have been applied, and is never repeated:
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
    /// Version and envelope of the last value.
    last: (Version, Envelope),
}

impl<R: Range> Etcd<R> {
    /// Returns the store for a range at a key. Does not access the cluster.
    ///
    /// Of a larger IPv6 range, only the first 65,535 addresses are allocated, as in API
    /// servers: [`Range::bitmap_range`].
    ///
    /// # Errors
    ///
    /// - [`InvalidValue::TooLarge`]: the prefix is shorter than /12 (IPv4) or /108 (IPv6).
    /// - [`InvalidValue::NoEndpoint`], [`InvalidValue::Endpoint`],
    ///   [`InvalidValue::NoAuthority`], [`InvalidValue::Certificate`]: `cluster` is invalid.
    pub fn new(cluster: &EtcdCluster, key: &str, range: R) -> Result<Self, InvalidValue> {
        Ok(Self {
            client: Client::new(cluster)?,
            key: key.into(),
            range: range.bitmap_range()?,
            last: (Version::default(), Envelope::new()),
        })
    }

    /// Decodes a stored value and remembers its envelope.
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

    /// Returns the reason why a value requires a repair pass, if it does.
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

    /// Returns the envelope of a version, or the conflicting current value.
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

    fn corrupt(&self, source: InvalidValue) -> StoreError {
        StoreError::Snapshot {
            object: self.key.clone(),
            source: source.into(),
        }
    }

    fn unavailable(&self, operation: &'static str, source: NoResponse) -> StoreError {
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
            Err(error) if error.is_not_applied() => {
                Err(CommitError::Failed(self.unavailable("write", error)))
            }
            Err(error) => Err(CommitError::Unknown(self.unavailable("write", error))),
        }
    }
}
