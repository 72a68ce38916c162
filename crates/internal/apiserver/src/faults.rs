//! Configuration of injected faults.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::kind::Kind;
use crate::random::Random;
use crate::watch::Event;

/// Label of an EndpointSlice with the name of its Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Faults to inject. Default: none.
///
/// See [`ApiServer::faults`](crate::ApiServer::faults).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Faults {
    /// Resource that the faults apply to, such as `services`. [`None`]: all resources.
    pub only: Option<String>,
    /// Error response to send instead of processing a request.
    pub error_response: Option<ErrorResponse>,
    /// Resources whose requests are answered with 403.
    pub forbidden: Vec<String>,
    /// Number of writes to reject with 409, as if another client had changed the object.
    pub conflicts: usize,
    /// Number of writes to apply without a response: the connection is closed.
    pub lost_responses: usize,
    /// Delay of each response. A change affects delayed responses immediately.
    pub delay: Duration,
    /// Delay of watch events.
    pub event_delay: Duration,
    /// Closes the connection of the next list or watch after some bytes, once.
    pub cut_after: Option<CutAfter>,
    /// Percentage of events to send twice.
    pub duplicates: u8,
    /// Order of events.
    pub order: Order,
    /// Whether watches send nothing, not even bookmarks or their end.
    pub silent_watches: bool,
    /// Number of versions that the cache lags behind. The cache serves lists and watches
    /// with `resourceVersion=0`.
    pub stale: u64,
    /// Number of versions that all lists lag behind, as if the client had listed long
    /// before it continues.
    pub outdated: u64,
    /// Failure of watches that begin with a list (`sendInitialEvents=true`).
    pub watch_list_failure: Option<WatchListFailure>,
}

impl Faults {
    /// Returns whether the faults apply to a kind.
    pub(crate) fn concern(&self, kind: Kind) -> bool {
        let only = self.only.as_deref();
        only.is_none_or(|plural| plural == kind.plural())
    }
}

/// Failure of a watch that begins with a list.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WatchListFailure {
    /// 422, as from a server without the feature `WatchList`.
    Forbidden,
    /// An error event, as from a server with etcd older than 3.4.25.
    Error,
}

/// An error response.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ErrorResponse {
    /// HTTP status code: 429, 500, 503, …
    pub code: u16,
    /// `Retry-After`, in seconds.
    pub retry_after: Option<u32>,
    /// Number of requests left to answer with the error.
    pub times: usize,
}

/// Position in a response at which its connection is closed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CutAfter {
    /// Number of bytes, including the header.
    pub bytes: usize,
    /// Layer whose bytes are counted.
    pub layer: Layer,
    /// Kind of disconnect.
    pub disconnect: Disconnect,
}

/// Layer whose bytes are counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Layer {
    /// HTTP: the cut is between two TLS records.
    Http,
    /// TCP: the cut may be inside a TLS record.
    Tcp,
}

/// Kind of disconnect.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Disconnect {
    /// End of file without a TLS `close_notify`, as when a server exits.
    Close,
    /// Connection reset, as when a server is gone.
    Reset,
}

/// Order of events.
///
/// Events of one object always keep their order. A resumed watch receives again all
/// events that it may have missed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Order {
    /// Order of the changes.
    #[default]
    Unchanged,
    /// Shuffled, except events of EndpointSlices of the same Service.
    Shuffled,
    /// Shuffled, including events of EndpointSlices of the same Service.
    SlicesShuffled,
}

impl Order {
    /// Reorders events.
    pub(crate) fn apply(self, events: &mut Vec<Event>, random: &mut Random) {
        if self == Self::Unchanged || events.len() < 2 {
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

    /// Returns a key that is equal for events that keep their relative order.
    fn group(self, event: &Event) -> (String, String) {
        let object = &event.object;
        let service = object.labels.get(SERVICE_NAME);
        let name = match (self, service) {
            (Self::Shuffled, Some(service)) if is_slice(object.kind) => service,
            _ => &object.key.name,
        };
        (object.key.namespace.clone(), name.clone())
    }
}

fn is_slice(kind: Kind) -> bool {
    kind.plural() == "endpointslices"
}

/// Repeats some events.
pub(crate) fn duplicate(events: Vec<Event>, percent: u8, random: &mut Random) -> Vec<Event> {
    let mut repeated = Vec::with_capacity(events.len());
    for event in events {
        if random.below(100) < usize::from(percent) {
            repeated.push(event.clone());
        }
        repeated.push(event);
    }
    repeated
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use serde_json::{Value, json};

    use super::*;
    use crate::store::{Key, Store};
    use crate::watch::Type;

    /// Returns three changes each of two slices of one Service and one slice of another.
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
    fn events_of_one_object_keep_their_order_when_shuffled() {
        let (mut shuffled, mut slices_shuffled) = (0, 0);
        for seed in 0..50 {
            for order in [Order::Shuffled, Order::SlicesShuffled] {
                let mut events = events();
                order.apply(&mut events, &mut Random::new(seed));
                assert_eq!(events.len(), 9);
                for object in ["a-1", "a-2", "b-1"] {
                    assert!(of(&events, object).is_sorted(), "{order:?} {object}");
                }
                shuffled += usize::from(!of(&events, "").is_sorted());
                let service = of(&events, "a").is_sorted();
                assert!(service || order == Order::SlicesShuffled);
                slices_shuffled += usize::from(!service);
            }
        }
        assert!(
            shuffled > 50 && slices_shuffled > 25,
            "{shuffled} {slices_shuffled}"
        );
    }

    #[test]
    fn a_duplicate_directly_follows_its_event() {
        let twice = duplicate(events(), 100, &mut Random::new(1));
        assert_eq!(twice.len(), 18);
        assert!(of(&twice, "").is_sorted());
        let some = duplicate(events(), 50, &mut Random::new(1)).len();
        assert!((9..18).contains(&some));
        assert_eq!(duplicate(events(), 0, &mut Random::new(1)).len(), 9);
    }
}
