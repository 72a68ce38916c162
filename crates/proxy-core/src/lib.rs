//! The rule-sync engine of a kube-proxy.
//!
//! ```
//! use std::time::Duration;
//! use proxy_core::backend::nftables::Planner;
//! use proxy_core::reconcile::Memory;
//! use proxy_core::{Engine, EngineConfig, Event};
//!
//! let config = EngineConfig::new("node-1");
//! let mut engine = Engine::with_kernels(config, Planner, |_| Memory::new());
//! assert!(engine.poll(Duration::ZERO).is_none());
//!
//! engine.apply(Event::Synced);
//! let report = engine.poll(Duration::ZERO).expect("the first sync is due");
//! assert!(report.is_success());
//! assert!(engine.desired().contains("chain services"));
//! ```
//!
//! The program needs no privileges: `Memory`, which the feature `memory` adds, is its
//! kernel. [`Config::open`] programs the kernel of the node instead.
//! The example `tiny-proxy` of vipline-kube-source is a proxy in 30 lines: it reads manifests
//! and writes rules.
//!
//! The engine takes in changes of Services, EndpointSlices, ServiceCIDRs and the node,
//! and keeps the kernel's rules equal to the plan that follows from them.
//!
//! The engine does not watch an API server, read a clock, log or spawn threads. The
//! caller passes [`Event`]s and the time, and gets a [`Report`] of each sync. A sync
//! blocks until the kernel has replied.
//!
//! - [`Engine`]: applies events and programs the kernel; also renders the plan and
//!   compares the plan with the kernel.
//! - [`EngineConfig`]: settings that are fixed at start; [`Config`]: the same with the mode
//!   and its settings; [`Context`]: everything besides Services that rules depend on.
//! - [`Schedule`]: when to sync, as pure arithmetic of times.
//! - [`Report`]: result of a sync; [`health`]: responses of the health endpoints.
//! - [`Mode`]: the list of modes, and what the node needs for a mode.
//! - [`backend`]: the proxy modes; [`Planner`] is the pure part of a mode.
//! - `evaluate`: the outcomes of a packet in the plan or in the kernel's rules.
//! - [`reason`]: why a client reaches a Service or does not, and the deciding field.
//! - [`interfaces`]: addresses of the node; [`sysctl`]: reads and writes sysctls.
//! - `cleanup`: removal of everything that a kube-proxy programmed; [`owned`]: the names of
//!   all of that.
//!
//! A change costs only as much as the change itself: the engine compares one fragment of
//! the plan with its previous version, never the whole plan. After [`Engine::watch`],
//! changes by other processes are detected and repaired at once. After a failure the
//! kernel's state is unknown: the next sync dumps the state and commits the difference. A
//! start does the same, so a restart without drift writes nothing.
//!
//! All modes require CAP_NET_ADMIN in the network namespace that they program. Mode
//! `nftables` uses nf_tables over netlink and requires Linux 5.13 or later. Mode
//! `iptables` requires `CONFIG_NFT_COMPAT`, or the programs of iptables 1.6.2 or later, and
//! CAP_NET_RAW for their legacy variant. Mode `ipvs` also requires IPVS, ip_set and the
//! dummy device.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(target_os = "linux"),
    allow(dead_code, reason = "only modes of Linux use some functions")
)]

#[cfg(all(
    not(target_os = "linux"),
    any(feature = "iptables", feature = "nftables")
))]
compile_error!("modes nftables, iptables and ipvs exist on Linux only: disable default features");

mod mode;

mod config;

#[cfg(target_os = "linux")]
pub mod interfaces;

pub mod owned;

pub mod reason;

pub mod sysctl;

#[cfg(any(feature = "iptables", feature = "nftables"))]
pub mod evaluate;

pub mod backend;

#[cfg(any(feature = "iptables", feature = "nftables"))]
pub mod cleanup;

pub use config::{Config, Iptables, IptablesBackend, IptablesChoice, Ipvs};
pub use mode::Mode;
pub use proxy_engine::{
    Address, AddressKind, Claim, CleanupReport, Config as EngineConfig, ContestedAddress, Context,
    Difference, Drift, Engine, Error, Event, Family, FamilyReport, FinishedFlowSearch, FlowSearch,
    Fragment, Intervals, KnownRejections, LostAddresses, Mark, MasqueradedClients,
    MissingExtension, MissingFeature, Outcome, Planner, PortObjects, RejectedObject,
    RepairConflict, RepairConflictChange, Report, RuleCount, Schedule, Trigger, Warning, Watch,
    health,
};
pub use sysctl::Sysctl;
#[cfg(any(feature = "iptables", feature = "nftables"))]
pub use vipline_evaluate as evaluator;
#[cfg(feature = "iptables")]
pub use vipline_iptables as iptables;
#[cfg(any(feature = "iptables", feature = "nftables"))]
pub use vipline_nftables as nftables;
pub use {
    ipnet, vipline_conntrack as conntrack, vipline_netlink as netlink,
    vipline_reconcile as reconcile, vipline_rtnl as rtnl, vipline_service_model as service_model,
};
#[cfg(feature = "ipvs")]
pub use {vipline_ipset as ipset, vipline_ipvs as ipvs};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
