//! The HTTP servers of health, readiness and metrics.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use daemon::http::{
    Connections, PLAIN, Request, Response, Timeouts, Wildcard, listen, not_found, text,
};
use daemon::metrics::CONTENT_TYPE;
use daemon::runtime;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{info, warn};

use super::Telemetry;

/// Retry interval of a server that cannot listen.
const RETRY: Duration = Duration::from_secs(5);

/// Maximum idle and active connections of each server.
const IDLE_CONNECTIONS: usize = 256;
const ACTIVE_CONNECTIONS: usize = 128;

/// The running servers. Dropping the value ends them.
#[derive(Debug)]
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

/// Serves all pages on each of the addresses.
///
/// One thread serves all connections, and another one writes the pages of metrics, one
/// after the other: `/health` and `/ready` share the port, and a client that asks for many
/// pages of metrics must not delay them, or the kubelet restarts the pod.
///
/// A server that cannot listen is retried every 5 s.
///
/// # Errors
///
/// A thread cannot be created.
pub fn serve(addresses: &[SocketAddr], telemetry: &Arc<Telemetry>) -> io::Result<Servers> {
    let connections = runtime::start(1, "http")?;
    let metrics = runtime::start(1, "metrics")?;
    let pages = Pages {
        telemetry: Arc::clone(telemetry),
        metrics: metrics.handle().clone(),
    };
    for &address in addresses {
        connections.spawn(run(address, pages.clone()));
    }
    Ok(Servers {
        runtimes: vec![connections, metrics],
    })
}

async fn run(address: SocketAddr, pages: Pages) {
    let mut reported = None;
    loop {
        match listen(address, Wildcard::BothFamilies) {
            Ok(listener) => {
                info!(%address, "health and metrics server started");
                let connections = Connections::new(IDLE_CONNECTIONS, ACTIVE_CONNECTIONS);
                let (_open, watched) = watch::channel(());
                let answer = move |request: Request| pages.clone().answer(request);
                let timeouts = Timeouts::DEFAULT;
                return daemon::http::serve(listener, connections, timeouts, answer, watched).await;
            }
            Err(error) => {
                let error = error.to_string();
                if reported.as_ref() != Some(&error) {
                    warn!(
                        "health and metrics server cannot listen on {address}: {error}; retrying"
                    );
                    reported = Some(error);
                }
            }
        }
        sleep(RETRY).await;
    }
}

/// The pages.
#[derive(Clone)]
struct Pages {
    telemetry: Arc<Telemetry>,
    /// The thread that writes metrics.
    metrics: Handle,
}

impl Pages {
    async fn answer(self, request: Request) -> Response {
        let telemetry = self.telemetry;
        match request.uri().path() {
            "/health" => text(200, PLAIN, "OK"),
            "/ready" => match telemetry.unready_reason() {
                None => text(200, PLAIN, "OK"),
                Some(reason) => text(503, PLAIN, format!("{reason}\n")),
            },
            "/metrics" => {
                let page = self.metrics.spawn(async move { telemetry.metrics() });
                match page.await {
                    Ok(page) => text(200, CONTENT_TYPE, page),
                    Err(error) => text(500, PLAIN, format!("{error}\n")),
                }
            }
            _ => not_found(),
        }
    }
}
