//! Objects from a Kubernetes API server: listed, watched, handed to the engine.
//!
//! - [`access`]: credentials and the client, with [`http_proxy`],
//!   [`exec_plugin`] and [`connector`]; [`counting`]: what it asks, counted;
//! - [`objects`]: what is read of each object; [`asking`]: one question;
//! - [`watch`]: all objects of a kind, with [`known`] to miss those that vanish;
//! - [`feed`]: the way to the engine's thread; [`gate`]: when it may begin;
//! - [`events`]: what is told to the cluster's users;
//! - [`backoff`]: how long to wait, and how often to ask.

pub mod access;

pub mod http_proxy;

pub mod exec_plugin;

pub mod connector;

pub mod socks;

pub mod counting;

pub mod objects;

pub mod parsed;

pub mod page;

pub mod change;

pub mod asking;

pub mod known;

pub mod backoff;

pub mod watch;

pub mod feed;

pub mod gate;

pub mod events;

use std::sync::Arc;

use tokio::runtime::Handle;

use crate::failure::Failure;
use crate::settings::Access;
use crate::setup::Reading;
use crate::telemetry::Telemetry;
use access::Connection;
use events::Recorder;
use feed::Sender;
use objects::{Node, Object, Service, ServiceCidr, Slice};
use watch::Watcher;

/// An API server that can be asked.
#[derive(Clone)]
pub struct Api {
    connection: Arc<Connection>,
    runtime: Handle,
    node: Arc<str>,
}

impl Api {
    /// Reads credentials; the server is not asked yet.
    ///
    /// # Errors
    ///
    /// What is wrong with the credentials.
    pub fn open(
        access: &Access,
        node: Arc<str>,
        runtime: Handle,
        telemetry: &Telemetry,
    ) -> Result<Self, Failure> {
        let _guard = runtime.enter();
        let connection = Arc::new(Connection::open(access, telemetry)?);
        Ok(Self {
            connection,
            runtime: runtime.clone(),
            node,
        })
    }

    /// Begins to tell notes.
    pub fn recorder(&self) -> Recorder {
        let connection = Arc::clone(&self.connection);
        Recorder::start(&self.runtime, connection, Arc::clone(&self.node))
    }

    /// Begins to feed the engine with all objects that matter to it.
    pub fn watch(&self, reading: Reading, feed: &Sender, telemetry: &Telemetry) {
        let this_node = format!("metadata.name={}", self.node);
        self.watch_kind::<Node>(Some(this_node), reading, feed, telemetry);
        self.watch_kind::<Service>(None, reading, feed, telemetry);
        self.watch_kind::<Slice>(None, reading, feed, telemetry);
        self.watch_kind::<ServiceCidr>(None, reading, feed, telemetry);
    }

    fn watch_kind<O: Object + Sync>(
        &self,
        fields: Option<String>,
        reading: Reading,
        feed: &Sender,
        telemetry: &Telemetry,
    ) {
        let connection = Arc::clone(&self.connection);
        let (feed, telemetry) = (feed.clone(), telemetry.clone());
        let watcher = Watcher::<O>::new(connection, fields, reading, feed, telemetry);
        self.runtime.spawn(watcher.run());
    }
}
