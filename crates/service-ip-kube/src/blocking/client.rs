//! The client with a runtime of its own.
#![allow(clippy::disallowed_methods, reason = "IO file")]

use std::fmt;
use std::io;
use std::panic::resume_unwind;
use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime};

use tokio::runtime::{Builder, Handle, Runtime};
use vipline_service_ip::AddressRange;

use crate::client::configuration_error;
use crate::default_cidr::Problem;
use crate::error::chain;
use crate::{Cause, Error, Finding};

/// A [`Client`](crate::Client) with a runtime of its own.
///
/// All methods block the thread until the server has responded. The runtime runs in the
/// calling thread.
/// Within another tokio runtime, a method runs in an additional thread for the time of the
/// call, but still blocks the task. Use the async client there.
pub struct Client {
    /// `None` only during drop.
    runtime: Option<Runtime>,
    pub(super) client: crate::Client,
}

impl Client {
    /// Returns a client for a kubeconfig, or for the Service account of the pod.
    ///
    /// Does not send a request.
    ///
    /// # Errors
    ///
    /// [`Cause::Configuration`]: the credentials cannot be read or used.
    pub fn open(kubeconfig: Option<&Path>) -> Result<Self, Error> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| configuration_error(kubeconfig, chain(&error)))?;
        let client = {
            let _guard = runtime.enter();
            crate::Client::open(kubeconfig)?
        };
        Ok(Self {
            runtime: Some(runtime),
            client,
        })
    }

    /// Sets the request timeout. Default: 60 s.
    ///
    /// The server may still apply a request after the timeout.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.client = self.client.clone().with_timeout(timeout);
        self
    }

    /// As [`Client::reconcile_default_cidr`](crate::Client::reconcile_default_cidr).
    ///
    /// # Errors
    ///
    /// As for the async method.
    pub fn reconcile_default_cidr(
        &self,
        ranges: &[AddressRange],
        now: SystemTime,
    ) -> Result<Option<Problem>, Error> {
        self.wait(self.client.reconcile_default_cidr(ranges, now))?
    }

    /// As [`Client::reconcile_cidrs`](crate::Client::reconcile_cidrs).
    ///
    /// # Errors
    ///
    /// As for the async method.
    pub fn reconcile_cidrs(
        &self,
        now: SystemTime,
        report: &mut (dyn FnMut(&Finding) + Send),
    ) -> Result<Option<SystemTime>, Error> {
        self.wait(self.client.reconcile_cidrs(now, report))?
    }

    /// As [`Client::repair`](crate::Client::repair).
    ///
    /// # Errors
    ///
    /// As for the async method.
    pub fn repair(
        &self,
        now: SystemTime,
        report: &mut (dyn FnMut(&Finding) + Send),
    ) -> Result<Option<SystemTime>, Error> {
        self.wait(self.client.repair(now, report))?
    }

    /// Runs a future to its end.
    pub(super) fn wait<T: Send>(&self, future: impl Future<Output = T> + Send) -> Result<T, Error> {
        let runtime = self.runtime.as_ref();
        let runtime = runtime.expect("the runtime exists until the client is dropped");
        if Handle::try_current().is_err() {
            return Ok(runtime.block_on(future));
        }
        // A thread cannot block on a runtime within another runtime.
        let answer = thread::scope(|scope| {
            let waiting =
                thread::Builder::new().spawn_scoped(scope, || runtime.block_on(future))?;
            Ok(waiting.join().unwrap_or_else(|panic| resume_unwind(panic)))
        });
        answer.map_err(|error: io::Error| {
            Error::new("start", "a thread", Cause::NotSent(chain(&error)))
        })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Dropping a runtime within another runtime must not block.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.client.fmt(f)
    }
}
