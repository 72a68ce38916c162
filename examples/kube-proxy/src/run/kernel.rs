//! The main loop on Linux: one thread that waits for events and syncs. Searches for stale
//! flows run on another thread.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use ipnet::IpNet;
use proxy_core::{IptablesBackend, Mode};
use tracing::{info, warn};
use vipline_kube_source::WatchMode;

use super::report::{SyncReporter, report_start};
use super::serve::serve;
use crate::allocator;
use crate::cleanup;
use crate::config::{CHANGED, ConfigWatch};
use crate::explain::page;
use crate::failure::{Failure, chain, check_first_sync};
use crate::flow_search::FlowSearcher;
use crate::flows;
use crate::free_memory::FreeMemory;
use crate::process;
use crate::rejections::Reminder;
use crate::settings::Settings;
use crate::setup::Setup;
use crate::signals::Signals;
use crate::sysctl::Stage;
use crate::telemetry;
use crate::wait;

/// Keeps the kernel in sync with all objects until SIGTERM or SIGINT. The rules
/// stay afterwards.
///
/// # Errors
///
/// Objects or credentials are invalid at the start, a privilege or kernel
/// feature is missing, or a change requires a restart.
pub fn run(mut settings: Settings) -> Result<(), Failure> {
    settings.config.engine.start_time = Some(telemetry::clock());
    let signals = Signals::listen().map_err(Failure::cannot("handle signals"))?;
    Signals::limit_shutdown().map_err(Failure::cannot("handle signals"))?;
    process::adjust_oom_score(settings.oom_score_adj);
    let mut config = watch_config(&settings)?;
    let (mode, node) = (
        settings.config.mode,
        settings.config.engine.node_name.clone(),
    );
    let mut setup = Setup::open(settings.clone(), WatchMode::ListAndWatch)?;
    setup.engine.defer_flow_searches();
    let tasks = setup
        .tasks
        .as_ref()
        .expect("a setup that watches has tasks");
    let sender = tasks.sender().clone();
    let mut searcher = FlowSearcher::start(sender.clone())?;
    let mut free_memory = FreeMemory::default();
    let mut reminder = Reminder::default();
    process::prepare_mode(setup.settings(), Stage::Start)?;
    info!(%mode, %node, "started");
    if let Some(chosen) = &setup.iptables {
        info!(backend = %chosen.backend, reason = %chosen.reason, "iptables backend");
    }
    flows::warn_if_unreadable(&setup.engine);
    let (questioner, questions) = page::channel(setup.settings().config.clone(), sender);
    let explain = Arc::new(move |query: &str| questioner.answer(query));
    let _servers = serve(&setup, &settings, Some(explain))?;
    report_start(&setup);
    let mut reporter = SyncReporter::default();
    let mut synced = false;
    loop {
        setup.poll()?;
        let began = Instant::now();
        if let Some(report) = setup.engine.poll(setup.now()) {
            let ended = Instant::now();
            setup.telemetry.synced(&setup.engine, &report, began, ended);
            if !synced {
                check_first_sync(&report, &setup.settings().config)?;
                synced = report.is_success();
                if synced {
                    let config = &setup.settings().config;
                    let excluded = config.ipvs.excluded.clone();
                    remove_leftovers(mode, config.iptables.backend, excluded);
                }
            }
            if synced && !setup.engine.is_watching() {
                subscribe(&mut setup);
            }
            reporter.report(&mut setup, &report, ended - began);
            reminder.synced(&setup.engine, setup.now());
            free_memory.synced(&report, setup.now());
        }
        questions.poll(&setup.engine);
        if searcher.poll(&mut setup)? {
            free_memory.searched(setup.now());
        }
        if free_memory.is_due(setup.now()) {
            allocator::return_free_memory();
        }
        let deadlines = [
            setup.engine.next_deadline(),
            setup.next_deadline(),
            free_memory.next_deadline(),
        ];
        let next = deadlines.into_iter().flatten().min();
        let timeout = next.map(|next| next.saturating_sub(setup.now()));
        let mut others = setup.engine.fds();
        others.extend(setup.readable());
        others.extend(config.as_ref().map(AsFd::as_fd));
        let readable = wait::readable(signals.as_fd(), &others, timeout);
        if readable.map_err(Failure::cannot("wait for events"))? {
            searcher.finish(&mut setup);
            info!("stopped; the rules stay");
            return Ok(());
        }
        if config.as_mut().is_some_and(ConfigWatch::changed) {
            return Err(Failure::machine(CHANGED));
        }
    }
}

/// Watches the configuration file, if there is one.
fn watch_config(settings: &Settings) -> Result<Option<ConfigWatch>, Failure> {
    let Some(path) = &settings.config_file else {
        return Ok(None);
    };
    let watch = ConfigWatch::open(path).map_err(|error| {
        let file = path.display();
        Failure::input(format_args!("{file}: cannot be watched: {error}"))
    })?;
    Ok(Some(watch))
}

/// Removes the objects of other modes and of the other variant of iptables, on a thread of
/// its own.
fn remove_leftovers(mode: Mode, backend: IptablesBackend, excluded: Vec<IpNet>) {
    let builder = thread::Builder::new().name("leftovers".to_owned());
    let spawned = builder.spawn(move || cleanup::remove_leftovers(mode, backend, &excluded));
    if let Err(error) = spawned {
        warn!("leftovers of other modes stay, because no thread can be started: {error}");
    }
}

/// Subscribes to changes of the rules by other programs.
fn subscribe(setup: &mut Setup) {
    if let Err(error) = setup.engine.watch() {
        let message = "cannot subscribe to changes of the rules; changes by other programs are found by periodic checks only";
        warn!("{message}: {}", chain(&error));
    }
}
