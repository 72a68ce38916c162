//! Preparation of the process and the node: OOM score, limits, and what the mode
//! requires.

use std::fs;

use anyhow::{Context as _, Result};
use daemon::descriptors::raise_limit;
use proxy_core::interfaces;
use tracing::{info, warn};

use crate::failure::{Failure, chain};
use crate::families;
use crate::node;
use crate::settings::Settings;
use crate::sysctl::{self, Stage};

/// OOM score adjustment of this process.
const OOM_SCORE: &str = "/proc/self/oom_score_adj";

/// Sets the OOM score adjustment.
///
/// A value below the initial one requires CAP_SYS_RESOURCE. An error is a
/// warning.
pub fn adjust_oom_score(score: i32) {
    if let Err(error) = write_oom_score(score) {
        warn!(
            "{error:#}; continuing with the present value: if the node runs out of memory, the \
             kernel may end this process earlier. A lower value needs CAP_SYS_RESOURCE; \
             --oom-score-adj sets another one"
        );
    }
}

fn write_oom_score(score: i32) -> Result<()> {
    let context = || format!("set {OOM_SCORE} to {score}");
    let present = fs::read_to_string(OOM_SCORE).with_context(context)?;
    if present.trim() != score.to_string() {
        fs::write(OOM_SCORE, score.to_string()).with_context(context)?;
    }
    Ok(())
}

/// Raises the limit of open files, and returns the limit in force.
pub fn raise_descriptor_limit() -> usize {
    raise_limit().unwrap_or_else(|(limit, error)| {
        warn!("RLIMIT_NOFILE cannot be raised, using {limit}: {error}");
        limit
    })
}

/// Returns the fallback settings if the kernel does not support the mode and a
/// fallback exists, otherwise the settings unchanged.
pub fn choose(mut settings: Settings) -> Settings {
    let mode = settings.config.mode;
    let Some(instead) = settings.fallback.take() else {
        return settings;
    };
    match mode.check_kernel() {
        Err(reason) => {
            let other = instead.config.mode;
            warn!("Can't use {mode} mode: {reason}; using {other} mode instead");
            *instead
        }
        Ok(()) => settings,
    }
}

/// Sets sysctls and other settings of the mode before the first sync.
///
/// # Errors
///
/// A sysctl cannot be set. Other settings that cannot be set are warnings.
pub fn prepare_mode(settings: &Settings, stage: Stage) -> Result<(), Failure> {
    let config = &settings.config;
    for sysctl in config.mode.sysctls(config, &node::release()) {
        let applied = sysctl.apply();
        applied.map_err(|error| Failure::machine(sysctl::with_remedy(&error, stage)))?;
    }
    if let Err(error) = config.mode.prepare(config) {
        warn!("{}", chain(&error));
    }
    Ok(())
}

/// `--init-only`: does the steps that need more than CAP_NET_ADMIN, and checks
/// that the kernel supports the mode.
///
/// All modes set the configured conntrack sysctls, and then what the mode
/// requires. If the mode has a check of the kernel, the check makes the kernel
/// load its modules.
///
/// # Errors
///
/// A sysctl cannot be set, or the kernel does not support the mode.
pub fn init_only(settings: &Settings) -> Result<(), Failure> {
    let mode = settings.config.mode;
    sysctl::set_conntrack(&settings.configuration.conntrack, Stage::Init);
    prepare_mode(settings, Stage::Init)?;
    let mut is_checked = false;
    let mut config = settings.config.clone();
    config.engine.families = interfaces::families();
    for family in families::supported(&config)? {
        let has_check = mode.probe(&config, family);
        if has_check.map_err(Failure::machine)? {
            is_checked = true;
            info!(%mode, %family, "the kernel supports the mode");
        }
    }
    if !is_checked {
        info!(%mode, "the node is prepared");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_oom_score_is_an_error_with_its_value() {
        let present = fs::read_to_string(OOM_SCORE).unwrap();
        write_oom_score(present.trim().parse().unwrap()).unwrap();
        let error = format!("{:#}", write_oom_score(1001).unwrap_err());
        assert!(error.contains("to 1001: "), "{error}");
    }
}
