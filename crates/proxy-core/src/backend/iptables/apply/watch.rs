//! Detection of changes to our chains, by notifications or by polling.
//!
//! If another program flushes the tables, such as a reload of firewalld, Services are gone until
//! the rules are written again. How the watch learns of it depends on the variant:
//!
//! - nft: the kernel notifies a [`Monitor`] of each commit. Those of the engine itself are left
//!   out, by the port ID of its sockets or by the runs of its programs (`own_commits.rs`).
//! - legacy: nothing is reported. The watch polls for the canary, an empty chain that only a flush
//!   removes, as upstream does.
//!
//! What must stay true: no change is missed between the dump and the first notification. So the
//! monitor is open before the generation is read; and after a monitor fails, the watch reports a
//! drift and polls until another one is open.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use vipline_nftables as nftables;
use vipline_nftables::{Monitor, Name, Notifications, TableId};
use vipline_service_model::Family;

use super::kernel::Kernel;
use super::own_commits::Trace;
use super::tables::Tables;
use crate::backend::iptables::plan::layout::Layout;
use crate::backend::iptables::plan::names;
use crate::{Drift, Error, IptablesBackend};

/// Time after a missing canary during which the watch polls more often, because a flush
/// may be in progress: it clears one table after the other. What was repaired in a table that it
/// had yet to clear is gone again.
const FLUSHING: Duration = Duration::from_secs(5);

/// Receive buffer of the monitor in bytes if programs commit.
///
/// The kernel reports the commits of the programs, too, and all of a restore is in the buffer
/// before the engine reads it. A shared chain with 17,000 rules that is rewritten causes 34,000
/// notifications. In 4 MiB they do not fit, and after each rewrite both families were dumped.
const RECV_BUFFER_SIZE: usize = 64 << 20;

/// Watches our chains for changes by other processes.
///
/// The kernel sends notifications for the nft variant. It sends none for the legacy
/// variant, so the watch polls for the canary.
#[derive(Debug)]
pub(crate) struct Watch {
    layout: Layout,
    watched: Vec<Watched>,
    trace: Trace,
    /// `None` if no monitor is open.
    monitor: Option<Monitor>,
    /// Polling interval.
    period: Duration,
    /// Time of the next poll; `None` if the watch does not poll.
    next: Option<Duration>,
}

/// The kernel of a family.
#[derive(Debug)]
struct Watched {
    family: Family,
    trace: Trace,
    /// Netlink port ID of the kernel's socket, without the programs.
    port_id: Option<u32>,
    tables: Tables,
    /// Whether the canary was missing at the last poll.
    is_flushed: bool,
}

impl Watch {
    /// Creates a watch that polls every `period` if the kernel sends no notifications.
    pub(crate) fn new(period: Duration) -> Self {
        Self::of_layout(Layout::IPTABLES, period)
    }

    /// Creates a watch for the chains of a layout that polls every `period` if the kernel
    /// sends no notifications.
    pub(in crate::backend) fn of_layout(layout: Layout, period: Duration) -> Self {
        Self {
            layout,
            watched: Vec::new(),
            trace: Trace::default(),
            monitor: None,
            period,
            next: None,
        }
    }

    /// Opens a kernel and adds it to the watch.
    pub(crate) fn open(
        &mut self,
        family: Family,
        backend: IptablesBackend,
    ) -> Result<Kernel, Error> {
        let mut kernel = Kernel::open_with(family, backend)?.of_layout(self.layout);
        kernel.trace = self.trace.sibling();
        self.watched.push(Watched {
            family,
            trace: kernel.trace.clone(),
            port_id: kernel.port_id(),
            // Of its own, for the polls: the caller gets the kernel.
            tables: Tables::open(family, backend)?,
            is_flushed: false,
        });
        Ok(kernel)
    }

    /// Returns whether the kernel sends notifications for all watched kernels.
    fn can_listen(&self) -> bool {
        self.watched
            .iter()
            .all(|watched| watched.tables.has_notifications())
    }
}

impl crate::Watch for Watch {
    fn start(&mut self) -> Result<Vec<Family>, Error> {
        // Without a monitor the engine calls this function after each sync. A poll that
        // is already scheduled keeps its time.
        self.next.get_or_insert(Duration::ZERO);
        if !self.can_listen() {
            return Ok(Vec::new());
        }
        let notices = Notifications::new(&tables(self.layout)).with_filter(self.layout.is_about_us);
        let port_ids: Vec<_> = self.watched.iter().filter_map(|it| it.port_id).collect();
        let monitor = Monitor::open_with(notices, &port_ids)?;
        if port_ids.len() < self.watched.len() {
            monitor.set_recv_buffer_size(RECV_BUFFER_SIZE)?;
        }
        // Not before the monitor is open. The monitor reports later changes; now check for changes
        // since the dump.
        let generation = nftables::Client::open()?.generation()?;
        self.monitor = Some(monitor);
        self.next = None;
        // The numbers of foreign commits at the dump and now, see `CommitCounter`.
        let commit_counter = |each: &Watched| each.trace.commit_counter.clone();
        let missed = |each: &&Watched| {
            commit_counter(each).missed(commit_counter(each).foreign_at(generation))
        };
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
        let Some(mut notification) = Monitor::read_or_close(&mut self.monitor) else {
            return Vec::new();
        };
        // It failed, and `notification` says that something was lost.
        if self.monitor.is_none() {
            self.next = Some(Duration::ZERO);
        }
        self.trace.own.remove_from(&mut notification.commits);
        let watched = self.watched.iter();
        let drift = watched.filter_map(|each| {
            let changes = notification.changes_of(|table| is_of(table, each.family));
            let changes = changes.map(|(count, process)| (count, process.to_string()));
            let drift = Drift::of_processes(notification.is_incomplete, changes)?;
            Some((each.family, drift))
        });
        drift.collect()
    }

    fn next_poll(&self) -> Option<Duration> {
        self.next
    }

    fn poll(&mut self, now: Duration) -> Vec<(Family, Drift)> {
        if self.next.is_none_or(|next| now < next) {
            return Vec::new();
        }
        let mut found = Vec::new();
        for watched in &mut self.watched {
            let was_flushed = watched.is_flushed;
            watched.is_flushed = is_canary_gone(&mut watched.tables, self.layout);
            // Once more after its return: the repair may have been earlier than the rest of the
            // flush.
            if watched.is_flushed || was_flushed {
                found.push((watched.family, Drift::new(0, true)));
            }
        }
        let is_flushed = self.watched.iter().any(|watched| watched.is_flushed);
        // The minimum, for a period that is shorter.
        let pause = if is_flushed {
            FLUSHING.min(self.period)
        } else {
            self.period
        };
        self.next = Some(now + pause);
        found
    }
}

/// Returns whether the canary is missing. A failed read counts as present: the dump after a drift
/// would fail as well, and the next poll asks again.
fn is_canary_gone(tables: &mut Tables, layout: Layout) -> bool {
    let (table, chain) = layout.canary;
    matches!(tables.has_chain(names::table(table), chain), Ok(false))
}

/// Returns the nf_tables tables that contain our chains.
fn tables(layout: Layout) -> Vec<TableId> {
    let id = |family, name| {
        let name = Name::new(name).expect("the tables of a layout have valid names");
        TableId::new(family, name)
    };
    let families = [nftables::Family::Ip, nftables::Family::Ip6].into_iter();
    let tables =
        families.flat_map(|family| layout.tables.iter().map(move |name| id(family, *name)));
    tables.collect()
}

/// Returns whether a table belongs to a family.
fn is_of(table: &TableId, family: Family) -> bool {
    table.family == family.into()
}

#[cfg(test)]
mod tests {
    use testkit::netns::Netns;
    use vipline_iptables::{Client, Object, Restore, Variant};
    use vipline_netlink::message::Message;
    use vipline_reconcile::{Edit, Target as _};

    use super::*;
    use crate::Watch as _;
    use crate::backend::iptables::plan::names::{MANGLE, NAT};

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn message(ty: u16, payload: &[u8]) -> Message<'_> {
        Message {
            ty,
            flags: 0,
            seq: 0,
            port_id: 7,
            payload,
        }
    }

    /// Returns a watch of the legacy variant, which sends no notifications.
    fn legacy() -> (Watch, Kernel) {
        let open = || Client::open_variant(Family::V4, Variant::Legacy).unwrap();
        let mut watch = Watch::new(seconds(30));
        watch.watched.push(Watched {
            family: Family::V4,
            trace: Trace::default(),
            port_id: None,
            tables: Tables::Programs(open()),
            is_flushed: false,
        });
        (watch, Kernel::with_client(open(), Family::V4))
    }

    #[test]
    fn a_missing_canary_is_reported_until_the_poll_after_its_return() {
        Netns::new().unwrap().run(|| {
            let (mut watch, mut kernel) = legacy();
            let name = names::chain(names::CANARY);
            let canary = vipline_iptables::Chain::new(names::table(MANGLE), name)
                .with_rules(vipline_iptables::Rules::default());
            let canary = Object::from(canary);
            kernel.commit(&[Edit::Add(canary.clone())]).unwrap();
            assert_eq!(watch.next_poll(), None, "the watch has not started");
            assert!(watch.start().unwrap().is_empty());
            assert!(!watch.is_listening());
            assert!(watch.poll(seconds(1)).is_empty());
            assert_eq!(watch.next_poll(), Some(seconds(31)));

            let gone = [Edit::Remove(canary.clone())];
            let mut client = Client::open_variant(Family::V4, Variant::Legacy);
            client
                .as_mut()
                .unwrap()
                .restore(&Restore::from_edits(&gone))
                .unwrap();
            assert!(watch.poll(seconds(30)).is_empty(), "it is not time yet");
            let found = watch.poll(seconds(31));
            assert!(
                matches!(&*found, [(Family::V4, drift)] if drift.is_incomplete),
                "{found:?}"
            );
            // A flush may not have reached the other tables yet.
            assert_eq!(watch.next_poll(), Some(seconds(36)));
            kernel.commit(&[Edit::Add(canary)]).unwrap();
            assert_eq!(watch.poll(seconds(36)).len(), 1);
            assert_eq!(watch.next_poll(), Some(seconds(66)));
            assert!(watch.poll(seconds(66)).is_empty());
        });
    }

    #[test]
    fn only_changes_that_affect_our_chains_count() {
        let nat = TableId::new(nftables::Family::Ip, Name::new(NAT).unwrap());
        let counts = |chain, is_removed| {
            let mut notices = Notifications::new(&nat).with_filter(Layout::IPTABLES.is_about_us);
            let kind = if is_removed { 8 } else { 6 };
            let mut payload = vec![2, 0, 0, 0];
            vipline_netlink::attr::put_str(&mut payload, 1, NAT);
            vipline_netlink::attr::put_str(&mut payload, 2, chain);
            notices.push(message(10 << 8 | kind, &payload)).unwrap();
            let mut end = vec![0; 4];
            vipline_netlink::attr::put_be32(&mut end, 1, 7);
            notices.push(message(10 << 8 | 15, &end)).unwrap().is_some()
        };
        for (chain, made, removed) in [
            ("KUBE-SERVICES", true, true),
            ("KUBE-SEP-AAAAAAAAAAAAAAAA", true, true),
            ("PREROUTING", false, true),
            ("DOCKER", false, false),
        ] {
            assert_eq!(counts(chain, false), made, "{chain}");
            assert_eq!(counts(chain, true), removed, "{chain}");
        }
    }
}
