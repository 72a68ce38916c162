//! A synchronous netlink client: requests, batches, dumps and extended ACKs.
#![forbid(unsafe_code)]

pub mod attr;

pub mod message;

mod error;

pub use error::{DecodeError, Errno, Error, Refusal};
