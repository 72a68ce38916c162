//! Which schedulers the kernel has, and who does without the one it wants.

use std::collections::{BTreeSet, HashMap};

use vipline_ipvs::{Object, Scheduler, ServiceKey, VirtualServer};
use vipline_reconcile::Edit;

use super::mutex::Shared;

/// The schedulers that the kernel was found to lack, until somebody is told.
pub(super) type Missing = BTreeSet<Box<str>>;

/// Which schedulers the kernel has, as far as it was asked, and which virtual
/// servers do without theirs.
///
/// A Service may name one whose module the node lacks: it gets the usual one,
/// and nobody else has to wait for it.
#[derive(Debug)]
pub(super) struct Schedulers {
    usual: Scheduler,
    known: HashMap<Scheduler, bool>,
    /// What is wanted in place of what is there.
    wanted: HashMap<ServiceKey, VirtualServer>,
    missing: Shared<Missing>,
}

impl Schedulers {
    /// Returns who replaces schedulers by the `usual` one, and tells which.
    pub(super) fn new(usual: Scheduler, missing: Shared<Missing>) -> Self {
        Self {
            usual,
            known: HashMap::from([(usual, true)]),
            wanted: HashMap::new(),
            missing,
        }
    }

    /// Replaces the schedulers that the kernel lacks; it is asked for each once.
    pub(super) fn admit<E>(
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
                    let is_there = match self.known.get(&scheduler) {
                        Some(known) => *known,
                        None => self.ask(scheduler, &mut has)?,
                    };
                    self.wanted.remove(&server.service);
                    if !is_there {
                        self.wanted.insert(server.service, *server);
                        *server = self.with_usual(*server);
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

    fn ask<E>(
        &mut self,
        scheduler: Scheduler,
        has: &mut impl FnMut(Scheduler) -> Result<bool, E>,
    ) -> Result<bool, E> {
        let is_there = has(scheduler)?;
        self.known.insert(scheduler, is_there);
        if !is_there {
            self.missing.lock().insert(scheduler.as_str().into());
        }
        Ok(is_there)
    }

    /// Returns a virtual server as it is wanted, if it is what it got in place of
    /// that.
    pub(super) fn as_wanted(&self, found: VirtualServer) -> VirtualServer {
        let wanted = self.wanted.get(&found.service).copied();
        wanted
            .filter(|wanted| self.with_usual(*wanted) == found)
            .unwrap_or(found)
    }

    fn with_usual(&self, server: VirtualServer) -> VirtualServer {
        VirtualServer {
            flags: super::port::flags(self.usual),
            scheduler: self.usual,
            ..server
        }
    }
}

#[cfg(test)]
mod tests {
    use vipline_ipvs::Protocol;

    use super::*;

    fn server(last: u8, scheduler: Scheduler) -> VirtualServer {
        let service = ServiceKey::new(Protocol::Tcp, [10, 96, 0, last].into(), 80);
        VirtualServer {
            flags: super::super::port::flags(scheduler),
            ..VirtualServer::new(service, scheduler)
        }
    }

    #[test]
    fn who_wants_what_the_kernel_lacks_gets_the_usual_and_counts_as_served() {
        let missing = Shared::<Missing>::default();
        let mut schedulers = Schedulers::new(Scheduler::Maglev, missing.clone());
        let (lacking, served) = (
            server(1, Scheduler::PowerOfTwo),
            server(2, Scheduler::Overflow),
        );
        let mut asked = Vec::new();
        let mut admit = |schedulers: &mut Schedulers, edits: &mut [Edit<Object>]| {
            let has = |scheduler| {
                asked.push(scheduler);
                Ok::<_, ()>(scheduler != Scheduler::PowerOfTwo)
            };
            schedulers.admit(edits, has).unwrap();
        };
        let mut edits = [
            Edit::Add(lacking.into()),
            Edit::Add(served.into()),
            Edit::Add(server(3, Scheduler::Maglev).into()),
        ];
        admit(&mut schedulers, &mut edits);
        let usual = server(1, Scheduler::Maglev);
        assert_eq!(edits[0], Edit::Add(usual.into()));
        assert_eq!(edits[1], Edit::Add(served.into()));
        assert_eq!(schedulers.as_wanted(usual), lacking);
        assert_eq!(schedulers.as_wanted(served), served);
        // What somebody else made of it is not what it got.
        let other = server(1, Scheduler::RoundRobin);
        assert_eq!(schedulers.as_wanted(other), other);
        admit(&mut schedulers, &mut [Edit::Remove(lacking.into())]);
        assert_eq!(schedulers.as_wanted(usual), usual);
        admit(&mut schedulers, &mut [Edit::Add(lacking.into())]);
        assert_eq!(asked, [Scheduler::PowerOfTwo, Scheduler::Overflow]);
        assert_eq!(*missing.lock(), ["twos".into()].into());
    }
}
