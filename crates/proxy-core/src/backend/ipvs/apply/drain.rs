//! Draining of real servers: no new connections, removal after the last one ends.
//!
//! IPVS forwards a packet by its connection entry, which names a real server. If that real
//! server is deleted, it lacks `IP_VS_DEST_F_AVAILABLE`, and IPVS drops the packets of its
//! connections (`ip_vs_in_hook`, in older kernels `ip_vs_in`): a client in the middle of a
//! download is cut off. With weight 0 it gets no new connections, and the old ones go on.
//! So a removal in the plan becomes a change to weight 0, and the deletion follows when the
//! kernel counts no connection any more.
//!
//! For example: endpoint 10.1.0.1 of a Service leaves and 10.1.0.2 comes.
//!
//! ```text
//! planned                                            sent
//! Remove 10.96.0.20:80 -> 10.1.0.1:8080              add    10.1.0.2:8080 weight 1
//! Add    10.96.0.20:80 -> 10.1.0.2:8080              change 10.1.0.1:8080 weight 0
//!                            at once, then every 10 s:  how many connections has 10.1.0.1?
//!                            none:                      delete 10.1.0.1:8080
//! ```
//!
//! The plan does not know of this: for it 10.1.0.1 is gone. That is why a dump is compared with
//! the plan only after [`Drain::without`] has taken the draining ones out. Otherwise the next
//! comparison would delete them, or give them their weight back.
//!
//! What must stay true:
//!
//! - Only what this process drains is deleted. A real server of weight 0 that another program
//!   made, or to which another program gave a weight meanwhile, is not ours.
//! - `services` and `checks` hold the same virtual servers, each at its time `next`. A virtual
//!   server without an entry in `checks` would keep its real servers for ever.
//! - The memory is lost with the process. After a restart a draining real server is one of
//!   weight 0 that the plan does not have: the first comparison removes it, which drains it anew.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::net::SocketAddr;
use std::time::Duration;

use vipline_ipvs::{Command, Destination, Object, RealServer, ServiceKey, Transport};
use vipline_reconcile::Edit;

/// Interval between checks of the remaining connections of a virtual server.
///
/// The kernel reports no end of a connection, so it must be asked.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Maximum number of virtual servers that one sweep checks. Each check is a dump of its real
/// servers, and the syncs of all Services wait for the sweep: the endpoint of a Service with
/// 16,384 pairs of an address and a port has as many virtual servers.
const MAX_VIRTUAL_SERVERS_PER_SWEEP: usize = 64;

/// Maximum draining time of SCTP associations, which rarely end by themselves: without it, one
/// association between two daemons would keep an endpoint that was deleted months ago.
const MAX_DRAIN_TIME: Duration = Duration::from_secs(15 * 60);

/// Real servers of weight 0 that are removed after their last connection ends.
#[derive(Debug, Default)]
pub(in crate::backend) struct Drain {
    /// Virtual servers that have draining real servers.
    services: BTreeMap<ServiceKey, Draining>,
    /// Time of the next check of each of them, in order of time, so that a look at what is due
    /// does not visit all of them.
    checks: BTreeSet<(Duration, ServiceKey)>,
}

/// Draining real servers of a virtual server.
#[derive(Debug, Default)]
struct Draining {
    /// Removal deadline of each real server; `None` until its first check.
    servers: BTreeMap<SocketAddr, Option<Duration>>,
    /// Time of the next check.
    next: Duration,
}

impl Drain {
    /// Returns whether [`start`](Self::start) would return these edits unchanged: all
    /// are additions, and no real server is draining.
    pub(super) fn is_unaffected(&self, edits: &[Edit<Object>]) -> bool {
        self.services.is_empty() && edits.iter().all(|edit| matches!(edit, Edit::Add(_)))
    }

    /// Replaces removals of real servers by changes to weight 0.
    ///
    /// A draining real server that is added again gets its weight back. Real servers of a
    /// removed virtual server are removed with it. Real servers of UDP are removed at
    /// once: the plan keeps them while they serve, and IPVS sends the next datagram of an
    /// orphaned flow to another real server.
    pub(in crate::backend) fn start(&mut self, edits: Vec<Edit<Object>>) -> Vec<Edit<Object>> {
        // The kernel removes the real servers of a virtual server with it. They cannot drain
        // without it, and a change of their weights would be an error.
        let removed: BTreeSet<ServiceKey> = edits.iter().filter_map(removed_server).collect();
        for service in &removed {
            self.forget(service);
        }
        let (mut last, mut others) = (Vec::new(), Vec::with_capacity(edits.len()));
        for edit in edits {
            match edit {
                Edit::Remove(Object::Destination(service, _)) if is_udp(&service) => {
                    last.push(edit)
                }
                Edit::Remove(Object::Destination(service, real)) if !removed.contains(&service) => {
                    last.extend(self.drain(service, real));
                }
                Edit::Add(Object::Destination(service, real)) => {
                    others.extend(self.add(service, real));
                }
                Edit::Change {
                    new: Object::Destination(_, real),
                    ..
                // The plan itself lets an endpoint drain: a terminating one, which still serves.
                } if real.weight == 0 => last.push(edit),
                other => others.push(other),
            }
        }
        // The new real servers before the old ones drain: in between, a virtual server whose
        // real servers all have weight 0 would have none for a new connection.
        others.extend(last);
        others
    }

    /// Starts to drain a real server. Returns the edit that sets its weight to 0.
    fn drain(&mut self, service: ServiceKey, real: RealServer) -> Option<Edit<Object>> {
        let draining = self.services.entry(service).or_default();
        draining.servers.insert(real.endpoint(), None);
        // The first check is due at once: most real servers have no connections. Its deadline is
        // `None` until then, because edits come without the time.
        let before = mem::replace(&mut draining.next, Duration::ZERO);
        self.checks.remove(&(before, service));
        self.checks.insert((Duration::ZERO, service));
        weight_changed(service, real, real.weight, 0)
    }

    /// Returns the edit that adds a real server, or restores the weight of a draining one.
    fn add(&mut self, service: ServiceKey, real: RealServer) -> Option<Edit<Object>> {
        let removed = self.edit(&service, |servers| servers.remove(&real.endpoint()));
        match removed.flatten() {
            // It is still in the kernel, so an addition would fail with EEXIST.
            Some(_) => weight_changed(service, real, 0, real.weight),
            None => Some(Edit::Add(Object::Destination(service, real))),
        }
    }

    /// Removes some draining real servers of a virtual server, and forgets the virtual server
    /// with the last one. `None` if it has none.
    fn edit<T>(
        &mut self,
        service: &ServiceKey,
        edit: impl FnOnce(&mut BTreeMap<SocketAddr, Option<Duration>>) -> T,
    ) -> Option<T> {
        let servers = &mut self.services.get_mut(service)?.servers;
        let edited = edit(servers);
        if servers.is_empty() {
            self.forget(service);
        }
        Some(edited)
    }

    /// Forgets the real servers of a virtual server.
    fn forget(&mut self, service: &ServiceKey) {
        if let Some(draining) = self.services.remove(service) {
            self.checks.remove(&(draining.next, *service));
        }
    }

    /// Records the dumped real servers, and returns the objects without those that are
    /// draining.
    pub(super) fn without(&mut self, dumped: Vec<Object>) -> Vec<Object> {
        let (draining, others): (Vec<_>, _) = dumped.into_iter().partition(|object| match object {
            Object::Destination(service, real) => self.is_draining(service, real),
            Object::VirtualServer(_) => false,
        });
        // What is no longer in the dump was removed by another process. What has a weight got it
        // from another process, or the commit of weight 0 failed. So nothing is left to check.
        let left: BTreeSet<_> = draining.iter().filter_map(endpoint).collect();
        let services: Vec<_> = self.services.keys().copied().collect();
        for service in services {
            self.edit(&service, |servers| {
                servers.retain(|endpoint, _| left.contains(&(service, *endpoint)));
            });
        }
        others
    }

    /// Returns whether a real server is draining.
    pub(super) fn is_draining(&self, service: &ServiceKey, real: &RealServer) -> bool {
        let draining = self.services.get(service);
        real.weight == 0
            && draining.is_some_and(|draining| draining.servers.contains_key(&real.endpoint()))
    }

    /// Returns the time of the next check; `None` if nothing is draining.
    pub(super) fn next_poll(&self) -> Option<Duration> {
        self.checks.first().map(|(at, _)| *at)
    }

    /// Returns the virtual servers whose real servers must be checked now, at most
    /// [`MAX_VIRTUAL_SERVERS_PER_SWEEP`]. The [next check](Self::next_poll) is due at once if
    /// there are more.
    pub(super) fn due(&mut self, now: Duration) -> Vec<ServiceKey> {
        let due = self.checks.iter().take_while(|(at, _)| *at <= now);
        let due: Vec<_> = due.take(MAX_VIRTUAL_SERVERS_PER_SWEEP).copied().collect();
        for check @ (_, service) in &due {
            self.checks.remove(check);
            self.checks.insert((now + CHECK_INTERVAL, *service));
            if let Some(draining) = self.services.get_mut(service) {
                draining.next = now + CHECK_INTERVAL;
                for deadline in draining.servers.values_mut() {
                    // Saturating, because TCP has no limit.
                    deadline.get_or_insert(now.saturating_add(max_drain_time(service)));
                }
            }
        }
        due.into_iter().map(|(_, service)| service).collect()
    }

    /// Checks the real servers of a virtual server, and returns commands that remove the
    /// drained ones.
    pub(super) fn finished(
        &mut self,
        service: ServiceKey,
        reals: &[Destination],
        now: Duration,
    ) -> Vec<Command> {
        let reals = reals.iter().map(|real| (real.server.endpoint(), real));
        let reals: BTreeMap<_, _> = reals.collect();
        let mut finished = Vec::new();
        self.edit(&service, |servers| {
            servers.retain(|endpoint, deadline| {
                // Another process gave it a weight or removed it, so it is not ours to
                // remove.
                let Some(real) = reals.get(endpoint).filter(|real| real.server.weight == 0) else {
                    return false;
                };
                // Inactive ones count, too: a connection in FIN_WAIT still has packets to send.
                let is_idle = real.connections.active + real.connections.inactive == 0;
                let is_over = is_idle || deadline.is_some_and(|deadline| deadline <= now);
                if is_over {
                    finished.push(Command::RemoveDestination(service, *endpoint));
                }
                !is_over
            });
        });
        finished
    }
}

/// Returns the virtual server and the endpoint of a real server.
fn endpoint(object: &Object) -> Option<(ServiceKey, SocketAddr)> {
    match object {
        Object::Destination(service, real) => Some((*service, real.endpoint())),
        Object::VirtualServer(_) => None,
    }
}

/// Returns the maximum draining time of the connections of a virtual server.
///
/// Unlimited for TCP, because the kernel sees the end of TCP connections.
fn max_drain_time(service: &ServiceKey) -> Duration {
    match service {
        ServiceKey::Address {
            protocol: Transport::Tcp,
            ..
        } => Duration::MAX,
        _ => MAX_DRAIN_TIME,
    }
}

fn is_udp(service: &ServiceKey) -> bool {
    matches!(
        service,
        ServiceKey::Address {
            protocol: Transport::Udp,
            ..
        }
    )
}

/// Returns the edit that changes the weight of a real server. `None` if the weights are equal: the
/// plan gives a terminating endpoint weight 0 before it removes it.
fn weight_changed(
    service: ServiceKey,
    real: RealServer,
    before: u32,
    after: u32,
) -> Option<Edit<Object>> {
    let of_weight = |weight| Some(Object::Destination(service, real.with_weight(weight)));
    Edit::between(of_weight(before), of_weight(after))
}

fn removed_server(edit: &Edit<Object>) -> Option<ServiceKey> {
    match edit {
        Edit::Remove(Object::VirtualServer(server)) => Some(server.service),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use vipline_ipvs::{Connections, Scheduler, VirtualServer};

    use super::*;

    fn service(protocol: Transport) -> ServiceKey {
        ServiceKey::new(protocol, [10, 96, 0, 20].into(), 80)
    }

    fn real(last: u8, weight: u32) -> RealServer {
        RealServer::new([10, 1, 0, last].into(), 8080).with_weight(weight)
    }

    fn object(protocol: Transport, last: u8, weight: u32) -> Object {
        Object::Destination(service(protocol), real(last, weight))
    }

    /// Returns a real server with connections, as the kernel reports it.
    fn entry(last: u8, weight: u32, active: u32) -> Destination {
        Destination::new(real(last, weight)).with_connections(Connections {
            active,
            ..Connections::default()
        })
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    const TCP: Transport = Transport::Tcp;

    #[test]
    fn a_replaced_real_server_drains_after_its_successor_is_added() {
        let mut drain = Drain::default();
        let edits = drain.start(vec![
            Edit::Remove(object(TCP, 1, 1)),
            Edit::Add(object(TCP, 2, 1)),
        ]);
        let (old, new) = (object(TCP, 1, 1), object(TCP, 1, 0));
        let expected = [Edit::Add(object(TCP, 2, 1)), Edit::Change { old, new }];
        assert_eq!(edits, expected);
        // A draining server counts as removed; other servers of weight 0 do not.
        let dumped = vec![object(TCP, 1, 0), object(TCP, 2, 1), object(TCP, 3, 0)];
        let rest = [object(TCP, 2, 1), object(TCP, 3, 0)];
        assert_eq!(drain.without(dumped), rest);
        // A server that is added again serves again.
        let edits = drain.start(vec![Edit::Add(object(TCP, 1, 1))]);
        let (old, new) = (object(TCP, 1, 0), object(TCP, 1, 1));
        assert_eq!(edits, [Edit::Change { old, new }]);
        assert_eq!(drain.next_poll(), None);
    }

    #[test]
    fn additions_are_unaffected_while_nothing_drains() {
        let mut drain = Drain::default();
        let added = vec![Edit::Add(object(TCP, 2, 1)), Edit::Add(object(TCP, 3, 1))];
        assert!(drain.is_unaffected(&added));
        assert_eq!(drain.start(added.clone()), added);
        let removed = vec![Edit::Remove(object(TCP, 1, 1))];
        assert!(!drain.is_unaffected(&removed));
        drain.start(removed);
        assert!(!drain.is_unaffected(&added));
    }

    #[test]
    fn real_servers_of_a_removed_virtual_server_do_not_drain() {
        let server = VirtualServer::new(service(TCP), Scheduler::RoundRobin);
        let edits = vec![
            Edit::Remove(Object::VirtualServer(server)),
            Edit::Remove(object(TCP, 1, 1)),
        ];
        let mut drain = Drain::default();
        assert_eq!(drain.start(edits.clone()), edits);
        assert_eq!(drain.next_poll(), None);
    }

    #[test]
    fn a_draining_real_server_is_removed_only_without_connections() {
        let mut drain = Drain::default();
        drain.start(
            [1, 2, 3, 4]
                .map(|last| Edit::Remove(object(TCP, last, 1)))
                .into(),
        );
        assert_eq!(drain.next_poll(), Some(Duration::ZERO));
        assert_eq!(drain.due(seconds(5)), [service(TCP)]);
        assert_eq!(drain.due(seconds(6)), [], "it is not time yet");
        assert_eq!(drain.next_poll(), Some(seconds(15)));
        // The third was removed, and another process gave the fourth a weight.
        let reals = [entry(1, 0, 0), entry(2, 0, 1), entry(4, 7, 0)];
        let finished = drain.finished(service(TCP), &reals, seconds(5));
        let endpoint = real(1, 0).endpoint();
        assert_eq!(
            finished,
            [Command::RemoveDestination(service(TCP), endpoint)]
        );
        let day = seconds(24 * 3600);
        assert_eq!(drain.due(day), [service(TCP)]);
        assert_eq!(
            drain.finished(service(TCP), &reals, day),
            [],
            "TCP may last"
        );
        assert_eq!(
            drain.finished(service(TCP), &[entry(2, 0, 0)], day).len(),
            1
        );
        assert_eq!(drain.next_poll(), None);
    }

    #[test]
    fn a_sweep_checks_a_bounded_number_of_virtual_servers() {
        let of = |port| ServiceKey::new(TCP, [10, 96, 0, 20].into(), port);
        let ports = 1..=u16::try_from(3 * MAX_VIRTUAL_SERVERS_PER_SWEEP / 2).unwrap();
        let leaving = |last| move |port| Edit::Remove(Object::Destination(of(port), real(last, 1)));
        let mut drain = Drain::default();
        drain.start(ports.clone().map(leaving(1)).collect());
        let first = drain.due(seconds(5));
        assert_eq!(first.len(), MAX_VIRTUAL_SERVERS_PER_SWEEP);
        assert_eq!(drain.next_poll(), Some(Duration::ZERO), "the rest is due");
        let rest = drain.due(seconds(6));
        let checked: BTreeSet<_> = first.iter().chain(&rest).copied().collect();
        assert_eq!(checked, ports.map(of).collect());
        assert_eq!(
            (rest.len(), drain.due(seconds(14))),
            (MAX_VIRTUAL_SERVERS_PER_SWEEP / 2, Vec::new())
        );
        // One that starts to drain is checked at once, the others at their times.
        drain.start(vec![leaving(2)(1)]);
        assert_eq!(drain.due(seconds(14)), [of(1)]);
        assert_eq!(drain.next_poll(), Some(seconds(15)));
        assert_eq!(drain.due(seconds(15)), first[1..]);
    }

    #[test]
    fn sctp_real_servers_are_removed_at_their_deadline() {
        let mut drain = Drain::default();
        drain.start(vec![Edit::Remove(object(Transport::Sctp, 1, 1))]);
        let (begin, of) = (seconds(100), service(Transport::Sctp));
        assert_eq!(drain.due(begin), [of]);
        let busy = [entry(1, 0, 3)];
        let before = begin + MAX_DRAIN_TIME - seconds(1);
        assert_eq!(drain.finished(of, &busy, before), []);
        assert_eq!(drain.finished(of, &busy, begin + MAX_DRAIN_TIME).len(), 1);
    }

    #[test]
    fn udp_real_servers_drain_or_go_after_their_successor_is_added() {
        const UDP: Transport = Transport::Udp;
        let mut drain = Drain::default();
        let leaving = Edit::Change {
            old: object(UDP, 2, 1),
            new: object(UDP, 2, 0),
        };
        let (gone, new) = (
            Edit::Remove(object(UDP, 1, 0)),
            Edit::Add(object(UDP, 3, 1)),
        );
        let edits = drain.start(vec![gone.clone(), leaving.clone(), new.clone()]);
        assert_eq!(edits, [new, gone, leaving]);
        assert_eq!(drain.next_poll(), None);
    }
}
