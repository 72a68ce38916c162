//! Evaluation of a question against the rules of one side.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use proxy_core::evaluate::{self, Obstacle, Rules, Verdict};
use proxy_core::evaluator::ipvs::IpvsEvent;
use proxy_core::evaluator::{Environment, Event, ListUpdate, Probability, RuleStep};
use proxy_core::nftables::Element;
use proxy_core::nftables::expr::{DynsetOp, Expr};
use proxy_core::reason::Reason;

use super::answer::{Counter, Limit, Masquerade, Outcome, Path, Reached, Side, Step};
use super::effect::Effect;
use super::inquiry::Facts;
use super::limits::Limits;
use super::sentence::line;
use super::{owner, reply};

/// Maximum number of paths.
const MAX_PATHS: usize = 16;

/// Evaluates the packet of a question.
pub(super) fn evaluate(rules: &Rules, host: &dyn Environment, facts: &Facts) -> Side {
    let within = Limits::new(host, false);
    let outcomes = match rules.evaluate(&facts.packet, &within) {
        Ok(outcomes) => outcomes,
        Err(error) => return failed(error.to_string()),
    };
    let limit = match within.is_asked() {
        true => match limit(rules, host, facts, &outcomes) {
            Ok(limit) => limit,
            Err(error) => return failed(error),
        },
        false => None,
    };
    Side {
        limit,
        ..side(outcomes, rules, &within, facts)
    }
}

/// Returns the limit on which the result depends: beyond all limits, it is another one.
fn limit(
    rules: &Rules,
    host: &dyn Environment,
    facts: &Facts,
    within: &[evaluate::Outcome],
) -> Result<Option<Limit>, String> {
    let beyond = rules.evaluate(&facts.packet, &Limits::new(host, true));
    let beyond = beyond.map_err(|error| error.to_string())?;
    let worst = |outcomes: &[evaluate::Outcome]| {
        let results = outcomes.iter().map(|it| outcome(&it.verdict, facts));
        results.max().unwrap_or(Outcome::Dropped)
    };
    let verdicts = |outcomes: &[evaluate::Outcome]| {
        let verdicts = outcomes.iter().map(|it| it.verdict.clone());
        verdicts.collect::<BTreeSet<_>>()
    };
    if verdicts(within) == verdicts(&beyond) {
        return Ok(None);
    }
    let events = |outcomes: &[evaluate::Outcome]| {
        let first = outcomes.first();
        first
            .map(|it| it.trace.events().to_vec())
            .unwrap_or_default()
    };
    let (one, other) = (events(within), events(&beyond));
    let differs = one.iter().zip(&other).find(|(one, other)| one != other);
    let rule = differs.map(|(one, _)| line(&step(one)));
    Ok(Some(Limit {
        rule: rule.unwrap_or_else(|| "a rule".to_owned()),
        beyond: worst(&beyond),
    }))
}

/// Returns the side of rules that cannot be evaluated.
pub(super) fn failed(error: String) -> Side {
    Side {
        outcome: Outcome::Unknown,
        endpoints: Vec::new(),
        elsewhere: Vec::new(),
        masquerade: Masquerade::Never,
        paths: Vec::new(),
        error: Some(error),
        limit: None,
    }
}

fn side(
    mut outcomes: Vec<evaluate::Outcome>,
    rules: &Rules,
    host: &dyn Environment,
    facts: &Facts,
) -> Side {
    let results = outcomes.iter().map(|it| outcome(&it.verdict, facts));
    let worst = results.max().unwrap_or(Outcome::Dropped);
    let endpoints = reached(&outcomes, |addr| facts.is_endpoint(addr));
    let elsewhere = reached(&outcomes, |addr| !facts.is_endpoint(addr));
    let masquerade = masquerade(&outcomes);
    outcomes.sort_by(|one, other| {
        let probability = |it: &evaluate::Outcome| it.probability.as_f64();
        probability(other).total_cmp(&probability(one))
    });
    let mut paths: Vec<Path> = Vec::new();
    for it in &outcomes {
        let result = outcome(&it.verdict, facts);
        let end = end(it, result);
        let is_known = paths.iter().any(|path| path.end == end);
        if !is_known && paths.len() < MAX_PATHS {
            let mut path = path(it, result, end);
            if result == Outcome::Reachable {
                path.reply = reply::evaluate(it, rules, host, facts);
            }
            paths.push(path);
        }
    }
    Side {
        outcome: worst,
        endpoints,
        elsewhere,
        masquerade,
        paths,
        error: None,
        limit: None,
    }
}

/// Returns the result of a verdict.
///
/// A packet that is delivered without translation finds no process that listens. One that
/// is forwarded without translation reaches its destination only if that is an endpoint.
fn outcome(verdict: &Verdict, facts: &Facts) -> Outcome {
    let is_direct = matches!(facts.finding.reason, Reason::Direct { .. });
    match verdict {
        Verdict::Endpoint(addr) if facts.is_endpoint(*addr) => Outcome::Reachable,
        Verdict::Endpoint(_) => Outcome::Elsewhere,
        Verdict::Forwarded if is_direct => Outcome::Reachable,
        // The proxy itself listens.
        Verdict::Delivered if matches!(facts.finding.reason, Reason::HealthCheck { .. }) => {
            Outcome::Reachable
        }
        Verdict::Delivered | Verdict::Refused => Outcome::Refused,
        _ => Outcome::Dropped,
    }
}

/// Returns the end of a path in words.
fn end(outcome: &evaluate::Outcome, result: Outcome) -> String {
    let verdict = &outcome.verdict;
    match (verdict, result) {
        (Verdict::Dropped | Verdict::Refused, _) => match outcome.obstacle() {
            Some(obstacle) => format!("{verdict}: {obstacle}"),
            None => verdict.to_string(),
        },
        (Verdict::Endpoint(addr), Outcome::Elsewhere) => {
            format!("to {addr} (no endpoint)")
        }
        _ => verdict.to_string(),
    }
}

/// Returns the translated destinations of a kind with the sums of their probabilities, in
/// numeric order.
fn reached(outcomes: &[evaluate::Outcome], is_kind: impl Fn(SocketAddr) -> bool) -> Vec<Reached> {
    let mut sums = BTreeMap::new();
    for outcome in outcomes {
        let Verdict::Endpoint(addr) = outcome.verdict else {
            continue;
        };
        if !is_kind(addr) {
            continue;
        }
        let sum: &mut Option<Probability> =
            sums.entry(addr).or_insert_with(|| Probability::new(0, 1));
        *sum = sum.take().and_then(|sum| sum.either(&outcome.probability));
    }
    let known = sums
        .into_iter()
        .filter_map(|(address, sum)| Some((address, sum?)));
    known
        .map(|(address, sum)| Reached {
            address: address.to_string(),
            probability: sum.as_f64(),
            fraction: fraction(&sum),
        })
        .collect()
}

/// Returns a short fraction. That of a chain of many random rules has thousands of digits.
fn fraction(probability: &Probability) -> Option<String> {
    let is_short = probability.denominator().is_some_and(|it| it < 1_000_000);
    is_short.then(|| probability.to_string())
}

fn masquerade(outcomes: &[evaluate::Outcome]) -> Masquerade {
    let mut reached = outcomes
        .iter()
        .filter(|it| matches!(it.verdict, Verdict::Endpoint(_)))
        .map(|it| it.is_masqueraded);
    match reached.next() {
        None => Masquerade::Never,
        Some(first) if reached.any(|it| it != first) => Masquerade::Mixed,
        Some(true) => Masquerade::Always,
        Some(false) => Masquerade::Never,
    }
}

fn path(outcome: &evaluate::Outcome, result: Outcome, end: String) -> Path {
    let events = outcome.trace.events().iter();
    let shown = events.filter(|it| !matches!(it, Event::Rule(rule) if !rule.is_match()));
    let shown: Vec<&Event> = shown.collect();
    let is_end = matches!(
        outcome.verdict,
        Verdict::Dropped | Verdict::Refused | Verdict::Undecided
    );
    let influence = influence(&shown);
    let obstacle = outcome.obstacle();
    let decided = match result {
        _ if obstacle.is_some() => None,
        Outcome::Elsewhere => leading(&shown, influence),
        _ if is_end => shown.iter().rposition(|it| is_placed(it)),
        _ => None,
    };
    let by = decided.and_then(|index| shown.get(index));
    Path {
        probability: outcome.probability.as_f64(),
        end,
        masqueraded: outcome.is_masqueraded,
        foreign: by.is_some_and(|it| is_foreign(it)),
        outcome: result,
        decided,
        influence,
        steps: shown.into_iter().map(step).collect(),
        updates: updates(outcome),
        stopped: obstacle.as_ref().map(|obstacle| {
            let packet = &outcome.packet;
            let port = packet.destination_port().unwrap_or_default();
            let to = SocketAddr::new(packet.destination(), port);
            (to, matches!(obstacle, Obstacle::NoRoute(_)))
        }),
        obstacle: obstacle.map(|it| it.to_string()),
        reply: None,
    }
}

/// Returns whether an event may end a path.
pub(super) fn is_placed(event: &Event) -> bool {
    matches!(
        event,
        Event::Rule(_) | Event::Policy { .. } | Event::Ipvs { .. }
    )
}

/// Returns the index of the event that changed the destination: the last rule before a
/// translation, because a translation ends the chains of type `nat`; otherwise IPVS; otherwise
/// a rule of another program that wrote the header.
fn leading(events: &[&Event], influence: Option<(Effect, usize)>) -> Option<usize> {
    let is_translation = |event: &&Event| match event {
        Event::Translated { from, to, .. } => {
            (from.destination, from.destination_port) != (to.destination, to.destination_port)
        }
        _ => false,
    };
    let at = events.iter().rposition(is_translation);
    let rule = at.and_then(|at| events.iter().take(at).rposition(|it| is_placed(it)));
    let is_ipvs = |event: &&Event| matches!(event, Event::Ipvs { .. });
    let written = influence.filter(|(effect, _)| *effect == Effect::Translation);
    rule.or_else(|| events.iter().rposition(is_ipvs))
        .or_else(|| written.map(|(_, index)| index))
}

/// Returns whether an event is of another program. The virtual servers of IPVS are the proxy's.
pub(super) fn is_foreign(event: &Event) -> bool {
    match event {
        Event::Rule(rule) => !owner::is_own(rule.table(), rule.chain().name.as_str()),
        Event::Policy { table, chain, .. } => !owner::is_own(table, chain.as_str()),
        _ => false,
    }
}

/// Returns the strongest effect of the rules of other programs, and the index of the last rule
/// that has it.
fn influence(events: &[&Event]) -> Option<(Effect, usize)> {
    let effects = events.iter().enumerate().filter_map(|(index, event)| {
        let Event::Rule(rule) = event else {
            return None;
        };
        is_foreign(event).then_some((Effect::of(rule)?, index))
    });
    effects.max()
}

/// Returns the state that the packet changes.
fn updates(outcome: &evaluate::Outcome) -> Vec<String> {
    let lists = outcome.lists.iter().map(list_update);
    outcome.updates.iter().map(update).chain(lists).collect()
}

fn list_update(update: &ListUpdate) -> String {
    match update {
        ListUpdate::Recent { name, op, addr, .. } => format!("{op:?} {addr} in list {name}"),
        ListUpdate::Set { name, op, .. } => format!("{op:?} in IP set {name}"),
        ListUpdate::IpvsTemplate { client, server, .. } => format!("template {client} to {server}"),
        other => format!("{other:?}"),
    }
}

pub(super) fn step(event: &Event) -> Step {
    match event {
        Event::Rule(rule) => rule_step(rule),
        Event::Policy {
            hook,
            table,
            chain,
            policy,
        } => Step {
            place: format!("{hook} {table} {chain}"),
            handle: None,
            text: format!("policy {policy}"),
            elements: Vec::new(),
            counter: None,
            template: None,
        },
        Event::Ipvs { hook, event } => Step {
            place: hook.to_string(),
            handle: None,
            text: event.to_string(),
            elements: Vec::new(),
            counter: None,
            template: match event {
                IpvsEvent::TemplateFound(template) => Some(*template),
                _ => None,
            },
        },
        other => Step {
            place: String::new(),
            handle: None,
            text: other.to_string(),
            elements: Vec::new(),
            counter: None,
            template: None,
        },
    }
}

fn rule_step(rule: &RuleStep) -> Step {
    // The text of the rule has the elements of anonymous sets.
    let is_named = |it: &&Element| !it.set().name.as_str().starts_with("__");
    let elements = rule.elements.iter().filter(is_named);
    let elements = elements.map(|it| format!("@{} {{ {it} }}", it.set().name));
    Step {
        place: format!("{} {} {}", rule.hook, rule.table(), rule.chain().name),
        handle: rule.handle().map(|handle| handle.0),
        text: rule.text(),
        elements: elements.collect(),
        counter: counter(rule),
        template: None,
    }
}

/// Returns the counter of a rule in the kernel.
fn counter(rule: &RuleStep) -> Option<Counter> {
    rule.handle()?;
    let mut exprs = rule.rule()?.exprs.iter();
    exprs.find_map(|expr| match expr {
        Expr::Counter(counter) => Some(Counter {
            packets: counter.packets,
            bytes: counter.bytes,
        }),
        _ => None,
    })
}

///
/// A rule may also delete an element, such as a client whose endpoint was removed.
fn update(update: &proxy_core::evaluator::SetUpdate) -> String {
    let timeout = update.timeout.map_or_else(String::new, |timeout| {
        format!(" for {} s", timeout.as_secs())
    });
    let deleted = match update.op {
        DynsetOp::Delete => "delete ",
        _ => "",
    };
    let (table, set, element) = (&update.table, &update.set, &update.element);
    format!("{deleted}{table} @{set} {{ {element} }}{timeout}")
}

impl Step {
    /// Returns the step without properties that differ between kernel and plan: handles and
    /// counters.
    pub(super) fn comparable(&self) -> (&str, String, &[String]) {
        (&self.place, without_counters(&self.text), &self.elements)
    }
}

/// Removes the values of counters from a rule.
fn without_counters(text: &str) -> String {
    let mut words = text.split(' ').peekable();
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        kept.push(word);
        if word == "counter" && words.peek() == Some(&"packets") {
            // `packets N bytes N`
            words.by_ref().take(4).for_each(drop);
        }
    }
    kept.join(" ")
}

#[cfg(test)]
mod tests {
    use proxy_core::evaluator::{Route, Tuple};
    use proxy_core::ipvs::{Scheduler, ServiceKey, Transport, VirtualServer};
    use proxy_core::nftables::{Family, Hook, Name, Policy, TableId};

    use super::*;

    #[test]
    fn ipvs_leads_elsewhere_although_another_program_masquerades() {
        let key = ServiceKey::new(Transport::Tcp, "10.96.0.10".parse().unwrap(), 80);
        let ipvs = Event::Ipvs {
            hook: Hook::Input,
            event: IpvsEvent::Forwarded {
                service: VirtualServer::new(key, Scheduler::RoundRobin),
                to: "10.244.1.99:8080".parse().unwrap(),
            },
        };
        let text = "ipvs -A -t 10.96.0.10:80 -s rr, -r 10.244.1.99:8080";
        assert_eq!(step(&ipvs).text, text);
        let policy = |hook| Event::Policy {
            hook,
            table: TableId::new(Family::Ip, Name::new("nat").unwrap()),
            chain: Name::new("base").unwrap(),
            policy: Policy::Accept,
        };
        let tuple = |source: &str, destination: &str| Tuple {
            protocol: 6,
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            source_port: Some(32768),
            destination_port: Some(8080),
        };
        let translated = |from, to| Event::Translated {
            hook: Hook::Postrouting,
            from,
            to,
        };
        let client = tuple("192.0.2.7", "10.244.1.99");
        let masqueraded = translated(client, tuple("10.244.1.254", "10.244.1.99"));
        let routed = Event::Routed(Route::Local);
        let (input, postrouting) = (policy(Hook::Input), policy(Hook::Postrouting));
        let events = [&input, &ipvs, &routed, &postrouting, &masqueraded];
        let influence = Some((Effect::Translation, 3));
        assert_eq!(leading(&events, influence), Some(1));
        let dnat = translated(client, tuple("192.0.2.7", "10.244.1.98"));
        assert_eq!(leading(&[&input, &dnat, &ipvs], None), Some(0));
        assert_eq!(leading(&[&input, &postrouting], influence), Some(3));
        let mark = Some((Effect::Mark, 0));
        assert_eq!(leading(&[&input, &postrouting], mark), None);
    }

    #[test]
    fn values_of_counters_do_not_count_in_comparisons() {
        let text = "tcp dport 80 counter packets 5 bytes 300 drop";
        assert_eq!(without_counters(text), "tcp dport 80 counter drop");
        assert_eq!(without_counters("counter name \"a\""), "counter name \"a\"");
    }
}
