//! Histories with the real kernel of this machine.

use proxy_core::Engine;
use proxy_core::backend::iptables::{self, Kernel};
use testworld::Change;
use vipline_iptables::{Client, Variant};

use crate::history::{Verdict, check, history};
use crate::replay::{config, in_namespace, replay};

/// Modes nftables and iptables have no object that the kernel may reject.
fn is_rejectable(_: &str) -> bool {
    false
}

fn replay_with_iptables(variant: Variant, seed: u64, changes: &[Change]) -> Verdict {
    // Only `Config::open` creates the nfacct counters.
    let mut config = config();
    config.iptables.nfacct = false;
    in_namespace(|| {
        let planner = iptables::Planner::from(&config);
        let engine = Engine::with_kernels(config.engine, planner, |family| {
            Kernel::with_client(Client::open_variant(family, variant).unwrap(), family)
        });
        replay(engine, seed, changes, is_rejectable)
    })
}

#[test]
fn nftables_equals_the_plan_after_each_change() {
    check(
        60,
        |seed| history(seed, 12, u8::MAX),
        |seed, changes| {
            in_namespace(|| replay(config().open().unwrap(), seed, changes, is_rejectable))
        },
    );
}

#[test]
fn iptables_nft_equals_the_plan_after_each_change() {
    check(
        30,
        |seed| history(seed, 12, u8::MAX),
        |seed, changes| replay_with_iptables(Variant::Nft, seed, changes),
    );
}

#[test]
fn iptables_legacy_equals_the_plan_after_each_change() {
    check(
        30,
        |seed| history(seed, 12, u8::MAX),
        |seed, changes| replay_with_iptables(Variant::Legacy, seed, changes),
    );
}
