//! HTTP servers: health, metrics, and health check node ports of Services.
//!
//! - `pages`: the paths and their content; `services`: health check node ports;
//! - `http`: listeners and connections, with limits.

use std::future::ready;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{info, warn};
use vipline_service_model::ObjectName;

use crate::node;
use crate::settings::Settings;
use crate::telemetry::{ProxyHealth, Telemetry};
use daemon::http::{Connections, Request, Response, Timeouts, Wildcard, listen, serve};
use daemon::runtime;
use pages::Pages;
use services::Ports;

mod pages;

mod services;

/// Retry interval of a server that cannot listen.
const RETRY: Duration = Duration::from_secs(5);

/// Maximum idle connections of each server, and of the health check node ports
/// together.
const IDLE_CONNECTIONS: usize = 2048;

/// Maximum active connections.
const HEALTH_CONNECTIONS: usize = 256;
const METRICS_CONNECTIONS: usize = 128;
const SERVICE_CONNECTIONS: usize = 512;

/// Limits of the servers, which leave file descriptors for the rest of the
/// process.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Limits {
    /// Idle connections of each of the three servers.
    idle: usize,
    /// Active connections to the health port.
    health: usize,
    /// Active connections to the metrics port.
    metrics: usize,
    /// Active connections to the health check node ports of all Services.
    services: usize,
    /// Listeners on health check node ports of all Services.
    listeners: usize,
}

impl Limits {
    /// Divides the file descriptors of the process.
    ///
    /// Listeners get half, and connections at most six sixteenths.
    fn new(descriptors: usize) -> Self {
        let sixteenth = descriptors / 16;
        Self {
            idle: IDLE_CONNECTIONS.min(sixteenth),
            health: HEALTH_CONNECTIONS.min(sixteenth),
            metrics: METRICS_CONNECTIONS.min(sixteenth),
            services: SERVICE_CONNECTIONS.min(sixteenth),
            listeners: descriptors / 2,
        }
    }
}

/// A listener that cannot be opened.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ListenFailure {
    /// The health server.
    Health(String),
    /// The metrics server.
    Metrics(String),
    /// The health check node port of a Service.
    Service {
        /// The Service.
        name: ObjectName,
        /// The error message.
        text: String,
    },
}

/// Callback for listeners that cannot be opened.
pub type OnFailure = Arc<dyn Fn(ListenFailure) + Send + Sync>;

/// Responds to the query of `/debug/explain`.
pub type Explain = Arc<dyn Fn(&str) -> Response + Send + Sync>;

impl ListenFailure {
    /// Returns the reason of the corresponding Event.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Health(_) => "FailedToStartProxierHealthcheck",
            Self::Metrics(_) => "FailedToStartMetricServer",
            Self::Service { .. } => "FailedToStartServiceHealthcheck",
        }
    }

    /// Returns the action of the corresponding Event.
    pub fn action(&self) -> &'static str {
        match self {
            Self::Health(_) | Self::Metrics(_) => "StartKubeProxy",
            Self::Service { .. } => "Listen",
        }
    }

    /// Returns the error message.
    pub fn text(&self) -> &str {
        match self {
            Self::Health(text) | Self::Metrics(text) | Self::Service { text, .. } => text,
        }
    }
}

/// The running servers. Dropping the value ends them.
pub struct Servers {
    /// Empty after the drop.
    runtimes: Vec<Runtime>,
}

impl Drop for Servers {
    fn drop(&mut self) {
        for runtime in self.runtimes.drain(..) {
            runtime.shutdown_background();
        }
    }
}

/// Starts the servers in the background.
///
/// A server that cannot listen is retried every 5 s. Each new error is logged
/// and passed to `on_failure`. The servers use a part of the file
/// `descriptors` of the process.
///
/// Health has a thread of its own, which the health check node ports of Services share: what
/// load balancers and the kubelet ask must not wait for pages of metrics. 40 clients with
/// 200 pipelined requests for metrics each delayed `/livez` by 3.7 s when the ports shared a
/// thread, and the kubelet would have restarted the proxy. Metrics have another thread. So no
/// other task delays the servers, and a flood of connections takes at most one CPU. Tasks
/// run in the order in which they become ready: a new connection is read before a later one
/// evicts it.
///
/// # Errors
///
/// A thread cannot be created.
pub fn start(
    settings: &Settings,
    telemetry: &Telemetry,
    explanations: Option<Explain>,
    descriptors: usize,
    on_failure: OnFailure,
) -> io::Result<Servers> {
    let limits = Limits::new(descriptors);
    let health = runtime::start(1, "health")?;
    let metrics = runtime::start(1, "metrics")?;
    let server = |what, address, active, failure| Server {
        what,
        address,
        connections: Connections::new(limits.idle, active),
        failure,
        retry: RETRY,
        on_failure: Arc::clone(&on_failure),
    };
    if let Some(address) = settings.healthz {
        let telemetry = telemetry.clone();
        let server = server("health", address, limits.health, ListenFailure::Health);
        health.spawn(server.run(move |request: &Request| pages::health(&telemetry, request)));
    }
    if let Some(address) = settings.metrics {
        let pages = Arc::new(Pages::new(settings, telemetry.clone(), explanations));
        let server = server("metrics", address, limits.metrics, ListenFailure::Metrics);
        metrics.spawn(server.run(move |request: &Request| pages.answer(request)));
    }
    let ports = Ports {
        telemetry: telemetry.clone(),
        proxy_health: match settings.healthz {
            Some(_) => ProxyHealth::Checked,
            None => ProxyHealth::Assumed,
        },
        addresses: settings.config.engine.node_port_addresses.clone(),
        interfaces: node::host_addresses,
        retry: RETRY,
        connections: Connections::new(limits.idle, limits.services),
        max_listeners: limits.listeners,
        on_failure,
    };
    health.spawn(ports.run());
    Ok(Servers {
        runtimes: vec![health, metrics],
    })
}

/// A server on one address.
struct Server {
    what: &'static str,
    address: SocketAddr,
    connections: Connections,
    failure: fn(String) -> ListenFailure,
    /// Retry interval.
    retry: Duration,
    on_failure: OnFailure,
}

impl Server {
    /// Waits for the address, then serves.
    async fn run<F>(self, answer: F)
    where
        F: Fn(&Request) -> Response + Clone + Send + Sync + 'static,
    {
        let Self { what, address, .. } = self;
        let mut reported = None;
        loop {
            match listen(address, Wildcard::BothFamilies) {
                Ok(listener) => {
                    info!(%address, "{what} server started");
                    let (_open, watched) = watch::channel(());
                    let answer = move |request: Request| ready(answer(&request));
                    let timeouts = Timeouts::DEFAULT;
                    return serve(listener, self.connections, timeouts, answer, watched).await;
                }
                Err(error) => {
                    let text = format!("{what} server cannot listen on {address}: {error}");
                    if reported.as_ref() != Some(&text) {
                        warn!("{text}");
                        (self.on_failure)((self.failure)(text.clone()));
                        reported = Some(text);
                    }
                }
            }
            sleep(self.retry).await;
        }
    }
}

#[cfg(test)]
mod tests;
