//! `diff`: what the kernel lacks.

use std::process::ExitCode;

use crate::failure::{Failure, chain};
use crate::output::print;
use crate::settings::Settings;
use crate::setup::{Reading, Setup};

/// Prints the edits between the kernel and the plan: 0 for none, 1 for some.
///
/// # Errors
///
/// The manifests are wrong, or the kernel does not tell.
pub fn diff(settings: Settings) -> Result<ExitCode, Failure> {
    let mut setup = Setup::open(settings, Reading::Once)?;
    let difference = setup
        .engine
        .difference()
        .map_err(|error| Failure::machine(chain(&error)))?;
    print(&difference.script)?;
    Ok(ExitCode::from(u8::from(difference.edits > 0)))
}
