//! Packets of random clusters, evaluated in each mode and compared with an oracle that is
//! written from the documents of kube-proxy.
//!
//! No kernel takes part: the rules of a mode are planned, installed in memory and
//! evaluated. The tests `kernel` and `vm` compare the same evaluation with traffic.
#![allow(
    clippy::disallowed_methods,
    reason = "the variable SEED selects one case"
)]

#[path = "../shared/fixtures/mod.rs"]
mod fixtures;

mod node;

mod world;

mod flow;

mod oracle;

mod fate;

mod modes;

mod exceptions;

mod case;

mod minimize;

mod comparison;
