//! Events (`events.k8s.io/v1`): API objects that report problems to cluster users.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hyper::Method;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use vipline_service_model::ObjectName;

use super::access::{Connection, seed};
use super::backoff::{Backoff, TokenBucket};
use super::observer::{Observer, Report};
use super::request::{self, Error};

/// Capacity of the queue of Events.
const CAPACITY: usize = 64;

/// Burst, and rate per second, of created Events.
const LIMIT: (u32, f64) = (32, 0.1);

/// Burst, and rate per second, of Events about objects of one namespace.
///
/// Whoever may create Services in a namespace decides how many Events there are about them.
/// A namespace gets a quarter of the burst and a tenth of the rate, so that the Events of
/// others, and those of the Node, are still created.
const NAMESPACE_LIMIT: (u32, f64) = (8, 0.01);

/// Number of namespaces from which on those with a full budget are forgotten.
const MAX_NAMESPACES: usize = 1024;

/// Maximum attempts for one Event.
const ATTEMPTS: u32 = 12;

/// Maximum length of a note in bytes, set by the API.
const MAX_NOTE: usize = 1024;

/// An Event to be created.
///
/// Exhaustive: callers fill in every field of an Event.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NewEvent {
    /// Object of the Event.
    pub regarding: Regarding,
    /// Type.
    pub kind: EventType,
    /// Reason, in CamelCase.
    pub reason: &'static str,
    /// Action, in CamelCase.
    pub action: &'static str,
    /// Human-readable message, the `note` of the Event. Truncated to 1,024 bytes.
    pub text: String,
}

/// Object of an Event.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Regarding {
    /// This node.
    Node,
    /// A Service.
    Service(ObjectName),
    /// An EndpointSlice.
    EndpointSlice(ObjectName),
}

/// Type of an Event.
///
/// Exhaustive: Kubernetes has two types.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum EventType {
    /// Information.
    Normal,
    /// A problem.
    Warning,
}

/// Creates Events in the background. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    queue: Option<Queue>,
}

/// Where a recorder passes Events on.
#[derive(Clone, Debug)]
struct Queue {
    start: Instant,
    budget: Arc<Mutex<Budget>>,
    sender: mpsc::Sender<NewEvent>,
    observer: Arc<dyn Observer>,
}

/// Limits of the number of Events: one for each namespace, and one for all.
#[derive(Debug)]
struct Budget {
    all: TokenBucket,
    namespaces: HashMap<Arc<str>, TokenBucket>,
}

impl Budget {
    fn new() -> Self {
        let (burst, rate) = LIMIT;
        Self {
            all: TokenBucket::new(rate, burst),
            namespaces: HashMap::new(),
        }
    }

    /// Returns whether an Event may be created, and counts it then.
    fn admits(&mut self, regarding: &Regarding, now: Duration) -> bool {
        let namespace = match regarding {
            // Only this process decides about these.
            Regarding::Node => return self.all.try_take(now),
            Regarding::Service(name) | Regarding::EndpointSlice(name) => &name.namespace,
        };
        if self.namespaces.len() >= MAX_NAMESPACES && !self.namespaces.contains_key(namespace) {
            self.namespaces.retain(|_, bucket| !bucket.is_full(now));
        }
        let bucket = self.namespaces.entry(Arc::clone(namespace));
        let (burst, rate) = NAMESPACE_LIMIT;
        let bucket = bucket.or_insert_with(|| TokenBucket::new(rate, burst));
        bucket.try_take(now) && self.all.try_take(now)
    }
}

/// The reporting controller of Events.
#[derive(Debug)]
struct Reporter {
    /// Name of the controller, such as `kube-proxy`.
    controller: Arc<str>,
    /// Name of the node.
    node: Arc<str>,
}

impl Recorder {
    /// Returns a recorder that discards all Events.
    pub fn disabled() -> Self {
        Self::default()
    }

    /// Returns a recorder that creates Events in the API.
    pub(super) fn start(
        runtime: &Handle,
        connection: Arc<Connection>,
        controller: Arc<str>,
        node: Arc<str>,
    ) -> Self {
        let (sender, queue) = mpsc::channel(CAPACITY);
        let observer = Arc::clone(connection.observer());
        runtime.spawn(create_queued(
            connection,
            Reporter { controller, node },
            queue,
        ));
        Self {
            queue: Some(Queue {
                start: Instant::now(),
                budget: Arc::new(Mutex::new(Budget::new())),
                sender,
                observer,
            }),
        }
    }

    /// Queues an Event. Does not block.
    ///
    /// An Event is discarded if 64 Events are queued, or if it exceeds a rate limit: 32
    /// Events at once, then one every 10 s; and 8 about objects of one namespace at once,
    /// then one every 100 s. The observer gets a report of each.
    pub fn record(&self, event: NewEvent) {
        let Some(queue) = &self.queue else {
            return;
        };
        let mut budget = queue.budget.lock().unwrap_or_else(PoisonError::into_inner);
        let is_admitted = budget.admits(&event.regarding, queue.start.elapsed());
        drop(budget);
        let discarded = match is_admitted {
            true => queue.sender.try_send(event).err().map(|it| it.to_string()),
            false => Some(format!("rate limit exceeded: {}", event.text)),
        };
        if let Some(reason) = discarded {
            queue.observer.report(&Report::EventDiscarded { reason });
        }
    }
}

/// Creates queued Events one after the other.
async fn create_queued(
    connection: Arc<Connection>,
    reporter: Reporter,
    mut queue: mpsc::Receiver<NewEvent>,
) {
    let mut backoff = Backoff::new(seed());
    let mut has_failed = false;
    let observer = Arc::clone(connection.observer());
    while let Some(new_event) = queue.recv().await {
        let event = event(new_event, &reporter, Timestamp::now());
        match post(&connection, &event, &mut backoff).await {
            Err(error) => {
                let (reason, is_first) = (connection.describe(&error), !has_failed);
                observer.report(&Report::EventFailed { reason, is_first });
                has_failed = true;
            }
            Ok(()) => has_failed = false,
        }
    }
}

/// Creates an Event. Retries if the server is unreachable.
async fn post(connection: &Connection, event: &Event, backoff: &mut Backoff) -> Result<(), Error> {
    let namespace = event.metadata.namespace.as_deref().unwrap_or_default();
    let path = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
    backoff.reset();
    let mut attempt = 1;
    loop {
        let created = match connection.client(&Method::POST).await {
            Ok(client) => request::create(&client, &path, event).await,
            Err(error) => Err(error),
        };
        match created {
            Err(Error::Timeout | Error::Unreachable(_) | Error::NoCredentials(_))
                if attempt < ATTEMPTS =>
            {
                attempt += 1;
                tokio::time::sleep(backoff.wait()).await;
            }
            result => return result,
        }
    }
}

fn event(new_event: NewEvent, reporter: &Reporter, now: Timestamp) -> Event {
    let regarding = match new_event.regarding {
        Regarding::Node => ObjectReference {
            kind: Some("Node".to_owned()),
            name: Some(reporter.node.to_string()),
            ..ObjectReference::default()
        },
        Regarding::Service(name) => reference("v1", "Service", &name),
        Regarding::EndpointSlice(name) => reference("discovery.k8s.io/v1", "EndpointSlice", &name),
    };
    let mut text = new_event.text;
    let end = (0..=MAX_NOTE).rfind(|&end| text.is_char_boundary(end));
    text.truncate(end.unwrap_or_default());
    let kind = match new_event.kind {
        EventType::Normal => "Normal",
        EventType::Warning => "Warning",
    };
    let mut event = Event {
        action: Some(new_event.action.to_owned()),
        event_time: Some(MicroTime(now)),
        note: Some(text),
        reason: Some(new_event.reason.to_owned()),
        reporting_controller: Some(reporter.controller.to_string()),
        reporting_instance: Some(format!("{}-{}", reporter.controller, reporter.node)),
        type_: Some(kind.to_owned()),
        ..Event::default()
    };
    let name = regarding.name.as_deref().unwrap_or_default();
    event.metadata.name = Some(format!("{name}.{:x}", now.as_nanosecond()));
    let namespace = regarding.namespace.clone();
    event.metadata.namespace = Some(namespace.unwrap_or_else(|| "default".to_owned()));
    event.regarding = Some(regarding);
    event
}

/// Returns a reference to an object in a namespace.
fn reference(version: &str, kind: &str, name: &ObjectName) -> ObjectReference {
    ObjectReference {
        api_version: Some(version.to_owned()),
        kind: Some(kind.to_owned()),
        name: Some(name.name.to_string()),
        namespace: Some(name.namespace.to_string()),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::observer::tests::Recorded;

    fn shown(regarding: Regarding, text: &str) -> Value {
        let new_event = NewEvent {
            regarding,
            kind: EventType::Normal,
            reason: "Starting",
            action: "StartKubeProxy",
            text: text.into(),
        };
        let now = Timestamp::from_second(1_700_000_000).unwrap();
        let reporter = Reporter {
            controller: "kube-proxy".into(),
            node: "node-1".into(),
        };
        serde_json::to_value(event(new_event, &reporter, now)).unwrap()
    }

    #[test]
    fn an_event_about_the_node_equals_upstreams() {
        let expected = json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": "node-1.17979cfe362a0000", "namespace": "default"},
            "action": "StartKubeProxy",
            "eventTime": "2023-11-14T22:13:20.000000Z",
            "note": "",
            "reason": "Starting",
            "regarding": {"kind": "Node", "name": "node-1"},
            "reportingController": "kube-proxy",
            "reportingInstance": "kube-proxy-node-1",
            "type": "Normal",
        });
        assert_eq!(shown(Regarding::Node, ""), expected);
    }

    #[test]
    fn an_event_about_a_service_is_in_its_namespace() {
        let about = Regarding::Service(ObjectName::new("shop", "web"));
        let shown = shown(about, &"ü".repeat(MAX_NOTE));
        assert_eq!(shown["metadata"]["namespace"], "shop");
        assert_eq!(shown["regarding"]["kind"], "Service");
        assert_eq!(shown["regarding"]["namespace"], "shop");
        assert_eq!(shown["note"].as_str().unwrap().len(), MAX_NOTE);
    }

    #[test]
    fn a_recorder_never_blocks() {
        let (sender, queue) = mpsc::channel(1);
        let observer: Arc<dyn Observer> = Arc::new(Recorded::default());
        let recorder = Recorder {
            queue: Some(Queue {
                start: Instant::now(),
                budget: Arc::new(Mutex::new(Budget::new())),
                sender,
                observer,
            }),
        };
        let new_event = NewEvent {
            regarding: Regarding::Node,
            kind: EventType::Warning,
            reason: "R",
            action: "A",
            text: String::new(),
        };
        for recorder in [recorder, Recorder::disabled()] {
            for _ in 0..3 {
                recorder.record(new_event.clone());
            }
        }
        assert_eq!(queue.len(), 1);
    }

    #[test]
    fn a_namespace_does_not_use_up_the_events_of_others() {
        let mut budget = Budget::new();
        let mut count = |regarding: &Regarding, count, seconds| {
            let now = Duration::from_secs(seconds);
            (0..count).filter(|_| budget.admits(regarding, now)).count()
        };
        let of = |namespace: &str| Regarding::Service(ObjectName::new(namespace, "web"));
        let slice = Regarding::EndpointSlice(ObjectName::new("flood", "web-1"));
        assert_eq!(count(&of("flood"), 1000, 0), 8);
        assert_eq!(count(&slice, 1000, 0), 0, "slices share the budget");
        assert_eq!(count(&of("shop"), 3, 0), 3);
        assert_eq!(count(&Regarding::Node, 2, 0), 2);
        // The flood goes on for an hour.
        let later: usize = (1..=3600)
            .map(|second| count(&of("flood"), 10, second))
            .sum();
        assert_eq!(later, 36);
        assert_eq!(count(&of("shop"), 100, 3600), 8);
        // The flood took one in that second, and `shop` eight.
        assert_eq!(count(&Regarding::Node, 100, 3600), 32 - 1 - 8);
    }

    #[test]
    fn namespaces_that_were_silent_are_forgotten() {
        let mut budget = Budget::new();
        for number in 0..3 * MAX_NAMESPACES {
            let name = ObjectName::new(format!("namespace-{number}"), "web");
            let now = Duration::from_secs(1000 * number as u64);
            assert!(budget.admits(&Regarding::Service(name), now));
        }
        assert!(budget.namespaces.len() <= MAX_NAMESPACES);
    }
}
