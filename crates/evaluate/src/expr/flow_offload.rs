//! `flow_offload`

use vipline_nftables::expr::{CtState, CtStatus};

use crate::cause::Cause;
use crate::packet::{TCP, UDP};
use crate::walk::{Flow, Rest, Walk};

/// The kernel offloads only established connections of TCP and UDP.
///
/// Whether a TCP connection is established is unknown, which matters only if the rule has
/// further expressions.
pub(super) fn evaluate(walk: &Walk<'_>, rest: Rest<'_>) -> Result<Flow, Cause> {
    let is_confirmed = walk.tracked.entry().is_some_and(|entry| {
        entry.state != CtState::NEW || entry.connection.status.contains(CtStatus::CONFIRMED)
    });
    match walk.packet.protocol() {
        TCP if is_confirmed && !rest.is_empty() => {
            Err(Cause::unknown("whether the connection is offloaded"))
        }
        TCP | UDP => Ok(Flow::next_if(is_confirmed)),
        _ => Ok(Flow::Break),
    }
}
