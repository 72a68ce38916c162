//! The main loops: `kernel` on Linux, and `hns` in mode kernelspace.

pub mod hns;

#[cfg(target_os = "linux")]
mod kernel;

mod report;

mod serve;

#[cfg(target_os = "linux")]
pub use kernel::run;
