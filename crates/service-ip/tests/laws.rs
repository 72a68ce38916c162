//! Property tests: the state always equals the state of a simple model.
#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "laws/bitmap.rs"]
mod bitmap;

#[path = "laws/allocator.rs"]
mod allocator;

#[path = "laws/registry.rs"]
mod registry;

#[path = "laws/node_ports.rs"]
mod node_ports;

mod faulty;
