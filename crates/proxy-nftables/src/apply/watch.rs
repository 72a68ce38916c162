//! Detection of changes by other processes to our tables.

use std::os::fd::{AsFd, BorrowedFd};

use vipline_nftables::{Client, CommitCounter, Error, Monitor, TableId};
use vipline_service_model::Family;

use super::kernel::Kernel;
use proxy_engine::Drift;

/// Watches our tables for changes by other processes.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    watched: Vec<Watched>,
    commit_counter: CommitCounter,
    /// `None` if the watch is not active.
    monitor: Option<Monitor>,
}

/// The table of a kernel.
#[derive(Debug)]
struct Watched {
    family: Family,
    table: TableId,
    /// Netlink port ID of the kernel's socket.
    port_id: u32,
    commit_counter: CommitCounter,
}

impl Watch {
    /// Opens a kernel and adds it to the watch.
    pub(crate) fn open(&mut self, family: Family) -> Result<Kernel, Error> {
        let commit_counter = self.commit_counter.sibling();
        let kernel = Kernel::with_commit_counter(family, commit_counter.clone())?;
        self.watched.push(Watched {
            family,
            table: kernel.table.id.clone(),
            port_id: kernel.client.port_id(),
            commit_counter,
        });
        Ok(kernel)
    }
}

impl proxy_engine::Watch for Watch {
    fn start(&mut self) -> Result<Vec<Family>, proxy_engine::Error> {
        let tables: Vec<_> = self.watched.iter().map(|each| each.table.clone()).collect();
        let port_ids: Vec<_> = self.watched.iter().map(|each| each.port_id).collect();
        let monitor = Monitor::open(&tables, &port_ids)?;
        // The monitor reports later changes; now check for changes since the dump.
        let others = self
            .commit_counter
            .foreign_at(Client::open()?.generation()?);
        self.monitor = Some(monitor);
        let missed = |each: &&Watched| each.commit_counter.missed(others);
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
        let Some(notification) = Monitor::read_or_close(&mut self.monitor) else {
            return Vec::new();
        };
        let watched = self.watched.iter();
        let drift = watched.filter_map(|each| {
            let changes = notification.changes_of(|table| *table == each.table);
            let changes = changes.map(|(count, process)| (count, process.to_string()));
            let drift = Drift::of_processes(notification.is_incomplete, changes)?;
            Some((each.family, drift))
        });
        drift.collect()
    }
}
