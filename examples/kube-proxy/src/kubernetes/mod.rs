//! Objects from a Kubernetes API server: lists and watches that feed the
//! engine.
//!
//! - [`access`]: credentials and the client, with [`http_proxy`], [`socks`],
//!   [`exec_plugin`], [`connector`] and [`request_metrics`];
//! - [`objects`], [`parsed`]: API objects, decoded into the types of the model;
//! - [`request`]: list, watch and create requests, with [`page`] and [`change`]
//!   for their responses;
//! - [`watch`]: the list and watch loop of one kind, with [`store`] to find
//!   objects that vanished between lists;
//! - [`feed`]: the queue to the engine's thread; [`first_sync`]: the conditions
//!   of the first sync;
//! - [`events`]: Events about the Node, Services and EndpointSlices;
//! - [`backoff`]: retry delays and rate limits.

pub mod access;

pub mod http_proxy;

pub mod exec_plugin;

pub mod connector;

pub mod socks;

pub mod request_metrics;

pub mod objects;

pub mod parsed;

pub mod page;

pub mod change;

pub mod request;

pub mod store;

pub mod backoff;

pub mod watch;

pub mod feed;

pub mod first_sync;

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

/// A client of the API server.
#[derive(Clone)]
pub struct Api {
    connection: Arc<Connection>,
    runtime: Handle,
    node: Arc<str>,
}

impl Api {
    /// Reads the credentials. Sends no request.
    ///
    /// # Errors
    ///
    /// The credentials are missing or invalid.
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

    /// Starts a task that creates Events.
    pub fn recorder(&self) -> Recorder {
        let connection = Arc::clone(&self.connection);
        Recorder::start(&self.runtime, connection, Arc::clone(&self.node))
    }

    /// Starts to list and watch all kinds that the engine needs.
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
