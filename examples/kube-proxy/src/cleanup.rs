//! Removal of everything that a kube-proxy programmed in any mode, upstream's or this
//! one.

use std::process::ExitCode;

use ipnet::IpNet;
use proxy_core::Mode;
use proxy_core::cleanup::{Removal, Scope};
use tracing::{error, info, warn};

use crate::failure::{Failure, chain};
use crate::output::print;

/// `--cleanup`: removes the objects of all modes, or prints the commands with
/// `dry_run`. Virtual servers within `excluded` networks stay.
///
/// Returns a failure code if a step fails. Failed checks are only logged.
///
/// # Errors
///
/// The kernel's state cannot be read.
pub fn cleanup(dry_run: bool, excluded: &[IpNet]) -> Result<ExitCode, Failure> {
    let removal = Removal::find(Scope::AllModes, excluded).map_err(Failure::machine)?;
    warn_of_remainders(&removal);
    if dry_run {
        let steps = removal.steps.iter();
        let lines: String = steps.map(|step| format!("{step}\n")).collect();
        return print(&lines).map(|()| ExitCode::SUCCESS);
    }
    let mut code = ExitCode::SUCCESS;
    for (step, result) in removal.apply() {
        match result {
            Ok(()) => info!("removed: {}", step.summary()),
            Err(error) => {
                error!("removal failed: {}", chain(&error));
                code = ExitCode::FAILURE;
            }
        }
    }
    if removal.steps.is_empty() {
        info!("nothing to remove");
    }
    Ok(code)
}

/// Removes the objects of other modes after the first successful sync, and logs
/// a summary. Virtual servers within `excluded` networks stay.
///
/// Services stay reachable all the time. Upstream removes such objects before
/// its first sync.
pub fn remove_leftovers(mode: Mode, excluded: &[IpNet]) {
    let removal = match Removal::find(Scope::AllExcept(mode), excluded) {
        Ok(removal) => removal,
        Err(error) => return warn!("leftovers of other modes cannot be determined: {error}"),
    };
    warn_of_remainders(&removal);
    let mut removed = Vec::new();
    for (step, result) in removal.apply() {
        match result {
            Ok(()) => removed.push(step.summary()),
            Err(error) => {
                let error = chain(&error);
                warn!("leftovers of another mode cannot be removed: {error}");
            }
        }
    }
    if !removed.is_empty() {
        info!("removed leftovers of other modes: {}", removed.join("; "));
    }
}

/// Logs failed checks and objects that stay.
fn warn_of_remainders(removal: &Removal) {
    for error in &removal.unchecked {
        let reason = chain(error);
        warn!(
            "rules and objects of kube-proxy that cannot be listed stay, if there are any: {reason}"
        );
    }
    for message in &removal.stays {
        warn!("{message}");
    }
}
