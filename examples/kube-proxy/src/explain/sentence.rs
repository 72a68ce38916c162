//! The reason and the final sentence of an answer.

use std::net::SocketAddr;

use proxy_core::reason::{Expectation, Finding, Reason};

use super::answer::{Answer, Outcome, Path, Side, Step};
use super::inquiry::{Facts, is_recorded, masquerade_words};

/// Returns the reason for the result.
pub(super) fn reason(facts: &Facts, plan: &Side, kernel: Option<&Side>) -> String {
    if let Some(error) = &plan.error {
        return format!("the plan cannot be evaluated: {error}");
    }
    let by_objects = facts
        .finding
        .reason
        .sentence(facts.question.destination.ip());
    match kernel.and_then(foreign) {
        Some(step) => format!("a rule of another program decides: {}", line(step)),
        None => by_objects,
    }
}

/// Returns the last step of a path that a rule of another program ended.
fn foreign(side: &Side) -> Option<&Step> {
    let path = side.paths.iter().find(|path| path.foreign)?;
    deciding(path)
}

/// Returns the step that decided the end of a path.
pub(super) fn deciding(path: &Path) -> Option<&Step> {
    path.steps.iter().rfind(|step| !step.place.is_empty())
}

/// Returns a step in one line.
pub(super) fn line(step: &Step) -> String {
    let handle = step
        .handle
        .map_or_else(String::new, |it| format!(" handle {it}"));
    let counter = step.counter.map_or_else(String::new, |it| {
        format!(" [{} packets, {} bytes]", it.packets, it.bytes)
    });
    match step.place.is_empty() {
        true => step.text.clone(),
        false => format!("{}{handle}: {}{counter}", step.place, step.text),
    }
}

/// Returns the sentence that answers the question.
pub(super) fn sentence(answer: &Answer, finding: &Finding) -> String {
    let Answer {
        question,
        outcome,
        plan,
        ..
    } = answer;
    let destination = &question.destination;
    if let Some(kernel) = &answer.kernel {
        if let Some(error) = &kernel.error {
            return format!(
                "Unknown for the kernel: its rules cannot be evaluated: {error}. By the plan, {}",
                uncapitalized(&of_side(answer, finding))
            );
        }
        if let Some(step) = foreign(kernel) {
            let result = result(kernel.outcome);
            return format!(
                "Does not work: {destination} is {result} by a rule of another program, which \
                 the proxy does not change: {}.",
                line(step)
            );
        }
        if answer.agrees == Some(false) {
            return disagreement(answer, kernel);
        }
    }
    if let Some(to) = truth(answer).paths.iter().find_map(|path| path.unroutable) {
        return without_route(answer, to);
    }
    if is_contradiction(finding, plan) {
        return format!(
            "The plan contradicts the objects: the rules give {}, and by the objects {}. \
             This is an error of kube-proxy; please report it.",
            result(*outcome),
            finding.reason.sentence(ip(destination))
        );
    }
    of_side(answer, finding)
}

/// Returns the sentence about a packet that the node drops for want of a route.
///
/// The node looks for the route before most chains that refuse or drop packets.
fn without_route(answer: &Answer, to: SocketAddr) -> String {
    let destination = &answer.question.destination;
    let own = format!("Does not work: this node has no route to {to}");
    match (to.to_string() == *destination, &answer.service) {
        (true, Some(_)) => format!(
            "{own}, and drops the packets of connections that get no endpoint: {}.",
            answer.reason
        ),
        (true, None) => format!("{own}: {}.", answer.reason),
        (false, _) => format!("{own}, to which {destination} leads."),
    }
}

/// Returns whether the evaluation of the plan contradicts the objects.
fn is_contradiction(finding: &Finding, plan: &Side) -> bool {
    if plan.error.is_some() {
        return false;
    }
    let is_reachable = !plan.endpoints.is_empty();
    match finding.expectation {
        Expectation::Reachable => {
            let expected: Vec<_> = finding.endpoints.iter().map(ToString::to_string).collect();
            let is_expected = |address: &String| expected.contains(address);
            plan.outcome != Outcome::Reachable
                || !plan.endpoints.iter().all(|it| is_expected(&it.address))
        }
        Expectation::Refused => plan.outcome != Outcome::Refused,
        Expectation::Dropped => plan.outcome != Outcome::Dropped,
        _ => is_reachable && !matches!(finding.reason, Reason::Contested { .. }),
    }
}

fn ip(destination: &str) -> std::net::IpAddr {
    let parsed = destination.parse().map(|it: SocketAddr| it.ip());
    parsed.unwrap_or_else(|_| std::net::Ipv4Addr::UNSPECIFIED.into())
}

fn of_side(answer: &Answer, finding: &Finding) -> String {
    let Answer {
        question,
        outcome,
        reason,
        field,
        ..
    } = answer;
    let destination = &question.destination;
    let field = field
        .as_ref()
        .map(|field| format!(" ({field})"))
        .unwrap_or_default();
    match (outcome, &answer.service) {
        (Outcome::Reachable, Some(service)) => {
            let rivals = match &*answer.rivals {
                [] => String::new(),
                rivals => format!("; {} also claims it and does not get it", rivals.join(", ")),
            };
            format!(
                "Works: {destination} is the {} of {}, and leads to {}, {}{rivals}.",
                service.address,
                port_name(finding),
                chances(answer),
                masquerade_words(answer.masquerade)
            )
        }
        (Outcome::Reachable, None) => format!("Works without the proxy: {reason}."),
        (outcome, Some(service)) => format!(
            "Does not work: {destination} is the {} of {}, and connections are {}: {reason}{field}.",
            service.address,
            port_name(finding),
            result(*outcome)
        ),
        (outcome, None) => format!(
            "Does not work: connections to {destination} are {}: {reason}{field}.",
            result(*outcome)
        ),
    }
}

fn port_name(finding: &Finding) -> String {
    let port = finding.port.as_ref();
    port.map(|port| port.name.to_string()).unwrap_or_default()
}

/// Returns the kernel's side, or that of the plan if the kernel is unknown.
fn truth(answer: &Answer) -> &Side {
    answer.kernel.as_ref().unwrap_or(&answer.plan)
}

/// Returns the endpoints in words.
fn chances(answer: &Answer) -> String {
    match &*answer.endpoints {
        [] => "no endpoint".to_owned(),
        [only] if is_recorded(truth(answer)) => format!(
            "endpoint {}, which session affinity recorded for this client",
            only.address
        ),
        [only] => format!("endpoint {}", only.address),
        [first, rest @ ..] if rest.iter().all(|it| it.fraction == first.fraction) => {
            let count = answer.endpoints.len();
            format!(
                "one of {count} endpoints, each with probability {}",
                first.fraction
            )
        }
        all => format!(
            "one of {} endpoints with different probabilities",
            all.len()
        ),
    }
}

fn result(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Reachable => "reachable",
        Outcome::Refused => "refused",
        Outcome::Dropped => "dropped",
    }
}

/// Returns the sentence about a difference between kernel and plan.
fn disagreement(answer: &Answer, kernel: &Side) -> String {
    let plan = &answer.plan;
    let by = kernel
        .paths
        .iter()
        .find(|path| !path.end.starts_with("to endpoint"));
    let by = by
        .and_then(deciding)
        .map(|step| format!(" by {}", line(step)));
    format!(
        "Kernel and plan disagree about {}: in the kernel {}{}, by the plan {}. A running proxy \
         repairs such differences with its next sync; `kube-proxy diff` lists them, and \
         /rejectedz those that the kernel rejects.",
        answer.question.destination,
        side_words(kernel),
        by.unwrap_or_default(),
        side_words(plan)
    )
}

fn side_words(side: &Side) -> String {
    let addresses: Vec<_> = side
        .endpoints
        .iter()
        .map(|it| it.address.as_str())
        .collect();
    match side.outcome {
        Outcome::Reachable => {
            let masquerade = masquerade_words(side.masquerade);
            format!("it leads to {} ({masquerade})", addresses.join(", "))
        }
        other => format!("connections are {}", result(other)),
    }
}

fn uncapitalized(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|it| it.to_lowercase().to_string());
    first.unwrap_or_default() + chars.as_str()
}
