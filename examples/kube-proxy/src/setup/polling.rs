//! Changes of objects and interface addresses, applied to the engine.

use std::time::{Duration, Instant};

use daemon::log_limit;
use proxy_core::Event;
use tracing::{debug, error, info, warn};
use vipline_kube_source::api::feed::Item;
use vipline_kube_source::api::first_sync::NodeChange;
use vipline_kube_source::manifests::source::Update;
use vipline_service_model::api;

use super::{Objects, Setup};
use crate::failure::Failure;

impl Setup {
    /// Returns the time since the start, on which all deadlines are based.
    pub fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Applies pending changes to the engine and logs problems of objects.
    ///
    /// # Errors
    ///
    /// The reason why the process must end.
    pub fn poll(&mut self) -> Result<(), Failure> {
        let now = self.now();
        let items = match &mut self.tasks {
            Some(tasks) => tasks.take()?,
            None => Vec::new(),
        };
        let mut has_changed = !items.is_empty();
        match &mut self.objects {
            Objects::Manifests(manifests) => {
                let update = manifests.poll(now);
                has_changed |= !update.events.is_empty();
                self.apply_update(update);
            }
            Objects::Api { .. } => self.apply_items(items, now)?,
        }
        #[cfg(target_os = "linux")]
        {
            has_changed |= self.poll_addresses();
        }
        if has_changed {
            self.telemetry.applied(&self.engine, Instant::now());
        }
        Ok(())
    }

    /// Returns the time of the next poll if nothing changes before.
    pub fn next_deadline(&self) -> Option<Duration> {
        match &self.objects {
            Objects::Manifests(manifests) => manifests.next_deadline(),
            Objects::Api { gate, .. } => gate.next_deadline(),
        }
    }

    /// Applies items of the API.
    fn apply_items(&mut self, items: Vec<Item>, now: Duration) -> Result<(), Failure> {
        for item in items {
            let Objects::Api { gate, .. } = &mut self.objects else {
                continue;
            };
            match item {
                Item::Listed(kind) => gate.mark_listed(kind, now),
                Item::Event(Event::NodeApplied(node)) => self.apply_node(node)?,
                Item::Event(event) => {
                    if matches!(event, Event::NodeDeleted(_)) {
                        let name = &self.node.name;
                        warn!("node {name:?} was deleted; using its last known state");
                    }
                    self.apply(event);
                }
            }
        }
        self.poll_gate(now)
    }

    /// Applies the Node object of this node.
    fn apply_node(&mut self, node: api::Node) -> Result<(), Failure> {
        let Objects::Api { gate, .. } = &mut self.objects else {
            return Ok(());
        };
        let name = &self.node.name;
        match gate.update_node(&node) {
            // Most changes of a Node concern fields that the proxy does not
            // use.
            NodeChange::None => return Ok(()),
            NodeChange::Other => {}
            NodeChange::Addresses => info!("node {name:?} has new addresses"),
            NodeChange::PodCidrs => {
                let message = "has changed podCIDRs; a restart is required";
                return Err(Failure::machine(format_args!("node {name:?} {message}")));
            }
        }
        self.apply(self.node.with_bind_address(node.into()));
        Ok(())
    }

    /// Applies an update of the manifests and logs its errors.
    pub(super) fn apply_update(&mut self, update: Update) {
        log_limit::each("ignored documents", update.ignored, |line| {
            debug!("ignored: {line}");
        });
        log_limit::each("invalid manifests", update.errors, |error| {
            error!("{error}");
        });
        for event in update.events {
            self.apply(self.node.with_bind_address(event));
        }
    }

    pub(super) fn apply(&mut self, event: Event) {
        if let Some(bound) = &mut self.bound_addresses {
            bound.note(&event);
        }
        let object = self.field_problems.object(&event);
        let warnings = self.engine.apply(event);
        for warning in &warnings {
            self.telemetry.object_problem(warning.kind);
        }
        let news = self.field_problems.replace(object, warnings);
        for warning in news.warnings {
            if self.problems.admits() {
                warn!("{warning}");
            }
        }
        for event in news.events {
            self.recorder.record(event);
        }
    }
}
