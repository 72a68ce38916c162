//! nf_tables as the kernel of one family: our table and nothing else.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]

use std::borrow::Cow;
use std::os::fd::{AsFd, BorrowedFd};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use vipline_netlink::Counters;
use vipline_nftables::{Client, Error, Generation, Heard, Monitor, Object, TableId, Transaction};
use vipline_reconcile::{self as reconcile, Edit};
use vipline_service_model::Family;

use super::batches::transactions;
use super::table::Table;
use super::takeover::{are_incomplete, completed};
use crate::{Drift, watch};

/// Our table of one family in the kernel's nf_tables.
#[derive(Debug)]
pub struct Kernel {
    client: Client,
    table: TableId,
    tally: Tally,
}

/// Who committed how often: it tells whether somebody else did.
#[derive(Clone, Debug, Default)]
struct Tally {
    /// Our commits, those of all kernels that share the tally.
    ours: Arc<AtomicU32>,
    /// The commits of others, as of the last dump of this kernel.
    others: Arc<AtomicU32>,
}

impl Tally {
    /// Returns how many commits of others led to a state.
    ///
    /// Only the difference to another such number means something: others have
    /// made the first states.
    fn others_at(&self, generation: Generation) -> u32 {
        generation.0.wrapping_sub(self.ours.load(Ordering::Relaxed))
    }
}

impl Kernel {
    /// Opens nf_tables in the network namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// What the kernel says to opening a netlink socket.
    pub fn open(family: Family) -> Result<Self, Error> {
        Self::with_tally(family, Tally::default())
    }

    fn with_tally(family: Family, tally: Tally) -> Result<Self, Error> {
        let client = Client::open()?;
        let table = Table::of(family).id.clone();
        Ok(Self {
            client,
            table,
            tally,
        })
    }

    /// Returns how often and how much was sent and received.
    pub fn counters(&self) -> Counters {
        self.client.counters()
    }

    /// Commits one transaction, and counts it.
    fn transact(&mut self, transaction: &Transaction) -> Result<(), Error> {
        self.client.commit(transaction)?;
        if !transaction.is_empty() {
            self.tally.ours.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl AsFd for Kernel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.client.as_fd()
    }
}

impl reconcile::Kernel for Kernel {
    type Object = Object;
    type Error = Error;

    fn dump(&mut self) -> Result<Vec<Object>, Error> {
        let others = self.tally.others_at(self.client.generation()?);
        let ruleset = self.client.dump(slice::from_ref(&self.table))?;
        self.tally.others.store(others, Ordering::Relaxed);
        Ok(ruleset.into_objects().collect())
    }

    fn commit(&mut self, edits: &[Edit<Object>]) -> Result<(), Error> {
        let edits = match are_incomplete(edits) {
            true => Cow::Owned(completed(edits, self.dump()?)),
            false => Cow::Borrowed(edits),
        };
        for transaction in transactions(&edits) {
            self.transact(&transaction)?;
        }
        Ok(())
    }
}

/// Hears what others do to our tables.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    watched: Vec<Watched>,
    tally: Tally,
    /// None while nobody listens.
    monitor: Option<Monitor>,
}

/// The table of a kernel.
#[derive(Debug)]
struct Watched {
    family: Family,
    table: TableId,
    /// Of the kernel's socket.
    port: u32,
    tally: Tally,
}

impl Watch {
    /// Opens a kernel that is watched.
    pub(crate) fn open(&mut self, family: Family) -> Result<Kernel, Error> {
        let tally = Tally {
            ours: Arc::clone(&self.tally.ours),
            ..Tally::default()
        };
        let kernel = Kernel::with_tally(family, tally.clone())?;
        self.watched.push(Watched {
            family,
            table: kernel.table.clone(),
            port: kernel.client.port(),
            tally,
        });
        Ok(kernel)
    }

    /// Tells what was heard, by family.
    fn drift(&self, heard: &Heard) -> Vec<(Family, Drift)> {
        let drift = |watched: &Watched| {
            let mut drift = Drift {
                is_lost: heard.is_lost,
                ..Drift::default()
            };
            for commit in &heard.commits {
                let changes = commit.changes.iter();
                for (_, changes) in changes.filter(|(table, _)| *table == watched.table) {
                    drift.add(Drift {
                        changes: changes.count(),
                        by: vec![commit.process.to_string().into()],
                        is_lost: false,
                    });
                }
            }
            (drift != Drift::default()).then_some((watched.family, drift))
        };
        self.watched.iter().filter_map(drift).collect()
    }
}

impl watch::Watch for Watch {
    fn begin(&mut self) -> Result<Vec<Family>, crate::Error> {
        let tables: Vec<_> = self.watched.iter().map(|each| each.table.clone()).collect();
        let ports: Vec<_> = self.watched.iter().map(|each| each.port).collect();
        let monitor = Monitor::open(&tables, &ports)?;
        // What comes from now on is heard; nothing may have come before.
        let others = self.tally.others_at(Client::open()?.generation()?);
        self.monitor = Some(monitor);
        let missed = |each: &&Watched| each.tally.others.load(Ordering::Relaxed) != others;
        let watched = self.watched.iter().filter(missed);
        Ok(watched.map(|each| each.family).collect())
    }

    fn is_listening(&self) -> bool {
        self.monitor.is_some()
    }

    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        self.monitor.iter().map(AsFd::as_fd).collect()
    }

    fn read(&mut self) -> Vec<(Family, Drift)> {
        let heard = match self.monitor.as_mut().map(Monitor::read) {
            None => return Vec::new(),
            Some(Ok(heard)) => heard,
            Some(Err(_)) => {
                self.monitor = None;
                let mut heard = Heard::default();
                heard.is_lost = true;
                heard
            }
        };
        self.drift(&heard)
    }
}
