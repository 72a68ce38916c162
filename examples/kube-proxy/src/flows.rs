//! Log lines and comments about stale conntrack flows.

use proxy_core::{CleanupReport, Difference, Engine, Error, Family};
use tracing::{debug, info, warn};

use crate::failure::chain;
use crate::logging::ROUTINE;

/// Warns if the kernel cannot list flows, because stale flows then stay.
pub fn warn_if_unreadable(engine: &Engine) {
    if !engine.is_flow_cleanup_enabled() {
        warn!(
            "conntrack cannot be read (module nf_conntrack_netlink); stale flows are not deleted: \
             clients that reuse a source port may reach removed endpoints"
        );
    }
}

/// Logs the result of a search for stale flows in a family.
pub fn log_search(family: Family, result: &Result<CleanupReport, Error>) {
    match result {
        Ok(cleaned) => {
            let (deleted, took) = (cleaned.deleted, cleaned.duration.unwrap_or_default());
            match deleted {
                0 => debug!(%family, duration = ?took, "no stale flows"),
                // Every rolling update of a UDP Service makes flows stale.
                _ => {
                    info!(target: ROUTINE, %family, deleted, duration = ?took, "deleted stale flows")
                }
            }
            if !cleaned.is_complete {
                let message = "search for stale flows interrupted; retrying";
                warn!(%family, "{message}");
            }
        }
        Err(error) => {
            let message = "search for stale flows failed; retrying";
            warn!(%family, "{message}: {}", chain(error));
        }
    }
}

/// Returns one comment line per flow that a sync would delete, sorted.
pub fn comments(difference: &Difference) -> String {
    let flows = difference.stale_flows.iter();
    let mut lines: Vec<_> = flows
        .map(|flow| format!("# stale flow: {flow}\n"))
        .collect();
    lines.sort_unstable();
    lines.concat()
}
