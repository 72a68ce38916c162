//! The nf_tables kernel of one family, limited to our table.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::mem;
use std::os::fd::{AsFd, BorrowedFd};
use std::slice;

use vipline_netlink::{Counters, Errno};
use vipline_nftables::{
    Action, Client, Encoder, Error, Name, Object, Operation, RejectedOperation, Subject,
    Transaction,
};
use vipline_reconcile::{
    self as reconcile, Atomic, Attempt, Edit, MAX_REJECTED_BATCHES, Reason, Rejection, isolate,
};
use vipline_service_model::Family;

use super::rejections;
use crate::backend::apply::foreign_commits::CommitCounter;
use crate::backend::nftables::plan::affinity::{self, Pool};
use crate::backend::nftables::plan::batches::parts_of;
use crate::backend::nftables::plan::names;
use crate::backend::nftables::plan::table::Table;
use crate::backend::nftables::plan::takeover::{are_incomplete, completed, is_takeover};

/// Maximum number of clients that one transaction removes.
const CLIENTS: usize = 1024;

/// The table of kube-proxy in one family, over netlink.
///
/// Packets also write to the table: they record the endpoint of a client. Recorded
/// clients are not planned, so they are neither dumped nor compared. If endpoints are
/// removed, their clients are removed as well.
#[derive(Debug)]
pub struct Kernel {
    pub(super) client: Client,
    pub(super) table: &'static Table,
    commit_counter: CommitCounter,
    /// Client maps in the last dump, which may contain endpoints that were removed
    /// before.
    unchecked: Vec<Name>,
    took_over: bool,
}

/// Encoder of transactions. Both encoders produce the same messages.
#[cfg(not(feature = "nftnl"))]
const ENCODER: Encoder = Encoder::Native;
#[cfg(feature = "nftnl")]
const ENCODER: Encoder = Encoder::Nftnl;

impl Kernel {
    /// Opens an nf_tables client in the network namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the kernel lacks nfnetlink. The first dump or commit
    /// reports missing nf_tables or a missing CAP_NET_ADMIN.
    pub fn open(family: Family) -> Result<Self, Error> {
        Self::with_commit_counter(family, CommitCounter::default())
    }

    /// Opens a client that counts its commits with a counter of the caller.
    pub(super) fn with_commit_counter(
        family: Family,
        commit_counter: CommitCounter,
    ) -> Result<Self, Error> {
        Ok(Self {
            client: Client::open_with(ENCODER)?,
            table: Table::of(family),
            commit_counter,
            unchecked: Vec::new(),
            took_over: false,
        })
    }

    /// Returns the counters of messages and bytes sent and received.
    pub fn counters(&self) -> Counters {
        self.client.counters()
    }

    /// Removes the clients of a pool whose endpoints were removed.
    fn purge(&mut self, pool: &Pool) -> Result<(), Error> {
        let clients = self.client.elements(&pool.clients)?;
        if clients.is_empty() {
            return Ok(());
        }
        let endpoints = self.client.elements(&pool.endpoints)?;
        let stale = affinity::stale(clients, &endpoints);
        let edits: Vec<_> = stale.map(|client| Edit::Remove(client.into())).collect();
        for part in edits.chunks(CLIENTS) {
            self.remove(part)?;
        }
        Ok(())
    }

    /// Purges the pools that were not checked since the last dump, and the pools from
    /// which `edits` remove endpoints.
    fn purge_after(&mut self, edits: &[Edit<Object>]) -> Result<(), Error> {
        let unchecked = mem::take(&mut self.unchecked);
        let unchecked = unchecked.iter().filter_map(names::Pool::of_clients);
        let pools: BTreeSet<_> = unchecked
            .chain(edits.iter().filter_map(affinity::shrunk))
            .collect();
        for pool in pools {
            match self.purge(&Pool::new(self.table, pool)) {
                // The pool was removed with all its clients.
                Err(error) if error.is_not_found() => {}
                done => done?,
            }
        }
        Ok(())
    }

    /// Removes elements, some of which may not exist anymore.
    ///
    /// A missing element makes the kernel reject the whole transaction; each half is then
    /// tried separately.
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

    /// Commits one transaction and counts it.
    fn transact(&mut self, transaction: &Transaction) -> Result<(), Error> {
        self.client.commit(transaction)?;
        if !transaction.is_empty() {
            self.commit_counter.committed(1);
        }
        Ok(())
    }
}

impl AsFd for Kernel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.client.as_fd()
    }
}

impl reconcile::Target for Kernel {
    type Object = Object;
    type Error = Error;

    fn dump(&mut self) -> Result<Vec<Object>, Error> {
        let others = self.commit_counter.foreign_at(self.client.generation()?);
        let ruleset = self.client.dump(slice::from_ref(&self.table.id))?;
        self.commit_counter.dumped(others);
        let objects: Vec<_> = ruleset.into_objects().collect();
        let sets = objects.iter().filter_map(|object| match object {
            Object::Set(set) => Some(&set.name),
            _ => None,
        });
        let pools = sets.filter(|name| names::Pool::of_clients(name).is_some());
        self.unchecked = pools.cloned().collect();
        Ok(objects)
    }

    fn commit(&mut self, all: &[Edit<Object>]) -> Result<Vec<Rejection>, Error> {
        let edits = all;
        self.took_over = is_takeover(edits);
        let edits = match are_incomplete(edits) {
            true => {
                // This dump does not reset the commit counter, so earlier changes are
                // still reported as drift.
                let ruleset = self.client.dump(slice::from_ref(&self.table.id))?;
                let installed = ruleset.into_objects().collect();
                Cow::Owned(completed(self.table, edits, installed))
            }
            false => Cow::Borrowed(edits),
        };
        let (mut rejected, mut budget) = (Vec::new(), MAX_REJECTED_BATCHES);
        for part in parts_of(&edits) {
            let all = (0..part.len()).collect();
            let mut sender = Sender::new(self, &part);
            let rejections = isolate(&mut sender, all, &mut budget)?;
            rejected.extend(rejections.into_iter().map(|it| (part[it.index], it.reason)));
        }
        self.purge_after(&edits)?;
        rejections(all, rejected)
    }

    fn took_over(&self) -> bool {
        self.took_over
    }
}

/// Sends a part of the edits without those that the kernel rejects.
struct Sender<'a> {
    kernel: &'a mut Kernel,
    edits: &'a [&'a Edit<Object>],
}

impl<'a> Sender<'a> {
    fn new(kernel: &'a mut Kernel, edits: &'a [&'a Edit<Object>]) -> Self {
        Self { kernel, edits }
    }
}

impl Atomic for Sender<'_> {
    type Error = Error;

    fn attempt(&mut self, batch: &[usize]) -> Result<Attempt, Error> {
        let edits = batch.iter().map(|&index| self.edits[index]);
        match self.kernel.transact(&Transaction::from_edits(edits)) {
            Ok(()) => Ok(Attempt::Applied),
            Err(Error::Rejected { rejected, more }) => {
                rejections::attempt(self.edits, batch, &rejected)
                    .ok_or(Error::Rejected { rejected, more })
            }
            Err(error) => Err(error),
        }
    }

    fn dependents(&self, rejected: &[usize]) -> Vec<usize> {
        rejections::dependents(self.edits, rejected)
    }
}

/// Maps rejections to their indices among `all` edits of a commit.
///
/// Fails for an edit that was added to replace the table of another program, because such
/// an edit cannot be rejected alone.
fn rejections(
    all: &[Edit<Object>],
    rejected: Vec<(&Edit<Object>, Reason)>,
) -> Result<Vec<Rejection>, Error> {
    if rejected.is_empty() {
        return Ok(Vec::new());
    }
    let places: HashMap<_, _> = all.iter().map(Edit::key).zip(0..).collect();
    let place = |(edit, reason): (&Edit<Object>, Reason)| match places.get(&edit.key()) {
        Some(&index) => Ok(Rejection::new(index, reason)),
        None => Err(rejected_part(edit, &reason)),
    };
    rejected.into_iter().map(place).collect()
}

/// Returns the error for a rejected part of a replaced table.
fn rejected_part(edit: &Edit<Object>, reason: &Reason) -> Error {
    let subject = Subject::Object(Box::new(edit.object().clone()));
    let errno = Errno(reason.errno.unwrap_or_default());
    let refused = RejectedOperation::new(Operation::new(Action::Add, subject), errno);
    Error::Rejected {
        rejected: vec![refused],
        more: 0,
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use testkit::netns::Netns;
    use vipline_nftables::{Element, Generation, Value};

    use super::*;

    #[test]
    fn missing_clients_do_not_prevent_the_removal_of_others() {
        let netns = Netns::new().unwrap();
        let mut kernel = netns.run(|| Kernel::open(Family::V4)).unwrap();
        let pool = names::Pool {
            id: "ID",
            is_local: false,
        };
        let clients = Pool::new(kernel.table, pool).clients;
        let table = vipline_nftables::Table::new(clients.table.clone());
        let add = [Object::from(table), clients.clone().into()].map(Edit::Add);
        kernel.transact(&Transaction::from_edits(&add)).unwrap();
        let client = |last: u8| -> Element {
            let vip = Value::from(Ipv4Addr::from([10, 96, 0, 1]));
            let client = Value::from(Ipv4Addr::from([192, 0, 2, last]));
            let client = clients.element(&[client]).unwrap();
            client.with_data(&[vip, 80_u16.into()]).unwrap()
        };
        let there: Vec<_> = (0..5).map(|last| Edit::Add(client(last).into())).collect();
        kernel.transact(&Transaction::from_edits(&there)).unwrap();
        let generation = kernel.client.generation().unwrap();
        assert_eq!(generation, Generation(3));
        assert_eq!(kernel.commit_counter.foreign_at(generation), 1);
        let remove: Vec<_> = (1..8)
            .map(|last| Edit::Remove(client(last).into()))
            .collect();
        kernel.remove(&remove).unwrap();
        let left = kernel.client.elements(&clients).unwrap();
        let keys: Vec<_> = left.iter().map(Element::key_bytes).collect();
        assert_eq!(keys, [client(0).key_bytes()]);
        let generation = kernel.client.generation().unwrap();
        assert_eq!(
            kernel.commit_counter.foreign_at(generation),
            1,
            "what is refused does not count"
        );
    }
}
