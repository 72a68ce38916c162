//! Watch events, and faults in their order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::faults::Order;
use crate::kind::Kind;
use crate::list::Scope;
use crate::random::Random;
use crate::store::{Change, Object};

/// Label of an EndpointSlice with the name of its Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// A watch event.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) kind: Type,
    pub(crate) object: Arc<Object>,
}

/// Type of a watch event.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Type {
    Added,
    Modified,
    Deleted,
}

impl Event {
    /// Converts a change to an event for a watch of `scope`.
    pub(crate) fn of(change: &Change, scope: &Scope) -> Option<Self> {
        let seen = |object: &&Arc<Object>| scope.matches(object);
        let before = change.before.as_ref().filter(seen);
        let after = change.after.as_ref().filter(seen);
        let (kind, object) = match (before, after) {
            (None, Some(after)) => (Type::Added, Arc::clone(after)),
            (Some(_), Some(after)) => (Type::Modified, Arc::clone(after)),
            (Some(before), None) => (Type::Deleted, Arc::new(before.at(change.version))),
            (None, None) => return None,
        };
        Some(Self { kind, object })
    }

    /// Appends the event as a line of a watch response.
    pub(crate) fn push(&self, text: &mut Vec<u8>) {
        let kind = match self.kind {
            Type::Added => "ADDED",
            Type::Modified => "MODIFIED",
            Type::Deleted => "DELETED",
        };
        text.extend_from_slice(format!("{{\"type\":\"{kind}\",\"object\":").as_bytes());
        self.object.push_whole(text);
        text.extend_from_slice(b"}\n");
    }
}

/// Puts events into an order.
pub(crate) fn reorder(events: &mut Vec<Event>, order: Order, random: &mut Random) {
    if order == Order::Unchanged || events.len() < 2 {
        return;
    }
    let mut queues = BTreeMap::<_, Vec<Event>>::new();
    let mut turns = Vec::with_capacity(events.len());
    for event in events.drain(..).rev() {
        let turn = group(order, &event);
        turns.push(turn.clone());
        queues.entry(turn).or_default().push(event);
    }
    random.shuffle(&mut turns);
    for turn in turns {
        events.extend(queues.get_mut(&turn).and_then(Vec::pop));
    }
}

/// Returns a key that is equal for events that keep their relative order.
fn group(order: Order, event: &Event) -> (String, String) {
    let object = &event.object;
    let service = object.labels.get(SERVICE_NAME);
    let name = match (order, service) {
        (Order::Shuffled, Some(service)) if is_slice(object.kind) => service,
        _ => &object.key.name,
    };
    (object.key.namespace.clone(), name.clone())
}

/// Keeps the last event of each object.
pub(crate) fn keep_last(events: &mut Vec<Event>) {
    let mut seen = BTreeSet::new();
    events.reverse();
    events.retain(|event| seen.insert(event.object.key.clone()));
    events.reverse();
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
    use crate::key::Key;
    use crate::store::Store;

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
                reorder(&mut events, order, &mut Random::new(seed));
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
