//! The list and watch loop of one kind, for the lifetime of the process.
//!
//! A proxy must know every Service, must learn of a change at once, and must not lose the
//! rules of ten thousand Services because an API server restarts. The API offers two requests
//! for that: a list returns all objects and the resource version of that state, and a watch
//! reports all changes after a version. So a watcher lists once, and from then on each watch
//! continues where the last one ended. [`Watcher::version`] is that place, and it is the whole
//! state machine:
//!
//! ```text
//!          version: None                                 version: Some("4711")
//!   ┌──────────────────────────────┐  all listed   ┌─────────────────────────────────┐
//!   │ a watch that begins with a   │ ────────────► │ a watch after 4711; each        │
//!   │ list, or pages of a list     │               │ notification moves the version  │
//!   └──────────────────────────────┘ ◄──────────── └─────────────────────────────────┘
//!     error: pause, again          410, or text that     end, silence: again at once
//!                                  cannot be read        error: pause, again
//! ```
//!
//! For example: the list has `web` and `dns` at version 4711. The watch reports that `web`
//! changed (4712), and after 270 s the server ends it; the next watch asks for changes after
//! 4712 and misses nothing. Now the server is away for an hour, `dns` is deleted, and the
//! server forgets its old history. The watch after 4712 gets 410 (Gone), so everything is
//! listed again. The list has `web` only, [`NameStore`] remembers that there was a `dns`, and
//! the deletion that no watch reported becomes an event.
//!
//! What must stay true:
//!
//! - An unreachable API server, or an invalid response, removes nothing. An object is removed
//!   only if the server reports its deletion or a *complete* list lacks it.
//! - `version` never moves beyond what was sent to the feed, or a change is lost for good.
//! - No path of the loop repeats a request without a pause, unless the request before took
//!   long by itself. All nodes of a cluster run this loop against the same few servers.
//!
//! Lists within a watch (`sendInitialEvents`) are the default because they cost an API server
//! less memory than a list; the fallbacks for servers without them are in
//! [`Watcher::recover`]. The first version knew only plain lists, each a consistent read, so
//! that all nodes read all objects from etcd at once; plain lists now come from the watch
//! cache of the server wherever that is safe ([`Freshness`]).
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]

use std::marker::PhantomData;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use hyper::Method;
use tokio::time::{sleep, timeout};
use vipline_service_model::Kind;

use super::access::{Connection, seed};
use super::backoff::{Random, WatchBackoff};
use super::change::Change;
use super::feed::{Item, Sender};
use super::objects::Object;
use super::observer::{Contact, Observer, Report, plural};
use super::page::Page;
use super::parsed::{Parsed, Unreadable};
use super::request::{self, Error, Freshness, Selectors, Start};
use super::store::NameStore;
use crate::WatchMode;

/// Minimum and maximum duration of a watch in seconds (`timeoutSeconds`), after which the
/// server ends it.
///
/// The end costs one request: the next watch continues after the same version. It limits how
/// long a watch can outlive what it was allowed with, because an API server checks credentials
/// and permissions when a request begins and never again. Without the parameter the server
/// chooses half an hour or more (`--min-request-timeout`).
///
/// Nothing depends on the exact values. 290 s is the default of `kube`, older versions of
/// which reject 295 s and more. But with one value for all, the watches of all nodes, which
/// begin together after a restart of the server, would also end together, again and again.
/// Random durations spread the ends over 50 s.
const MIN_AND_MAX_WATCH_SECONDS: (f64, f64) = (240.0, 290.0);

/// Maximum silence of a watch.
///
/// An API server sends a bookmark about every minute even if nothing changes
/// (`defaultBookmarkFrequency` of its cacher), so that 100 s are one bookmark and 40 s of
/// patience; the first version waited for 150 s. Kubernetes does not promise bookmarks. A
/// server that sends none costs a new watch every 100 s, and no more.
///
/// This is the last resort, against a server or a proxy that holds a working connection and
/// sends nothing. A dead connection is found after 20 s, see `direct` in `connector.rs`.
const MAX_SILENCE: Duration = Duration::from_secs(100);

/// Maximum silence until the initial list of a watch is complete. It counts from the last
/// object, not from the beginning, so that a long list may take longer.
///
/// Shorter than [`MAX_SILENCE`] because the first sync waits for the list, and because there
/// is another way to it: [`WatchEnd::WithoutList`].
const MAX_LIST_SILENCE: Duration = Duration::from_secs(60);

/// A watch that ends within this time without a notification counts as failed.
///
/// Otherwise a server, or a proxy in front of it, that accepts each watch and closes it at
/// once would get requests in an endless loop without a pause. A watch that lived longer has
/// spread the requests by its own duration.
const MIN_WATCH_WITHOUT_NOTIFICATION: Duration = Duration::from_secs(5);

/// Retry interval for an optional kind that the server does not have or does not permit.
///
/// Only an administrator changes that, by an update of the server or of a role, so the usual
/// backoff of at most 30 s would only repeat the answer.
const ABSENT_KIND_RETRY_INTERVAL: Duration = Duration::from_secs(300);

/// Lists and watches the objects of a kind, and sends them to a feed.
pub(crate) struct Watcher<O> {
    connection: Arc<Connection>,
    selectors: Selectors,
    watch_mode: WatchMode,
    feed: Sender,
    observer: Arc<dyn Observer>,
    names: NameStore,
    backoff: WatchBackoff,
    random: Random,
    /// [`MAX_SILENCE`], except in tests.
    silence: Duration,
    /// The last time at which the objects were known to be up to date: what the observer is
    /// told as the beginning of an outage.
    last_contact: Instant,
    /// Whether the observer was told [`Contact::InSync`]. It hears of transitions only.
    is_in_sync: bool,
    /// The last reported problem. An outage of an hour is one warning and one report of its
    /// end, not a line for each attempt.
    last_error: Option<String>,
    /// Resource version up to which all changes are known. Without one, the
    /// next request is a list.
    version: Option<String>,
    watch_lists: WatchLists,
    /// Required freshness of the next plain list. A list within a watch is always a
    /// consistent read.
    freshness: Freshness,
    kind: PhantomData<O>,
}

/// Support for lists within a watch (`sendInitialEvents=true`). API servers support them
/// by default in 1.32 and since 1.34.
///
/// The difference between the last two matters to a server that has a bad minute: it is asked
/// in the better way again, and a server that can never answer is not asked at each list.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum WatchLists {
    /// Supported.
    Supported,
    /// Failed the last time. A plain list comes next; once it is complete, the list after it
    /// is one within a watch again.
    Failed,
    /// Not supported, or forbidden by [`Access::watch_lists`](super::Access::watch_lists), for
    /// the lifetime of the process.
    Unsupported,
}

/// How a watch ended without an error.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum WatchEnd {
    /// After a notification, after a normal time, or after too long a silence. The next watch
    /// begins at once.
    Normal,
    /// Within [`MIN_WATCH_WITHOUT_NOTIFICATION`]. Counts as a failure, with a pause.
    Immediate,
    /// In silence, and without the bookmark that ends the initial list. So a server behaves
    /// that does not know `sendInitialEvents` and ignores it.
    WithoutList,
}

impl<O: Object> Watcher<O> {
    /// Creates a watcher of the selected objects.
    pub(crate) fn new(
        connection: Arc<Connection>,
        selectors: Selectors,
        watch_mode: WatchMode,
        feed: Sender,
    ) -> Self {
        let observer = Arc::clone(connection.observer());
        let watch_lists = match watch_mode {
            WatchMode::ListAndWatch if connection.allows_watch_lists() => WatchLists::Supported,
            // A watch goes on after its list. Only a plain list has an end at which `run` returns.
            WatchMode::ListAndWatch | WatchMode::ListOnly => WatchLists::Unsupported,
        };
        Self {
            connection,
            selectors,
            watch_mode,
            feed,
            observer,
            names: NameStore::default(),
            // Two seeds, which are random and differ: one would tie the length of each watch to the
            // delay before it.
            backoff: WatchBackoff::new(seed()),
            random: Random::new(seed()),
            silence: MAX_SILENCE,
            last_contact: Instant::now(),
            is_in_sync: false,
            last_error: None,
            version: None,
            watch_lists,
            // One-shot commands run on one node and show the newest state. A proxy runs on all
            // nodes, and after a restart of all of them lists from etcd would be the outage;
            // whatever the cache lacks, the watch after the list reports.
            freshness: match watch_mode {
                WatchMode::ListOnly => Freshness::Newest,
                WatchMode::ListAndWatch => Freshness::Cached,
            },
            kind: PhantomData,
        }
    }

    /// Lists and watches. With [`WatchMode::ListOnly`], returns after the list, or after a
    /// failure, which it passes to [`Sender::fatal`].
    pub(crate) async fn run(mut self) {
        // Before the first contact, so that the metric of staleness exists and grows while the
        // very first list fails.
        let never = Contact::LostSince(self.last_contact);
        self.observer.contact(O::KIND, never);
        loop {
            let done = match self.version.clone() {
                Some(version) => self.watch(Some(version)).await,
                None if self.watch_lists == WatchLists::Supported => self.watch(None).await,
                None => self.list().await.map(|()| WatchEnd::Normal),
            };
            match done {
                Ok(WatchEnd::Normal) if self.watch_mode == WatchMode::ListOnly => return,
                // No pause. A list that succeeded goes on as a watch, and a watch lasts until the
                // server ends it, minutes later. A silent watch has waited 100 s already, and may
                // have missed changes for as long, so a pause would only make the state older.
                // If its server is really gone, the next request fails, and errors do pause.
                Ok(WatchEnd::Normal) => {}
                Ok(WatchEnd::Immediate) => {
                    let reason = "the watch ended before the first notification";
                    self.pause(&Error::Unreachable(reason.to_owned())).await;
                }
                Ok(WatchEnd::WithoutList) => {
                    self.report(Report::UnendingList { kind: O::KIND });
                    // For good: each attempt costs a minute in which the proxy knows nothing. No
                    // pause, because that minute was one.
                    self.watch_lists = WatchLists::Unsupported;
                }
                Err(error)
                    if self.watch_mode == WatchMode::ListOnly && !self.can_recover(&error) =>
                {
                    let reason = self.connection.describe(&error);
                    return self
                        .feed
                        .fatal(format!("list {}: {reason}", plural(O::KIND)));
                }
                Err(error) => self.recover(&error).await,
            }
        }
    }

    /// Returns whether a one-shot command continues after an error: if
    /// [`recover`](Self::recover) has another request to try, or can do without the kind. Any
    /// other error ends the command, whose user waits for an answer.
    fn can_recover(&self, error: &Error) -> bool {
        (is_optional(O::KIND) && error.is_absent())
            || (error.is_bad_request() && self.has_default_fields())
    }

    /// Prepares the next attempt after an error.
    ///
    /// The order matters, because one error is a case of several of the conditions: a 400 may
    /// mean the field selector, a list within a watch, or a lost history. The specific remedies
    /// come first. Those that change the next request need no pause: the changed request
    /// succeeds, or fails with an error that does pause.
    async fn recover(&mut self, error: &Error) {
        // Only lists get other requests. A watch that fails with the same code, such as 403
        // because a role was changed, keeps its objects and tries again.
        let is_listing = self.version.is_none();
        if is_listing && is_optional(O::KIND) && error.is_absent() {
            return self.continue_without(error).await;
        }
        // An older server may lack the field selector. The model filters the
        // objects anyway.
        if is_listing && error.is_bad_request() && self.has_default_fields() {
            self.report(Report::FieldSelectorRejected {
                kind: O::KIND,
                reason: self.connection.describe(error),
            });
            // For the rest of the process, or each later list would be rejected once more.
            self.selectors.fields = None;
            return;
        }
        if is_listing && self.watch_lists == WatchLists::Supported && error.is_failed_watch_list() {
            self.report(Report::WatchListFailed {
                kind: O::KIND,
                reason: self.connection.describe(error),
            });
            // 422 is the answer of a server whose feature gate WatchList is off. Other errors,
            // such as the 500 of an API server with an etcd before 3.4.25, may pass.
            self.watch_lists = if error.is_invalid() {
                WatchLists::Unsupported
            } else {
                WatchLists::Failed
            };
            return;
        }
        // After a line that cannot be read nobody knows which change it was. A list finds out.
        // All other errors keep the version: the next watch continues after it, and an outage
        // costs no list.
        if error.is_history_lost() || matches!(error, Error::InvalidResponse(_)) {
            self.version = None;
            // The cache of the server may be older than what the watch has reported, for example
            // if another server of the cluster answers. A list from it would bring deleted
            // Services back. It stays so: there is no later time at which a cache is known to be
            // new enough.
            self.freshness = Freshness::Newest;
        }
        self.pause(error).await;
    }

    /// Returns whether the kind has a default field selector, and the request a selector.
    ///
    /// The selector of the own Node is not affected, because Nodes have no default: without
    /// it, all Nodes of the cluster would come.
    fn has_default_fields(&self) -> bool {
        O::FIELDS.is_some() && self.selectors.fields.is_some()
    }

    /// Lists all objects and removes objects that no longer exist.
    async fn list(&mut self) -> Result<(), Error> {
        let client = self.connection.client(&Method::GET).await?;
        // A list that fails on a later page is begun again from the first one. The names of its
        // first pages then count as former ones, and nothing is removed until a list is complete.
        self.names.begin_list();
        let mut next = None;
        let version = loop {
            let (selectors, freshness) = (&self.selectors, self.freshness);
            let text = request::page::<O>(&client, selectors, freshness, next).await?;
            let page = Page::parse(&text)?;
            // Objects are sent page by page, not after the last one: memory holds one page of
            // text, and the feed makes this task wait if its receiver is slow.
            for item in page.items() {
                match item {
                    Ok(parsed) => self.apply(parsed).await,
                    Err(unreadable) => self.skip(&unreadable),
                }
            }
            let metadata = page.metadata;
            // The last page has an empty token or none. Sent back, an empty one would be a request
            // for the first page, without an end.
            next = metadata.next.filter(|next| !next.is_empty());
            if next.is_none() {
                // All pages have the version of the first one. A server that omits it gets a watch
                // without a version, which begins with all objects.
                break metadata.resource_version.unwrap_or_default();
            }
        };
        self.listed(version).await;
        Ok(())
    }

    /// Ends a complete list, of either sort: removes the objects that it lacked.
    async fn listed(&mut self, version: String) {
        // The deletions of objects that vanished while nobody watched. They come before
        // `Listed`, after which the receiver may sync: rules of a Service that is gone must not be
        // in that sync.
        for name in self.names.finish_list() {
            self.feed.send(Item::Event(O::deleted(name))).await;
        }
        // Not `reset`: a list proves that the server answers, but not that a watch after this
        // list will find its history. See `WatchBackoff`.
        self.backoff.reset_errors();
        self.version = Some(version);
        // The plain list in place of a failed one is done; the next one may be within a watch.
        if self.watch_lists == WatchLists::Failed {
            self.watch_lists = WatchLists::Supported;
        }
        self.feed.send(Item::Listed(O::KIND)).await;
    }

    /// Runs one watch: after a resource version, or with an initial list.
    async fn watch(&mut self, after: Option<String>) -> Result<WatchEnd, Error> {
        let client = self.connection.client(&Method::GET).await?;
        let seconds = lasts(&mut self.random);
        let start = after.as_deref().map_or(Start::List, Start::After);
        let is_list = after.is_none();
        let began = Instant::now();
        let events = request::watch::<O>(&client, &self.selectors, start, seconds).await?;
        let mut events = pin!(events);
        if is_list {
            // After the request: one that is rejected has listed nothing.
            self.names.begin_list();
        } else {
            // The server has accepted the version, so it will report whatever happened since. In a
            // quiet cluster the first notification may take a minute, and the outage is over now.
            // A list that has just begun proves nothing yet.
            self.mark_in_sync();
        }
        let mut ended = WatchEnd::Immediate;
        loop {
            let silence = self.longest_silence();
            let Ok(event) = timeout(silence, events.next()).await else {
                self.report(Report::SilentWatch { kind: O::KIND });
                // Changes since the last notification may be missing. The observer shall know even
                // if the next watch is accepted at once, because it was true for 100 s.
                self.mark_lost();
                // To leave drops the response, and with HTTP/1.1, which `kube` speaks, also its
                // connection. The next watch does not wait on the same silent one.
                return Ok(match self.version {
                    Some(_) => WatchEnd::Normal,
                    None => WatchEnd::WithoutList,
                });
            };
            match event {
                // An ERROR notification, such as 410, is an `Err` and leaves before the backoff
                // below is reset.
                Some(event) => self.take(event?).await,
                // In contrast to silence, an end says nothing about `sendInitialEvents`: a server
                // that restarts ends its watches like this. So it is an error with a pause, after
                // which a list within a watch is tried again.
                None if self.version.is_none() => {
                    let reason = "the watch ended before its list was complete";
                    return Err(Error::Unreachable(reason.to_owned()));
                }
                None if began.elapsed() > MIN_WATCH_WITHOUT_NOTIFICATION => {
                    return Ok(WatchEnd::Normal);
                }
                None => return Ok(ended),
            }
            ended = WatchEnd::Normal;
            if self.version.is_some() {
                self.mark_in_sync();
                // A notification proves both that the server answers and that the history is
                // there. Only now may the next loss of history be followed by a prompt list.
                self.backoff.reset();
            }
        }
    }

    /// Returns the maximum silence in the current state.
    fn longest_silence(&self) -> Duration {
        match self.version {
            Some(_) => self.silence,
            None => self.silence.min(MAX_LIST_SILENCE),
        }
    }

    /// Forwards a notification to the feed.
    async fn take(&mut self, change: Change<O>) {
        let version = match change {
            Change::Applied(parsed) => {
                let version = parsed.object.version().to_owned();
                self.apply(parsed).await;
                version
            }
            // The version moves on also here. Otherwise the next watch would report the object
            // again, and after it nothing new.
            Change::Unreadable(unreadable) => {
                self.skip(&unreadable);
                unreadable.identity.version().to_owned()
            }
            Change::Deleted(identity) => {
                let name = identity.name();
                // Otherwise the next list, which lacks it, would delete it a second time.
                self.names.remove(&name);
                self.feed.send(Item::Event(O::deleted(name))).await;
                identity.version().to_owned()
            }
            Change::Bookmark {
                version,
                is_list_complete,
            } => {
                // Only in a watch that began with a list. In another one the list ended long ago,
                // and every object that it did not repeat would be deleted.
                if is_list_complete && self.version.is_none() {
                    self.listed(version.clone()).await;
                }
                // An ordinary bookmark has no object. It keeps the version of a quiet kind within
                // the history of the server, whose cache is made to hold 75 s of changes
                // (`DefaultEventFreshDuration`: the period of bookmarks and a quarter of it).
                version
            }
        };
        // After the event was sent, so that a task that ends in between loses nothing. Without a
        // version the objects are those of a list, which come in no order of versions: to
        // continue after one of them would skip the rest of the list. An unreadable object may
        // have no version, and the former one stays right.
        if !version.is_empty() && self.version.is_some() {
            self.version = Some(version);
        }
    }

    /// Forwards an object without its unreadable parts.
    async fn apply(&mut self, parsed: Parsed<O>) {
        let name = parsed.object.name();
        if let Some(dropped) = parsed.dropped {
            self.report(Report::PartsDropped {
                kind: O::KIND,
                name: name.clone(),
                dropped,
            });
        }
        self.names.insert(&name);
        let item = Item::Event(parsed.object.applied());
        // Sized, because one EndpointSlice may have megabytes: see the feed.
        self.feed.send_sized(item, parsed.size).await;
    }

    /// Skips an object without a readable part, and keeps its former state.
    fn skip(&mut self, unreadable: &Unreadable) {
        let name = unreadable.identity.name();
        // It exists. A list in which its name is missing would remove a working Service.
        self.names.insert(&name);
        self.report(Report::Unreadable {
            kind: O::KIND,
            name,
            reason: unreadable.reason.clone(),
        });
    }

    /// Continues without objects of the kind. Retries after [`ABSENT_KIND_RETRY_INTERVAL`].
    async fn continue_without(&mut self, error: &Error) {
        // Once, not at each retry: it is a property of the cluster, and no outage.
        if self.last_error.is_none() {
            let (kind, reason) = (O::KIND, self.connection.describe(error));
            self.last_error = Some(reason.clone());
            self.report(Report::Unavailable { kind, reason });
        }
        // To the outside the kind is in sync: the metric of staleness must not raise an alarm
        // for years, and the first sync must not wait for the list. `last_error` stays, so that
        // this is reported once, and `Recovered` if the kind appears.
        self.observer.contact(O::KIND, Contact::InSync);
        self.feed.send(Item::Listed(O::KIND)).await;
        // A one-shot command ends meanwhile, by itself: it has all its lists.
        sleep(ABSENT_KIND_RETRY_INTERVAL).await;
    }

    /// Reports an error and waits for the next attempt.
    async fn pause(&mut self, error: &Error) {
        self.mark_lost();
        // Whatever the error was, an expired token or a rotated CA may be its reason. The
        // connection limits how often credentials are read.
        self.connection.renew();
        let (kind, reason) = (O::KIND, self.connection.describe(error));
        // The server's `Retry-After` can only make it longer: an overloaded server knows best, but
        // one that says 1 s each time must not switch the backoff off.
        let wait = self
            .backoff
            .wait(error.is_history_lost())
            .max(error.retry_after());
        if self.last_error.as_ref() == Some(&reason) {
            self.report(Report::FailedAgain { kind, reason, wait });
        } else {
            self.last_error = Some(reason.clone());
            self.report(Report::Failed { kind, reason });
        }
        sleep(wait).await;
    }

    fn report(&self, report: Report) {
        self.observer.report(&report);
    }

    fn mark_in_sync(&mut self) {
        // Before the early return: an outage begins at the last notification, not at the last
        // recovery.
        self.last_contact = Instant::now();
        if self.is_in_sync {
            return;
        }
        self.is_in_sync = true;
        self.observer.contact(O::KIND, Contact::InSync);
        if self.last_error.take().is_some() {
            self.report(Report::Recovered { kind: O::KIND });
        }
    }

    fn mark_lost(&mut self) {
        if std::mem::take(&mut self.is_in_sync) {
            let contact = Contact::LostSince(self.last_contact);
            self.observer.contact(O::KIND, contact);
        }
    }
}

/// Returns whether a program works without objects of a kind: on a server that does not have
/// the kind, or without the permission to list it, such as that of an older manifest.
fn is_optional(kind: Kind) -> bool {
    match kind {
        // A cluster before ServiceCIDRs existed, and one whose role predates a newer version of
        // the program, work without them. Without Services, endpoints or the Node the program
        // would remove all its rules, so it waits and complains instead.
        Kind::ServiceCidr | Kind::Namespace => true,
        Kind::Service | Kind::EndpointSlice | Kind::Node => false,
    }
}

/// Returns the duration of the next watch in seconds.
fn lasts(random: &mut Random) -> u32 {
    let (least, most) = MIN_AND_MAX_WATCH_SECONDS;
    let seconds = least + random.fraction() * (most - least);
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is less than 300"
    )]
    let whole_seconds = seconds as u32;
    whole_seconds
}

#[cfg(test)]
mod tests;
