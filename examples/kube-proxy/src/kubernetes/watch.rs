//! The objects of a kind: listed, then watched, for as long as the process runs.
//!
//! While the API is away, or answers nonsense, nothing is taken back: objects
//! are forgotten when the API says so, or when a complete list lacks them.

use std::marker::PhantomData;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use hyper::Method;
use tokio::time::{sleep, timeout};
use tracing::{debug, info, warn};
use vipline_service_model::Kind;

use super::access::{Connection, seed};
use super::asking::{self, Error, Freshness, Start};
use super::backoff::{Chance, Patience};
use super::change::Change;
use super::feed::{Item, Sender};
use super::known::Known;
use super::objects::Object;
use super::page::Page;
use super::parsed::{Parsed, Unreadable};
use crate::setup::Reading;
use crate::telemetry::{Contact, Telemetry};

/// How many seconds a watch lasts, at least and at most: the server ends it,
/// and ends that differ do not come all at once.
const LASTS: (f64, f64) = (240.0, 290.0);

/// How long a watch may be silent before it counts as dead; a server with
/// nothing to tell says that once a minute.
const SILENCE: Duration = Duration::from_secs(100);

/// How long a watch may be silent before the list at its beginning is complete.
const LISTING: Duration = Duration::from_secs(60);

/// A watch that ends before this without a word was none.
const BRIEF: Duration = Duration::from_secs(5);

/// When it is looked again for a kind that the server does not have.
const ABSENT: Duration = Duration::from_secs(300);

/// Keeps a feed in step with all objects of a kind.
pub struct Watcher<O> {
    connection: Arc<Connection>,
    /// Which objects, besides what the kind says itself.
    fields: Option<String>,
    reading: Reading,
    feed: Sender,
    telemetry: Telemetry,
    known: Known,
    patience: Patience,
    chance: Chance,
    /// How long a watch may be silent.
    silence: Duration,
    heard: Instant,
    is_in_step: bool,
    /// What was last said to be wrong.
    trouble: Option<String>,
    /// The version up to which all changes are known; none if everything has
    /// to be listed.
    version: Option<String>,
    watch_lists: WatchLists,
    /// How recent the next list must be.
    freshness: Freshness,
    kind: PhantomData<O>,
}

/// Whether everything is listed at the beginning of a watch
/// (`sendInitialEvents=true`), which servers do by default since 1.32.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum WatchLists {
    /// It is, if the server does not fail.
    Supported,
    /// Not the next time: the server failed to.
    Failed,
    /// It is not.
    Unsupported,
}

/// How a watch ended without an error.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Ended {
    /// After a notification, or after some time.
    Well,
    /// At once and without a notification.
    AtOnce,
    /// Without the bookmark that ends a list.
    WithoutList,
}

impl<O: Object> Watcher<O> {
    /// Returns a watcher of those objects that have these fields.
    pub fn new(
        connection: Arc<Connection>,
        fields: Option<String>,
        reading: Reading,
        feed: Sender,
        telemetry: Telemetry,
    ) -> Self {
        Self {
            connection,
            fields: fields.or_else(|| O::FIELDS.map(Into::into)),
            reading,
            feed,
            telemetry,
            known: Known::default(),
            patience: Patience::new(seed()),
            chance: Chance::new(seed()),
            silence: SILENCE,
            heard: Instant::now(),
            is_in_step: false,
            trouble: None,
            version: None,
            watch_lists: match reading {
                Reading::Once => WatchLists::Unsupported,
                Reading::Watched => WatchLists::Supported,
            },
            // A command runs on one node and shows the newest state.
            freshness: match reading {
                Reading::Once => Freshness::Newest,
                Reading::Watched => Freshness::Cached,
            },
            kind: PhantomData,
        }
    }

    /// Lists and watches; ends after the list if that is enough.
    pub async fn run(mut self) {
        let never = Contact::LostSince(self.heard);
        self.telemetry.source_contact(O::KIND, never);
        loop {
            let done = match self.version.clone() {
                Some(version) => self.watch(Some(version)).await,
                None if self.watch_lists == WatchLists::Supported => self.watch(None).await,
                None => self.list().await.map(|()| Ended::Well),
            };
            match done {
                Ok(Ended::Well) if self.reading == Reading::Once => return,
                Ok(Ended::Well) => {}
                Ok(Ended::AtOnce) => {
                    let reason = "the watch ended before it told anything";
                    self.pause(&Error::Unreachable(reason.to_owned())).await;
                }
                Ok(Ended::WithoutList) => {
                    debug!("{}: a list within a watch has no end", plural(O::KIND));
                    self.watch_lists = WatchLists::Unsupported;
                }
                Err(error) if self.reading == Reading::Once && !self.can_recover(&error) => {
                    return self
                        .feed
                        .fatal(format!("list {}: {error}", plural(O::KIND)));
                }
                Err(error) => self.recover(&error).await,
            }
        }
    }

    /// Returns whether a command continues after an error.
    fn can_recover(&self, error: &Error) -> bool {
        let is_optional = O::KIND == Kind::ServiceCidr && error.is_absent();
        is_optional || (error.is_misunderstood() && self.is_choosy())
    }

    /// Prepares another attempt after an error.
    async fn recover(&mut self, error: &Error) {
        let is_listing = self.version.is_none();
        if is_listing && O::KIND == Kind::ServiceCidr && error.is_absent() {
            return self.do_without(error).await;
        }
        // An older server that cannot choose by them: who reads does it, too.
        if is_listing && error.is_misunderstood() && self.is_choosy() {
            debug!("{}: {error}; asked for without that", plural(O::KIND));
            self.fields = None;
            return;
        }
        if is_listing && self.watch_lists == WatchLists::Supported && error.is_failed_watch_list() {
            debug!("{}: no list within a watch: {error}", plural(O::KIND));
            self.watch_lists = match error.is_invalid() {
                true => WatchLists::Unsupported,
                false => WatchLists::Failed,
            };
            return;
        }
        if error.is_history_lost() || matches!(error, Error::Unreadable(_)) {
            // A lagging cache must not take back newer objects.
            self.version = None;
            self.freshness = Freshness::Newest;
        }
        self.pause(error).await;
    }

    /// Tells whether fields are asked for that the kind itself says.
    fn is_choosy(&self) -> bool {
        O::FIELDS.is_some() && self.fields.is_some()
    }

    /// Tells of all objects there are and takes back those that are no more.
    async fn list(&mut self) -> Result<(), Error> {
        let client = self.connection.client(&Method::GET).await?;
        self.known.begin();
        let mut next = None;
        let version = loop {
            let (fields, freshness) = (self.fields.as_deref(), self.freshness);
            let text = asking::page::<O>(&client, fields, freshness, next).await?;
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

    /// Takes back the objects that a complete list lacks.
    async fn listed(&mut self, version: String) {
        for name in self.known.end() {
            self.feed.send(Item::Event(O::deleted(name))).await;
        }
        self.patience.listed();
        self.version = Some(version);
        if self.watch_lists == WatchLists::Failed {
            self.watch_lists = WatchLists::Supported;
        }
        self.feed.send(Item::Listed(O::KIND)).await;
    }

    /// Watches once: after a version, or with a list at the beginning.
    async fn watch(&mut self, after: Option<String>) -> Result<Ended, Error> {
        let client = self.connection.client(&Method::GET).await?;
        let (fields, seconds) = (self.fields.as_deref(), lasts(&mut self.chance));
        let start = after.as_deref().map_or(Start::List, Start::After);
        let is_list = after.is_none();
        let began = Instant::now();
        let events = asking::watch::<O>(&client, fields, start, seconds).await?;
        let mut events = pin!(events);
        if is_list {
            self.known.begin();
        } else {
            self.is_heard();
        }
        let mut ended = Ended::AtOnce;
        loop {
            let silence = self.longest_silence();
            let Ok(event) = timeout(silence, events.next()).await else {
                debug!(
                    "{}: the watch is silent, it is begun again",
                    plural(O::KIND)
                );
                self.is_lost();
                return Ok(match self.version {
                    Some(_) => Ended::Well,
                    None => Ended::WithoutList,
                });
            };
            match event {
                Some(event) => self.take(event?).await,
                None if self.version.is_none() => {
                    let reason = "the watch ended before its list was complete";
                    return Err(Error::Unreachable(reason.to_owned()));
                }
                None if began.elapsed() > BRIEF => return Ok(Ended::Well),
                None => return Ok(ended),
            }
            ended = Ended::Well;
            if self.version.is_some() {
                self.is_heard();
                self.patience.told();
            }
        }
    }

    /// Returns how long a watch may be silent now.
    fn longest_silence(&self) -> Duration {
        match self.version {
            Some(_) => self.silence,
            None => self.silence.min(LISTING),
        }
    }

    /// Hands on what a watch tells.
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
                self.known.miss(&name);
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

    /// Hands on an object, without the parts that cannot be read.
    async fn apply(&mut self, parsed: Parsed<O>) {
        let name = parsed.object.name();
        if let Some(dropped) = parsed.dropped {
            warn!("{} {name}: {dropped}; the rest of it counts", O::KIND);
            self.telemetry.object_problems(O::KIND, 1);
        }
        self.known.see(&name);
        let item = Item::Event(parsed.object.applied());
        self.feed.send_sized(item, parsed.size).await;
    }

    /// Skips an object without a readable part.
    fn skip(&mut self, unreadable: &Unreadable) {
        let (name, reason) = (unreadable.identity.name(), &unreadable.reason);
        warn!("{} {name} cannot be read: {reason}", O::KIND);
        self.telemetry.object_problems(O::KIND, 1);
        self.known.see(&name);
    }

    /// Goes on as if there were no objects of the kind, and looks again later.
    async fn do_without(&mut self, error: &Error) {
        if self.trouble.is_none() {
            let reason = error.to_string();
            info!("{} are not read: {reason}", plural(O::KIND));
            self.trouble = Some(reason);
        }
        self.telemetry.source_contact(O::KIND, Contact::InStep);
        self.feed.send(Item::Listed(O::KIND)).await;
        sleep(ABSENT).await;
    }

    /// Waits before something is tried again.
    async fn pause(&mut self, error: &Error) {
        self.is_lost();
        self.connection.renew();
        let (kinds, reason) = (plural(O::KIND), error.to_string());
        let wait = self.patience.wait(error.is_history_lost());
        let wait = wait.max(error.asked_wait());
        if self.trouble.as_ref() == Some(&reason) {
            debug!("{kinds}: {reason}; tried again in {wait:?}");
        } else {
            warn!("{kinds}: {reason}; it is tried again, and what is known stays");
            self.trouble = Some(reason);
        }
        sleep(wait).await;
    }

    fn is_heard(&mut self) {
        self.heard = Instant::now();
        if self.is_in_step {
            return;
        }
        self.is_in_step = true;
        self.telemetry.source_contact(O::KIND, Contact::InStep);
        if self.trouble.take().is_some() {
            info!("{}: in step with the API again", plural(O::KIND));
        }
    }

    fn is_lost(&mut self) {
        if std::mem::take(&mut self.is_in_step) {
            let contact = Contact::LostSince(self.heard);
            self.telemetry.source_contact(O::KIND, contact);
        }
    }
}

/// Returns how many seconds a watch is to last.
fn lasts(chance: &mut Chance) -> u32 {
    let (least, most) = LASTS;
    let seconds = least + chance.fraction() * (most - least);
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is less than 300"
    )]
    let seconds = seconds as u32;
    seconds
}

/// Returns what several objects of a kind are called.
fn plural(kind: Kind) -> &'static str {
    match kind {
        Kind::EndpointSlice => "EndpointSlices",
        Kind::Node => "Nodes",
        Kind::Service => "Services",
        Kind::ServiceCidr => "ServiceCIDRs",
    }
}

#[cfg(test)]
mod tests;
