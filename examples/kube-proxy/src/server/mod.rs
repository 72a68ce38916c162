//! HTTP: health, metrics, and ports that load balancers ask about Services.
//!
//! - `pages`: what is at which path; `services`: the ports of Services;
//! - `http`: a listener and its connections, within bounds.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{info, warn};
use vipline_service_model::ObjectName;

use crate::interfaces::{self, Scope};
use crate::settings::Settings;
use crate::telemetry::{Judged, Telemetry};
use http::{Connections, Request, Response, Timeouts, Wildcard, listen, serve};
use pages::Pages;
use services::Ports;

mod http;

mod pages;

mod services;

/// After which time a server that could not begin is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// Maximum number of idle connections of each server, or of the ports of all Services.
const IDLE_CONNECTIONS: usize = 2048;

/// Maximum numbers of active connections.
const HEALTH_CONNECTIONS: usize = 256;
const METRICS_CONNECTIONS: usize = 128;
const SERVICE_CONNECTIONS: usize = 512;

/// Limits on what the servers open, so that descriptors are left for the rest of the process.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Limits {
    /// Idle connections of each of the three.
    idle: usize,
    /// Active connections to the port for health.
    health: usize,
    /// Active connections to the port for metrics.
    metrics: usize,
    /// Active connections to the ports of all Services.
    services: usize,
    /// Listeners on the ports of all Services.
    listeners: usize,
}

impl Limits {
    /// Divides the file descriptors that the process may open.
    ///
    /// Listeners get half, connections at most six sixteenths.
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

/// Something that cannot be served; told when it begins.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Trouble {
    /// Health.
    Health(String),
    /// Metrics.
    Metrics(String),
    /// What load balancers ask about a Service.
    Service {
        /// The Service.
        name: ObjectName,
        /// What is wrong.
        text: String,
    },
}

/// Who is told what cannot be served.
pub type Tell = Arc<dyn Fn(Trouble) + Send + Sync>;

impl Trouble {
    /// Returns the reason of the event that tells of it.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Health(_) => "FailedToStartProxierHealthcheck",
            Self::Metrics(_) => "FailedToStartMetricServer",
            Self::Service { .. } => "FailedToStartServiceHealthcheck",
        }
    }

    /// Returns the action of the event that tells of it.
    pub fn action(&self) -> &'static str {
        match self {
            Self::Health(_) | Self::Metrics(_) => "StartKubeProxy",
            Self::Service { .. } => "Listen",
        }
    }

    /// Returns what is wrong.
    pub fn text(&self) -> &str {
        match self {
            Self::Health(text) | Self::Metrics(text) | Self::Service { text, .. } => text,
        }
    }
}

/// The servers, which end when dropped.
pub struct Servers {
    /// It exists until the end.
    runtime: Option<Runtime>,
}

impl Drop for Servers {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Begins to serve what the settings say, in the background.
///
/// A server that cannot begin is tried again; `tell` is told when that starts,
/// and besides the log is all that happens.
/// The servers open a part of the `descriptors` that the process may have.
///
/// They have one thread of their own.
/// So no other task delays them, a flood of connections takes one processor at most, and tasks
/// run in the order in which they become ready: a new connection is read before a later one
/// evicts it.
///
/// # Errors
///
/// The system has no room for the thread.
pub fn start(
    settings: &Settings,
    telemetry: &Telemetry,
    descriptors: usize,
    tell: Tell,
) -> io::Result<Servers> {
    let limits = Limits::new(descriptors);
    let mut builder = Builder::new_multi_thread();
    let builder = builder.worker_threads(1).thread_name("http").enable_all();
    let runtime = builder.build()?;
    let tell: Tell = Arc::new(move |trouble| {
        warn!("{}", trouble.text());
        tell(trouble);
    });
    let server = |what, address, active, trouble| Server {
        what,
        address,
        connections: Connections::new(limits.idle, active),
        trouble,
        retry: RETRY,
        tell: Arc::clone(&tell),
    };
    if let Some(address) = settings.healthz {
        let telemetry = telemetry.clone();
        let server = server("health", address, limits.health, Trouble::Health);
        runtime.spawn(server.run(move |request: &Request| pages::health(&telemetry, request)));
    }
    if let Some(address) = settings.metrics {
        let pages = Arc::new(Pages::new(settings, telemetry.clone()));
        let server = server("metrics", address, limits.metrics, Trouble::Metrics);
        runtime.spawn(server.run(move |request: &Request| pages.answer(request)));
    }
    let ports = Ports {
        telemetry: telemetry.clone(),
        judged: match settings.healthz {
            Some(_) => Judged::Really,
            None => Judged::Healthy,
        },
        addresses: settings.config.node_port_addresses.clone(),
        interfaces: || interfaces::addresses(Scope::Host),
        retry: RETRY,
        connections: Connections::new(limits.idle, limits.services),
        max_listeners: limits.listeners,
        tell,
    };
    runtime.spawn(ports.run());
    let runtime = Some(runtime);
    Ok(Servers { runtime })
}

/// A server of the process, whether it can be reached or not.
struct Server {
    what: &'static str,
    address: SocketAddr,
    connections: Connections,
    trouble: fn(String) -> Trouble,
    /// After which time it is tried again.
    retry: Duration,
    tell: Tell,
}

impl Server {
    /// Serves as soon as the address can be had.
    async fn run<F>(self, answer: F)
    where
        F: Fn(&Request) -> Response + Clone + Send + Sync + 'static,
    {
        let Self { what, address, .. } = self;
        let mut told = None;
        loop {
            match listen(address, Wildcard::BothFamilies) {
                Ok(listener) => {
                    info!(%address, "{what} is served");
                    let (_open, watched) = watch::channel(());
                    return serve(listener, self.connections, Timeouts::USUAL, answer, watched)
                        .await;
                }
                Err(error) => {
                    let text = format!("{what} cannot be served on {address}: {error}");
                    if told.as_ref() != Some(&text) {
                        (self.tell)((self.trouble)(text.clone()));
                        told = Some(text);
                    }
                }
            }
            sleep(self.retry).await;
        }
    }
}

#[cfg(test)]
mod tests;
