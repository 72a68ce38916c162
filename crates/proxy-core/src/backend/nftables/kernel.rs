//! nf_tables as the kernel of one family: our table and nothing else.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]

use std::borrow::Cow;
use std::mem;
use std::os::fd::{AsFd, BorrowedFd};
use std::slice;

use vipline_netlink::{Counters, Errno};
use vipline_nftables::{Client, Encoder, Error, Monitor, Object, TableId, Transaction};
use vipline_reconcile::{self as reconcile, Edit};
use vipline_service_model::Family;

use super::affinity;
use super::batches::transactions;
use super::table::{Affinity, Table};
use super::takeover::{are_incomplete, completed, is_take_over};
use crate::backend::heard;
use crate::backend::tally::Tally;
use crate::{Drift, watch};

/// How many clients are forgotten by one transaction.
const CLIENTS: usize = 1024;

/// Our table of one family in the kernel's nf_tables.
///
/// Packets write to it, too: they leave which endpoint a client was sent to.
/// Nobody plans that, so it is neither dumped nor compared; but when endpoints
/// leave, the clients that were sent to them are forgotten.
#[derive(Debug)]
pub struct Kernel {
    client: Client,
    table: &'static Table,
    tally: Tally,
    /// Whether clients may be remembered for endpoints that left before the
    /// last dump: by addresses, by node ports.
    is_unchecked: [bool; 2],
    took_over: bool,
}

/// Who encodes transactions; the kernel hears the same from both.
#[cfg(not(feature = "nftnl"))]
const ENCODER: Encoder = Encoder::Native;
#[cfg(feature = "nftnl")]
const ENCODER: Encoder = Encoder::Nftnl;

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
        Ok(Self {
            client: Client::open_with(ENCODER)?,
            table: Table::of(family),
            tally,
            is_unchecked: [false; 2],
            took_over: false,
        })
    }

    /// Returns how often and how much was sent and received.
    pub fn counters(&self) -> Counters {
        self.client.counters()
    }

    /// Returns what clients are remembered by: addresses, node ports.
    fn affinities(&self) -> [&'static Affinity; 2] {
        [&self.table.ips.affinity, &self.table.nodeports.affinity]
    }

    /// Forgets the clients that were sent to endpoints which left.
    fn purge(&mut self, affinity: &Affinity) -> Result<(), Error> {
        let clients = self.client.elements(&affinity.clients)?;
        if clients.is_empty() {
            return Ok(());
        }
        let endpoints = self.client.elements(&affinity.endpoints)?;
        let stale = affinity::stale(clients, &endpoints);
        let edits: Vec<_> = stale.map(|client| Edit::Remove(client.into())).collect();
        for part in edits.chunks(CLIENTS) {
            self.remove(part)?;
        }
        Ok(())
    }

    /// Removes elements, some of which may be gone already.
    ///
    /// One that is gone makes the kernel refuse a whole transaction, so each
    /// half of it is tried for itself then.
    fn remove(&mut self, edits: &[Edit<Object>]) -> Result<(), Error> {
        match self.transact(&Transaction::from_edits(edits)) {
            Err(error) if error.errno() == Some(Errno::NOENT) => {
                let (former, latter) = edits.split_at(edits.len() / 2);
                if former.is_empty() {
                    return Ok(());
                }
                self.remove(former)?;
                self.remove(latter)
            }
            done => done,
        }
    }

    /// Commits one transaction, and counts it.
    fn transact(&mut self, transaction: &Transaction) -> Result<(), Error> {
        self.client.commit(transaction)?;
        if !transaction.is_empty() {
            self.tally.committed(1);
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
        let ruleset = self.client.dump(slice::from_ref(&self.table.id))?;
        self.tally.dumped(others);
        self.is_unchecked = self.affinities().map(|affinity| {
            let endpoints = ruleset.set(&self.table.id, affinity.endpoints.name.as_str());
            endpoints.is_some_and(|(_, elements)| !elements.is_empty())
        });
        Ok(ruleset.into_objects().collect())
    }

    fn commit(&mut self, edits: &[Edit<Object>]) -> Result<(), Error> {
        self.took_over = is_take_over(edits);
        let edits = match are_incomplete(edits) {
            true => {
                // Not our own dump: what others did since then is still to be told.
                let ruleset = self.client.dump(slice::from_ref(&self.table.id))?;
                let installed = ruleset.into_objects().collect();
                Cow::Owned(completed(self.table, edits, installed))
            }
            false => Cow::Borrowed(edits),
        };
        for transaction in transactions(&edits) {
            self.transact(&transaction)?;
        }
        let unchecked = mem::take(&mut self.is_unchecked);
        for (affinity, is_unchecked) in self.affinities().into_iter().zip(unchecked) {
            let left = |edit| affinity::is_removal(edit, &affinity.endpoints);
            if is_unchecked || edits.iter().any(left) {
                self.purge(affinity)?;
            }
        }
        Ok(())
    }

    fn took_over(&self) -> bool {
        self.took_over
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
        let tally = self.tally.of_another();
        let kernel = Kernel::with_tally(family, tally.clone())?;
        self.watched.push(Watched {
            family,
            table: kernel.table.id.clone(),
            port: kernel.client.port(),
            tally,
        });
        Ok(kernel)
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
        let missed = |each: &&Watched| each.tally.missed(others);
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
        let Some(heard) = heard::read(&mut self.monitor) else {
            return Vec::new();
        };
        let watched = self.watched.iter();
        let drift = watched.filter_map(|each| {
            let drift = heard::drift(&heard, |_| true, |table| *table == each.table)?;
            Some((each.family, drift))
        });
        drift.collect()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use testkit::netns::Netns;
    use vipline_nftables::{Element, Generation, Value};

    use super::*;

    #[test]
    fn clients_that_are_gone_already_do_not_keep_the_others() {
        let netns = Netns::new().unwrap();
        let mut kernel = netns.run(|| Kernel::open(Family::V4)).unwrap();
        let [clients, _] = kernel.affinities().map(|affinity| affinity.clients.clone());
        let table = vipline_nftables::Table::new(clients.table.clone());
        let add = [Object::from(table), clients.clone().into()].map(Edit::Add);
        kernel.transact(&Transaction::from_edits(&add)).unwrap();
        let client = |last: u8| -> Element {
            let vip = Value::from(Ipv4Addr::from([10, 96, 0, 1]));
            let who = Value::from(Ipv4Addr::from([192, 0, 2, last]));
            let key = [who, vip.clone(), 6_u8.into(), 80_u16.into()];
            let client = clients.element(&key).unwrap();
            client.with_data(&[vip, 80_u16.into()]).unwrap()
        };
        let there: Vec<_> = (0..5).map(|last| Edit::Add(client(last).into())).collect();
        kernel.transact(&Transaction::from_edits(&there)).unwrap();
        let generation = kernel.client.generation().unwrap();
        assert_eq!(generation, Generation(3));
        assert_eq!(kernel.tally.others_at(generation), 1);
        let remove: Vec<_> = (1..8)
            .map(|last| Edit::Remove(client(last).into()))
            .collect();
        kernel.remove(&remove).unwrap();
        let left = kernel.client.elements(&clients).unwrap();
        let keys: Vec<_> = left.iter().map(Element::key_bytes).collect();
        assert_eq!(keys, [client(0).key_bytes()]);
        let generation = kernel.client.generation().unwrap();
        assert_eq!(
            kernel.tally.others_at(generation),
            1,
            "what is refused does not count"
        );
    }
}
