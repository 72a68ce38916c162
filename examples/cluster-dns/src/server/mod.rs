//! DNS over UDP and TCP.
//!
//! - `request`: which messages are queries, and the response to all others;
//! - [`Responder`]: responses from the zone, from the cache or from the upstreams, with
//!   `wire` for those from the zone, and `encode` for aliases that the upstreams resolve;
//! - `udp`, with `socket`, and `tcp`: the listeners.
//!
//! # Requests that are not answered, or rejected
//!
//! | Message | Response |
//! |---|---|
//! | shorter than a header, or a response | none |
//! | another operation than a query | NOTIMP |
//! | no or several questions, malformed, other records than one OPT record (and one SOA record of a zone transfer) | FORMERR |
//! | EDNS of another version than 0 | BADVERS |
//! | another class than IN, zone transfers, meta types | REFUSED |
//!
//! A rejection is never longer than its request, except for an OPT record.

mod encode;

mod request;

mod respond;

mod socket;

mod tcp;

mod udp;

mod wire;

use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use daemon::http::Pool;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::failure::Failure;
use crate::telemetry::Telemetry;

pub use respond::Responder;
pub use tcp::TcpOptions;

use udp::{Context, Workers};

/// Time in which queries that wait for the upstreams are answered at the end.
const DRAIN: Duration = Duration::from_secs(2);

/// The listeners. They serve until [`stop`](Self::stop) or the drop.
#[derive(Debug)]
pub struct Server {
    workers: Workers,
    /// Dropped to close all connections.
    _open: watch::Sender<()>,
}

impl Server {
    /// Opens all listeners and serves in the background, over UDP on as many `threads`.
    ///
    /// A kernel without IPv6 has no listener on the wildcard address of IPv6, if another
    /// listener remains.
    ///
    /// # Errors
    ///
    /// [`Failure::Machine`] with the address that cannot be bound.
    pub fn start(
        addresses: &[SocketAddr],
        threads: usize,
        tcp: TcpOptions,
        responder: Arc<Responder>,
        telemetry: &Arc<Telemetry>,
        runtime: &Handle,
    ) -> Result<Self, Failure> {
        let context = Context {
            responder,
            telemetry: Arc::clone(telemetry),
            runtime: runtime.clone(),
        };
        let addresses = &available(addresses, socket::has_ipv6());
        let (open, watched) = watch::channel(());
        let connections = Pool::new(tcp.max_connections, tcp.max_connections_per_client);
        let budget = tcp::Budget::new();
        for &address in addresses {
            let started = tcp::start(address, tcp, &connections, &budget, &context, &watched);
            started.map_err(|error| failure("TCP", address, error))?;
        }
        let workers = Workers::start(addresses, threads, &context);
        let workers = workers.map_err(|(address, error)| failure("UDP", address, error))?;
        for address in addresses {
            info!(%address, threads, "serving DNS");
        }
        telemetry.set_serving();
        Ok(Self {
            workers,
            _open: open,
        })
    }

    /// Closes the sockets of UDP, and waits up to 2 s for queries that wait for the
    /// upstreams. Connections are closed with the drop.
    pub fn stop(&mut self) {
        self.workers.stop();
        let begin = Instant::now();
        while self.workers.waiting() > 0 && begin.elapsed() < DRAIN {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Returns the addresses that the kernel can have, and logs the others.
fn available(addresses: &[SocketAddr], has_ipv6: bool) -> Vec<SocketAddr> {
    let is_any_v6 = |address: &SocketAddr| address.is_ipv6() && address.ip().is_unspecified();
    let (any_v6, others): (Vec<_>, Vec<_>) = addresses.iter().copied().partition(is_any_v6);
    if has_ipv6 || others.is_empty() {
        return addresses.to_vec();
    }
    for address in any_v6 {
        warn!(%address, "not served: the kernel has no IPv6");
    }
    others
}

fn failure(protocol: &str, address: SocketAddr, error: impl Display) -> Failure {
    Failure::machine(format_args!("{protocol} {address}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_ipv6_serves_the_other_addresses() {
        let parse = |text: &str| text.parse::<SocketAddr>().unwrap();
        let all = ["0.0.0.0:53", "[::]:53"].map(parse);
        assert_eq!(available(&all, true), all);
        assert_eq!(available(&all, false), [all[0]]);
        // Without another listener, and of a specific address, the failure is reported.
        assert_eq!(available(&all[1..], false), [all[1]]);
        let specific = ["0.0.0.0:53", "[fd00::10]:53"].map(parse);
        assert_eq!(available(&specific, false), specific);
    }
}
