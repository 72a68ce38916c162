//! Comparison of nf_tables messages with those of libnftnl, the library of `nft`.
//!
//! Only the test has code. It is a package of its own, so that no other one needs the library.
#![forbid(unsafe_code)]

/// The library. A dependency of tests alone cannot be optional.
#[cfg(feature = "libnftnl")]
pub use nftnl;
