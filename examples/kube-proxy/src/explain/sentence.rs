//! The reason and the final sentence of an answer.

use std::net::SocketAddr;

use proxy_core::reason::{Expectation, Finding, Reason};
use vipline_service_model::Counted;

use super::answer::{Answer, Outcome, Path, Reached, Reply, Side, Step};
use super::effect::Effect;
use super::inquiry::{self, Facts, is_recorded, masquerade_words};
use super::stale::Stale;

/// Maximum number of addresses in a list.
const MAX_ADDRESSES: usize = 4;

/// Returns the reason for the result.
pub(super) fn reason(facts: &Facts, plan: &Side, kernel: Option<&Side>) -> String {
    if let Some(error) = kernel.and_then(|it| it.error.as_ref()) {
        return format!("the rules of the kernel cannot be evaluated: {error}");
    }
    if let Some(error) = &plan.error {
        return format!("the plan cannot be evaluated: {error}");
    }
    if let Some(way_back) = &facts.no_way_back {
        return way_back.clone();
    }
    let by_objects = facts
        .finding
        .reason
        .sentence(facts.question.destination.ip());
    let truth = kernel.unwrap_or(plan);
    match kernel.and_then(foreign) {
        Some((_, step)) => format!("a rule of another program decides: {}", line(step)),
        None => problem(truth).unwrap_or(by_objects),
    }
}

/// Returns the problem on the way to an endpoint or back, besides rules that decide.
fn problem(side: &Side) -> Option<String> {
    let obstacle = side.paths.iter().find_map(|path| path.obstacle.clone());
    let limit = side.limit.as_ref();
    let limit = limit.map(|it| format!("the result depends on a limit: {}", it.rule));
    let reply = || match side.reply()? {
        (_, Reply::Lost { reason, .. }) => Some(format!("replies are lost: {reason}")),
        (_, Reply::Unknown { reason }) => Some(format!("replies cannot be evaluated: {reason}")),
        (_, Reply::Passes) => None,
    };
    obstacle.or(limit).or_else(reply)
}

/// Returns a path that a rule of another program decided, with that rule.
fn foreign(side: &Side) -> Option<(&Path, &Step)> {
    let path = side.paths.iter().find(|path| path.foreign)?;
    Some((path, path.deciding()?))
}

/// Returns a step in one line.
pub(super) fn line(step: &Step) -> String {
    let handle = step
        .handle
        .map_or_else(String::new, |it| format!(" handle {it}"));
    let counter = step.counter.map_or_else(String::new, |it| {
        let (packets, bytes) = (Counted(it.packets, "packet"), Counted(it.bytes, "byte"));
        format!(" [{packets}, {bytes}]")
    });
    match step.place.is_empty() {
        true => step.text.clone(),
        false => format!("{}{handle}: {}{counter}", step.place, step.text),
    }
}

/// Returns the sentence that answers the question. `leftover` is a rule that another kube-proxy
/// left, on a path through the kernel that differs from the plan.
pub(super) fn sentence(
    answer: &Answer,
    finding: &Finding,
    no_way_back: Option<&str>,
    leftover: Option<&Step>,
) -> String {
    let has_error = |side: &Side| side.error.is_some();
    let is_unknown = has_error(&answer.plan) || answer.kernel.as_ref().is_some_and(has_error);
    if let Some(way_back) = no_way_back {
        let Answer { question, .. } = answer;
        return format!(
            "Does not work: {way_back}, so that no reply to the source {} leaves this node.",
            question.source
        );
    }
    match &answer.kernel {
        _ if is_unknown => unknown(answer, finding),
        Some(kernel) if answer.agrees == Some(false) && foreign(kernel).is_none() => {
            disagreement(answer, finding, kernel, leftover)
        }
        Some(kernel) => of_side(answer, finding, kernel),
        None => of_side(answer, finding, &answer.plan),
    }
}

/// Returns the sentence about rules that cannot be evaluated, with the result of the other
/// side.
fn unknown(answer: &Answer, finding: &Finding) -> String {
    let begin = format!("Unknown: {}.", answer.reason);
    let (by, side) = match (&answer.plan, &answer.kernel) {
        (plan, _) if plan.error.is_none() => ("the plan", plan),
        (_, Some(kernel)) if kernel.error.is_none() => ("the rules of the kernel", kernel),
        _ => return begin,
    };
    let result = uncapitalized(&of_side(answer, finding, side));
    format!("{begin} By {by}, {result}")
}

/// Returns the sentence about the result of a side, which may depend on a limit.
fn of_side(answer: &Answer, finding: &Finding, side: &Side) -> String {
    let within = within_limits(answer, finding, side);
    match &side.limit {
        Some(limit) => format!(
            "Unknown: the result depends on a limit: {}. Beyond it, connections are {}. Within \
             it: {}",
            limit.rule,
            result(limit.beyond),
            uncapitalized(&within)
        ),
        None => within,
    }
}

/// Returns the sentence about the result of a side within all limits.
fn within_limits(answer: &Answer, finding: &Finding, side: &Side) -> String {
    if let Some((path, step)) = foreign(side) {
        return by_foreign(answer, finding, side, (path, step));
    }
    if let Some(path) = side.paths.iter().find(|path| path.obstacle.is_some()) {
        return stopped(answer, finding, path);
    }
    if is_contradiction(finding, &answer.plan) {
        return format!(
            "The plan contradicts the objects: the rules give {}, and by the objects {}. \
             This is an error of kube-proxy; please report it.",
            result(answer.plan.outcome),
            by_objects(answer, finding)
        );
    }
    let result = result_of_side(answer, finding, side);
    match side.reply() {
        Some((path, Reply::Lost { reason, field, .. })) => {
            let field = field.map(|it| format!(" ({it})")).unwrap_or_default();
            format!(
                "Does not work: {} leads {}, but replies are lost: {reason}{field}.",
                answer.question.destination, path.end
            )
        }
        Some((_, Reply::Unknown { reason })) => format!(
            "Unknown: whether replies reach the client cannot be evaluated: {reason}. The first \
             packet: {}",
            uncapitalized(&result)
        ),
        _ => result,
    }
}

/// Puts first that no proxy has rules: then neither the rules of the kernel nor a sync explain
/// anything.
pub(super) fn add_absence(answer: &mut Answer, finding: &Finding, absence: &str) {
    let by_plan = match &answer.kernel {
        _ if answer.plan.error.is_some() => return,
        Some(_) => format!(
            "Nothing serves Services there. By the plan, {}",
            uncapitalized(&of_side(answer, finding, &answer.plan))
        ),
        None => format!("By the plan, {}", uncapitalized(&answer.sentence)),
    };
    answer.sentence = format!("{absence} {by_plan}");
    if answer.kernel.is_some() {
        answer.reason = uncapitalized(absence.trim_end_matches('.'));
        answer.field = None;
    }
}

/// Adds entries of connection tracking that lead packets to addresses that are no endpoints.
///
/// Packets follow an entry instead of rules. A client of UDP may keep its port and its entry for
/// as long as it sends; a new connection of TCP has a new port.
pub(super) fn add_stale(answer: &mut Answer, finding: &Finding, stale: Stale) {
    let Stale { own, others } = stale;
    if let Some(entry) = own {
        let way = match entry.server.to_string() == answer.question.destination {
            true => "no endpoint: it was created before the Service had endpoints".to_owned(),
            false => format!(
                "{}, which is no endpoint of {}",
                entry.server,
                port_name(finding)
            ),
        };
        let timeout = entry.timeout.map_or_else(String::new, |seconds| {
            format!(" or no packet comes for {seconds} s")
        });
        let is_udp = answer.question.protocol == "udp";
        let text = format!(
            "packets from {} follow an entry of connection tracking to {way}, until `conntrack \
             -D` deletes it{timeout}.",
            entry.client
        );
        if is_udp {
            answer.outcome = answer.outcome.max(Outcome::Elsewhere);
            answer.reason = format!("an entry of connection tracking leads to {way}");
            answer.field = None;
            answer.sentence = format!(
                "Leads elsewhere: {text} A running proxy deletes such entries with its next \
                 sync, and `kube-proxy diff` lists them. From other ports: {}",
                uncapitalized(&answer.sentence)
            );
        } else {
            answer.sentence += &format!(" Besides, {text}");
        }
    }
    if others > 0 {
        let (lead, to) = match others {
            1 => ("leads", "an address that is no endpoint"),
            _ => ("lead", "addresses that are no endpoints"),
        };
        answer.sentence += &format!(
            " {} of connection tracking of other clients {lead} to {to}.",
            Counted(others, "entry")
        );
    }
}

/// Returns the sentence about a path that a rule of another program decided.
fn by_foreign(
    answer: &Answer,
    finding: &Finding,
    side: &Side,
    (path, step): (&Path, &Step),
) -> String {
    let destination = &answer.question.destination;
    let rule = format!(
        "by a rule of another program, which the proxy does not change: {}.",
        line(step)
    );
    match path.outcome {
        Outcome::Elsewhere => {
            let of = match (&finding.port, &*side.elsewhere) {
                (None, _) => String::new(),
                (Some(port), [_]) => format!(", which is no endpoint of {},", port.name),
                (Some(port), _) => format!(", which are no endpoints of {},", port.name),
            };
            let to = addresses(&side.elsewhere);
            format!("Leads elsewhere: {destination} leads to {to}{of} {rule}")
        }
        outcome => format!("Does not work: {destination} is {} {rule}", result(outcome)),
    }
}

/// Returns the reason by the objects.
fn by_objects(answer: &Answer, finding: &Finding) -> String {
    finding.reason.sentence(ip(&answer.question.destination))
}

/// Returns the sentence about a packet that something besides rules stopped.
///
/// The node looks for the route before most chains that refuse or drop packets.
fn stopped(answer: &Answer, finding: &Finding, path: &Path) -> String {
    let destination = &answer.question.destination;
    let obstacle = path.obstacle.as_deref().unwrap_or_default();
    let Some((to, has_no_route)) = path.stopped else {
        return format!("Does not work: {obstacle}.");
    };
    let reason = by_objects(answer, finding);
    let is_served = finding.reason == Reason::Served;
    match (to.to_string() == *destination, &answer.service) {
        (true, Some(_)) if has_no_route => format!(
            "Does not work: this node has no route to {to}, and drops the packets of connections \
             that get no endpoint: {reason}."
        ),
        (true, None) if has_no_route => {
            format!("Does not work: this node has no route to {to}: {reason}.")
        }
        (false, _) if has_no_route => {
            format!("Does not work: this node has no route to {to}, to which {destination} leads.")
        }
        (true, Some(_)) if is_served => format!("Does not work: {obstacle}."),
        (true, _) => format!("Does not work: {obstacle}. Besides, {reason}."),
        (false, _) => format!(
            "Does not work: {destination} leads to {to}, and connections are {} on the way: \
             {obstacle}.",
            result(path.outcome)
        ),
    }
}

/// Returns whether the evaluation of the plan contradicts the objects.
fn is_contradiction(finding: &Finding, plan: &Side) -> bool {
    if plan.error.is_some() || plan.paths.iter().any(|path| path.obstacle.is_some()) {
        return false;
    }
    let is_reachable = !plan.endpoints.is_empty() || !plan.elsewhere.is_empty();
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

fn result_of_side(answer: &Answer, finding: &Finding, side: &Side) -> String {
    let destination = &answer.question.destination;
    let reason = by_objects(answer, finding);
    let field = answer
        .field
        .as_ref()
        .map(|field| format!(" ({field})"))
        .unwrap_or_default();
    match (inquiry::outcome(side, finding), &answer.service) {
        (Outcome::Reachable, Some(service)) => {
            let rivals = match &*answer.rivals {
                [] => String::new(),
                rivals => format!("; {} also claims it and does not get it", rivals.join(", ")),
            };
            format!(
                "Works for the first packet: {destination} is the {} of {}, and leads to {}, \
                 {}{rivals}.",
                service.address,
                port_name(finding),
                chances(side),
                masquerade_words(side.masquerade)
            )
        }
        (Outcome::Reachable, None) if matches!(finding.reason, Reason::HealthCheck { .. }) => {
            format!("Works for the first packet: {reason}.")
        }
        (Outcome::Reachable, None) => {
            format!("Works for the first packet, without the proxy: {reason}.")
        }
        _ if matches!(finding.reason, Reason::Contested { .. }) => format!(
            "Does not work: connections to {destination} do not reach this Service: \
             {reason}{field}."
        ),
        (outcome, Some(service)) => format!(
            "Does not work: {destination} is the {} of {}, and connections are {}: {reason}{field}.",
            service.address,
            port_name(finding),
            result(outcome)
        ),
        (outcome, None) => format!(
            "Does not work: connections to {destination} are {}: {reason}{field}.",
            result(outcome)
        ),
    }
}

fn port_name(finding: &Finding) -> String {
    let port = finding.port.as_ref();
    port.map(|port| port.name.to_string()).unwrap_or_default()
}

/// Returns the endpoints in words.
fn chances(side: &Side) -> String {
    match &*side.endpoints {
        [] => "no endpoint".to_owned(),
        [only] if is_recorded(side) => format!(
            "endpoint {}, which session affinity recorded for this client",
            only.address
        ),
        [only] => format!("endpoint {}", only.address),
        [first, rest @ ..] if rest.iter().all(|it| it.short() == first.short()) => {
            let count = side.endpoints.len();
            format!(
                "one of {count} endpoints, each with probability {}",
                first.short()
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
        Outcome::Elsewhere => "led elsewhere",
        Outcome::Refused => "refused",
        Outcome::Dropped => "dropped",
        Outcome::Unknown => "unknown",
    }
}

/// Returns the sentence about a difference between kernel and plan.
///
/// A rule of another program that takes part may be the cause, so that no sync repairs the
/// difference.
fn disagreement(
    answer: &Answer,
    finding: &Finding,
    kernel: &Side,
    leftover: Option<&Step>,
) -> String {
    let by = kernel
        .paths
        .iter()
        .find(|path| !path.end.starts_with("to endpoint"));
    let by = by.map(|path| match path.deciding() {
        Some(step) => format!(" by {}", line(step)),
        None => format!(" ({})", path.end),
    });
    let repair = match (leftover, influence(kernel)) {
        (Some(step), _) => format!(
            "Another kube-proxy left this rule, in another mode or in the variant of iptables that \
             this proxy does not use: {}. No sync repairs it. The proxy removes such rules once, \
             after its first sync, and logs what it cannot remove; `kube-proxy diff` lists them.",
            line(step)
        ),
        (None, Some((effect, step))) => format!(
            "A rule of another program {effect}: {}. The proxy does not change that rule, and \
             repairs only its own, which `kube-proxy diff` lists.",
            line(step)
        ),
        (None, None) => {
            "A running proxy repairs such differences with its next sync; `kube-proxy diff` \
                 lists them, and /rejectedz those that the kernel rejects."
                .to_owned()
        }
    };
    format!(
        "Kernel and plan disagree about {}: in the kernel {}{}, by the plan {}. {repair}",
        answer.question.destination,
        side_words(kernel, finding),
        by.unwrap_or_default(),
        side_words(&answer.plan, finding)
    )
}

/// Returns the rule of another program with the strongest effect on the packet.
fn influence(side: &Side) -> Option<(Effect, &Step)> {
    // Of equal ones the last has precedence, and the first path is the most probable.
    let all = side.paths.iter().rev().filter_map(Path::influence);
    all.max_by_key(|(effect, _)| *effect)
}

fn side_words(side: &Side, finding: &Finding) -> String {
    let endpoints: Vec<_> = side
        .endpoints
        .iter()
        .map(|it| it.address.as_str())
        .collect();
    let endpoints = endpoints.join(", ");
    match side.outcome {
        Outcome::Reachable => {
            let masquerade = masquerade_words(side.masquerade);
            format!("it leads to {endpoints} ({masquerade})")
        }
        Outcome::Elsewhere => {
            let separator = if endpoints.is_empty() { "" } else { " and to " };
            let to = addresses(&side.elsewhere);
            let port = port_name(finding);
            format!("it leads to {endpoints}{separator}{to} (no endpoint of {port})")
        }
        other => format!("connections are {}", result(other)),
    }
}

/// Returns addresses with their probabilities in words.
fn addresses(all: &[Reached]) -> String {
    let each = all
        .iter()
        .take(MAX_ADDRESSES)
        .map(|it| match it.fraction.as_deref() {
            Some("1") => it.address.clone(),
            _ => format!("{} with probability {}", it.address, it.short()),
        });
    let listed = each.collect::<Vec<_>>().join(", ");
    match all.len().checked_sub(MAX_ADDRESSES) {
        None | Some(0) => listed,
        Some(more) => format!("{listed} and {more} more"),
    }
}

fn uncapitalized(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|it| it.to_lowercase().to_string());
    first.unwrap_or_default() + chars.as_str()
}
