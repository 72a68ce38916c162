//! Evaluation of packets against the plan or the kernel's rules, without traffic.
//!
//! ```
//! use proxy_core::evaluate::{Verdict, packet};
//! use proxy_core::service_model::{Transport, api};
//! use proxy_core::{Config, Engine, Event, Family};
//!
//! let mut service = api::Service::default();
//! service.metadata = api::ObjectMeta::named("default", "web");
//! service.spec.cluster_ip = "10.96.0.10".into();
//! service.spec.ports = vec![api::ServicePortSpec { port: 80, ..Default::default() }];
//!
//! let mut engine = Config::new("node-1").plan_only()?;
//! engine.apply(service.into());
//! engine.apply(Event::Synced);
//!
//! let rules = engine.desired_rules(Family::V4).expect("the mode can be evaluated");
//! let host = engine.assumed_host();
//! let destination = "10.96.0.10:80".parse()?;
//! let packet = packet(&host, Transport::Tcp, "192.0.2.7".parse()?, destination);
//! let outcomes = rules.evaluate(&packet, &host)?;
//! assert_eq!(outcomes[0].verdict, Verdict::Refused, "there are no endpoints");
//! assert!(outcomes[0].trace.to_string().contains("@no-endpoints"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - [`Engine::desired_rules`](crate::Engine::desired_rules) and
//!   [`Mode::installed_rules`](crate::Mode::installed_rules) prepare the [`Rules`] of
//!   a family. The installed rules include those of other programs.
//! - [`Rules::evaluate`] returns all possible [`Outcome`]s with exact probabilities.
//! - [`Engine::assumed_host`](crate::Engine::assumed_host) has the addresses and routes of
//!   a typical node, and [`observed_host`] those of this node's kernel.
//! - [`read_kernel`] returns the state of a kernel as a value that displays as text and is
//!   parsed from it, for [`Mode::saved_rules`](crate::Mode::saved_rules).
//! - [`packet`] creates the first packet of a connection, received by the interface that
//!   leads to its source.

mod kernel;

mod routes;

mod saved;

#[cfg(feature = "iptables")]
pub(crate) use kernel::read_functions;
pub(crate) use kernel::read_hooks;
pub use kernel::{observed_host, read_kernel};
pub use proxy_engine::evaluate::{
    Arrival, Evaluate, Obstacle, Outcome, Rules, Verdict, arrival, node_source, packet, received,
    reply,
};
pub use saved::KernelState;
#[cfg(feature = "iptables")]
pub(crate) use saved::Source;
