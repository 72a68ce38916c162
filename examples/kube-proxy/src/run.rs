//! Running: one thread that waits, and works when there is something to do.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use proxy_core::{Due, Report};
use tracing::{debug, info, warn};

use crate::cleanup;
use crate::config::watch::{CHANGED, ConfigWatch};
use crate::failure::{Failure, chain, permanent_failure};
use crate::flows;
use crate::kubernetes::events::{EventType, NewEvent, Regarding};
use crate::process;
use crate::rejections;
use crate::server::{self, Servers, Trouble};
use crate::settings::Settings;
use crate::setup::{Reading, Setup};
use crate::signals::Signals;
use crate::telemetry;
use crate::wait;

/// Keeps the kernel in step with all objects until SIGTERM or SIGINT.
///
/// The rules stay when it ends.
///
/// # Errors
///
/// Objects or credentials are wrong at the start, the machine lacks something,
/// or something changed that only a restart takes up.
pub fn run(mut settings: Settings) -> Result<(), Failure> {
    settings.config.started = Some(telemetry::clock());
    let signals = Signals::listen().map_err(Failure::machine)?;
    Signals::limit_shutdown().map_err(Failure::machine)?;
    process::adjust_oom_score(settings.oom_score_adj);
    let mut config = match &settings.config_file {
        Some(path) => Some(ConfigWatch::open(path).map_err(|error| {
            let file = path.display();
            Failure::input(format_args!("{file}: it cannot be watched: {error}"))
        })?),
        None => None,
    };
    let (mode, node) = (settings.config.mode, settings.config.node_name.clone());
    let mut setup = Setup::open(settings.clone(), Reading::Watched)?;
    process::prepare_mode(setup.settings())?;
    info!(%mode, %node, "started");
    flows::warn_of_untracked(&setup.engine);
    let _servers = serve(&setup, &settings)?;
    setup.recorder.note(NewEvent {
        regarding: Regarding::Node,
        kind: EventType::Normal,
        reason: "Starting",
        action: "StartKubeProxy",
        text: String::new(),
    });
    let mut synced = false;
    loop {
        setup.poll()?;
        let began = Instant::now();
        if let Some(report) = setup.engine.poll(setup.now()) {
            let ended = Instant::now();
            setup.telemetry.synced(&setup.engine, &report, began, ended);
            if !synced {
                first(&report)?;
                synced = report.is_success();
                if synced {
                    let excluded = std::mem::take(&mut settings.config.ipvs.excluded);
                    thread::spawn(move || cleanup::leftovers_of_other_modes(mode, &excluded));
                }
            }
            if synced && !setup.engine.is_watching() {
                listen(&mut setup);
            }
            tell(&setup, &report, ended - began);
        }
        let deadlines = [setup.engine.next_deadline(), setup.next_deadline()];
        let next = deadlines.into_iter().flatten().min();
        let timeout = next.map(|next| next.saturating_sub(setup.now()));
        let mut others = setup.engine.fds();
        others.extend(setup.readable());
        others.extend(config.as_ref().map(AsFd::as_fd));
        let asked = wait::readable(signals.as_fd(), &others, timeout);
        if asked.map_err(Failure::machine)? {
            info!("ended; the rules stay");
            return Ok(());
        }
        if config.as_mut().is_some_and(ConfigWatch::changed) {
            return Err(Failure::machine(CHANGED));
        }
    }
}

/// Begins to serve health and metrics beside the engine.
fn serve(setup: &Setup, settings: &Settings) -> Result<Option<Servers>, Failure> {
    let Some(tasks) = &setup.tasks else {
        return Ok(None);
    };
    let (recorder, sender) = (setup.recorder.clone(), tasks.sender().clone());
    let is_hard = settings.bind_address_hard_fail;
    let tell = move |trouble: Trouble| {
        let (regarding, is_fatal) = match &trouble {
            Trouble::Service { name, .. } => (Regarding::Service(name.clone()), false),
            Trouble::Health(_) | Trouble::Metrics(_) => (Regarding::Node, is_hard),
        };
        // Of servers that are tried again upstream tells nobody.
        if is_fatal || matches!(trouble, Trouble::Service { .. }) {
            recorder.note(NewEvent {
                regarding,
                kind: EventType::Warning,
                reason: trouble.reason(),
                action: trouble.action(),
                text: trouble.text().to_owned(),
            });
        }
        if is_fatal {
            sender.fatal(trouble.text());
        }
    };
    let descriptors = process::raise_descriptor_limit();
    let tell = Arc::new(tell);
    let servers = server::start(settings, &setup.telemetry, descriptors, tell);
    servers.map(Some).map_err(Failure::machine)
}

/// Gives up when the first sync meets what no retry will mend.
fn first(report: &Report) -> Result<(), Failure> {
    report
        .errors()
        .find_map(|(_, error)| permanent_failure(error))
        .map_or(Ok(()), Err)
}

/// Begins to hear what somebody else does to the rules.
fn listen(setup: &mut Setup) {
    if let Err(error) = setup.engine.watch() {
        let words = "changes by others are found late only, for nobody tells of them";
        warn!("{words}: {}", chain(&error));
    }
}

fn tell(setup: &Setup, report: &Report, took: Duration) {
    for contested in &report.contested {
        warn!("{contested}");
    }
    for lost in &report.lost {
        // The only trace of the loss if there are too many Events or no API.
        info!("{lost}");
        setup.recorder.note(NewEvent {
            regarding: Regarding::Service(lost.service.clone()),
            kind: EventType::Warning,
            reason: "AddressContested",
            action: "ClaimAddress",
            text: lost.to_string(),
        });
    }
    for scheduler in &report.missing_schedulers {
        warn!(%scheduler, "the kernel lacks a scheduler: Services that ask for it get the usual one");
    }
    for done in &report.families {
        rejections::log(done);
        let exists = |name: &_| !setup.engine.store().ports_of(name).is_empty();
        let notes = rejections::notes(done, exists).into_iter();
        notes.for_each(|note| setup.recorder.note(note));
        match &done.outcome {
            Ok(outcome) => {
                let (family, edits, dumped) = (done.family, outcome.edits, outcome.dumped);
                match &done.drift {
                    _ if outcome.took_over => {
                        info!(%family, edits, ?took, "took over what somebody else programmed");
                    }
                    // Where nobody tells of changes it is so again and again.
                    None if report.due == Due::Timer && edits == 0 => {
                        debug!(%family, ?took, "looked, and all was as it should be");
                    }
                    None => info!(%family, edits, dumped, ?took, "synced"),
                    Some(drift) => {
                        warn!(%family, edits, ?took, "mended what somebody else did: {drift}");
                    }
                }
            }
            Err(error) => {
                let family = done.family;
                warn!(%family, "sync failed, it will be tried again: {}", chain(error));
            }
        }
        flows::tell(done);
    }
}
