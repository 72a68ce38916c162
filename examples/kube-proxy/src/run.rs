//! Running: one thread that waits, and works when there is something to do.

use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use proxy_core::Report;
use tracing::{info, warn};

use crate::cleanup;
use crate::failure::Failure;
use crate::settings::Settings;
use crate::setup::{Reading, Setup, chain, hopeless};
use crate::signals::Signals;
use crate::wait;

/// Keeps the kernel in step with the manifests until SIGTERM or SIGINT.
///
/// The rules stay when it ends.
///
/// # Errors
///
/// The manifests are wrong at the start, or the machine lacks something.
pub fn run(settings: Settings) -> Result<(), Failure> {
    let signals = Signals::listen().map_err(Failure::machine)?;
    let (mode, node) = (settings.config.mode, settings.config.node_name.clone());
    let mut setup = Setup::open(settings, Reading::Watched)?;
    info!(%mode, %node, "started");
    let start = Instant::now();
    let mut synced = false;
    loop {
        let update = setup.manifests.poll(start.elapsed());
        setup.take(update);
        let begin = start.elapsed();
        if let Some(report) = setup.engine.poll(begin) {
            if !synced {
                first(&report)?;
                synced = report.is_success();
                if synced {
                    thread::spawn(move || cleanup::leftovers_of_other_modes(mode));
                }
            }
            if synced && !setup.engine.is_watching() {
                listen(&mut setup);
            }
            tell(&report, start.elapsed().saturating_sub(begin));
        }
        let deadlines = [
            setup.engine.next_deadline(),
            setup.manifests.next_deadline(),
        ];
        let next = deadlines.into_iter().flatten().min();
        let timeout = next.map(|next| next.saturating_sub(start.elapsed()));
        let mut others = setup.engine.fds();
        others.extend(setup.manifests.readable());
        let asked = wait::readable(signals.as_fd(), &others, timeout);
        if asked.map_err(Failure::machine)? {
            info!("ended; the rules stay");
            return Ok(());
        }
    }
}

/// Gives up when the first sync meets what no retry will mend.
fn first(report: &Report) -> Result<(), Failure> {
    report
        .errors()
        .find_map(|(_, error)| hopeless(error))
        .map_or(Ok(()), Err)
}

/// Begins to hear what somebody else does to the rules.
fn listen(setup: &mut Setup) {
    if let Err(error) = setup.engine.watch() {
        let words = "changes by others are found late only, for nobody tells of them";
        warn!("{words}: {}", chain(&error));
    }
}

fn tell(report: &Report, took: Duration) {
    for contested in &report.contested {
        warn!("{contested}");
    }
    for done in &report.families {
        match &done.outcome {
            Ok(outcome) => {
                let (family, edits, dumped) = (done.family, outcome.edits, outcome.dumped);
                match &done.drift {
                    _ if outcome.took_over => {
                        info!(%family, edits, ?took, "took over what somebody else programmed");
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
    }
}
