//! The list and watch loop of one kind, for the lifetime of the process.
//!
//! An unreachable API server, or an invalid response, removes nothing. An
//! object is removed if the server reports its deletion or a complete list
//! lacks it.
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

/// Minimum and maximum duration of a watch in seconds. Durations are random, so
/// that watches do not end all at once.
const WATCH_SECONDS: (f64, f64) = (240.0, 290.0);

/// Maximum silence of a watch. A server without changes sends a bookmark every
/// minute.
const MAX_SILENCE: Duration = Duration::from_secs(100);

/// Maximum silence until the initial list of a watch is complete.
const MAX_LIST_SILENCE: Duration = Duration::from_secs(60);

/// A watch that ends within this time without a notification counts as failed.
const MIN_WATCH: Duration = Duration::from_secs(5);

/// Retry interval for a kind that the server does not have.
const ABSENT_RETRY: Duration = Duration::from_secs(300);

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
    /// Maximum silence of the watch.
    silence: Duration,
    last_contact: Instant,
    is_in_sync: bool,
    /// The last logged problem.
    last_error: Option<String>,
    /// Resource version up to which all changes are known. Without one, the
    /// next request is a list.
    version: Option<String>,
    watch_lists: WatchLists,
    /// Required freshness of the next list.
    freshness: Freshness,
    kind: PhantomData<O>,
}

/// Support for lists within a watch (`sendInitialEvents=true`). API servers support them
/// by default in 1.32 and since 1.34.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum WatchLists {
    /// Supported.
    Supported,
    /// Failed the last time. A plain list comes next.
    Failed,
    /// Not supported.
    Unsupported,
}

/// How a watch ended without an error.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum WatchEnd {
    /// After a notification, or after a normal time.
    Normal,
    /// Immediately, without a notification.
    Immediate,
    /// Without the bookmark that ends the initial list.
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
            WatchMode::ListAndWatch | WatchMode::ListOnly => WatchLists::Unsupported,
        };
        Self {
            connection,
            selectors,
            watch_mode,
            feed,
            observer,
            names: NameStore::default(),
            backoff: WatchBackoff::new(seed()),
            random: Random::new(seed()),
            silence: MAX_SILENCE,
            last_contact: Instant::now(),
            is_in_sync: false,
            last_error: None,
            version: None,
            watch_lists,
            // One-shot commands run on one node and show the newest state.
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
                Ok(WatchEnd::Normal) => {}
                Ok(WatchEnd::Immediate) => {
                    let reason = "the watch ended before the first notification";
                    self.pause(&Error::Unreachable(reason.to_owned())).await;
                }
                Ok(WatchEnd::WithoutList) => {
                    self.report(Report::UnendingList { kind: O::KIND });
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

    /// Returns whether a one-shot command continues after an error.
    fn can_recover(&self, error: &Error) -> bool {
        (is_optional(O::KIND) && error.is_absent())
            || (error.is_bad_request() && self.has_default_fields())
    }

    /// Prepares the next attempt after an error.
    async fn recover(&mut self, error: &Error) {
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
            self.selectors.fields = None;
            return;
        }
        if is_listing && self.watch_lists == WatchLists::Supported && error.is_failed_watch_list() {
            self.report(Report::WatchListFailed {
                kind: O::KIND,
                reason: self.connection.describe(error),
            });
            self.watch_lists = match error.is_invalid() {
                true => WatchLists::Unsupported,
                false => WatchLists::Failed,
            };
            return;
        }
        if error.is_history_lost() || matches!(error, Error::InvalidResponse(_)) {
            // A stale cache must not replace newer objects.
            self.version = None;
            self.freshness = Freshness::Newest;
        }
        self.pause(error).await;
    }

    /// Returns whether the request uses the default field selector of the kind.
    fn has_default_fields(&self) -> bool {
        O::FIELDS.is_some() && self.selectors.fields.is_some()
    }

    /// Lists all objects and removes objects that no longer exist.
    async fn list(&mut self) -> Result<(), Error> {
        let client = self.connection.client(&Method::GET).await?;
        self.names.begin_list();
        let mut next = None;
        let version = loop {
            let (selectors, freshness) = (&self.selectors, self.freshness);
            let text = request::page::<O>(&client, selectors, freshness, next).await?;
            let page = Page::parse(&text)?;
            for item in page.items() {
                match item {
                    Ok(parsed) => self.apply(parsed).await,
                    Err(unreadable) => self.skip(&unreadable),
                }
            }
            let metadata = page.metadata;
            next = metadata.next.filter(|next| !next.is_empty());
            if next.is_none() {
                break metadata.resource_version.unwrap_or_default();
            }
        };
        self.listed(version).await;
        Ok(())
    }

    /// Removes the objects that a complete list lacked.
    async fn listed(&mut self, version: String) {
        for name in self.names.finish_list() {
            self.feed.send(Item::Event(O::deleted(name))).await;
        }
        self.backoff.reset_errors();
        self.version = Some(version);
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
            self.names.begin_list();
        } else {
            self.mark_in_sync();
        }
        let mut ended = WatchEnd::Immediate;
        loop {
            let silence = self.longest_silence();
            let Ok(event) = timeout(silence, events.next()).await else {
                self.report(Report::SilentWatch { kind: O::KIND });
                self.mark_lost();
                return Ok(match self.version {
                    Some(_) => WatchEnd::Normal,
                    None => WatchEnd::WithoutList,
                });
            };
            match event {
                Some(event) => self.take(event?).await,
                None if self.version.is_none() => {
                    let reason = "the watch ended before its list was complete";
                    return Err(Error::Unreachable(reason.to_owned()));
                }
                None if began.elapsed() > MIN_WATCH => return Ok(WatchEnd::Normal),
                None => return Ok(ended),
            }
            ended = WatchEnd::Normal;
            if self.version.is_some() {
                self.mark_in_sync();
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
            Change::Unreadable(unreadable) => {
                self.skip(&unreadable);
                unreadable.identity.version().to_owned()
            }
            Change::Deleted(identity) => {
                let name = identity.name();
                self.names.remove(&name);
                self.feed.send(Item::Event(O::deleted(name))).await;
                identity.version().to_owned()
            }
            Change::Bookmark {
                version,
                is_list_complete,
            } => {
                if is_list_complete && self.version.is_none() {
                    self.listed(version.clone()).await;
                }
                version
            }
        };
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
        self.feed.send_sized(item, parsed.size).await;
    }

    /// Skips an object without a readable part.
    fn skip(&mut self, unreadable: &Unreadable) {
        let name = unreadable.identity.name();
        self.names.insert(&name);
        self.report(Report::Unreadable {
            kind: O::KIND,
            name,
            reason: unreadable.reason.clone(),
        });
    }

    /// Continues without objects of the kind. Retries after [`ABSENT_RETRY`].
    async fn continue_without(&mut self, error: &Error) {
        if self.last_error.is_none() {
            let (kind, reason) = (O::KIND, self.connection.describe(error));
            self.last_error = Some(reason.clone());
            self.report(Report::Unavailable { kind, reason });
        }
        self.observer.contact(O::KIND, Contact::InSync);
        self.feed.send(Item::Listed(O::KIND)).await;
        sleep(ABSENT_RETRY).await;
    }

    /// Reports an error and waits for the next attempt.
    async fn pause(&mut self, error: &Error) {
        self.mark_lost();
        self.connection.renew();
        let (kind, reason) = (O::KIND, self.connection.describe(error));
        let wait = self.backoff.wait(error.is_history_lost());
        let wait = wait.max(error.retry_after());
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
        Kind::ServiceCidr | Kind::Namespace => true,
        Kind::Service | Kind::EndpointSlice | Kind::Node => false,
    }
}

/// Returns the duration of the next watch in seconds.
fn lasts(random: &mut Random) -> u32 {
    let (least, most) = WATCH_SECONDS;
    let seconds = least + random.fraction() * (most - least);
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is less than 300"
    )]
    let seconds = seconds as u32;
    seconds
}

#[cfg(test)]
mod tests;
