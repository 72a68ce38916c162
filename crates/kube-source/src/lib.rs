#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

#[cfg(feature = "api")]
pub mod api;

#[cfg(feature = "manifests")]
pub mod manifests;

/// Whether a source ends after the first list.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reading {
    /// Objects are read once.
    Once,
    /// Objects are read and then watched for changes.
    Watched,
}
