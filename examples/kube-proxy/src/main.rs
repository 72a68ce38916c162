//! A complete kube-proxy made of the Vipline crates.
fn main() {}
