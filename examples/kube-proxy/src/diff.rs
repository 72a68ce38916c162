//! `diff`: what the kernel lacks, and which flows are stale.

use std::process::ExitCode;

use crate::failure::{Failure, chain};
use crate::flows;
use crate::output::print;
use crate::settings::Settings;
use crate::setup::{Reading, Setup};

/// Prints the flows that would be deleted, and the edits between the kernel and the
/// plan: 0 for none, 1 for some.
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
    // In front of all documents they are in none: not all programs know comments.
    let comments = flows::comments(&difference);
    print(&(comments + &difference.script))?;
    let is_some = difference.edits > 0 || !difference.stale_flows.is_empty();
    Ok(ExitCode::from(u8::from(is_some)))
}
