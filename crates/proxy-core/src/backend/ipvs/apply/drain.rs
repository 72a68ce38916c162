//! Draining of real servers: no new connections, removal after the last one ends.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use vipline_ipvs::{Command, Destination, Object, Protocol, RealServer, ServiceKey};
use vipline_reconcile::Edit;

/// Interval between checks of the remaining connections.
const PERIOD: Duration = Duration::from_secs(10);

/// Maximum draining time of SCTP associations, which rarely end by themselves.
const MAX_DRAIN_TIME: Duration = Duration::from_secs(15 * 60);

/// Real servers of weight 0 that are removed after their last connection ends.
#[derive(Debug, Default)]
pub(in crate::backend) struct Drain {
    /// Removal deadline of each real server; `None` until the first check.
    servers: BTreeMap<(ServiceKey, SocketAddr), Option<Duration>>,
    /// Time of the next check.
    next: Option<Duration>,
}

impl Drain {
    /// Returns whether [`start`](Self::start) would return these edits unchanged: all
    /// are additions, and no real server is draining.
    pub(super) fn is_unaffected(&self, edits: &[Edit<Object>]) -> bool {
        self.servers.is_empty() && edits.iter().all(|edit| matches!(edit, Edit::Add(_)))
    }

    /// Replaces removals of real servers by changes to weight 0.
    ///
    /// A draining real server that is added again gets its weight back. Real servers of a
    /// removed virtual server are removed with it. Real servers of UDP are removed at
    /// once: the plan keeps them while they serve, and IPVS sends the next datagram of an
    /// orphaned flow to another real server.
    pub(in crate::backend) fn start(&mut self, edits: Vec<Edit<Object>>) -> Vec<Edit<Object>> {
        let removed: BTreeSet<ServiceKey> = edits.iter().filter_map(removed_server).collect();
        self.servers
            .retain(|(service, _), _| !removed.contains(service));
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
                } if real.weight == 0 => last.push(edit),
                other => others.push(other),
            }
        }
        // Add the new real servers before the old ones drain.
        others.extend(last);
        others
    }

    /// Starts to drain a real server. Returns the edit that sets its weight to 0.
    fn drain(&mut self, service: ServiceKey, real: RealServer) -> Option<Edit<Object>> {
        self.servers.insert((service, real.endpoint()), None);
        weight_changed(service, real, real.weight, 0)
    }

    /// Returns the edit that adds a real server, or restores the weight of a draining one.
    fn add(&mut self, service: ServiceKey, real: RealServer) -> Option<Edit<Object>> {
        match self.servers.remove(&(service, real.endpoint())) {
            Some(_) => weight_changed(service, real, 0, real.weight),
            None => Some(Edit::Add(Object::Destination(service, real))),
        }
    }

    /// Records the dumped real servers, and returns the objects without those that are
    /// draining.
    pub(super) fn without(&mut self, dumped: Vec<Object>) -> Vec<Object> {
        let mut left = BTreeMap::new();
        let dumped = dumped.into_iter().filter(|object| match object {
            Object::Destination(service, real) if real.weight == 0 => {
                let key = (*service, real.endpoint());
                let draining = self.servers.remove_entry(&key);
                let is_draining = draining.is_some();
                left.extend(draining);
                !is_draining
            }
            _ => true,
        });
        let dumped = dumped.collect();
        self.servers = left;
        dumped
    }

    /// Returns whether a real server is draining.
    pub(super) fn is_draining(&self, service: &ServiceKey, real: &RealServer) -> bool {
        real.weight == 0 && self.servers.contains_key(&(*service, real.endpoint()))
    }

    /// Returns the time of the next check; `None` if nothing is draining.
    pub(super) fn next_poll(&self) -> Option<Duration> {
        let is_new = self.servers.values().any(Option::is_none);
        match (self.servers.is_empty(), is_new) {
            (true, _) => None,
            (_, true) => Some(Duration::ZERO),
            _ => self.next,
        }
    }

    /// Returns the virtual servers whose real servers must be checked now.
    pub(super) fn due(&mut self, now: Duration) -> Vec<ServiceKey> {
        for ((service, _), deadline) in &mut self.servers {
            deadline.get_or_insert(now.saturating_add(max_drain_time(service)));
        }
        if self.servers.is_empty() || self.next.is_some_and(|next| now < next) {
            return Vec::new();
        }
        self.next = Some(now + PERIOD);
        let mut services: Vec<_> = self.servers.keys().map(|(service, _)| *service).collect();
        services.dedup();
        services
    }

    /// Checks the real servers of a virtual server, and returns commands that remove the
    /// drained ones.
    pub(super) fn finished(
        &mut self,
        service: ServiceKey,
        reals: &[Destination],
        now: Duration,
    ) -> Vec<Command> {
        let mut finished = Vec::new();
        self.servers.retain(|(of, endpoint), deadline| {
            if *of != service {
                return true;
            }
            let real = reals
                .iter()
                .find(|real| real.server.endpoint() == *endpoint);
            // Another process gave it a weight or removed it, so it is not ours to
            // remove.
            let Some(real) = real.filter(|real| real.server.weight == 0) else {
                return false;
            };
            let is_idle = real.connections.active + real.connections.inactive == 0;
            let is_over = is_idle || deadline.is_some_and(|deadline| deadline <= now);
            if is_over {
                finished.push(Command::RemoveDestination(service, *endpoint));
            }
            !is_over
        });
        finished
    }
}

/// Returns the maximum draining time of the connections of a virtual server.
///
/// Unlimited for TCP, because the kernel sees the end of TCP connections.
fn max_drain_time(service: &ServiceKey) -> Duration {
    match service {
        ServiceKey::Address {
            protocol: Protocol::Tcp,
            ..
        } => Duration::MAX,
        _ => MAX_DRAIN_TIME,
    }
}

fn is_udp(service: &ServiceKey) -> bool {
    matches!(
        service,
        ServiceKey::Address {
            protocol: Protocol::Udp,
            ..
        }
    )
}

/// Returns the edit that changes the weight of a real server, if the weights differ.
fn weight_changed(
    service: ServiceKey,
    real: RealServer,
    before: u32,
    after: u32,
) -> Option<Edit<Object>> {
    let of_weight = |weight| Some(Object::Destination(service, RealServer { weight, ..real }));
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
    use vipline_ipvs::{Connections, Scheduler, Stats, VirtualServer};

    use super::*;

    fn service(protocol: Protocol) -> ServiceKey {
        ServiceKey::new(protocol, [10, 96, 0, 20].into(), 80)
    }

    fn real(last: u8, weight: u32) -> RealServer {
        RealServer {
            weight,
            ..RealServer::new([10, 1, 0, last].into(), 8080)
        }
    }

    fn object(protocol: Protocol, last: u8, weight: u32) -> Object {
        Object::Destination(service(protocol), real(last, weight))
    }

    /// Returns a real server with connections, as the kernel reports it.
    fn entry(last: u8, weight: u32, active: u32) -> Destination {
        Destination {
            server: real(last, weight),
            connections: Connections {
                active,
                ..Connections::default()
            },
            stats: Stats::default(),
        }
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    const TCP: Protocol = Protocol::Tcp;

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
    fn sctp_real_servers_are_removed_at_their_deadline() {
        let mut drain = Drain::default();
        drain.start(vec![Edit::Remove(object(Protocol::Sctp, 1, 1))]);
        let (begin, of) = (seconds(100), service(Protocol::Sctp));
        assert_eq!(drain.due(begin), [of]);
        let busy = [entry(1, 0, 3)];
        let before = begin + MAX_DRAIN_TIME - seconds(1);
        assert_eq!(drain.finished(of, &busy, before), []);
        assert_eq!(drain.finished(of, &busy, begin + MAX_DRAIN_TIME).len(), 1);
    }

    #[test]
    fn udp_real_servers_drain_or_go_after_their_successor_is_added() {
        const UDP: Protocol = Protocol::Udp;
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
