//! Random packets through the kernel, compared with the evaluation of its rules.

use std::env;

use crate::rules::Rules;
use crate::sample::compare;
use crate::stage::config;

/// Number of fixtures.
const FIXTURES: u64 = 3;

/// Number of packets in each fixture.
const PACKETS: usize = 200;

/// Compares all packets, or those of one seed. Returns the counts as a line.
fn compare_all(rules: Rules) -> String {
    let seed = env::var("SEED").ok();
    let seed: Option<u64> = seed.map(|text| text.parse().expect("SEED is a number"));
    let (seed, fixtures) = seed.map_or((0, FIXTURES), |seed| (seed, 1));
    compare(rules, config(rules), seed, fixtures, PACKETS)
}

#[test]
fn evaluations_of_mode_nftables_agree_with_traffic() {
    println!("{}", compare_all(Rules::Nftables));
}

#[test]
fn evaluations_of_mode_iptables_agree_with_traffic() {
    println!("{}", compare_all(Rules::IptablesNetlink));
}
