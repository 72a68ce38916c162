//! A complete kube-proxy made of the Vipline crates.
//!
//! The library contains the parts of the program and is not published.
//!
//! - [`cli`]: upstream's flags; [`config`]: configuration file, defaults and
//!   validation;
//! - [`settings`]: the configuration in the types of the other modules;
//! - [`setup`]: engine and object source ([`vipline_kube_source`]); [`tasks`]: background
//!   tasks;
//! - [`telemetry`]: health and metrics; [`server`]: both over HTTP;
//! - [`run`], [`oneshot`], [`diff`], [`explain`]: the commands;
//! - [`kernelspace`]: the commands of mode kernelspace;
//! - [`flow_search`]: the thread that searches for stale flows;
//! - [`flows`], [`rejections`], [`rejectedz`], [`refused`]: reports about stale
//!   flows, rejected objects and refused addresses;
//! - [`node`], [`families`]: the node and its IP families;
//! - [`process`], [`sysctl`], [`cleanup`]: preparation of the node, and removal
//!   of all rules;
//! - [`failure`], [`logging`], [`output`], [`signals`], [`wait`],
//!   [`version`]: exit codes, log, stdout and smaller parts; [`allocator`],
//!   [`free_memory`]: return of free memory.

pub mod allocator;

pub mod free_memory;

pub mod cli;

pub mod config;

pub mod settings;

pub mod tasks;

pub mod families;

pub mod node;

pub mod refused;

pub mod rejectedz;

pub mod setup;

pub mod run;

pub mod flows;

pub mod flow_search;

pub mod telemetry;

pub mod server;

pub mod signals;

pub mod wait;

pub mod oneshot;

pub mod diff;

pub mod explain;

pub mod kernelspace;

pub mod process;

pub mod rejections;

pub mod sysctl;

pub mod cleanup;

pub mod output;

pub mod logging;

pub mod version;

pub mod failure;

use std::process::ExitCode;

use tracing::{error, info, warn};

use cli::{Cli, Command};
use config::{Effective, KERNELSPACE, Logging};
use failure::Failure;
use settings::Settings;
use setup::Setup;

/// Runs the command line and returns the exit code.
pub fn start(cli: &Cli) -> ExitCode {
    allocator::limit_free_memory();
    if let Some(text) = cli.version.apply() {
        return match output::print(&text) {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => failure.code(),
        };
    }
    let effective = Effective::new(&cli.flags);
    logging::start(&match &effective {
        Ok(effective) => effective.configuration.logging.clone(),
        Err(_) => Logging::from(&cli.flags.log),
    });
    let done = match cli.conflict() {
        Some(reason) => Err(Failure::input(reason)),
        // Cleanup depends on no other setting.
        None if cli.cleanup => {
            let excluded = effective.map(|effective| settings::excluded(&effective.configuration));
            cleanup::cleanup(cli.dry_run, &excluded.unwrap_or_default())
        }
        None => effective.and_then(|effective| run_command(cli, effective)),
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

fn run_command(cli: &Cli, effective: Effective) -> Result<ExitCode, Failure> {
    for warning in &effective.warnings {
        warn!("{warning}");
    }
    if let Some(path) = &cli.flags.write_config_to {
        effective.configuration.write(path)?;
        info!(file = %path.display(), "wrote the configuration");
        return Ok(ExitCode::SUCCESS);
    }
    let settings = Settings::new(&cli.flags, effective, &node::hostname())?;
    for warning in &settings.warnings {
        warn!("{warning}");
    }
    if settings.configuration.mode == KERNELSPACE {
        return kernelspace::run_command(cli, settings);
    }
    let settings = match cli.command {
        // `render` does not need a kernel, and `explain` not always.
        Some(Command::Render | Command::Explain(_) | Command::SaveKernel) => settings,
        _ => process::choose(settings),
    };
    if cli.init_only {
        return process::init_only(&settings).map(|()| ExitCode::SUCCESS);
    }
    match &cli.command {
        Some(Command::Render) => render(&settings).map(|()| ExitCode::SUCCESS),
        Some(Command::Diff) => diff::diff(settings),
        Some(Command::Explain(args)) => explain::explain(settings, args),
        Some(Command::SaveKernel) => explain::save_kernel().map(|()| ExitCode::SUCCESS),
        None if cli.oneshot => oneshot::oneshot(settings, cli.output),
        None => run::run(settings).map(|()| ExitCode::SUCCESS),
    }
}

/// `render`: prints the plan for both IP families, regardless of this machine's kernel.
fn render(settings: &Settings) -> Result<(), Failure> {
    let mut setup = Setup::plan_only(settings)?;
    output::print(&setup.engine.desired())
}
