//! `diff`: the edits between the kernel and the plan, rejected objects, stale flows, and what
//! another kube-proxy left.

use std::process::ExitCode;

use crate::cleanup::Leftovers;
use crate::failure::{Failure, ONLY_REJECTED, chain};
use crate::flows;
use crate::output::print;
use crate::rejectedz::Page;
use crate::settings::Settings;
use crate::setup::Setup;

/// Prints the flows that would be deleted, the objects that the running proxy reports
/// as rejected, what another kube-proxy left, and the other edits between the kernel and the
/// plan.
///
/// The exit code is 0 without a difference, 3 if rejected objects are the only
/// difference, otherwise 1.
///
/// # Errors
///
/// The manifests are invalid, or the kernel cannot be read.
pub fn diff(settings: Settings) -> Result<ExitCode, Failure> {
    let page = Page::request(&settings);
    let mut setup = Setup::compare(settings)?;
    let known = page.as_ref().map(Page::known).unwrap_or_default();
    let difference = setup
        .engine
        .difference_except(&known)
        .map_err(|error| Failure::machine(chain(&error)))?;
    // The comments come before all documents, because not all programs accept
    // comments.
    let mut comments = flows::comments(&difference);
    comments += &page.as_ref().map(Page::comments).unwrap_or_default();
    // The kernel evaluates leftovers beside the plan, and a running proxy does not look for
    // them again. So they are a difference, although no edit of the plan removes them.
    let leftovers = Leftovers::find(&setup.settings().config);
    comments += &leftovers.comments();
    print(&(comments + &difference.script))?;
    let is_drift = difference.edits > 0 || !difference.stale_flows.is_empty() || leftovers.is_any();
    Ok(ExitCode::from(match difference.rejected {
        _ if is_drift => 1,
        0 => 0,
        _ => ONLY_REJECTED,
    }))
}
