//! The rule-sync engine of a kube-proxy.
//!
//! It takes in what happens to Services, EndpointSlices, ServiceCIDRs and the
//! node, and keeps the kernel's rules equal to what follows from them.
//!
//! What it does not do: watch an API server, read a clock, log, spawn a thread
//! or wait.
//! The caller hands in [`Event`]s and the time, and the engine answers with
//! what it did.
//!
//! - [`Engine`]: events in, kernels programmed; also renders its plan and
//!   compares it with the kernel.
//! - [`Config`]: what it is told once; [`Context`]: what rules depend on besides
//!   Services.
//! - [`Schedule`]: when to sync, as pure arithmetic of times.
//! - [`Report`]: what a sync did; [`health`]: what is answered to who asks.
//! - [`backend`]: the modes; [`Planner`] is what a mode has to be.
//!
//! The cost of a change is that change: one fragment of the plan is compared
//! with its former self, never the whole.
//! What somebody else does to the rules is heard of and mended, once the engine
//! was told to [`watch`](Engine::watch).
//! After any failure the kernel's state counts as unknown, and unknown means:
//! dump it and commit the difference.
//! So does a start, which is why a restart writes nothing if nothing changed.
//!
//! ```
//! use std::time::Duration;
//! use proxy_core::backend::nftables::Planner;
//! use proxy_core::{Config, Engine, Event};
//! use vipline_reconcile::Memory;
//!
//! let config = Config { node_name: "node-1".into(), ..Config::default() };
//! let mut engine = Engine::with_kernels::<Planner, _>(config, |_| Memory::new());
//! assert!(engine.poll(Duration::ZERO).is_none());
//!
//! engine.apply(Event::Synced);
//! let report = engine.poll(Duration::ZERO).expect("the first sync is due");
//! assert!(report.is_success());
//! assert!(engine.desired().contains("chain services"));
//! ```
//!
//! Mode `nftables` talks netlink to nf_tables, Linux 5.13 or later, and needs
//! CAP_NET_ADMIN.
#![forbid(unsafe_code)]

mod engine;

mod config;

mod context;

mod schedule;

mod report;

pub mod health;

mod watch;

mod error;

mod claim;

mod rejected;

mod driver;

mod entry;

mod conntrack_cleanup;

pub mod backend;

pub use backend::{Mode, Planner};
pub use claim::{Address, AddressKind, Claim, ContestedAddress, LostAddresses, PortObjects};
pub use config::{Config, Iptables, Ipvs, Mark};
pub use conntrack_cleanup::CleanupReport;
pub use context::Context;
pub use engine::Engine;
pub use error::Error;
pub use rejected::{KnownRejections, RejectedObject};
pub use report::{Difference, Drift, FamilyReport, Outcome, Report, RuleCount};
pub use schedule::{Intervals, Schedule, Trigger};
pub use vipline_service_model::{Event, Family, Warning};
