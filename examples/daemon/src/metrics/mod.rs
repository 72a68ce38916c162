//! Prometheus' text format, histograms, and metrics of the process.

mod exposition;

mod histogram;

mod process;

pub use exposition::{CONTENT_TYPE, Labels, Metric, Page, Type, float};
pub use histogram::Histogram;
pub use process::add_to as add_process;
