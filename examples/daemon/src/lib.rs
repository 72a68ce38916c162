//! Parts that the programs of Vipline share.
//!
//! - [`http`]: HTTP on a listener, with limits;
//! - [`metrics`]: Prometheus' text format, histograms, and metrics of the process;
//! - [`runtime`]: the threads of asynchronous tasks;
//! - [`duration`]: durations in Go's format;
//! - [`descriptors`]: the limit of open files;
//! - [`log_limit`]: limits on log lines about objects.
#![forbid(unsafe_code)]

pub mod http;

pub mod metrics;

pub mod runtime;

pub mod duration;

#[cfg(unix)]
pub mod descriptors;

pub mod log_limit;
