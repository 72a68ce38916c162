//! A Kubernetes cluster for tests: hostile but valid objects in random order.
//!
//! - [`Cluster`] holds the objects as an API server stores them. It admits or
//!   rejects a [`Proposal`] as kube-apiserver 1.36 does, and returns the watch
//!   event that follows.
//! - [`validation`] is API validation as a predicate: a list of violations.
//! - [`generate`] proposes hostile objects. Most proposals are valid.
//!
//! Objects are JSON of the API, complete: every default is explicit. They take
//! the same way into a program as the objects of a real API server.
#![forbid(unsafe_code)]

pub mod generate;

pub mod validation;

mod allocation;

mod change;

mod cluster;

mod defaults;

mod json;

pub use change::{Change, Id, Proposal, Verb};
pub use cluster::{Cluster, violations};
