//! Random packets through random rules of iptables: the evaluator agrees with the kernel.
//!
//! A client, a router with the rules, and a server are network namespaces. For each packet
//! the test compares the counter of every rule with the trace
//! of the evaluator, and the packet that arrives with the final packet. IP sets and lists of
//! `recent` are a model that applies the updates of the evaluator. `EVALUATE_SEED` repeats
//! one ruleset.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test that sends packets"
)]

#[path = "iptables/generate.rs"]
mod generate;

#[path = "iptables/lab.rs"]
mod lab;

#[path = "iptables/model.rs"]
mod model;

use std::collections::BTreeMap;

use generate::{Random, document, packet};
use lab::{Counts, Lab, Received};
use model::Model;
use vipline_evaluate::iptables::Rules;
use vipline_evaluate::{Disposition, Evaluator, Outcome, Packet, RuleStep};
use vipline_iptables::{Family, Tables, Variant};
use vipline_nftables::expr::Expr;

/// Rulesets of each variant, and packets for each.
const RULESETS: [(Variant, u64); 2] = [(Variant::Nft, 26), (Variant::Legacy, 6)];
const PACKETS: u16 = 20;

/// Returns the counts that an outcome predicts, by table, chain and position of the rule.
fn predicted(outcome: &Outcome) -> Counts {
    let mut counts = Counts::new();
    for step in outcome.trace.rules().filter(|step| is_counted(step)) {
        let place = (
            step.table().name.to_string(),
            step.chain().name.to_string(),
            step.index(),
        );
        *counts.entry(place).or_default() += 1;
    }
    counts
}

/// Returns whether the rule executed its counter.
fn is_counted(step: &RuleStep) -> bool {
    let mut exprs = step.rule().unwrap().exprs.iter();
    let counter = exprs.position(|expr| matches!(expr, Expr::Counter(_)));
    counter.is_some_and(|at| at < step.executed)
}

/// Returns the packet that an outcome predicts at one of the namespaces.
fn arrival(outcome: &Outcome) -> Option<(Received, String)> {
    let at = match &outcome.disposition {
        Disposition::Delivered => Received::Router,
        Disposition::Sent(interface) if interface.name == "right" => Received::Server,
        Disposition::Sent(_) => Received::Client,
        _ => return None,
    };
    Some((at, outcome.packet.to_string()))
}

/// Numbers of packets.
#[derive(Debug, Default)]
struct Report {
    packets: usize,
    translated: usize,
    random: usize,
    updates: usize,
    dispositions: BTreeMap<String, usize>,
}

/// A packet whose arrival is compared at the end of a ruleset.
type Pending = (String, u16, Vec<Outcome>);

/// Sends a packet, and returns the outcomes that have the counts of the kernel.
fn send(
    lab: &mut Lab,
    evaluators: &[Evaluator],
    model: &mut Model,
    (packet, place): (&Packet, &str),
) -> Vec<Outcome> {
    let evaluate = |evaluator: &Evaluator| {
        let outcomes = evaluator.evaluate(packet, &*model);
        outcomes.unwrap_or_else(|error| panic!("{place}: {error}"))
    };
    let outcomes = evaluate(&evaluators[0]);
    // The save and the dump are the same rules.
    for other in &evaluators[1..] {
        let other = evaluate(other);
        let of = |all: &[Outcome]| {
            let one = |it: &Outcome| (it.probability.clone(), predicted(it), arrival(it));
            all.iter().map(one).collect::<Vec<_>>()
        };
        assert_eq!(of(&other), of(&outcomes), "{place}\n{}", lab.saved());
    }
    let is_predicted = |counts: &Counts| outcomes.iter().any(|it| predicted(it) == *counts);
    let counts = lab.counts_of(packet, is_predicted);
    let is_possible = |it: &&Outcome| predicted(it) == counts;
    let possible: Vec<Outcome> = outcomes.iter().filter(is_possible).cloned().collect();
    assert!(
        !possible.is_empty(),
        "{place}: no outcome has the counts {counts:?}\n{}\n{}",
        lab.saved(),
        outcomes[0]
    );
    model.apply(&possible[0].lists);
    possible
}

fn test_ruleset(lab: &mut Lab, seed: u64, port: &mut u16, report: &mut Report) {
    let mut random = Random::new(seed);
    let document = document(&mut random, seed);
    let mut model = Model::new(&mut random);
    lab.install(&document, &model.commands());
    let saved = lab.saved();
    let tables = Tables::parse(&saved).unwrap();
    let rules = Rules::new().with_save(&tables, Family::V4).unwrap();
    let mut evaluators = vec![rules.evaluator()];
    evaluators.extend(lab.dumped().map(|rules| rules.evaluator()));
    let mut pending: Vec<Pending> = Vec::new();
    for _ in 0..PACKETS {
        *port += 1;
        let packet = packet(&mut random, *port);
        let place = format!("seed {seed}, {packet} from {:?}", packet.input());
        let possible = send(lab, &evaluators, &mut model, (&packet, &place));
        let first = &possible[0];
        report.packets += 1;
        report.updates += first.lists.len();
        report.random += usize::from(first.probability.denominator() != Some(1));
        report.translated += usize::from(first.packet.to_string() != packet.to_string());
        let disposition = first.disposition.to_string();
        *report.dispositions.entry(disposition).or_default() += 1;
        pending.push((place, *port, possible));
    }
    let received = lab.received();
    for (place, port, possible) in pending {
        let actual = received.get(&port).cloned();
        assert!(
            possible.iter().any(|it| arrival(it) == actual),
            "{place}: received {actual:?} instead of\n{}\n{saved}",
            possible[0]
        );
    }
}

#[test]
fn random_packets_have_the_outcomes_of_the_kernel() {
    let only = std::env::var("EVALUATE_SEED").ok();
    let only: Option<u64> = only.map(|seed| seed.parse().unwrap());
    let mut port = 20_000;
    for (variant, count) in RULESETS {
        let mut lab = Lab::new(variant);
        let mut report = Report::default();
        let seeds = only.map_or_else(|| (1..=count).collect(), |seed| vec![seed]);
        for seed in seeds {
            test_ruleset(&mut lab, seed, &mut port, &mut report);
        }
        testkit::figures!("{variant}: seeds 1 to {count}: 0 disagreements, {report:?}");
        if only.is_none() && variant == Variant::Nft {
            assert!(report.packets >= 500 && report.translated >= 80);
            assert!(report.random >= 30 && report.updates >= 10, "{report:?}");
            assert!(report.dispositions.len() >= 4, "{report:?}");
        }
    }
}
