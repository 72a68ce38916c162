//! Availability of schedulers, and replacement of missing ones.

use std::collections::{BTreeSet, HashMap};

use vipline_ipvs::{Object, Scheduler, ServiceKey, VirtualServer};
use vipline_reconcile::Edit;

use super::Shared;

/// Schedulers that the kernel lacks, until the next report.
pub(super) type Missing = BTreeSet<Box<str>>;

/// Schedulers that were probed, and virtual servers with a replacement.
///
/// A Service may select a scheduler whose module the node lacks. It then gets the default
/// scheduler, and does not delay other Services.
#[derive(Debug)]
pub(super) struct Schedulers {
    default: Scheduler,
    available: HashMap<Scheduler, bool>,
    /// The planned virtual servers whose installed scheduler is a replacement.
    wanted: HashMap<ServiceKey, VirtualServer>,
    missing: Shared<Missing>,
}

impl Schedulers {
    /// Creates a planner step that replaces missing schedulers by `default` and reports
    /// them in `missing`.
    pub(super) fn new(default: Scheduler, missing: Shared<Missing>) -> Self {
        Self {
            default,
            available: HashMap::from([(default, true)]),
            wanted: HashMap::new(),
            missing,
        }
    }

    /// Replaces schedulers that the kernel lacks. Probes each scheduler once.
    pub(super) fn replace_missing<E>(
        &mut self,
        edits: &mut [Edit<Object>],
        mut has: impl FnMut(Scheduler) -> Result<bool, E>,
    ) -> Result<(), E> {
        for edit in edits {
            match edit {
                Edit::Add(Object::VirtualServer(server))
                | Edit::Change {
                    new: Object::VirtualServer(server),
                    ..
                } => {
                    let scheduler = server.scheduler;
                    let is_available = match self.available.get(&scheduler) {
                        Some(available) => *available,
                        None => self.probe(scheduler, &mut has)?,
                    };
                    self.wanted.remove(&server.service);
                    if !is_available {
                        self.wanted.insert(server.service, *server);
                        *server = self.with_default(*server);
                    }
                }
                Edit::Remove(Object::VirtualServer(server)) => {
                    self.wanted.remove(&server.service);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn probe<E>(
        &mut self,
        scheduler: Scheduler,
        has: &mut impl FnMut(Scheduler) -> Result<bool, E>,
    ) -> Result<bool, E> {
        let is_available = has(scheduler)?;
        self.available.insert(scheduler, is_available);
        if !is_available {
            self.missing.lock().insert(scheduler.as_str().into());
        }
        Ok(is_available)
    }

    /// Returns the planned virtual server if `found` is its replacement, otherwise
    /// `found`.
    pub(super) fn as_planned(&self, found: VirtualServer) -> VirtualServer {
        let wanted = self.wanted.get(&found.service).copied();
        wanted
            .filter(|wanted| self.with_default(*wanted) == found)
            .unwrap_or(found)
    }

    fn with_default(&self, server: VirtualServer) -> VirtualServer {
        let mut server = server;
        server.flags = crate::backend::ipvs::plan::port::flags(self.default);
        server.scheduler = self.default;
        server
    }
}

#[cfg(test)]
mod tests {
    use vipline_ipvs::Transport;

    use super::*;

    fn server(last: u8, scheduler: Scheduler) -> VirtualServer {
        let service = ServiceKey::new(Transport::Tcp, [10, 96, 0, last].into(), 80);
        let flags = crate::backend::ipvs::plan::port::flags(scheduler);
        VirtualServer::new(service, scheduler).with_flags(flags)
    }

    #[test]
    fn a_missing_scheduler_is_replaced_by_the_default() {
        let missing = Shared::<Missing>::default();
        let mut schedulers = Schedulers::new(Scheduler::Maglev, missing.clone());
        let (lacking, served) = (
            server(1, Scheduler::PowerOfTwo),
            server(2, Scheduler::Overflow),
        );
        let mut probed = Vec::new();
        let mut replace_missing = |schedulers: &mut Schedulers, edits: &mut [Edit<Object>]| {
            let has = |scheduler| {
                probed.push(scheduler);
                Ok::<_, ()>(scheduler != Scheduler::PowerOfTwo)
            };
            schedulers.replace_missing(edits, has).unwrap();
        };
        let mut edits = [
            Edit::Add(lacking.into()),
            Edit::Add(served.into()),
            Edit::Add(server(3, Scheduler::Maglev).into()),
        ];
        replace_missing(&mut schedulers, &mut edits);
        let usual = server(1, Scheduler::Maglev);
        assert_eq!(edits[0], Edit::Add(usual.into()));
        assert_eq!(edits[1], Edit::Add(served.into()));
        assert_eq!(schedulers.as_planned(usual), lacking);
        assert_eq!(schedulers.as_planned(served), served);
        // A change by another process is not a replacement.
        let other = server(1, Scheduler::RoundRobin);
        assert_eq!(schedulers.as_planned(other), other);
        replace_missing(&mut schedulers, &mut [Edit::Remove(lacking.into())]);
        assert_eq!(schedulers.as_planned(usual), usual);
        replace_missing(&mut schedulers, &mut [Edit::Add(lacking.into())]);
        assert_eq!(probed, [Scheduler::PowerOfTwo, Scheduler::Overflow]);
        assert_eq!(*missing.lock(), ["twos".into()].into());
    }
}
