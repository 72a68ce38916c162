//! State that the last commit left in the kernel, to detect changes by other processes.
//!
//! The kernel sends no notifications about sets and virtual servers. If somebody runs `ipvsadm
//! -C`, all Services are gone, and without a look at the kernel that would last until the next
//! full comparison. That one dumps everything, so its time grows with the number of Services, and
//! it runs rarely. In between, each poll looks at a little, and compares it with a summary of
//! what we left:
//!
//! - of each set the number of its entries. The kernel tells it for all sets at once, without the
//!   entries.
//! - of each virtual server a fingerprint of 16 bytes. Only the next 1,000 servers are read.
//!
//! For example, with 2,400 virtual servers three polls read 1,000, 1,000 and 400 of them, and the
//! fourth begins anew. If one differs, the caller reports a drift, and the dump that follows
//! finds out what it is.
//!
//! What this cannot see: an entry that another one replaced, because the number stays, and a
//! virtual server that another process added, because it is not in the list. The full comparison
//! finds both.
//!
//! What must stay true: the record is what the kernel has, not what is planned. The two differ
//! where the kernel lacks a scheduler and gets the default instead, and where a real server is
//! draining: the record does not have it, and the caller leaves it out of what it reads. A record
//! that is wrong in any way looks like a change by somebody else, and costs a dump that finds
//! nothing. That is why the state is forgotten when it is uncertain: unknown means no change.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::ops::Bound::{Excluded, Unbounded};

use vipline_ipset as ipset;
use vipline_ipvs::{Object, ServiceKey};
use vipline_reconcile::Edit;

/// Maximum number of virtual servers that one poll checks. So a poll of 10,000 servers takes no
/// longer than one of 1,000, and ten polls check all servers: five minutes with the default of
/// `Intervals::retry`. A sync waits for the poll, because `Engine::poll` does both.
const MAX_VIRTUAL_SERVERS_PER_POLL: usize = 1000;

/// State that the last commit left. Unknown before the first dump and after a failed
/// commit.
#[derive(Debug, Default)]
pub(super) struct Installed {
    state: Option<State>,
    /// The virtual server that was checked last. A key and not an index, so that the next poll
    /// goes on at the right place although servers came and went.
    last: Option<ServiceKey>,
}

#[derive(Debug, Default)]
struct State {
    /// Number of entries of each set.
    sets: BTreeMap<ipset::Name, usize>,
    /// Fingerprint of each virtual server with its real servers. In order of keys, which is the
    /// order of the polls.
    servers: BTreeMap<ServiceKey, Fingerprint>,
}

/// Hash of a virtual server and its real servers.
///
/// The hashes of real servers are summed. So their order does not matter, and one can be
/// added or removed without the others: an edit names one real server, and the rest of them
/// are not in memory here. A [`RealServer`](vipline_ipvs::RealServer) has no counters of
/// connections, so traffic does not change the hash.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Fingerprint {
    server: u64,
    reals: u64,
}

impl Fingerprint {
    fn add(&mut self, object: &Object) {
        match object {
            Object::VirtualServer(server) => self.server = hash(server),
            Object::Destination(_, real) => self.reals = self.reals.wrapping_add(hash(real)),
        }
    }

    fn remove(&mut self, object: &Object) {
        match object {
            // The value of a server that does not exist, which `default` has, too.
            Object::VirtualServer(_) => self.server = 0,
            Object::Destination(_, real) => self.reals = self.reals.wrapping_sub(hash(real)),
        }
    }

    fn apply(&mut self, edit: &Edit<Object>) {
        match edit {
            Edit::Add(new) => self.add(new),
            Edit::Change { old, new } => {
                self.remove(old);
                self.add(new);
            }
            Edit::Remove(old) => self.remove(old),
        }
    }
}

/// Returns whether a set is replaced by one that may not hold all its entries.
///
/// A set cannot be changed in place: its successor gets copies of the entries. With the same type
/// and family, such as for another capacity, it takes all of them, and the number stays.
fn loses_entries(edit: &Edit<ipset::Object>) -> bool {
    match edit {
        Edit::Change {
            old: ipset::Object::Set(old),
            new: ipset::Object::Set(new),
        } => old.set_type != new.set_type || old.family != new.family,
        _ => false,
    }
}

fn hash(object: &impl Hash) -> u64 {
    // Its keys are constant. Those of a `RandomState` differ, so that no two hashes were equal.
    let mut hasher = DefaultHasher::new();
    object.hash(&mut hasher);
    hasher.finish()
}

impl Installed {
    /// Records the result of a dump, which must be that of the kernel: without draining real
    /// servers, but before the default scheduler is replaced by the planned one.
    pub(super) fn found(&mut self, sets: &ipset::Sets, servers: &[Object]) {
        let mut state = State {
            sets: sets
                .iter()
                .map(|listed| (listed.set.name.clone(), listed.entries.len()))
                .collect(),
            servers: BTreeMap::new(),
        };
        for object in servers {
            state.of(object).add(object);
        }
        self.state = Some(state);
    }

    /// Marks the state as unknown, until the next dump.
    pub(super) fn forget(&mut self) {
        self.state = None;
    }

    /// Records committed edits of sets, without those that the kernel rejected.
    pub(super) fn record_sets(&mut self, edits: &[Edit<ipset::Object>]) {
        // How many entries the new set took is unknown here.
        if edits.iter().any(loses_entries) {
            self.forget();
        }
        let Some(state) = &mut self.state else {
            return;
        };
        for edit in edits {
            match edit {
                Edit::Add(ipset::Object::Set(set)) => {
                    state.sets.insert(set.name.clone(), 0);
                }
                Edit::Remove(ipset::Object::Set(set)) => {
                    state.sets.remove(&set.name);
                }
                Edit::Add(ipset::Object::Entry(entry)) => {
                    // A set that is not recorded counts from 0. If that is wrong, the next poll
                    // finds a difference, and the dump after it corrects the number.
                    *state.sets.entry(entry.set.clone()).or_default() += 1;
                }
                Edit::Remove(ipset::Object::Entry(entry)) => {
                    // Removing a set removes its entries; their edits may follow it.
                    if let Some(count) = state.sets.get_mut(&entry.set) {
                        *count = count.saturating_sub(1);
                    }
                }
                // Another set of the same type keeps the entries, and another entry of the same
                // key the number. `loses_entries` has dealt with all other changes.
                _ => {}
            }
        }
    }

    /// Records committed edits of servers, without those that the kernel rejected.
    pub(super) fn record_servers(&mut self, edits: &[Edit<Object>]) {
        let Some(state) = &mut self.state else {
            return;
        };
        // Most neighbors edit the same virtual server, such as a new one with its real servers, so
        // one search in the map serves them all.
        let service = |edit: &Edit<Object>| edit.object().service();
        for edits in edits.chunk_by(|one, next| service(one) == service(next)) {
            if let Some(first) = edits.first() {
                let fingerprint = state.of(first.object());
                edits.iter().for_each(|edit| fingerprint.apply(edit));
            }
        }
        // At the end: the removal of a real server may follow that of its virtual server, and
        // would make an entry for it again. The next poll would miss that server in the kernel.
        for edit in edits {
            if let Edit::Remove(Object::VirtualServer(server)) = edit {
                state.servers.remove(&server.service);
            }
        }
    }

    /// Returns the number of sets whose number of entries changed. `headers` may have sets of
    /// others and of the other family, which do not count.
    pub(super) fn changed_sets(&self, headers: &ipset::Sets) -> usize {
        let sets = self.state.iter().flat_map(|state| &state.sets);
        let is_changed = |(name, count): &(&ipset::Name, &usize)| {
            let found = headers.get(name.as_str());
            // A set that is gone changed as well.
            found.is_none_or(|listed| listed.usage.entries as usize != **count)
        };
        sets.filter(is_changed).count()
    }

    /// Returns the virtual servers to check next, in order after the last checked one.
    pub(super) fn next(&mut self) -> Vec<ServiceKey> {
        let Some(State { servers, .. }) = &self.state else {
            return Vec::new();
        };
        let after = self.last.map_or(Unbounded, Excluded);
        let services = servers
            .range((after, Unbounded))
            .map(|(service, _)| *service);
        let services: Vec<_> = services.take(MAX_VIRTUAL_SERVERS_PER_POLL).collect();
        // Fewer than that were the last ones, so the next poll begins with the first. If the last
        // ones were exactly as many, one poll finds none, and the one after it begins anew.
        self.last = services.get(MAX_VIRTUAL_SERVERS_PER_POLL - 1).copied();
        services
    }

    /// Returns whether a virtual server differs from the recorded state.
    pub(super) fn is_changed(&self, service: &ServiceKey, found: &[Object]) -> bool {
        let state = self.state.as_ref();
        let left = state.and_then(|state| state.servers.get(service));
        let mut seen = Fingerprint::default();
        for object in found {
            seen.add(object);
        }
        // Without a record nothing is known. The server may be one that a commit removed.
        left.is_some_and(|left| *left != seen)
    }
}

impl State {
    /// Returns the fingerprint of the object's virtual server, which is that of no server if there
    /// is none yet.
    fn of(&mut self, object: &Object) -> &mut Fingerprint {
        self.servers.entry(object.service()).or_default()
    }
}

#[cfg(test)]
mod tests {
    use vipline_ipset::{Entry, Member, Name, Port, Set, SetDump, SetFamily, SetType, Sets};
    use vipline_ipvs::{RealServer, Scheduler, Transport, VirtualServer};

    use super::*;

    fn service(number: u16) -> ServiceKey {
        ServiceKey::new(Transport::Tcp, [10, 96, 0, 20].into(), number)
    }

    fn server(number: u16, scheduler: Scheduler) -> Object {
        VirtualServer::new(service(number), scheduler).into()
    }

    fn real(number: u16, last: u8) -> Object {
        Object::Destination(
            service(number),
            RealServer::new([10, 1, 0, last].into(), 8080),
        )
    }

    fn set(name: &str) -> Set {
        Set::new(Name::new(name).unwrap(), SetType::HashIpPort, SetFamily::V4)
    }

    fn entry(name: &str, port: u16) -> ipset::Object {
        let member = Member::IpPort([10, 96, 0, 20].into(), Port::tcp(port));
        Entry::new(Name::new(name).unwrap(), member).into()
    }

    /// Returns sets with the given numbers of entries, as the kernel reports them.
    fn headers(sizes: &[(&str, u32)]) -> Sets {
        let mut sets = Sets::default();
        for (name, entries) in sizes {
            let mut listed = SetDump::new(set(name));
            listed.usage.entries = *entries;
            sets.insert(listed);
        }
        sets
    }

    fn recorded() -> Installed {
        let mut installed = Installed::default();
        let mut sets = headers(&[("a", 0), ("b", 0)]);
        let mut full = SetDump::new(set("c"));
        for port in [80, 443] {
            if let ipset::Object::Entry(entry) = entry("c", port) {
                full.entries.push(*entry);
            }
        }
        sets.insert(full);
        let rr = server(80, Scheduler::RoundRobin);
        installed.found(&sets, &[rr, real(80, 1), real(80, 2)]);
        installed
    }

    #[test]
    fn changed_sets_are_detected_by_their_sizes() {
        let mut installed = recorded();
        let sizes = [("a", 0), ("b", 0), ("c", 2)];
        assert_eq!(installed.changed_sets(&headers(&sizes)), 0);
        let others = [("a", 1), ("c", 1), ("theirs", 7)];
        assert_eq!(installed.changed_sets(&headers(&others)), 3);
        installed.record_sets(&[
            Edit::Add(entry("a", 1)),
            Edit::Remove(ipset::Object::from(set("b"))),
            Edit::Remove(entry("b", 1)),
            Edit::Remove(entry("c", 80)),
            Edit::Add(ipset::Object::from(set("d"))),
        ]);
        let sizes = [("a", 1), ("c", 1), ("d", 0)];
        assert_eq!(installed.changed_sets(&headers(&sizes)), 0);
        assert_eq!(installed.changed_sets(&headers(&sizes[..2])), 1);
        // A larger set has the same entries.
        let larger = set("a").with_maxelem(1 << 20);
        let (old, new) = (set("a").into(), larger.into());
        installed.record_sets(&[Edit::Change { old, new }]);
        assert_eq!(installed.changed_sets(&headers(&sizes)), 0);
        assert_eq!(installed.changed_sets(&headers(&sizes[..2])), 1);
        // The entries of a set of another type are unknown until the next dump.
        let mut other = set("a");
        other.set_type = SetType::HashIp;
        let (old, new) = (set("a").into(), other.into());
        installed.record_sets(&[Edit::Change { old, new }]);
        assert_eq!(installed.changed_sets(&Sets::default()), 0);
    }

    #[test]
    fn changed_virtual_servers_are_detected_by_their_fingerprint() {
        let (rr, wrr) = (
            server(80, Scheduler::RoundRobin),
            server(80, Scheduler::WeightedRoundRobin),
        );
        let mut installed = recorded();
        let is_changed =
            |installed: &Installed, found: &[Object]| installed.is_changed(&service(80), found);
        // The order does not matter.
        assert!(!is_changed(&installed, &[real(80, 2), rr, real(80, 1)]));
        for others in [
            &[][..],
            &[rr, real(80, 1)],
            &[rr, real(80, 1), real(80, 2), real(80, 3)],
            &[wrr, real(80, 1), real(80, 2)],
        ] {
            assert!(is_changed(&installed, others), "{others:?}");
        }
        installed.record_servers(&[
            Edit::Remove(real(80, 1)),
            Edit::Add(real(80, 3)),
            Edit::Change { old: rr, new: wrr },
        ]);
        assert!(!is_changed(&installed, &[wrr, real(80, 2), real(80, 3)]));
        assert_eq!(installed.next(), [service(80)]);
        // Real servers are removed with their virtual server, in any order of edits.
        installed.record_servers(&[Edit::Remove(wrr), Edit::Remove(real(80, 2))]);
        assert_eq!(installed.next(), []);
        installed.forget();
        assert!(!is_changed(&installed, &[]));
    }

    #[test]
    fn all_virtual_servers_are_checked_in_turn() {
        let servers: Vec<_> = (0..2400)
            .map(|number| server(number, Scheduler::RoundRobin))
            .collect();
        let mut installed = Installed::default();
        assert_eq!(installed.next(), []);
        installed.found(&Sets::default(), &servers);
        let looks: Vec<_> = (0..4).map(|_| installed.next()).collect();
        assert_eq!(looks[3], looks[0]);
        let seen: Vec<_> = looks[..3].concat();
        let all: Vec<_> = (0..2400).map(service).collect();
        assert_eq!(seen, all);
        assert_eq!(looks[0].len(), MAX_VIRTUAL_SERVERS_PER_POLL);
        // The next poll continues after a server that was removed in the meantime.
        installed.record_servers(&[Edit::Remove(servers[999])]);
        assert_eq!(installed.next()[0], service(1000));
    }
}
