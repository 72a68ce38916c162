//! `render`: what would be programmed.

use crate::failure::Failure;
use crate::output::print;
use crate::settings::Settings;
use crate::setup::Setup;

/// Prints the plan of both families, whatever this machine has or may do.
///
/// # Errors
///
/// The manifests are wrong.
pub fn render(settings: &Settings) -> Result<(), Failure> {
    let mut setup = Setup::plan_only(settings)?;
    print(&setup.engine.desired())
}
