//! An upstream name server with its health.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use hickory_proto::op::Message;
use tokio::time::sleep;
use tracing::{info, warn};

use super::counters::UpstreamCounters;
use super::exchange::{ExchangeError, Transport};
use super::options::ForwardOptions;
use super::query::Query;
use super::request::Request;

/// Time to wait for the reply to a health check.
const HEALTH_CHECK_TIMEOUT: Duration = Duration::from_secs(1);

/// Type NS of the question of health checks, which is for the root.
const TYPE_NS: u16 = 2;

/// An upstream name server.
#[derive(Debug)]
pub struct Upstream {
    transport: Transport,
    counters: UpstreamCounters,
    /// Consecutive failures.
    fails: AtomicU32,
    max_fails: u32,
    interval: Duration,
    is_checked: AtomicBool,
}

impl Upstream {
    pub(super) fn new(address: SocketAddr, options: &ForwardOptions) -> Self {
        Self {
            transport: Transport::new(address, options.force_tcp, options.idle_timeout),
            counters: UpstreamCounters::default(),
            fails: AtomicU32::new(0),
            max_fails: options.max_fails,
            interval: options.health_check,
            is_checked: AtomicBool::new(false),
        }
    }

    /// Returns the address.
    pub fn address(&self) -> SocketAddr {
        self.transport.address
    }

    /// Returns the counters.
    pub fn counters(&self) -> &UpstreamCounters {
        &self.counters
    }

    /// Returns whether too many consecutive queries and health checks failed.
    pub fn is_down(&self) -> bool {
        self.max_fails > 0 && self.fails.load(Ordering::Relaxed) >= self.max_fails
    }

    /// Sends a request and returns the reply. Without any reply, health checks begin.
    pub(super) async fn exchange(
        self: &Arc<Self>,
        request: &Request,
        wait: Duration,
    ) -> Result<Message, ExchangeError> {
        let start = Instant::now();
        let result = self.transport.exchange(request, wait, &self.counters).await;
        match &result {
            Ok(message) => {
                self.counters
                    .record(message.metadata.response_code.into(), start.elapsed());
                self.succeeded();
            }
            Err(error) => {
                self.counters.failures.increment();
                match error.is_silence() {
                    true => self.failed(error),
                    // An unusable reply to one question says nothing about others.
                    false => self.succeeded(),
                }
            }
        }
        result
    }

    /// Sends a request that says nothing about the health. Returns whether there is a reply.
    pub(super) async fn probe(&self, request: &Request, wait: Duration) -> bool {
        let reply = self.transport.exchange(request, wait, &self.counters).await;
        reply.map_or_else(|error| !error.is_silence(), |_| true)
    }

    /// Closes idle connections after their time.
    pub(super) fn close_idle(&self) {
        self.transport.close_idle();
    }

    fn succeeded(&self) {
        let was_down = self.is_down();
        if self.fails.swap(0, Ordering::Relaxed) > 0 && was_down {
            info!(upstream = %self.address(), "upstream name server is up");
        }
    }

    fn failed(self: &Arc<Self>, error: &ExchangeError) {
        self.count_failure(error);
        if self.max_fails > 0 && !self.is_checked.swap(true, Ordering::AcqRel) {
            tokio::spawn(check_until_healthy(Arc::downgrade(self), self.interval));
        }
    }

    fn count_failure(&self, error: &ExchangeError) {
        let was_down = self.is_down();
        let count = |fails: u32| Some(fails.saturating_add(1));
        let _ = self
            .fails
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, count);
        if !was_down && self.is_down() {
            self.transport.forget_edns();
            let upstream = self.address();
            warn!(%upstream, %error, "upstream name server is down; it is tried last until a health check succeeds");
        }
    }

    /// Sends a health check. Every reply counts as healthy.
    async fn check(&self) -> Result<(), ExchangeError> {
        let query = Query {
            id: 0,
            name: &[0],
            record_type: TYPE_NS,
            class: 1,
            recursion_desired: true,
            authentic_data: false,
            checking_disabled: false,
            edns: None,
        };
        let Some(request) = Request::new(&query, HEALTH_CHECK_PAYLOAD) else {
            return Ok(());
        };
        let exchange = self
            .transport
            .exchange(&request, HEALTH_CHECK_TIMEOUT, &self.counters);
        match exchange.await {
            Err(error) if error.is_silence() => Err(error),
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

/// EDNS buffer size of health checks.
const HEALTH_CHECK_PAYLOAD: u16 = 1_232;

/// Checks an upstream until a check or a query succeeds, or until the upstream is removed.
async fn check_until_healthy(upstream: Weak<Upstream>, interval: Duration) {
    loop {
        sleep(interval).await;
        let Some(upstream) = upstream.upgrade() else {
            return;
        };
        if upstream.fails.load(Ordering::Relaxed) == 0 {
            upstream.is_checked.store(false, Ordering::Release);
            return;
        }
        match upstream.check().await {
            Ok(()) => upstream.succeeded(),
            Err(error) => {
                upstream.counters.healthcheck_failures.increment();
                upstream.count_failure(&error);
            }
        }
    }
}
