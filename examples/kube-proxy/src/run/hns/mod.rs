//! The main loop of mode kernelspace: one thread that waits for events and syncs.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Result;
use proxy_core::Engine;
use proxy_kernelspace::{Planner, Settings as HnsSettings};
use tracing::{info, warn};
use vipline_hcn::Service;
use vipline_kube_source::WatchMode;

use super::report::{SyncReporter, report_start};
use super::serve::serve;
use crate::config::CHANGED;
use crate::config::modified::Modified;
use crate::failure::{Failure, check_first_sync};
use crate::kernelspace::{Chosen, network_name};
use crate::settings::Settings;
use crate::setup::Setup;
use crate::stop::Stop;
use crate::telemetry;

/// Time between two looks for a network that does not exist yet.
const NETWORK_INTERVAL: Duration = Duration::from_secs(1);

/// Time in which the CNI plugin adds routes to a new overlay network, as in upstream.
const ROUTES_TIME: Duration = Duration::from_secs(10);

/// Keeps HNS in sync with all objects until a request to stop. The load balancers stay
/// afterwards.
///
/// As in upstream, the proxy waits for the network, which the CNI plugin creates. `host_mac`
/// returns the MAC address of the node.
///
/// # Errors
///
/// Objects, credentials or flags are invalid at the start, HNS lacks a feature, or a change
/// requires a restart.
pub fn run<S: Service + Send + 'static>(
    mut settings: Settings,
    service: S,
    host_mac: &dyn Fn() -> Result<String>,
    stop: &Stop,
) -> Result<(), Failure> {
    settings.config.engine.start_time = Some(telemetry::clock());
    let mut config = settings.config_file.as_deref().map(Modified::new);
    let service = Arc::new(Mutex::new(service));
    let network = network_name(&settings).map_err(Failure::input)?;
    if !wait_for_network(&service, &network, stop) {
        return Ok(());
    }
    let choose = |settings: &_| Chosen::read(&mut Arc::clone(&service), settings, host_mac);
    let failed = |error| Failure::machine(format_args!("{error:#}"));
    let chosen = choose(&settings).map_err(failed)?;
    chosen.configure(&mut settings.config);
    let mut of_mode = chosen.settings().clone();
    let mut setup = Setup::with_engine(&settings, WatchMode::ListAndWatch, |config| {
        chosen.engine(config, &service)
    })?;
    if let Some(tasks) = &setup.tasks {
        stop.wakes(tasks.sender());
    }
    let (mode, node) = (
        settings.mode_name(),
        settings.config.engine.node_name.clone(),
    );
    info!(%mode, %node, "started");
    let _servers = serve(&setup, &settings, None)?;
    report_start(&setup);
    let mut reporter = SyncReporter::default();
    let mut synced = false;
    let mut next_read = setup.now() + settings.sync_period;
    while !stop.is_requested() {
        setup.poll()?;
        let now = setup.now();
        if now >= next_read {
            next_read = now + settings.sync_period;
            match choose(&settings) {
                Ok(chosen) => {
                    of_mode = chosen.settings().clone();
                    set(&mut setup.engine, &of_mode);
                }
                Err(error) => warn!("HNS cannot be read; using its former state: {error:#}"),
            }
        }
        if setup.engine.next_deadline().is_some_and(|at| at <= now) {
            read_routes(&mut setup.engine, &mut of_mode, &service, &network);
        }
        let began = Instant::now();
        if let Some(report) = setup.engine.poll(now) {
            let ended = Instant::now();
            setup.telemetry.synced(&setup.engine, &report, began, ended);
            if !synced {
                check_first_sync(&report, &setup.settings().config)?;
                synced = report.is_success();
            }
            reporter.report(&mut setup, &report, ended - began);
        }
        if config.as_mut().is_some_and(|it| it.has_changed(now)) {
            return Err(Failure::machine(CHANGED));
        }
        let deadlines = [
            setup.engine.next_deadline(),
            setup.next_deadline(),
            config.as_ref().map(Modified::next_deadline),
        ];
        let next = deadlines
            .into_iter()
            .flatten()
            .fold(next_read, Duration::min);
        if let Some(tasks) = &setup.tasks {
            tasks.wait(Some(next.saturating_sub(setup.now())))?;
        }
    }
    info!("stopped; the load balancers stay");
    Ok(())
}

/// Waits until HNS has the network, and routes of an overlay network. Returns `false` after
/// a request to stop.
fn wait_for_network<S: Service>(service: &Arc<Mutex<S>>, name: &str, stop: &Stop) -> bool {
    let mut reported = None;
    loop {
        let error = match Arc::clone(service).network_by_name(name) {
            Ok(network) => {
                // The read after the wait reports an invalid network.
                let Ok(found) = HnsSettings::default().with_network(&network) else {
                    return true;
                };
                let is_new = reported.is_some() || found.remote_subnets.is_empty();
                return !(found.is_overlay && is_new && stop.wait(ROUTES_TIME));
            }
            Err(error) => error.to_string(),
        };
        if reported.as_ref() != Some(&error) {
            warn!("waiting for the HNS network: {error}");
            reported = Some(error);
        }
        if stop.wait(NETWORK_INTERVAL) {
            return false;
        }
    }
}

/// Reads the routes to other nodes before a sync in an overlay network.
///
/// A new endpoint needs the address of its node, which HNS does not change later.
fn read_routes<S: Service>(
    engine: &mut Engine,
    current: &mut HnsSettings,
    service: &Arc<Mutex<S>>,
    name: &str,
) {
    if !current.is_overlay {
        return;
    }
    let network = Arc::clone(service).network_by_name(name);
    let network = network.map_err(anyhow::Error::from);
    match network.and_then(|it| Ok(current.clone().with_network(&it)?)) {
        Ok(settings) => {
            *current = settings;
            set(engine, current);
        }
        Err(error) => warn!("routes of the network cannot be read; using the former ones: {error}"),
    }
}

/// Plans with new settings.
fn set(engine: &mut Engine, settings: &HnsSettings) {
    let is_set = engine.set_planner(Planner::new(settings.clone()));
    debug_assert!(is_set, "the engine was created with a planner of this mode");
}

#[cfg(test)]
mod tests;
