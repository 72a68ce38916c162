//! The rule-sync engine of a kube-proxy, composed of the Vipline crates.
