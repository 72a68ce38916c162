//! Evaluation of packets against the plan, without traffic.
//!
//! - [`Engine::desired_rules`](crate::Engine::desired_rules) prepares the [`Rules`] of a family,
//!   if the planner can ([`Planner::rules`](crate::Planner::rules)).
//! - [`Rules::evaluate`] returns all possible [`Outcome`]s with exact probabilities.
//! - [`Engine::assumed_host`](crate::Engine::assumed_host) has the addresses and routes of
//!   a typical node.
//! - [`packet`] creates the first packet of a connection, received by the interface that
//!   leads to its source.

mod outcome;

mod host;

mod rules;

pub(crate) use host::assumed;
pub use host::{Arrival, arrival, node_source, packet, received, reply};
pub use outcome::{Obstacle, Outcome, Verdict};
pub use rules::{Evaluate, Rules};
