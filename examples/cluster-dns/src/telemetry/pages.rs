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
use tokio::runtime::Runtime;
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
    /// `Some` until the drop.
    runtime: Option<Runtime>,
}

impl Drop for Servers {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Serves all pages on each of the addresses, on a thread of its own.
///
/// A server that cannot listen is retried every 5 s.
///
/// # Errors
///
/// The thread cannot be created.
pub fn serve(addresses: &[SocketAddr], telemetry: &Arc<Telemetry>) -> io::Result<Servers> {
    let runtime = runtime::start(1, "http")?;
    for &address in addresses {
        runtime.spawn(run(address, Arc::clone(telemetry)));
    }
    let runtime = Some(runtime);
    Ok(Servers { runtime })
}

async fn run(address: SocketAddr, telemetry: Arc<Telemetry>) {
    let mut reported = None;
    loop {
        match listen(address, Wildcard::BothFamilies) {
            Ok(listener) => {
                info!(%address, "health and metrics server started");
                let connections = Connections::new(IDLE_CONNECTIONS, ACTIVE_CONNECTIONS);
                let (_open, watched) = watch::channel(());
                let answer = move |request: &Request| answer(&telemetry, request);
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

fn answer(telemetry: &Telemetry, request: &Request) -> Response {
    match request.uri().path() {
        "/health" => text(200, PLAIN, "OK"),
        "/ready" => match telemetry.unready_reason() {
            None => text(200, PLAIN, "OK"),
            Some(reason) => text(503, PLAIN, format!("{reason}\n")),
        },
        "/metrics" => text(200, CONTENT_TYPE, telemetry.metrics()),
        _ => not_found(),
    }
}
