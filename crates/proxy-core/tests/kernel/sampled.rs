//! Random packets through the kernel, compared with the evaluation of its rules.

use std::env;

use crate::rules::Rules;
use crate::sample::compare;
use crate::stage::config;

/// Number of fixtures.
const FIXTURES: u64 = 3;

/// Number of packets in each fixture.
const PACKETS: usize = 200;

/// Compares packets in `fixtures` fixtures, or in that of one seed. Returns the counts as a
/// line.
fn compare_in(fixtures: u64, rules: Rules) -> String {
    let seed = env::var("SEED").ok();
    let seed: Option<u64> = seed.map(|text| text.parse().expect("SEED is a number"));
    let (seed, fixtures) = seed.map_or((0, fixtures), |seed| (seed, 1));
    compare(rules, config(rules), seed, fixtures, PACKETS)
}

#[test]
fn evaluations_of_mode_nftables_agree_with_traffic() {
    testkit::figures!("{}", compare_in(FIXTURES, Rules::Nftables));
}

#[test]
fn evaluations_of_mode_iptables_agree_with_traffic() {
    testkit::figures!("{}", compare_in(FIXTURES, Rules::IptablesNetlink));
}

#[test]
fn evaluations_of_rules_of_iptables_nft_agree_with_traffic() {
    testkit::figures!("{}", compare_in(1, Rules::IPTABLES_NFT));
}

#[test]
fn evaluations_of_rules_of_iptables_legacy_agree_with_traffic() {
    testkit::figures!("{}", compare_in(1, Rules::IPTABLES_LEGACY));
}
