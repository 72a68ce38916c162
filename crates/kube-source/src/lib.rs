#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

#[cfg(feature = "api")]
pub mod api;

#[cfg(feature = "manifests")]
pub mod manifests;

/// Whether objects are only listed, or listed and then watched.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reading {
    /// Objects are read once.
    Once,
    /// Objects are read and then watched for changes.
    Watched,
}
