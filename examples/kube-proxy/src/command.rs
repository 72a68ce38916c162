//! Runs the command line.

use std::io;
use std::process::ExitCode;

use tracing::{error, info, warn};
use tracing_subscriber::fmt::writer::BoxMakeWriter;

use crate::cli::{Cli, Command};
use crate::config::{Effective, Logging};
use crate::failure::Failure;
#[cfg(target_os = "linux")]
use crate::linux;
use crate::settings::Settings;
use crate::stop::Stop;
use crate::{allocator, kernelspace, logging, node, output};

/// Runs the command line, with the log on stderr, and returns the exit code.
pub(crate) fn start(cli: &Cli) -> ExitCode {
    run(cli, BoxMakeWriter::new(io::stderr), &Stop::default())
}

/// Runs the command line until its end or a request to stop. Writes the log to `log`.
pub(crate) fn run(cli: &Cli, log: BoxMakeWriter, stop: &Stop) -> ExitCode {
    allocator::limit_free_memory();
    if let Some(text) = cli.version.apply() {
        return match output::print(&text) {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => failure.code(),
        };
    }
    let effective = Effective::new(&cli.flags);
    let logging = match &effective {
        Ok(effective) => effective.configuration.logging.clone(),
        Err(_) => Logging::from(&cli.flags.log),
    };
    logging::start(&logging, log);
    let done = match cli.conflict() {
        Some(reason) => Err(Failure::input(reason)),
        // Cleanup depends on no other setting.
        None if cli.cleanup => cleanup(cli, effective),
        None => effective.and_then(|effective| run_command(cli, effective, stop)),
    };
    match done {
        Ok(code) => code,
        Err(failure) => {
            for line in failure.to_string().lines() {
                error!("{line}");
            }
            match cli.command {
                // For these commands, exit code 1 is a result.
                Some(Command::Diff | Command::Explain(_)) => ExitCode::from(2),
                _ => failure.code(),
            }
        }
    }
}

fn run_command(cli: &Cli, effective: Effective, stop: &Stop) -> Result<ExitCode, Failure> {
    for warning in &effective.warnings {
        warn!("{warning}");
    }
    if let Some(path) = &cli.flags.write_config_to {
        effective.configuration.write(path)?;
        info!(file = %path.display(), "wrote the configuration");
        return Ok(ExitCode::SUCCESS);
    }
    let hostname = node::hostname();
    #[cfg(target_os = "linux")]
    let (effective, assumed) = match &cli.command {
        Some(Command::Explain(args)) => {
            crate::explain::complete(&cli.flags, args, effective, &hostname)?
        }
        _ => (effective, Vec::new()),
    };
    let settings = Settings::new(&cli.flags, effective, &hostname)?;
    for warning in &settings.warnings {
        warn!("{warning}");
    }
    match settings.mode() {
        None => kernelspace::run_command(cli, settings, stop),
        #[cfg(target_os = "linux")]
        Some(_) => linux::run_command(cli, settings, assumed),
        #[cfg(not(target_os = "linux"))]
        Some(mode) => Err(Failure::input(format_args!("mode {mode} needs Linux"))),
    }
}

/// `--cleanup`: removes the rules of all modes.
#[cfg(target_os = "linux")]
fn cleanup(cli: &Cli, effective: Result<Effective, Failure>) -> Result<ExitCode, Failure> {
    let excluded = effective.map(|effective| crate::settings::excluded(&effective.configuration));
    crate::cleanup::cleanup(cli.dry_run, &excluded.unwrap_or_default())
}

/// `--cleanup`: as in upstream, it does not exist on Windows.
#[cfg(not(target_os = "linux"))]
fn cleanup(_: &Cli, _: Result<Effective, Failure>) -> Result<ExitCode, Failure> {
    Err(Failure::input("--cleanup is not implemented on Windows"))
}
