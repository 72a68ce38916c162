//! HNS in memory as the libraries `computenetwork.dll` and `vmcompute.dll`.
//!
//! A program that calls HNS runs with them under Wine, which has no HNS. The state is in the
//! file that the environment variable `HNS_STATE` names, in the format of `kube-proxy diff
//! --against`. Each call reads it, so that several processes share the state, and tests change
//! it.
//!
//! - `server`: the calls, with documents as text, on every system;
//! - `exports`: the functions of the libraries, on Windows.

pub mod server;

#[cfg(windows)]
mod exports;
