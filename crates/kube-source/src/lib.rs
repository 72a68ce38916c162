#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

#[cfg(feature = "api")]
pub mod api;

#[cfg(feature = "manifests")]
pub mod manifests;

/// Whether objects are only listed, or listed and then watched.
///
/// Exhaustive: objects are watched or not.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WatchMode {
    /// Objects are listed once.
    ListOnly,
    /// Objects are listed and then watched for changes.
    ListAndWatch,
}

#[cfg(feature = "api")]
pub use tokio;
pub use vipline_service_model as service_model;
