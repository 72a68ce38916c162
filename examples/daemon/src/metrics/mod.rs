//! Prometheus' text format, histograms, and metrics of the process.

mod exposition;

mod histogram;

#[cfg(target_os = "linux")]
mod process;

pub use exposition::{CONTENT_TYPE, Labels, Metric, Page, Type, float};
pub use histogram::Histogram;
#[cfg(target_os = "linux")]
pub use process::add_to as add_process;
