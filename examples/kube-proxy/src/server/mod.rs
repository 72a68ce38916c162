//! HTTP: health, metrics, and ports that load balancers ask about Services.
//!
//! - `pages`: what is at which path; `services`: the ports of Services;
//! - `http`: a listener and its connections, within bounds.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{info, warn};
use vipline_service_model::ObjectName;

use crate::interfaces;
use crate::settings::Settings;
use crate::telemetry::{Judged, Telemetry};
use http::{Bounds, Request, Response, Wildcard, listen, serve};
use pages::Pages;
use services::Ports;

mod http;

mod pages;

mod services;

/// After which time a server that could not begin is tried again.
const RETRY: Duration = Duration::from_secs(5);

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

/// Begins to serve what the settings say, in the background.
///
/// A server that cannot begin is tried again; `tell` is told when that starts,
/// and besides the log is all that happens.
pub fn start(runtime: &Handle, settings: &Settings, telemetry: &Telemetry, tell: Tell) {
    let tell: Tell = Arc::new(move |trouble| {
        warn!("{}", trouble.text());
        tell(trouble);
    });
    let server = |what, address, trouble| Server {
        what,
        address,
        trouble,
        retry: RETRY,
        tell: Arc::clone(&tell),
    };
    if let Some(address) = settings.healthz {
        let telemetry = telemetry.clone();
        let server = server("health", address, Trouble::Health);
        runtime.spawn(server.run(move |request: &Request| pages::health(&telemetry, request)));
    }
    if let Some(address) = settings.metrics {
        let pages = Arc::new(Pages::new(settings, telemetry.clone()));
        let server = server("metrics", address, Trouble::Metrics);
        runtime.spawn(server.run(move |request: &Request| pages.answer(request)));
    }
    let ports = Ports {
        telemetry: telemetry.clone(),
        judged: match settings.healthz {
            Some(_) => Judged::Really,
            None => Judged::Healthy,
        },
        addresses: settings.config.node_port_addresses.clone(),
        interfaces: interfaces::all_addresses,
        retry: RETRY,
        tell,
    };
    runtime.spawn(ports.run());
}

/// A server of the process, whether it can be reached or not.
struct Server {
    what: &'static str,
    address: SocketAddr,
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
                    return serve(listener, Bounds::USUAL, answer, watched).await;
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
