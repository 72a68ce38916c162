//! Removal of everything that a kube-proxy programmed in any mode, upstream's or this
//! one.

use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use ipnet::IpNet;
use proxy_core::cleanup::{Removal, Scope, Step};
use proxy_core::{Config, IptablesBackend, Mode};
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
    let removal = proxy_core::cleanup::find(Scope::AllModes, excluded).map_err(Failure::machine)?;
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

/// Number of attempts to remove leftovers, and the pause between two. A program that holds
/// the lock of the legacy variant delays a removal; what still fails after half a minute needs
/// somebody.
const ATTEMPTS: usize = 3;
const PAUSE: Duration = Duration::from_secs(15);

/// Removes what other modes left, and what a kube-proxy left in the other variant of iptables,
/// after the first successful sync. Logs a summary. Virtual servers within `excluded` networks
/// stay.
///
/// Services stay reachable all the time, because the rules of the running mode are
/// complete. Upstream removes such objects before its first sync, and those of the other variant
/// never: there they decide about packets for as long as the node runs.
pub fn remove_leftovers(mode: Mode, backend: IptablesBackend, excluded: &[IpNet]) {
    let scope = Scope::AllExcept(mode, backend);
    let mut removed = Vec::new();
    for attempt in 1..=ATTEMPTS {
        let removal = match proxy_core::cleanup::find(scope, excluded) {
            Ok(removal) => removal,
            Err(error) => {
                return warn!("leftovers of another kube-proxy cannot be determined: {error}");
            }
        };
        if attempt == 1 {
            warn_of_remainders(&removal);
        }
        let mut failed = 0;
        for (step, result) in removal.apply() {
            match result {
                Ok(()) => removed.push(step.summary()),
                Err(error) => {
                    failed += 1;
                    let error = chain(&error);
                    match attempt {
                        ATTEMPTS => warn!(
                            "leftovers of another kube-proxy stay, and the kernel still evaluates them: {error}; `kube-proxy diff` lists them, and a restart tries again"
                        ),
                        _ => warn!(
                            "leftovers of another kube-proxy cannot be removed: {error}; trying again in {PAUSE:?}"
                        ),
                    }
                }
            }
        }
        if failed == 0 {
            break;
        }
        if attempt < ATTEMPTS {
            thread::sleep(PAUSE);
        }
    }
    if !removed.is_empty() {
        info!("removed leftovers of other modes: {}", removed.join("; "));
    }
}

/// What a running proxy would remove after its first sync, as comments for `diff`.
#[derive(Debug, Default)]
pub struct Leftovers {
    /// Objects of another kube-proxy, one each.
    found: Vec<String>,
    /// Checks that were not possible.
    unchecked: Vec<String>,
}

impl Leftovers {
    /// Searches for objects that a proxy with this configuration neither writes nor reads.
    pub fn find(config: &Config) -> Self {
        let scope = Scope::AllExcept(config.mode, config.iptables.backend);
        match proxy_core::cleanup::find(scope, &config.ipvs.excluded) {
            Ok(removal) => Self {
                found: removal.steps.iter().map(Step::summary).collect(),
                unchecked: removal.unchecked.iter().map(|it| chain(it)).collect(),
            },
            Err(error) => Self {
                found: Vec::new(),
                unchecked: vec![chain(&error)],
            },
        }
    }

    /// Returns whether objects were found.
    pub fn is_any(&self) -> bool {
        !self.found.is_empty()
    }

    /// Returns one comment line for each object and failed check.
    pub fn comments(&self) -> String {
        let found = self.found.iter().map(|it| {
            format!("# left by another kube-proxy, removed after the next start: {it}\n")
        });
        let unchecked = self
            .unchecked
            .iter()
            .map(|it| format!("# leftovers of another kube-proxy: {it}\n"));
        found.chain(unchecked).collect()
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
