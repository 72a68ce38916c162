//! A complete kube-proxy made of the Vipline crates.

pub mod manifests;
