//! The first reply of an endpoint.

use std::net::SocketAddr;

use proxy_core::evaluate::{self, Outcome, Rules, Verdict};
use proxy_core::evaluator::Environment;

use super::answer::Reply;
use super::inquiry::Facts;
use super::sentence::line;
use super::side::{is_foreign, is_placed, step};

/// Evaluates the first reply to a packet that reached an endpoint. Returns `None` if the
/// destination was not translated: no reply depends on the proxy then.
///
/// The endpoint answers the client that it sees. The reply passes the rules of this node in
/// state `established`.
pub(super) fn evaluate(
    outcome: &Outcome,
    rules: &Rules,
    host: &dyn Environment,
    facts: &Facts,
) -> Option<Reply> {
    let Verdict::Endpoint(endpoint) = outcome.verdict else {
        return None;
    };
    if let Some(lost) = facts.bypass(endpoint, outcome) {
        return Some(lost);
    }
    let Some(connection) = &outcome.connection else {
        let reason = "connection tracking does not know the connection, and translates no reply \
                      of it";
        return Some(lost(reason.to_owned(), false));
    };
    let packet = evaluate::reply(host, connection);
    Some(match rules.evaluate(&packet, host) {
        Ok(outcomes) => {
            let failed = outcomes.iter().find_map(|it| failure(it, facts));
            failed.unwrap_or(Reply::Passes)
        }
        Err(error) => Reply::Unknown {
            reason: error.to_string(),
        },
    })
}

fn lost(reason: String, foreign: bool) -> Reply {
    Reply::Lost {
        reason,
        field: None,
        foreign,
    }
}

/// Returns why the client does not get a reply, or discards it.
fn failure(outcome: &Outcome, facts: &Facts) -> Option<Reply> {
    let packet = &outcome.packet;
    let is_sent = matches!(
        outcome.verdict,
        Verdict::Endpoint(_) | Verdict::Forwarded | Verdict::Delivered
    );
    let port = packet.source_port().unwrap_or_default();
    let from = SocketAddr::new(packet.source(), port);
    if is_sent && from == facts.question.destination {
        return None;
    }
    if is_sent {
        let reason = format!(
            "they come from {from} and not from {}, because nothing translates them back, and \
             the client discards them",
            facts.question.destination
        );
        return Some(lost(reason, false));
    }
    if let Some(obstacle) = outcome.obstacle() {
        return Some(lost(obstacle.to_string(), false));
    }
    let mut events = outcome.trace.events().iter().rev();
    let by = events.find(|it| is_placed(it));
    let foreign = by.is_some_and(is_foreign);
    let by = by.map(|it| line(&step(it))).unwrap_or_default();
    let reason = match outcome.verdict {
        Verdict::Undecided => return Some(Reply::Unknown { reason: by }),
        _ if foreign => {
            format!("a rule of another program drops them, which the proxy does not change: {by}")
        }
        _ => format!("a rule drops them: {by}"),
    };
    Some(lost(reason, foreign))
}
