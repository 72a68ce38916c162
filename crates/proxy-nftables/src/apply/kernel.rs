//! The nf_tables kernel of one family, limited to our table.

use std::borrow::Cow;
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};

use vipline_netlink::{Counters, Errno};
use vipline_nftables::{
    Action, Client, CommitCounter, Error, Object, Operation, RejectedOperation, Subject,
    Transaction,
};
use vipline_reconcile::{
    self as reconcile, Atomic, Attempt, Edit, MAX_REJECTED_BATCHES, Reason, Rejection, isolate,
};
use vipline_service_model::Family;

use super::probe::missing_extensions;
use super::rejections;
use crate::plan::affinity::StickyAddresses;
use crate::plan::batches::parts_of;
use crate::plan::table::Table;
use crate::plan::takeover::{are_incomplete, completed, is_takeover};
use proxy_engine::MissingExtension;

/// The table of kube-proxy in one family, over netlink.
///
/// Packets also write to the table: they record the endpoint of a client. Recorded clients
/// are not planned, so they are neither dumped nor compared. If an endpoint is removed, the
/// rules ignore its clients, so nothing here depends on the number of clients.
///
/// If the kernel lacks an expression that session affinity needs, the Services with session
/// affinity are rejected as a whole: they would otherwise be served without it.
#[derive(Debug)]
pub struct Kernel {
    pub(super) client: Client,
    pub(super) table: &'static Table,
    commit_counter: CommitCounter,
    took_over: bool,
    support: Support,
}

/// What the kernel has of the expressions that only Services with session affinity need.
#[derive(Clone, Copy, Debug)]
struct Support {
    family: Family,
    /// Whether the kernel had all of them when it was asked.
    is_complete: bool,
    /// Asks the kernel.
    ask: fn(Family) -> Result<Vec<MissingExtension>, proxy_engine::Error>,
}

impl Support {
    /// Returns the reason why the kernel cannot serve Services with session affinity.
    ///
    /// A module may be installed later, so the kernel is asked until it has all. An error says
    /// nothing; the commit then reports its own.
    fn lack(&mut self) -> Option<Reason> {
        if self.is_complete {
            return None;
        }
        let missing = (self.ask)(self.family).ok()?;
        self.is_complete = missing.is_empty();
        let missing = missing.first()?;
        Some(Reason::rejected(None, missing))
    }
}

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
            client: Client::open()?,
            table: Table::of(family),
            commit_counter,
            took_over: false,
            support: Support {
                family,
                is_complete: false,
                ask: missing_extensions,
            },
        })
    }

    /// Returns the counters of messages and bytes sent and received.
    pub fn counters(&self) -> Counters {
        self.client.counters()
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
        let ruleset = self.client.dump(&self.table.id)?;
        self.commit_counter.dumped(others);
        Ok(ruleset.into_objects().collect())
    }

    fn commit(&mut self, all: &[Edit<Object>]) -> Result<Vec<Rejection>, Error> {
        let edits = all;
        self.took_over = is_takeover(edits);
        let edits = match are_incomplete(edits) {
            true => {
                // This dump does not reset the commit counter, so earlier changes are
                // still reported as drift.
                let ruleset = self.client.dump(&self.table.id)?;
                let installed = ruleset.into_objects().collect();
                Cow::Owned(completed(self.table, edits, installed))
            }
            false => Cow::Borrowed(edits),
        };
        let (mut rejected, mut budget) = (Vec::new(), MAX_REJECTED_BATCHES);
        let sticky = StickyAddresses::of(&edits);
        let lack = match sticky.is_empty() {
            true => None,
            false => self.support.lack(),
        };
        for part in parts_of(&edits) {
            let (unsupported, all): (Vec<_>, Vec<_>) =
                (0..part.len()).partition(|&index| lack.is_some() && sticky.need(part[index]));
            if let Some(reason) = &lack {
                let refused = unsupported.into_iter();
                rejected.extend(refused.map(|index| (part[index], reason.clone())));
            }
            let mut sender = Sender::new(self, &part);
            let rejections = isolate(&mut sender, all, &mut budget)?;
            rejected.extend(rejections.into_iter().map(|it| (part[it.index], it.reason)));
        }
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
            Err(error) => rejections::attempt(self.edits, batch, error.rejected()).ok_or(error),
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
    Error::from_rejected(vec![refused])
}

#[cfg(test)]
mod tests {
    use testkit::netns::Netns;
    use vipline_reconcile::Target as _;
    use vipline_service_model::{DetectLocal, Route};

    use super::*;
    use crate::Planner;
    use crate::plan::tests::{cx, planned, service_port};
    use proxy_engine::Planner as _;

    fn without_hash(_: Family) -> Result<Vec<MissingExtension>, proxy_engine::Error> {
        let affected = Some("Services with session affinity");
        Ok(vec![MissingExtension::new(
            "hash",
            "CONFIG_NFT_HASH",
            affected,
        )])
    }

    #[test]
    fn a_service_with_affinity_is_rejected_until_the_kernel_has_what_it_needs() {
        let netns = Netns::new().unwrap();
        netns.run(|| {
            let cx = cx(Family::V4, DetectLocal::NodeCidr);
            let mut port = service_port(Route::Cluster);
            let plain = planned(&cx, &port);
            port.cluster_ip = [10, 96, 0, 11].into();
            port.affinity = Some(10_800);
            let sticky = planned(&cx, &port);
            let mut edits: Vec<_> = Planner.base(&cx).into_iter().map(Edit::Add).collect();
            let base = edits.len();
            for object in plain.into_iter().chain(sticky) {
                let edit = Edit::Add(object);
                if !edits.iter().any(|it| it.key() == edit.key()) {
                    edits.push(edit);
                }
            }
            let mut kernel = Kernel::open(Family::V4).unwrap();
            kernel.support.ask = without_hash;
            let rejected = kernel.commit(&edits).unwrap();
            assert!(!rejected.is_empty());
            let mut retried = Vec::new();
            for rejection in rejected {
                let edit = &edits[rejection.index];
                let text = Planner::text(edit.object());
                assert!(rejection.index >= base, "{text}");
                assert!(!text.contains("10.96.0.10 "), "{text}");
                let reason = rejection.reason.to_string();
                assert!(reason.contains("CONFIG_NFT_HASH"), "{text}: {reason}");
                retried.push(edit.clone());
            }
            let installed = kernel.dump().unwrap();
            let texts: Vec<_> = installed.iter().map(Planner::text).collect();
            let led = |vip: &str| {
                let of_vip = texts.iter().filter(|it| it.contains(vip));
                of_vip.filter(|it| it.contains("8080")).count()
            };
            assert_eq!([led("10.96.0.10 "), led("10.96.0.11 ")], [2, 0]);
            // The module is there now.
            kernel.support.ask = missing_extensions;
            assert_eq!(kernel.commit(&retried).unwrap(), []);
        });
    }
}
