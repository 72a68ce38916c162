//! The rule-sync engine of a kube-proxy, without a proxy mode.
//!
//! The engine takes in changes of Services, EndpointSlices, ServiceCIDRs and the node, and
//! keeps the state of a kernel equal to the plan that follows from them. What the objects of
//! that state are, you say: a [`Planner`] makes them of a service port, and a
//! [`Target`](reconcile::Target) of vipline-reconcile reads and writes them.
//!
//! [The README](https://github.com/vipline/vipline/tree/main/crates/proxy-engine#readme) has a
//! planner of 40 lines.
//!
//! The engine does not watch an API server, read a clock, log or spawn threads. The
//! caller passes [`Event`]s and the time, and gets a [`Report`] of each sync. A sync
//! blocks until the kernel has replied.
//!
//! - [`Engine`]: applies events and programs the kernel; also renders the plan and
//!   compares the plan with the kernel.
//! - [`Config`]: settings that are fixed at start; [`Context`]: everything besides
//!   Services that objects depend on.
//! - [`Planner`]: the pure part of a mode; [`PortObjects`], [`Claim`] and [`Fragment`]: what it
//!   makes of a service port; [`Watch`]: detects changes by other programs.
//! - [`Schedule`]: when to sync, as pure arithmetic of times.
//! - [`cleanup`]: removal of what proxies programmed.
//! - [`Report`]: result of a sync; [`health`]: responses of the health endpoints.
//! - `evaluate`, with the feature of this name: the outcomes of a packet in the plan.
//!
//! A change costs only as much as the change itself: the engine compares one fragment of
//! the plan with its previous version, never the whole plan. After a failure the
//! kernel's state is unknown: the next sync dumps the state and commits the difference. A
//! start does the same, so a restart without drift writes nothing.
#![forbid(unsafe_code)]

mod engine;

mod config;

mod context;

mod planner;

mod claim;

mod driver;

mod entry;

mod rejected;

mod schedule;

mod report;

mod watch;

mod error;

pub mod cleanup;

pub mod health;

#[cfg(feature = "evaluate")]
pub mod evaluate;

pub use claim::{Claim, ContestedAddress, Fragment, LostAddresses, PortObjects};
pub use config::{Config, Mark};
pub use context::{Context, MasqueradedClients};
pub use engine::Engine;
pub use error::Error;
pub use planner::Planner;
pub use rejected::{KnownRejections, RejectedObject};
pub use report::{
    Difference, Drift, FamilyReport, MissingExtension, MissingFeature, Outcome, RepairConflict,
    RepairConflictChange, Report, RuleCount,
};
pub use schedule::{Intervals, Schedule, Trigger};
#[cfg(feature = "evaluate")]
pub use vipline_evaluate as evaluator;
pub use vipline_service_model::{Address, AddressKind, Event, Family, Warning};
pub use vipline_stale_flows::{CleanupReport, FinishedFlowSearch, FlowSearch};
pub use watch::Watch;
pub use {
    ipnet, vipline_conntrack as conntrack, vipline_netlink as netlink,
    vipline_reconcile as reconcile, vipline_service_model as service_model,
};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
