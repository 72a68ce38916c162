//! Watches.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use futures_util::Stream;
use futures_util::stream::unfold;
use serde_json::{Value, json};
use tokio::sync::watch::Receiver;
use tokio::time::{Instant, sleep, timeout_at};

use crate::event::{Event, Type, duplicate, keep_last, reorder};
use crate::faults::{Faults, Order, WatchListFailure};
use crate::kind::Kind;
use crate::list::{Scope, Version};
use crate::query::Query;
use crate::state::{State, Watching};
use crate::status::StatusError;
use crate::store::{Gone, Store};

/// Default timeout of a watch, in seconds.
const TIMEOUT: u64 = 1800;
/// Time to collect events before they are shuffled.
const SHUFFLE_WINDOW: Duration = Duration::from_millis(20);

/// State of a watch.
#[derive(Debug)]
struct Watch {
    state: Arc<State>,
    scope: Scope,
    /// Version up to which all events were sent.
    sent: u64,
    /// Initial events with the current state.
    first: Option<Vec<u8>>,
    /// Changes up to this version may have been sent before, in another order.
    repeat: Option<u64>,
    bookmarks: bool,
    next_bookmark: Instant,
    bookmarks_asked: u64,
    expiries: u64,
    end: Instant,
    ended: bool,
    changed: Receiver<()>,
    /// Counts the watch while it exists.
    _watching: Watching,
}

/// Starts a watch and returns its events as the body of the response.
pub(crate) fn watch(
    state: &Arc<State>,
    scope: Scope,
    query: &Query,
) -> Result<impl Stream<Item = Result<Bytes, Infallible>> + use<>, StatusError> {
    let kind = scope.kind;
    let initial = query.is_true("sendInitialEvents");
    if initial && query.text("resourceVersionMatch") != "NotOlderThan" {
        let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        return Err(StatusError::invalid(kind, "", "resourceVersionMatch", why));
    }
    let no_lists = state.faults(kind).watch_list_failure;
    if initial && no_lists == Some(WatchListFailure::Forbidden) {
        let why = "forbidden for watch unless the WatchList feature gate is enabled";
        return Err(StatusError::invalid(kind, "", "sendInitialEvents", why));
    }
    // Unlike a list, a watch may have `resourceVersionMatch` without a version.
    let wanted = match query.number("resourceVersion")? {
        None if initial => Version::Newest,
        _ => Version::parse(kind, query)?,
    };
    let bookmarks = query.is_true("allowWatchBookmarks");
    let seconds = query
        .number("timeoutSeconds")?
        .filter(|seconds| *seconds > 0);
    let now = Instant::now();
    let mut watch = Watch {
        sent: 0,
        first: None,
        repeat: None,
        bookmarks,
        next_bookmark: now + state.bookmark_period(),
        bookmarks_asked: state.bookmarks_asked(),
        expiries: state.expiries(),
        end: now + Duration::from_secs(seconds.unwrap_or(TIMEOUT)),
        ended: false,
        changed: state.subscribe(),
        _watching: Watching::new(state, kind),
        state: Arc::clone(state),
        scope,
    };
    let store = state.store();
    match wanted {
        Version::NotOlderThan(version) | Version::Exact(version) if !initial => {
            watch.sent = version;
            if let Some((start, end)) = state.shuffled(kind, version) {
                (watch.sent, watch.repeat) = (start, Some(end));
            }
        }
        Version::NotOlderThan(version) if version > store.version() => {
            return Err(StatusError::too_new(version, store.version()));
        }
        _ if initial && no_lists == Some(WatchListFailure::Error) => {
            watch.ended = true;
            watch.first = Some(no_progress());
        }
        Version::Any => watch.begin(&store, state.stale(&store, kind), initial),
        _ => watch.begin(&store, store.version(), initial),
    }
    drop(store);
    Ok(unfold(watch, |watch| async {
        let (text, watch) = watch.step().await?;
        Some((Ok(Bytes::from(text)), watch))
    }))
}

impl Watch {
    /// Prepares initial events with the state at a version.
    fn begin(&mut self, store: &Store, version: u64, mark: bool) {
        let mut text = Vec::new();
        let objects = store.table(self.scope.kind).at(version);
        for object in objects.iter().flat_map(|objects| objects.values()) {
            if self.scope.matches(object) {
                let event = Event {
                    kind: Type::Added,
                    object: Arc::clone(object),
                };
                event.push(&mut text);
            }
        }
        self.sent = version;
        if mark && self.bookmarks {
            let annotations = json!({ "k8s.io/initial-events-end": "true" });
            text.extend(bookmark(self.scope.kind, version, annotations));
        }
        self.first = Some(text).filter(|text| !text.is_empty());
    }

    /// Waits for events. Returns [`None`] at the end of the watch.
    async fn step(mut self) -> Option<(Vec<u8>, Self)> {
        loop {
            self.changed.borrow_and_update();
            let faults = self.state.faults(self.scope.kind);
            if !faults.silent_watches {
                if self.ended && self.first.is_none() {
                    return None;
                }
                if let Some(text) = self.pending(&faults) {
                    sleep(faults.event_delay).await;
                    return Some((text, self));
                }
                if Instant::now() >= self.end {
                    self.ended = true;
                    let text = self.bookmarks.then(|| self.bookmark())?;
                    return Some((text, self));
                }
            }
            let until = if faults.silent_watches {
                Instant::now() + Duration::from_secs(TIMEOUT)
            } else {
                self.end.min(self.next_bookmark)
            };
            let woken = timeout_at(until, self.changed.changed()).await;
            if woken.is_ok() && faults.order != Order::Unchanged {
                sleep(SHUFFLE_WINDOW).await;
            }
        }
    }

    /// Returns pending events as text.
    fn pending(&mut self, faults: &Faults) -> Option<Vec<u8>> {
        if let Some(text) = self.first.take() {
            return Some(text);
        }
        let expired = self.expiries != self.state.expiries();
        let events = if expired { Err(Gone) } else { self.events() };
        let Ok((mut events, newest)) = events else {
            self.ended = true;
            let error = StatusError::gone(self.sent, self.state.store().version());
            return Some(line("ERROR", error.status()));
        };
        let start = self.sent;
        self.sent = newest.max(start);
        if !events.is_empty() {
            if faults.order != Order::Unchanged && events.len() > 1 {
                self.state
                    .record_shuffled(self.scope.kind, start, self.sent);
            }
            let events = self.state.with_random(|random| {
                reorder(&mut events, faults.order, random);
                duplicate(events, faults.duplicates, random)
            });
            let mut text = Vec::new();
            for event in events {
                event.push(&mut text);
            }
            return Some(text);
        }
        let asked = self.state.bookmarks_asked();
        let due = asked != self.bookmarks_asked || Instant::now() >= self.next_bookmark;
        self.bookmarks_asked = asked;
        (due && self.bookmarks).then(|| self.bookmark())
    }

    /// Returns the events that have not been sent, and the version after them.
    fn events(&mut self) -> Result<(Vec<Event>, u64), Gone> {
        let repeat = self.repeat.take();
        let store = self.state.store();
        let until = repeat.unwrap_or_else(|| store.version());
        let mut events: Vec<_> = store
            .table(self.scope.kind)
            .since(self.sent)?
            .take_while(|change| change.version <= until)
            .filter_map(|change| Event::of(change, &self.scope))
            .collect();
        if repeat.is_some() {
            keep_last(&mut events);
        }
        Ok((events, until))
    }

    fn bookmark(&mut self) -> Vec<u8> {
        self.next_bookmark = Instant::now() + self.state.bookmark_period();
        bookmark(self.scope.kind, self.sent, Value::Null)
    }
}

/// Returns the error of a server whose etcd does not support progress notifications.
fn no_progress() -> Vec<u8> {
    let message = "a watch stream was requested by the client but the required storage feature \
                   RequestWatchProgress is disabled";
    line(
        "ERROR",
        StatusError::new(500, "InternalError", message).status(),
    )
}

fn bookmark(kind: Kind, version: u64, annotations: Value) -> Vec<u8> {
    let mut metadata = json!({
        "resourceVersion": version.to_string(),
        "creationTimestamp": null,
    });
    if !annotations.is_null() {
        metadata["annotations"] = annotations;
    }
    let object = json!({
        "kind": kind.name(),
        "apiVersion": kind.api_version(),
        "metadata": metadata,
    });
    line("BOOKMARK", object)
}

fn line(kind: &str, object: Value) -> Vec<u8> {
    let mut text = json!({ "type": kind, "object": object }).to_string();
    text.push('\n');
    text.into_bytes()
}
