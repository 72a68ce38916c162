//! Random Kubernetes objects for tests: hostile, but valid.
//!
//! - [`Cluster`] holds objects as an API server stores them. It admits or rejects a
//!   [`Proposal`] as kube-apiserver 1.36 does, and returns the resulting watch event.
//! - [`validation`] implements API validation, with a list of violations as the result.
//! - [`generate`] proposes hostile objects. Most proposals are valid.
//!
//! Objects are complete JSON of the API with explicit defaults. Programs read them as
//! they read objects of a real API server.
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
