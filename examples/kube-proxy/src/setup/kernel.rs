//! Engines that read or program the kernel of Linux.

use std::os::fd::{AsFd, BorrowedFd};

use proxy_core::interfaces::{self, AddressWatch};
use proxy_core::sysctl::is_conntrack_liberal;
use tracing::warn;
use vipline_kube_source::WatchMode;

use super::{Objects, Purpose, Setup};
use crate::failure::{Failure, chain};
use crate::families;
use crate::settings::Settings;
use crate::sysctl::{self, Stage};
use crate::telemetry::stopwatch;

impl Setup {
    /// Creates an engine that programs the kernel, for the IP families that
    /// this node supports.
    ///
    /// Sets the conntrack sysctls first, because a rule depends on `nf_conntrack_tcp_be_liberal`.
    /// On return, all objects of files are read. With [`WatchMode::ListOnly`], all
    /// objects of an API are read, too.
    ///
    /// # Errors
    ///
    /// - Manifests or credentials are invalid. Nothing is written then.
    /// - A privilege or kernel feature is missing.
    /// - The API server rejects a request.
    pub fn open(settings: Settings, watch_mode: WatchMode) -> Result<Self, Failure> {
        Self::with_kernel(settings, Purpose::Program, watch_mode)
    }

    /// Creates an engine that only compares the kernel with the plan.
    ///
    /// # Errors
    ///
    /// See [`open`](Self::open).
    pub fn compare(settings: Settings) -> Result<Self, Failure> {
        Self::with_kernel(settings, Purpose::Compare, WatchMode::ListOnly)
    }

    /// Creates an engine that explains connections by the plan and the kernel. It also knows
    /// Services that the proxy does not serve.
    ///
    /// # Errors
    ///
    /// See [`open`](Self::open).
    pub fn explain(settings: Settings) -> Result<Self, Failure> {
        Self::with_kernel(settings, Purpose::Explain, WatchMode::ListOnly)
    }

    fn with_kernel(
        mut settings: Settings,
        purpose: Purpose,
        watch_mode: WatchMode,
    ) -> Result<Self, Failure> {
        let config = &mut settings.config;
        config.engine.families = interfaces::families();
        let iptables = config.mode.choose_iptables_backend(config);
        if let Some(choice) = &iptables {
            config.iptables.backend = choice.backend;
        }
        config.engine.families = families::supported(config)?;
        let conntrack = &settings.configuration.conntrack;
        let mut setup = Self::new(&settings, purpose, watch_mode, |mut config| {
            if purpose == Purpose::Program {
                sysctl::set_conntrack(conntrack, Stage::Start);
            }
            let will_be_liberal = purpose != Purpose::Program && conntrack.tcp_be_liberal;
            config.iptables.drop_invalid = !(will_be_liberal || is_conntrack_liberal());
            config
                .open()
                .map_err(|error| Failure::machine(chain(&error)))
        })?;
        setup.iptables = iptables;
        setup.engine.set_flow_cleanup_clock(stopwatch);
        setup.addresses = Some(AddressWatch::default());
        setup.poll_addresses();
        Ok(setup)
    }

    /// Passes changed interface addresses to the engine. Returns whether they
    /// changed.
    pub(super) fn poll_addresses(&mut self) -> bool {
        match self.addresses.as_mut().map(AddressWatch::poll) {
            Some(Ok(Some(addresses))) => {
                self.engine.set_addresses(addresses);
                true
            }
            Some(Err(error)) => {
                warn!("{}; using the former addresses", chain(&error));
                false
            }
            Some(Ok(None)) | None => false,
        }
    }

    /// Returns the descriptors that become readable when there is something to
    /// poll.
    pub fn readable(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let files = match &self.objects {
            Objects::Manifests(manifests) => manifests.readable(),
            Objects::Api { .. } => None,
        };
        let addresses = self.addresses.iter().filter_map(AddressWatch::readable);
        let tasks = self.tasks.iter().map(AsFd::as_fd);
        files.into_iter().chain(addresses).chain(tasks)
    }
}
