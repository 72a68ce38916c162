//! `render`: the plan as text.

use crate::failure::Failure;
use crate::output::print;
use crate::settings::Settings;
use crate::setup::Setup;

/// Prints the plan for both IP families, regardless of this machine's kernel.
///
/// # Errors
///
/// The manifests are invalid.
pub fn render(settings: &Settings) -> Result<(), Failure> {
    let mut setup = Setup::plan_only(settings)?;
    print(&setup.engine.desired())
}
