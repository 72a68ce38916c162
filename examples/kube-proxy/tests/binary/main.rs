//! End-to-end tests of the binary with a real kernel.
//!
//! Each test has its own network namespace.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod stage;

mod input;

mod config;

mod render;

mod kernelspace;

mod diff;

mod explain;

mod node_ports;

mod ip_families;

mod oneshot;

mod live;

mod drift;

mod flows;

mod privilege;

mod killed;

mod faults;

mod cleanup;

mod releases;

mod variants;

mod iptables;

mod ipvs;

mod deploy;

mod cluster;

mod api;

mod unreadable;

mod lists;

mod connection;

mod proxies;

mod health;

mod flood;

mod chaos;

mod scale;

mod large;

mod large_service;

mod idle;

mod log;
