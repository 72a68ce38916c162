//! What is told to a cluster's users, as Event objects of the API.

use std::sync::Arc;
use std::time::Instant;

use hyper::Method;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tracing::{debug, warn};
use vipline_service_model::ObjectName;

use super::access::{Connection, seed};
use super::asking::{self, Error};
use super::backoff::{Backoff, Bucket};

/// Who tells.
const CONTROLLER: &str = "kube-proxy";

/// How many notes may wait to be told.
const CAPACITY: usize = 64;

/// How many notes are told at once, and how many a second in the long run.
const LIMIT: (u32, f64) = (32, 0.1);

/// How often it is tried to tell a note.
const ATTEMPTS: u32 = 12;

/// The longest text that the API takes.
const LONGEST: usize = 1024;

/// Something to be told as an Event object.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Note {
    /// What it is about.
    pub regarding: Regarding,
    /// How bad it is.
    pub kind: NoteKind,
    /// Why it is told, in one word.
    pub reason: &'static str,
    /// What was done, in one word.
    pub action: &'static str,
    /// What there is to say, for people.
    pub text: String,
}

/// What a note is about.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Regarding {
    /// This node.
    Node,
    /// A Service.
    Service(ObjectName),
    /// An EndpointSlice.
    EndpointSlice(ObjectName),
}

/// How bad something is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NoteKind {
    /// As it should be.
    Normal,
    /// Somebody should look at it.
    Warning,
}

/// Takes notes and tells them in the background; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    notes: Option<mpsc::Sender<Note>>,
}

impl Recorder {
    /// Returns a recorder that nobody listens to.
    pub fn silent() -> Self {
        Self::default()
    }

    /// Returns a recorder whose notes a node tells an API.
    pub(super) fn start(runtime: &Handle, connection: Arc<Connection>, node: Arc<str>) -> Self {
        let (notes, queue) = mpsc::channel(CAPACITY);
        runtime.spawn(tell(connection, node, queue));
        Self { notes: Some(notes) }
    }

    /// Tells a note some time, or never if there are too many; never waits.
    pub fn note(&self, note: Note) {
        let Some(notes) = &self.notes else { return };
        if let Err(error) = notes.try_send(note) {
            debug!("an event is not told: {error}");
        }
    }
}

/// Tells notes one after the other.
async fn tell(connection: Arc<Connection>, node: Arc<str>, mut queue: mpsc::Receiver<Note>) {
    let (start, (burst, rate)) = (Instant::now(), LIMIT);
    let mut limit = Bucket::new(rate, burst);
    let mut backoff = Backoff::new(seed());
    let mut has_failed = false;
    while let Some(note) = queue.recv().await {
        if !limit.try_take(start.elapsed()) {
            debug!("an event is one too many: {}", note.text);
            continue;
        }
        let event = event(note, &node, Timestamp::now());
        match post(&connection, &event, &mut backoff).await {
            Err(error) if !has_failed => {
                warn!("an event could not be told, and others may not be: {error}");
                has_failed = true;
            }
            Err(error) => debug!("an event could not be told: {error}"),
            Ok(()) => has_failed = false,
        }
    }
}

/// Tells an event, several times if the server is out of reach.
async fn post(connection: &Connection, event: &Event, backoff: &mut Backoff) -> Result<(), Error> {
    let namespace = event.metadata.namespace.as_deref().unwrap_or_default();
    let path = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
    backoff.reset();
    let mut attempt = 1;
    loop {
        let created = match connection.client(&Method::POST).await {
            Ok(client) => asking::create(&client, &path, event).await,
            Err(error) => Err(error),
        };
        match created {
            Err(Error::Silent | Error::Unreachable(_)) if attempt < ATTEMPTS => {
                attempt += 1;
                tokio::time::sleep(backoff.wait()).await;
            }
            result => return result,
        }
    }
}

fn event(note: Note, node: &str, now: Timestamp) -> Event {
    let regarding = match note.regarding {
        Regarding::Node => ObjectReference {
            kind: Some("Node".to_owned()),
            name: Some(node.to_owned()),
            ..ObjectReference::default()
        },
        Regarding::Service(name) => reference("v1", "Service", &name),
        Regarding::EndpointSlice(name) => reference("discovery.k8s.io/v1", "EndpointSlice", &name),
    };
    let mut text = note.text;
    let end = (0..=LONGEST).rfind(|&end| text.is_char_boundary(end));
    text.truncate(end.unwrap_or_default());
    let kind = match note.kind {
        NoteKind::Normal => "Normal",
        NoteKind::Warning => "Warning",
    };
    let mut event = Event {
        action: Some(note.action.to_owned()),
        event_time: Some(MicroTime(now)),
        note: Some(text),
        reason: Some(note.reason.to_owned()),
        reporting_controller: Some(CONTROLLER.to_owned()),
        reporting_instance: Some(format!("{CONTROLLER}-{node}")),
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

    fn shown(regarding: Regarding, text: &str) -> Value {
        let note = Note {
            regarding,
            kind: NoteKind::Normal,
            reason: "Starting",
            action: "StartKubeProxy",
            text: text.into(),
        };
        let now = Timestamp::from_second(1_700_000_000).unwrap();
        serde_json::to_value(event(note, "node-1", now)).unwrap()
    }

    #[test]
    fn a_note_about_the_node_is_told_as_upstream_tells_it() {
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
    fn a_note_about_a_service_is_told_in_its_namespace() {
        let about = Regarding::Service(ObjectName::new("shop", "web"));
        let shown = shown(about, &"ü".repeat(LONGEST));
        assert_eq!(shown["metadata"]["namespace"], "shop");
        assert_eq!(shown["regarding"]["kind"], "Service");
        assert_eq!(shown["regarding"]["namespace"], "shop");
        assert_eq!(shown["note"].as_str().unwrap().len(), LONGEST);
    }

    #[test]
    fn a_recorder_never_waits() {
        let (notes, queue) = mpsc::channel(1);
        let recorder = Recorder { notes: Some(notes) };
        let note = Note {
            regarding: Regarding::Node,
            kind: NoteKind::Warning,
            reason: "R",
            action: "A",
            text: String::new(),
        };
        for recorder in [recorder, Recorder::silent()] {
            for _ in 0..3 {
                recorder.note(note.clone());
            }
        }
        assert_eq!(queue.len(), 1);
    }
}
