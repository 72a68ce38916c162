//! The engine with the kernel of the host. Each test has its own network namespace.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the tests program a real kernel, run its tools, and send packets"
)]

#[path = "../shared/cells.rs"]
mod cells;

#[path = "../shared/fixtures/mod.rs"]
mod fixtures;

#[path = "../shared/flows.rs"]
mod flows;

#[path = "../shared/good_and_bad.rs"]
mod good_and_bad;

#[path = "../shared/rules.rs"]
mod rules;

#[path = "../shared/sample.rs"]
mod sample;

#[path = "../shared/stage.rs"]
mod stage;

#[path = "../shared/upstream_sets.rs"]
mod upstream_sets;

#[path = "../shared/upstream_tools.rs"]
mod upstream_tools;

mod affinity;
mod affinity_traffic;
mod batches;
mod deadlines;
mod drift;
mod evaluate;
mod ipset_takeover;
mod iptables;
mod iptables_takeover;
mod matrix;
mod nftables_sync;
mod recent;
mod rejections;
mod rollout;
mod sampled;
mod stale_flows;
mod takeover;
mod traffic;
mod unused;
mod upstream;
mod upstream_iptables;
