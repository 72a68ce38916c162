//! The binary as its users meet it, against a real kernel.
//!
//! Every test has a network namespace of its own.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod stage;

mod input;

mod config;

mod render;

mod diff;

mod oneshot;

mod live;

mod drift;

mod flows;

mod privilege;

mod killed;

mod cleanup;

mod iptables;

mod ipvs;

mod deploy;

mod cluster;

mod api;

mod health;

mod chaos;

mod scale;

mod idle;
