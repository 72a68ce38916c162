//! Mode kernelspace: plans for the Host Networking Service (HNS) of a Windows node.
//!
//! The commands apply the plan to a copy of HNS in memory: `state` reads the copy from a
//! file, and `changes` compares it with the result. `network` chooses the network and
//! its settings.

mod changes;

mod network;

mod state;

use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use daemon::log_limit;
use proxy_core::Report;
use serde::Serialize;
use tracing::warn;
use vipline_hcn::Memory;
use vipline_kube_source::WatchMode;

use self::changes::Changes;
use self::network::Invalid;
pub(crate) use self::network::{Chosen, network_name};
use self::state::{Objects, State};
use crate::cli::{Cli, Command};
use crate::failure::{Failure, ONLY_REJECTED, chain};
use crate::output::print;
use crate::settings::Settings;
use crate::setup::Setup;
use crate::stop::Stop;
#[cfg(windows)]
use crate::windows;

/// Runs a command in mode kernelspace.
///
/// # Errors
///
/// The mode does not support the command, or the input is invalid.
pub fn run_command(cli: &Cli, settings: Settings, stop: &Stop) -> Result<ExitCode, Failure> {
    match &cli.command {
        Some(Command::Render) => render(cli, settings),
        Some(Command::Diff) => diff(cli, settings),
        Some(Command::Explain(_)) => Err(Failure::input(
            "explain does not support mode kernelspace; use render and diff",
        )),
        Some(Command::SaveKernel) => Err(Failure::input(
            "save-kernel does not support mode kernelspace, which has no kernel on Linux",
        )),
        None => run(cli, settings, stop).map(|()| ExitCode::SUCCESS),
    }
}

/// Keeps HNS of this node in sync with all objects.
#[cfg(windows)]
fn run(cli: &Cli, settings: Settings, stop: &Stop) -> Result<(), Failure> {
    let refusal = "--oneshot does not support mode kernelspace; use render and diff";
    match (cli.oneshot, cli.init_only) {
        (true, _) => Err(Failure::input(refusal)),
        // Nothing needs more privileges than the proxy has.
        (false, true) => Ok(()),
        (false, false) => windows::run(settings, stop),
    }
}

#[cfg(not(windows))]
fn run(_: &Cli, _: Settings, _: &Stop) -> Result<(), Failure> {
    Err(Failure::machine(
        "mode kernelspace does not run on Linux; use the commands render and diff",
    ))
}

/// `render`: prints the endpoints and load balancers that HNS has after a sync.
fn render(cli: &Cli, settings: Settings) -> Result<ExitCode, Failure> {
    let Synced {
        after,
        chosen,
        rejected: _,
    } = sync(cli, settings)?;
    print_json(&chosen.planned(after))?;
    Ok(ExitCode::SUCCESS)
}

/// `diff`: prints the objects that a sync creates, modifies and deletes.
///
/// The exit code is 0 without a difference, 3 if HNS would reject objects and nothing else
/// differs, otherwise 1.
fn diff(cli: &Cli, settings: Settings) -> Result<ExitCode, Failure> {
    let Synced {
        after,
        chosen,
        rejected,
    } = sync(cli, settings)?;
    let changes = Changes::between(chosen.before, after);
    if changes != Changes::default() {
        print_json(&changes)?;
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::from(match rejected {
        0 => 0,
        _ => ONLY_REJECTED,
    }))
}

/// Result of a sync in memory.
struct Synced {
    chosen: Chosen,
    after: Objects,
    /// Number of rejected objects.
    rejected: usize,
}

/// Applies the plan to the state of a file, in memory.
fn sync(cli: &Cli, mut settings: Settings) -> Result<Synced, Failure> {
    let chosen = match &cli.flags.kernelspace.against {
        Some(path) => {
            let named = |reason| Failure::input(format_args!("{}: {reason}", path.display()));
            let state = State::read(path).map_err(named)?;
            Chosen::new(state, &settings).map_err(|invalid| match invalid {
                Invalid::Flags(reason) => Failure::input(reason),
                Invalid::State(reason) => named(reason),
            })?
        }
        None => of_this_node(&settings)?,
    };
    chosen.configure(&mut settings.config);
    let memory = Arc::new(Mutex::new(chosen.memory()));
    let mut setup = Setup::with_engine(&settings, WatchMode::ListOnly, |config| {
        chosen.engine(config, &memory)
    })?;
    let report = setup.engine.poll(Duration::ZERO);
    let rejected = report.as_ref().map_or(Ok(0), check)?;
    let memory: Memory = memory
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    let after = Chosen::objects(&memory);
    Ok(Synced {
        chosen,
        after,
        rejected,
    })
}

/// Returns the network of this node, and its objects.
#[cfg(windows)]
fn of_this_node(settings: &Settings) -> Result<Chosen, Failure> {
    windows::read(settings).map_err(|error| Failure::machine(format_args!("{error:#}")))
}

#[cfg(not(windows))]
fn of_this_node(_: &Settings) -> Result<Chosen, Failure> {
    let reason = "mode kernelspace needs the state of HNS on the node: --against FILE";
    Err(Failure::input(reason))
}

/// Logs rejected objects, and returns their number.
fn check(report: &Report) -> Result<usize, Failure> {
    if let Some((family, error)) = report.errors().next() {
        let error = chain(error);
        return Err(Failure::machine(format_args!("{family}: {error}")));
    }
    let rejected = || report.families.iter().flat_map(|it| &it.rejected);
    log_limit::each("rejected objects", rejected(), |object| {
        warn!("rejected: {object}");
    });
    Ok(rejected().count())
}

fn print_json(document: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(document).map_err(Failure::machine)?;
    print(&(text + "\n"))
}
