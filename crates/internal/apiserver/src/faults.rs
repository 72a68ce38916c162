//! What goes wrong, and how much of it.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::kind::Kind;
use crate::random::Random;
use crate::watch::Event;

/// The label that says which Service a slice belongs to.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// What a server does wrong: nothing, unless told.
///
/// They are switched in [`ApiServer::faults`](crate::ApiServer::faults).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Faults {
    /// The resource that all else is about: `services`; every one if `None`.
    pub only: Option<String>,
    /// Answers every request so instead of doing it.
    pub answer: Option<Answer>,
    /// The resources that the client may do nothing with: 403.
    pub forbidden: Vec<String>,
    /// So many changes are refused with 409, as if somebody had been faster.
    pub conflicts: usize,
    /// So many changes are made and not answered: the connection is cut.
    pub lost_answers: usize,
    /// Waits before each answer, or until this is changed.
    pub delay: Duration,
    /// Waits before events are told to a watch.
    pub event_delay: Duration,
    /// Cuts the next list or watch after some of its bytes; done once.
    pub cut_after: Option<CutAfter>,
    /// So many percent of the events are told twice.
    pub duplicates: u8,
    /// The order that events are told in.
    pub order: Order,
    /// Watches say nothing at all, not even bookmarks or their end.
    pub silent_watches: bool,
    /// The number of versions that the cache is behind. It serves the lists and
    /// watches that any version is good enough for (`resourceVersion=0`).
    pub stale: u64,
    /// The number of versions that all lists are behind, as if the client had
    /// listed long before it goes on.
    pub outdated: u64,
    /// What becomes of watches that begin with a list (`sendInitialEvents=true`).
    pub no_watch_lists: Option<NoWatchLists>,
}

impl Faults {
    /// Tells whether anything goes wrong with a kind.
    pub(crate) fn concern(&self, kind: Kind) -> bool {
        let only = self.only.as_deref();
        only.is_none_or(|plural| plural == kind.plural())
    }
}

/// How a server rejects a watch that begins with a list.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NoWatchLists {
    /// 422, as a server without the feature `WatchList`.
    Forbidden,
    /// An error within the watch, as a server with an etcd older than 3.4.25.
    Error,
}

/// An answer that is no help.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Answer {
    /// The HTTP status code: 429, 500, 503, …
    pub code: u16,
    /// After how many seconds the client may try again.
    pub retry_after: Option<u32>,
    /// How many requests are still answered so.
    pub times: usize,
}

/// Where a response is cut.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CutAfter {
    /// After how many bytes, which include the header.
    pub bytes: usize,
    /// Which bytes are counted.
    pub layer: Layer,
    /// What the client sees of it.
    pub ending: Ending,
}

/// Which bytes of a connection are meant.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Layer {
    /// Those of HTTP: the cut is between two TLS records.
    Http,
    /// Those of TCP: the cut may be inside a TLS record.
    Tcp,
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ending {
    /// As when a server goes away: end of file, without a goodbye of TLS.
    Close,
    /// As when a server is not there any more: connection reset.
    Reset,
}

/// The order of events.
///
/// Those of one object always keep theirs, and a watch that is cut in the
/// middle and begun again is told again what it may have missed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Order {
    /// As it happened.
    #[default]
    Kept,
    /// Mixed, except for the slices of one Service.
    Mixed,
    /// Mixed, also the slices of one Service.
    SlicesMixed,
}

impl Order {
    /// Puts events in this order.
    pub(crate) fn apply(self, events: &mut Vec<Event>, random: &mut Random) {
        if self == Self::Kept || events.len() < 2 {
            return;
        }
        let mut queues = BTreeMap::<_, Vec<Event>>::new();
        let mut turns = Vec::with_capacity(events.len());
        for event in events.drain(..).rev() {
            let turn = self.group(&event);
            turns.push(turn.clone());
            queues.entry(turn).or_default().push(event);
        }
        random.shuffle(&mut turns);
        for turn in turns {
            events.extend(queues.get_mut(&turn).and_then(Vec::pop));
        }
    }

    /// Returns what is the same for events that keep their order.
    fn group(self, event: &Event) -> (String, String) {
        let object = &event.object;
        let service = object.labels.get(SERVICE_NAME);
        let name = match (self, service) {
            (Self::Mixed, Some(service)) if is_slice(object.kind) => service,
            _ => &object.key.name,
        };
        (object.key.namespace.clone(), name.clone())
    }
}

fn is_slice(kind: Kind) -> bool {
    kind.plural() == "endpointslices"
}

/// Tells some events twice.
pub(crate) fn duplicate(events: Vec<Event>, percent: u8, random: &mut Random) -> Vec<Event> {
    let mut told = Vec::with_capacity(events.len());
    for event in events {
        if random.below(100) < usize::from(percent) {
            told.push(event.clone());
        }
        told.push(event);
    }
    told
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use serde_json::{Value, json};

    use super::*;
    use crate::store::{Key, Store};
    use crate::watch::Type;

    /// Three changes of each of two slices of one Service and of one of another.
    fn events() -> Vec<Event> {
        let kind = Kind::by_plural("discovery.k8s.io/v1", "endpointslices").unwrap();
        let mut store = Store::new();
        let mut events = Vec::new();
        for round in 0..3 {
            for (service, name) in [("a", "a-1"), ("a", "a-2"), ("b", "b-1")] {
                let Value::Object(object) = json!({
                    "metadata": { "name": name, "labels": { SERVICE_NAME: service } },
                    "round": round,
                }) else {
                    unreachable!("it is an object");
                };
                let key = Key::of(kind, &object).unwrap();
                events.push(Event {
                    kind: Type::Modified,
                    object: store.put(kind, key, object, SystemTime::UNIX_EPOCH),
                });
            }
        }
        events
    }

    fn of<'a>(events: &'a [Event], prefix: &'a str) -> Vec<u64> {
        let some = events
            .iter()
            .filter(|event| event.object.key.name.starts_with(prefix));
        some.map(|event| event.object.version).collect()
    }

    #[test]
    fn objects_keep_their_order_when_others_do_not() {
        let (mut mixed, mut slices_mixed) = (0, 0);
        for seed in 0..50 {
            for order in [Order::Mixed, Order::SlicesMixed] {
                let mut events = events();
                order.apply(&mut events, &mut Random::new(seed));
                assert_eq!(events.len(), 9);
                for object in ["a-1", "a-2", "b-1"] {
                    assert!(of(&events, object).is_sorted(), "{order:?} {object}");
                }
                mixed += usize::from(!of(&events, "").is_sorted());
                let service = of(&events, "a").is_sorted();
                assert!(service || order == Order::SlicesMixed);
                slices_mixed += usize::from(!service);
            }
        }
        assert!(mixed > 50 && slices_mixed > 25, "{mixed} {slices_mixed}");
    }

    #[test]
    fn duplicates_follow_at_once() {
        let twice = duplicate(events(), 100, &mut Random::new(1));
        assert_eq!(twice.len(), 18);
        assert!(of(&twice, "").is_sorted());
        let some = duplicate(events(), 50, &mut Random::new(1)).len();
        assert!((9..18).contains(&some));
        assert_eq!(duplicate(events(), 0, &mut Random::new(1)).len(), 9);
    }
}
