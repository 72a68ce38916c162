//! Conditions of the first sync: all objects are listed, and the node fits the
//! configuration.

use std::time::{Duration, Instant};

use proxy_core::Event;
use tracing::{info, warn};
use vipline_kube_source::api::first_sync::{Lack, Readiness};
use vipline_kube_source::manifests::fault::Key;
use vipline_kube_source::manifests::source::Update;
use vipline_service_model::{DetectLocal, Kind};

use super::{Objects, Purpose, Setup};
use crate::config::check_families;
use crate::failure::Failure;
use crate::node;

impl Setup {
    /// Applies all manifests for the first time.
    pub(super) fn apply_all(mut self, update: Update) -> Result<Self, Failure> {
        let name = &self.node.name;
        let holds_node = match &self.objects {
            Objects::Manifests(manifests) => manifests.holds(&Key::new(Kind::Node, "", name)),
            Objects::Api { .. } => true,
        };
        if !holds_node {
            let addresses = node::global_addresses().unwrap_or_else(|error| {
                warn!("{error:#}");
                Vec::new()
            });
            self.apply(self.node.without_object(&addresses));
        }
        self.apply_update(update);
        let node = self.engine.store().node();
        let detect_local = &self.settings.config.engine.detect_local;
        if *detect_local == DetectLocal::NodeCidr && node.pod_cidrs.is_empty() {
            let needs = "--detect-local-mode=NodeCIDR needs the podCIDRs of this node";
            return Err(Failure::input(format_args!(
                "{needs}, but Node {} has none",
                self.node.name
            )));
        }
        self.check_families()?;
        self.apply(Event::Synced);
        self.telemetry.applied(&self.engine, Instant::now());
        Ok(self)
    }

    /// Checks the configuration against the IP families of this node, before
    /// the first sync.
    pub(super) fn check_families(&self) -> Result<(), Failure> {
        if matches!(self.purpose, Purpose::Plan | Purpose::Explain) {
            return Ok(());
        }
        let (config, node) = (&self.settings.config, self.engine.store().node());
        let problems = check_families(
            &self.settings.configuration,
            &config.engine.node_port_addresses,
            &node,
            &config.engine.families,
        );
        if self.purpose == Purpose::Program {
            problems.warnings.iter().for_each(|it| warn!("{it}"));
        }
        match problems.errors.is_empty() {
            true => Ok(()),
            false => Err(Failure::machine(problems.errors.join("; "))),
        }
    }

    /// Waits until all objects of the API are listed.
    pub(super) fn wait(&mut self) -> Result<(), Failure> {
        while !self.engine.store().is_synced() {
            let now = self.now();
            let timeout = self.next_deadline().map(|next| next.saturating_sub(now));
            if let Some(tasks) = &self.tasks {
                tasks.wait(timeout)?;
            }
            self.poll()?;
        }
        Ok(())
    }

    /// Permits the first sync when its conditions are met.
    pub(super) fn poll_gate(&mut self, now: Duration) -> Result<(), Failure> {
        let Objects::Api { gate, logged } = &mut self.objects else {
            return Ok(());
        };
        let name = &self.node.name;
        let readiness = gate.poll(now).map_err(|reason| match gate.has_node() {
            true => Failure::Machine(reason),
            false => Failure::Machine(format!("{reason}; {OTHER_NAME}")),
        })?;
        match readiness {
            Readiness::Waiting => {
                let lack = gate.lack();
                if *logged != lack {
                    *logged = lack;
                    log_wait(lack, name);
                }
                return Ok(());
            }
            Readiness::Ready => {}
            Readiness::ReadyWithoutAddresses if gate.has_node() => {
                warn!("Node {name:?} has no address; continuing without one");
            }
            Readiness::ReadyWithoutAddresses => {
                warn!(
                    "there is no Node {name:?}; continuing without it: no endpoint counts as one \
                     of this node, and traffic policy Local drops; {OTHER_NAME}"
                );
                if let Some(event) = self.node.substitute() {
                    self.apply(event);
                }
            }
        }
        self.check_families()?;
        self.apply(Event::Synced);
        Ok(())
    }
}

/// What to do if the API has no Node of this name.
const OTHER_NAME: &str = "if the Node has another name, set --hostname-override to it";

/// Logs why the first sync waits.
fn log_wait(lack: Option<Lack>, name: &str) {
    match lack {
        None | Some(Lack::Lists) => {}
        Some(Lack::Node) => {
            warn!("there is no Node {name:?}; the first sync waits for it; {OTHER_NAME}");
        }
        Some(Lack::PodCidrs) => {
            info!("all objects are listed; the first sync waits for podCIDRs of Node {name:?}");
        }
        Some(Lack::Addresses) => {
            info!("all objects are listed; the first sync waits for addresses of Node {name:?}");
        }
    }
}
