//! The commands of the modes of Linux.

use std::process::ExitCode;

use crate::cli::{Cli, Command};
use crate::failure::Failure;
use crate::settings::Settings;
use crate::setup::Setup;
use crate::{diff, explain, oneshot, output, process, run};

/// Runs a command. `assumed` is what `explain` assumed about the settings.
///
/// # Errors
///
/// The command fails.
pub(crate) fn run_command(
    cli: &Cli,
    settings: Settings,
    assumed: Vec<String>,
) -> Result<ExitCode, Failure> {
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
        Some(Command::Explain(args)) => explain::explain(settings, args, assumed),
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
