//! Evaluation of a question against the rules of one side.

use std::collections::BTreeMap;

use proxy_core::evaluate::{self, Rules, Verdict};
use proxy_core::nftables::Element;
use proxy_core::nftables::evaluate::{
    Environment, Event, ListUpdate, Packet, Probability, RuleStep,
};
use proxy_core::nftables::expr::Expr;
use proxy_core::reason::{Finding, Reason};

use super::answer::{Counter, Masquerade, Outcome, Path, Reached, Side, Step};

/// Maximum number of paths.
const MAX_PATHS: usize = 16;

/// Prefix of the chains and tables of a kube-proxy, in lower case.
const OWN: &str = "kube-";

/// Evaluates a packet.
pub(super) fn evaluate(
    rules: &Rules,
    packet: &Packet,
    host: &dyn Environment,
    finding: &Finding,
) -> Side {
    match rules.evaluate(packet, host) {
        Ok(outcomes) => side(outcomes, finding),
        Err(error) => failed(error.to_string()),
    }
}

/// Returns the side of rules that cannot be evaluated.
pub(super) fn failed(error: String) -> Side {
    Side {
        outcome: Outcome::Dropped,
        endpoints: Vec::new(),
        masquerade: Masquerade::Never,
        paths: Vec::new(),
        error: Some(error),
    }
}

fn side(mut outcomes: Vec<evaluate::Outcome>, finding: &Finding) -> Side {
    let results = outcomes.iter().map(|it| outcome(&it.verdict, finding));
    let worst = results.max().unwrap_or(Outcome::Dropped);
    let endpoints = reached(&outcomes);
    let masquerade = masquerade(&outcomes);
    outcomes.sort_by(|one, other| {
        let probability = |it: &evaluate::Outcome| it.probability.as_f64();
        probability(other).total_cmp(&probability(one))
    });
    let mut paths: Vec<Path> = Vec::new();
    for it in &outcomes {
        let end = it.verdict.to_string();
        let is_known = paths.iter().any(|path| path.end == end);
        if !is_known && paths.len() < MAX_PATHS {
            paths.push(path(it, end));
        }
    }
    Side {
        outcome: worst,
        endpoints,
        masquerade,
        paths,
        error: None,
    }
}

/// Returns the result of a verdict.
///
/// A packet that is delivered without translation finds no process that listens. One that
/// is forwarded without translation reaches its destination only if that is an endpoint.
fn outcome(verdict: &Verdict, finding: &Finding) -> Outcome {
    match verdict {
        Verdict::Endpoint(_) => Outcome::Reachable,
        Verdict::Forwarded if matches!(finding.reason, Reason::Direct { .. }) => Outcome::Reachable,
        Verdict::Delivered | Verdict::Refused => Outcome::Refused,
        _ => Outcome::Dropped,
    }
}

/// Returns the endpoints with the sums of their probabilities, in numeric order.
fn reached(outcomes: &[evaluate::Outcome]) -> Vec<Reached> {
    let mut sums = BTreeMap::new();
    for outcome in outcomes {
        let Verdict::Endpoint(endpoint) = outcome.verdict else {
            continue;
        };
        let sum: &mut Option<Probability> = sums
            .entry(endpoint)
            .or_insert_with(|| Probability::new(0, 1));
        *sum = sum.take().and_then(|sum| sum.either(&outcome.probability));
    }
    let known = sums
        .into_iter()
        .filter_map(|(address, sum)| Some((address, sum?)));
    known
        .map(|(address, sum)| Reached {
            address: address.to_string(),
            probability: sum.as_f64(),
            fraction: sum.to_string(),
        })
        .collect()
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

fn path(outcome: &evaluate::Outcome, end: String) -> Path {
    let events = outcome.trace.events().iter();
    let shown = events.filter(|it| !matches!(it, Event::Rule(rule) if !rule.is_match()));
    let shown: Vec<&Event> = shown.collect();
    let is_end = matches!(
        outcome.verdict,
        Verdict::Dropped | Verdict::Refused | Verdict::Undecided
    );
    let last = shown.iter().rev().find_map(|event| is_foreign(event));
    Path {
        probability: outcome.probability.as_f64(),
        end,
        masqueraded: outcome.is_masqueraded,
        foreign: is_end && last == Some(true),
        steps: shown.into_iter().map(step).collect(),
        updates: updates(outcome),
        unroutable: match outcome.verdict {
            Verdict::Unroutable(to) => Some(to),
            _ => None,
        },
    }
}

/// Returns whether an event that may end a path is of another program. The functions are
/// those of IPVS, whose virtual servers are the proxy's.
fn is_foreign(event: &Event) -> Option<bool> {
    match event {
        Event::Rule(_) | Event::Policy { .. } => {
            Some(!step(event).place.to_lowercase().contains(OWN))
        }
        Event::Function { .. } => Some(false),
        _ => None,
    }
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

fn step(event: &Event) -> Step {
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
        },
        Event::Function { hook, text } => Step {
            place: hook.to_string(),
            handle: None,
            text: text.clone(),
            elements: Vec::new(),
            counter: None,
        },
        other => Step {
            place: String::new(),
            handle: None,
            text: other.to_string(),
            elements: Vec::new(),
            counter: None,
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

fn update(update: &proxy_core::nftables::evaluate::SetUpdate) -> String {
    let timeout = update.timeout.map_or_else(String::new, |timeout| {
        format!(" for {} s", timeout.as_secs())
    });
    let (table, set, element) = (&update.table, &update.set, &update.element);
    format!("{table} @{set} {{ {element} }}{timeout}")
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
    use super::*;

    #[test]
    fn values_of_counters_do_not_count_in_comparisons() {
        let text = "tcp dport 80 counter packets 5 bytes 300 drop";
        assert_eq!(without_counters(text), "tcp dport 80 counter drop");
        assert_eq!(without_counters("counter name \"a\""), "counter name \"a\"");
    }
}
