//! What is told of stale flows of connection tracking.

use proxy_core::{Difference, Done, Engine};
use tracing::{debug, info, warn};

use crate::failure::chain;

/// Warns if stale flows stay, for the kernel tells of none.
pub fn warn_of_untracked(engine: &Engine) {
    if !engine.is_tracking_flows() {
        warn!(
            "the kernel does not tell of flows, as it does with module nf_conntrack_netlink: \
             clients that keep their port may be led to endpoints that are gone"
        );
    }
}

/// Tells what the search for stale flows did that followed a sync of a family.
pub fn tell(done: &Done) {
    let family = done.family;
    match &done.cleaned {
        None => {}
        Some(Ok(cleaned)) => {
            let (deleted, took) = (cleaned.deleted, cleaned.took.unwrap_or_default());
            match deleted {
                0 => debug!(%family, ?took, "no flow is stale"),
                _ => info!(%family, deleted, ?took, "deleted stale flows"),
            }
            if !cleaned.is_complete {
                let words = "the search for stale flows was interrupted, it will be made again";
                warn!(%family, "{words}");
            }
        }
        Some(Err(error)) => {
            let words = "the search for stale flows failed, it will be made again";
            warn!(%family, "{words}: {}", chain(error));
        }
    }
}

/// Returns a line for each flow that a sync would delete, in an order that does
/// not depend on the kernel; each is a comment.
pub fn comments(difference: &Difference) -> String {
    let flows = difference.stale_flows.iter();
    let mut lines: Vec<_> = flows
        .map(|flow| format!("# stale flow: {flow}\n"))
        .collect();
    lines.sort_unstable();
    lines.concat()
}
