//! Objects from a Kubernetes API server, by lists and watches.
//!
//! - [`Access`]: address and credentials; [`Api`]: the client; [`exec_plugin`]: the
//!   running credential plugin, to end it with the program;
//! - [`feed`]: the queue from the watches to the thread of the caller;
//!   [`first_sync`]: the conditions of the first sync of a proxy;
//! - [`Observer`]: reports for logs and metrics;
//! - [`events`]: Events about the Node, Services and EndpointSlices;
//! - [`objects`], [`parsed`], [`change`]: decoding of API objects and watch
//!   notifications into the types of the model, for callers with a client of their own.
//!
//! # Source files, in reading order
//!
//! - `access`: credentials and the client, with `kubeconfig`, `bearer`, `http_proxy`, `socks`,
//!   `exec_plugin`, `connector` and `request_metrics`.
//! - `objects`, `parsed`: API objects.
//! - `request`: list, watch and create requests, with `page` and `change` for their
//!   responses.
//! - `watch`: the list and watch loop of one kind, with `store` to find objects that
//!   vanished between lists, and `backoff` for retry delays and rate limits.

mod access;

mod bearer;

mod kubeconfig;

mod http_proxy;

pub mod exec_plugin;

mod connector;

mod socks;

mod request_metrics;

pub mod objects;

pub mod parsed;

mod page;

pub mod change;

mod request;

mod status;

mod store;

mod backoff;

mod watch;

pub mod feed;

pub mod first_sync;

pub mod events;

mod observer;

use std::sync::Arc;

use tokio::runtime::Handle;

use crate::WatchMode;
use access::Connection;
use events::Recorder;
use exec_plugin::RunningPlugin;
use feed::Sender;
use objects::{Namespace, Node, Object, Service, ServiceCidr, Slice};
use request::Selectors;
use watch::Watcher;

pub use access::Access;
pub use observer::{Contact, Observer, Report, RequestEvent, Severity};
pub use request::Error as RequestError;
pub use status::Status;

/// A client of the API server.
#[derive(Clone)]
pub struct Api {
    connection: Arc<Connection>,
    runtime: Handle,
    node: Arc<str>,
}

impl Api {
    /// Reads the credentials. Sends no request. An exec plugin runs before the first
    /// request.
    ///
    /// `node` is the name of the Node to watch, and the reporter of Events. Tasks run in
    /// `runtime`.
    ///
    /// # Errors
    ///
    /// The kubeconfig, the address or the environment is invalid.
    pub fn open(
        access: &Access,
        node: Arc<str>,
        runtime: Handle,
        observer: Arc<dyn Observer>,
        plugin: RunningPlugin,
    ) -> Result<Self, RequestError> {
        let _guard = runtime.enter();
        let connection = Arc::new(Connection::open(access, observer, plugin)?);
        Ok(Self {
            connection,
            runtime: runtime.clone(),
            node,
        })
    }

    /// Starts a task that creates Events of a controller, such as `kube-proxy`.
    pub fn recorder(&self, controller: &str) -> Recorder {
        let connection = Arc::clone(&self.connection);
        let node = Arc::clone(&self.node);
        Recorder::start(&self.runtime, connection, controller.into(), node)
    }

    /// Starts a task per kind that lists and watches Services, EndpointSlices,
    /// ServiceCIDRs and the Node of this client, as far as a service proxy uses them.
    ///
    /// With [`WatchMode::ListOnly`], each task ends after its list. A failed list then ends the
    /// feed: [`Receiver::take`](feed::Receiver::take) returns the reason.
    pub fn watch(&self, watch_mode: WatchMode, feed: &Sender) {
        self.watch_kind::<Node>(self.this_node(), watch_mode, feed);
        self.watch_kind::<Service>(Selectors::of_proxy::<Service>(), watch_mode, feed);
        self.watch_kind::<Slice>(Selectors::of_proxy::<Slice>(), watch_mode, feed);
        self.watch_kind::<ServiceCidr>(Selectors::default(), watch_mode, feed);
    }

    /// Starts a task per kind as [`watch`](Self::watch) does, with all Services and
    /// EndpointSlices, also those that a service proxy does not use.
    pub fn watch_everything(&self, watch_mode: WatchMode, feed: &Sender) {
        self.watch_kind::<Node>(self.this_node(), watch_mode, feed);
        self.watch_all_services(watch_mode, feed);
    }

    /// Returns the selectors of the Node of this client.
    fn this_node(&self) -> Selectors {
        Selectors {
            fields: Some(format!("metadata.name={}", self.node)),
            ..Selectors::of_proxy::<Node>()
        }
    }

    /// Starts a task per kind that lists and watches all Services and EndpointSlices, and
    /// ServiceCIDRs, such as a DNS server needs.
    ///
    /// In contrast to [`watch`](Self::watch), there are headless Services and their
    /// EndpointSlices, Services of other proxies, and no Node.
    pub fn watch_all_services(&self, watch_mode: WatchMode, feed: &Sender) {
        self.watch_kind::<Service>(Selectors::default(), watch_mode, feed);
        self.watch_kind::<Slice>(Selectors::default(), watch_mode, feed);
        self.watch_kind::<ServiceCidr>(Selectors::default(), watch_mode, feed);
    }

    /// Starts a task that lists and watches Namespaces, of which some names in DNS depend.
    ///
    /// Without the permission to list them, the task logs that, sends an empty list, and
    /// tries again.
    pub fn watch_namespaces(&self, watch_mode: WatchMode, feed: &Sender) {
        self.watch_kind::<Namespace>(Selectors::default(), watch_mode, feed);
    }

    fn watch_kind<O: Object + Sync>(
        &self,
        selectors: Selectors,
        watch_mode: WatchMode,
        feed: &Sender,
    ) {
        let connection = Arc::clone(&self.connection);
        let watcher = Watcher::<O>::new(connection, selectors, watch_mode, feed.clone());
        self.runtime.spawn(watcher.run());
    }
}
