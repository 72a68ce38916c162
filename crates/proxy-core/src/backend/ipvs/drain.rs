//! Real servers on their way out: without new connections, until the others end.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use vipline_ipvs::{Command, Destination, Object, Protocol, RealServer, ServiceKey};
use vipline_reconcile::Edit;

/// How often real servers are asked whether connections are left.
const PERIOD: Duration = Duration::from_secs(10);

/// How long associations may take, which seldom end by themselves.
const PATIENCE: Duration = Duration::from_secs(15 * 60);

/// Real servers of weight 0 that go when their last connection has ended.
#[derive(Debug, Default)]
pub(super) struct Drain {
    /// When each of them goes at the latest; `None` until the time is known.
    servers: BTreeMap<(ServiceKey, SocketAddr), Option<Duration>>,
    /// The time of the next look.
    next: Option<Duration>,
}

impl Drain {
    /// Turns the removal of real servers into the beginning of their end.
    ///
    /// One that is wanted again before it has gone serves again. Those of a
    /// virtual server that goes go with it. Those of UDP go at once: they were
    /// wanted for as long as they served, and the next datagram of a flow to one
    /// that is gone is led to another.
    pub(super) fn begin(&mut self, edits: Vec<Edit<Object>>) -> Vec<Edit<Object>> {
        let gone: BTreeSet<ServiceKey> = edits.iter().filter_map(removed_server).collect();
        self.servers
            .retain(|(service, _), _| !gone.contains(service));
        let (mut last, mut others) = (Vec::new(), Vec::with_capacity(edits.len()));
        for edit in edits {
            match edit {
                Edit::Remove(Object::Destination(service, _)) if is_udp(&service) => {
                    last.push(edit)
                }
                Edit::Remove(Object::Destination(service, real)) if !gone.contains(&service) => {
                    self.servers.insert((service, real.endpoint()), None);
                    last.extend(weight_changed(service, real, real.weight, 0));
                }
                Edit::Add(Object::Destination(service, real)) => {
                    let was_leaving = self.servers.remove(&(service, real.endpoint()));
                    others.extend(match was_leaving {
                        Some(_) => weight_changed(service, real, 0, real.weight),
                        None => Some(Edit::Add(Object::Destination(service, real))),
                    });
                }
                Edit::Change {
                    new: Object::Destination(_, real),
                    ..
                } if real.weight == 0 => last.push(edit),
                other => others.push(other),
            }
        }
        // Whoever takes over is there before.
        others.extend(last);
        others
    }

    /// Takes in what there is, and returns what counts as there: real servers on
    /// their way out do not.
    pub(super) fn without(&mut self, dumped: Vec<Object>) -> Vec<Object> {
        let mut left = BTreeMap::new();
        let dumped = dumped.into_iter().filter(|object| match object {
            Object::Destination(service, real) if real.weight == 0 => {
                let key = (*service, real.endpoint());
                let known = self.servers.remove_entry(&key);
                let is_known = known.is_some();
                left.extend(known);
                !is_known
            }
            _ => true,
        });
        let dumped = dumped.collect();
        self.servers = left;
        dumped
    }

    /// Tells whether a real server is on its way out.
    pub(super) fn is_leaving(&self, service: &ServiceKey, real: &RealServer) -> bool {
        real.weight == 0 && self.servers.contains_key(&(*service, real.endpoint()))
    }

    /// Returns the time of the next look, if there is anything to look for.
    pub(super) fn next_poll(&self) -> Option<Duration> {
        let is_new = self.servers.values().any(Option::is_none);
        match (self.servers.is_empty(), is_new) {
            (true, _) => None,
            (_, true) => Some(Duration::ZERO),
            _ => self.next,
        }
    }

    /// Returns the virtual servers whose real servers are to be looked at now.
    pub(super) fn due(&mut self, now: Duration) -> Vec<ServiceKey> {
        for ((service, _), deadline) in &mut self.servers {
            deadline.get_or_insert(now.saturating_add(patience(service)));
        }
        if self.servers.is_empty() || self.next.is_some_and(|next| now < next) {
            return Vec::new();
        }
        self.next = Some(now + PERIOD);
        let mut services: Vec<_> = self.servers.keys().map(|(service, _)| *service).collect();
        services.dedup();
        services
    }

    /// Takes in the real servers of a virtual server, and returns those to remove.
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
            // One that somebody gave a weight, or that is gone, is not ours to remove.
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

/// Returns how long connections of a virtual server may take to end.
///
/// Those of TCP may take for ever: the kernel sees when they end.
fn patience(service: &ServiceKey) -> Duration {
    match service {
        ServiceKey::Address {
            protocol: Protocol::Tcp,
            ..
        } => Duration::MAX,
        _ => PATIENCE,
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

/// Returns the edit that gives a real server another weight, if it is another.
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

    /// What the kernel says of a real server with connections.
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
    fn who_is_replaced_loses_its_weight_after_its_successor_came() {
        let mut drain = Drain::default();
        let edits = drain.begin(vec![
            Edit::Remove(object(TCP, 1, 1)),
            Edit::Add(object(TCP, 2, 1)),
        ]);
        let (old, new) = (object(TCP, 1, 1), object(TCP, 1, 0));
        let expected = [Edit::Add(object(TCP, 2, 1)), Edit::Change { old, new }];
        assert_eq!(edits, expected);
        // It counts as gone, and others of weight 0 do not.
        let dumped = vec![object(TCP, 1, 0), object(TCP, 2, 1), object(TCP, 3, 0)];
        let rest = [object(TCP, 2, 1), object(TCP, 3, 0)];
        assert_eq!(drain.without(dumped), rest);
        // Wanted again, it serves again.
        let edits = drain.begin(vec![Edit::Add(object(TCP, 1, 1))]);
        let (old, new) = (object(TCP, 1, 0), object(TCP, 1, 1));
        assert_eq!(edits, [Edit::Change { old, new }]);
        assert_eq!(drain.next_poll(), None);
    }

    #[test]
    fn one_that_goes_with_its_virtual_server_is_not_waited_for() {
        let server = VirtualServer::new(service(TCP), Scheduler::RoundRobin);
        let edits = vec![
            Edit::Remove(Object::VirtualServer(server)),
            Edit::Remove(object(TCP, 1, 1)),
        ];
        let mut drain = Drain::default();
        assert_eq!(drain.begin(edits.clone()), edits);
        assert_eq!(drain.next_poll(), None);
    }

    #[test]
    fn one_without_connections_goes_and_one_with_some_stays() {
        let mut drain = Drain::default();
        drain.begin(
            [1, 2, 3, 4]
                .map(|last| Edit::Remove(object(TCP, last, 1)))
                .into(),
        );
        assert_eq!(drain.next_poll(), Some(Duration::ZERO));
        assert_eq!(drain.due(seconds(5)), [service(TCP)]);
        assert_eq!(drain.due(seconds(6)), [], "it is not time yet");
        assert_eq!(drain.next_poll(), Some(seconds(15)));
        // The third is gone, and somebody gave the fourth a weight.
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
    fn associations_that_do_not_end_are_ended_at_a_deadline() {
        let mut drain = Drain::default();
        drain.begin(vec![Edit::Remove(object(Protocol::Sctp, 1, 1))]);
        let (begin, of) = (seconds(100), service(Protocol::Sctp));
        assert_eq!(drain.due(begin), [of]);
        let busy = [entry(1, 0, 3)];
        let before = begin + PATIENCE - seconds(1);
        assert_eq!(drain.finished(of, &busy, before), []);
        assert_eq!(drain.finished(of, &busy, begin + PATIENCE).len(), 1);
    }

    #[test]
    fn those_of_udp_lose_their_weight_or_go_after_their_successor_came() {
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
        let edits = drain.begin(vec![gone.clone(), leaving.clone(), new.clone()]);
        assert_eq!(edits, [new, gone, leaving]);
        assert_eq!(drain.next_poll(), None);
    }
}
