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
use kube::core::WatchEvent;
use tokio::time::{sleep, timeout};
use tracing::{debug, info, warn};
use vipline_service_model::Kind;

use super::access::{Connection, seed};
use super::asking::{self, Error};
use super::backoff::{Chance, Patience};
use super::feed::{Item, Sender};
use super::known::Known;
use super::objects::Object;
use crate::setup::Reading;
use crate::telemetry::{Contact, Telemetry};

/// How many seconds a watch lasts, at least and at most: the server ends it,
/// and ends that differ do not come all at once.
const LASTS: (f64, f64) = (240.0, 290.0);

/// How long a watch may be silent before it counts as dead; a server with
/// nothing to tell says that once a minute.
const SILENCE: Duration = Duration::from_secs(100);

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
    kind: PhantomData<O>,
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
            kind: PhantomData,
        }
    }

    /// Lists and watches; ends after the list if that is enough.
    pub async fn run(mut self) {
        let never = Contact::LostSince(self.heard);
        self.telemetry.source_contact(O::KIND, never);
        loop {
            match self.list().await {
                Ok(version) => {
                    self.feed.send(Item::Listed(O::KIND)).await;
                    if self.reading == Reading::Once {
                        return;
                    }
                    self.follow(version).await;
                }
                Err(error) if O::KIND == Kind::ServiceCidr && error.is_absent() => {
                    self.do_without(&error).await;
                }
                // An older server that cannot choose by them: who reads does it, too.
                Err(error) if error.is_misunderstood() && self.is_choosy() => {
                    debug!("{}: {error}; asked for without that", plural(O::KIND));
                    self.fields = None;
                }
                Err(error) if self.reading == Reading::Once => {
                    return self
                        .feed
                        .fatal(format!("list {}: {error}", plural(O::KIND)));
                }
                Err(error) => self.pause(&error).await,
            }
        }
    }

    /// Tells whether fields are asked for that the kind itself says.
    fn is_choosy(&self) -> bool {
        O::FIELDS.is_some() && self.fields.is_some()
    }

    /// Tells of all objects there are and takes back those that are no more;
    /// returns the point in the server's history at which that was so.
    async fn list(&mut self) -> Result<String, Error> {
        let client = self.connection.client(&Method::GET).await;
        self.known.begin();
        let mut next = None;
        let version = loop {
            let page = asking::page::<O>(&client, self.fields.as_deref(), next).await?;
            for (name, reason) in page.unreadable {
                warn!("{} {name} cannot be read: {reason}", O::KIND);
                self.known.see(&name);
            }
            for object in page.items {
                self.known.see(&object.name());
                self.feed.send(Item::Event(object.applied())).await;
            }
            if page.metadata.next.is_empty() {
                break page.metadata.resource_version;
            }
            next = Some(page.metadata.next);
        };
        for name in self.known.end() {
            self.feed.send(Item::Event(O::deleted(name))).await;
        }
        self.patience.listed();
        Ok(version)
    }

    /// Tells of all changes until the server has forgotten some of them.
    async fn follow(&mut self, mut version: String) {
        loop {
            let began = Instant::now();
            match self.watch(&mut version).await {
                Ok(true) => {}
                Ok(false) if began.elapsed() > BRIEF => {}
                Ok(false) => {
                    let reason = "the watch ended before it told anything";
                    self.pause(&Error::Unreachable(reason.to_owned())).await;
                }
                Err(error) if error.is_history_lost() => return self.pause(&error).await,
                Err(error) => self.pause(&error).await,
            }
        }
    }

    /// Watches once, from a version on, which it moves; tells whether anything
    /// was heard.
    async fn watch(&mut self, version: &mut String) -> Result<bool, Error> {
        let client = self.connection.client(&Method::GET).await;
        let (least, most) = LASTS;
        let seconds = least + self.chance.fraction() * (most - least);
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is less than 300"
        )]
        let seconds = seconds as u32;
        let fields = self.fields.as_deref();
        let events = asking::watch::<O>(&client, fields, version, seconds).await?;
        let mut events = pin!(events);
        self.is_heard();
        let mut anything = false;
        loop {
            let Ok(event) = timeout(self.silence, events.next()).await else {
                debug!(
                    "{}: the watch is silent, it is begun again",
                    plural(O::KIND)
                );
                self.is_lost();
                return Ok(true);
            };
            let next = match event {
                None => return Ok(anything),
                Some(Err(Error::Unreadable(reason))) => {
                    warn!("{}: a change cannot be read: {reason}", plural(O::KIND));
                    continue;
                }
                Some(event) => self.take(event?).await?,
            };
            self.is_heard();
            self.patience.told();
            anything = true;
            if !next.is_empty() {
                *version = next;
            }
        }
    }

    /// Hands on what a watch tells, and returns the version that it leads to.
    async fn take(&mut self, event: WatchEvent<O>) -> Result<String, Error> {
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                let version = object.version().to_owned();
                self.known.see(&object.name());
                self.feed.send(Item::Event(object.applied())).await;
                Ok(version)
            }
            WatchEvent::Deleted(object) => {
                let name = object.name();
                self.known.miss(&name);
                self.feed.send(Item::Event(O::deleted(name))).await;
                Ok(object.version().to_owned())
            }
            WatchEvent::Bookmark(bookmark) => Ok(bookmark.metadata.resource_version),
            WatchEvent::Error(status) => Err(status.into()),
        }
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
