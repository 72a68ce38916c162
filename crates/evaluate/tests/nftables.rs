//! Random packets through random rulesets: the evaluator agrees with the kernel.
//!
//! A client, a router with the ruleset, and a server are network namespaces. For each
//! packet the test compares the counter of every rule of the kernel with the trace of the
//! evaluator, and the packet that the server or the router receives with the final packet.
//! `EVALUATE_SEED` repeats one ruleset.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test that sends packets"
)]

#[path = "nftables/generate.rs"]
mod generate;

#[path = "nftables/lab.rs"]
mod lab;

use std::collections::BTreeMap;

use generate::{Random, packet, ruleset};
use lab::{Counts, Lab, Received};
use vipline_evaluate::{Disposition, Evaluator, Host, Interface, Outcome, RuleStep};
use vipline_nftables::expr::Expr;

/// Rulesets, and packets for each.
const RULESETS: u64 = 30;
const PACKETS: u16 = 20;

/// The router, as the evaluator sees it.
fn host() -> Host {
    let [left, right] = ["left", "right"].map(Interface::new);
    Host::new()
        .with_addr(left, lab::LEFT.parse().unwrap())
        .with_addr(right.clone(), lab::RIGHT.parse().unwrap())
        .with_route(lab::SERVICES.parse().unwrap(), right)
        .with_limits_exceeded(false)
}

/// Returns the counts that an outcome predicts, by chain and position of the rule.
fn predicted(outcome: &Outcome) -> Counts {
    let mut counts = Counts::new();
    for step in outcome.trace.rules() {
        if is_counted(step) {
            let key = (step.chain().name.to_string(), step.index());
            *counts.entry(key).or_default() += 1;
        }
    }
    counts
}

/// Returns whether the rule executed its counter.
fn is_counted(step: &RuleStep) -> bool {
    let mut exprs = step.rule().unwrap().exprs.iter();
    let counter = exprs.position(|expr| matches!(expr, Expr::Counter(_)));
    counter.is_some_and(|at| at < step.executed)
}

/// Returns the packet that an outcome predicts at the server or at a process of the router.
fn arrival(outcome: &Outcome) -> Option<(Received, String)> {
    let at = match &outcome.disposition {
        Disposition::Delivered => Received::Router,
        Disposition::Sent(interface) if interface.name == "right" => Received::Server,
        Disposition::Sent(_) => Received::Client,
        _ => return None,
    };
    Some((at, outcome.packet.to_string()))
}

#[test]
fn random_packets_have_the_outcomes_of_the_kernel() {
    let seeds = match std::env::var("EVALUATE_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => (1..=RULESETS).collect(),
    };
    let mut lab = Lab::new();
    let (mut packets, mut port) = (0, 20_000);
    let mut dispositions: BTreeMap<String, usize> = BTreeMap::new();
    let (mut translated, mut random_packets) = (0, 0);
    for seed in seeds {
        let mut random = Random::new(seed);
        let objects = ruleset(&mut random);
        let installed = lab.install(objects);
        let evaluator = Evaluator::new(&installed);
        let mut pending = Vec::new();
        for _ in 0..PACKETS {
            port += 1;
            let packet = packet(&mut random, port);
            let outcomes = evaluator.evaluate(&packet, &host());
            let outcomes = outcomes.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            let sum: f64 = outcomes.iter().map(|it| it.probability.as_f64()).sum();
            assert!((sum - 1.0).abs() < 1e-9, "seed {seed}: sum {sum}");
            random_packets += usize::from(outcomes.len() > 1);
            let counts = lab.counts_of(&packet, |counts| {
                outcomes.iter().any(|it| predicted(it) == *counts)
            });
            let possible = outcomes.into_iter().filter(|it| predicted(it) == counts);
            let possible: Vec<Outcome> = possible.collect();
            let place = format!("seed {seed}, {packet} from {:?}", packet.input());
            assert!(
                !possible.is_empty(),
                "{place}: no outcome has the counts {counts:?}\n{installed}\n{}",
                evaluator.evaluate(&packet, &host()).unwrap()[0]
            );
            let disposition = possible[0].disposition.to_string();
            *dispositions.entry(disposition).or_default() += 1;
            translated += usize::from(possible[0].packet.to_string() != packet.to_string());
            pending.push((place, port, possible));
            packets += 1;
        }
        let received = lab.received();
        for (place, port, possible) in pending {
            let actual = received.get(&port).cloned();
            assert!(
                possible.iter().any(|it| arrival(it) == actual),
                "{place}: received {actual:?} instead of\n{}{installed}",
                possible[0]
            );
        }
    }
    testkit::figures!("{packets} packets, 0 disagreements: {dispositions:?}");
    testkit::figures!("{translated} translated, {random_packets} with several outcomes");
    if std::env::var_os("EVALUATE_SEED").is_none() {
        assert!(packets >= 500 && translated >= 100 && random_packets >= 50);
        let is_tested = |count: &usize| *count >= 50;
        assert!(dispositions.len() == 3 && dispositions.values().all(is_tested));
    }
}
