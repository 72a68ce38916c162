//! The binary as its users meet it, against a real kernel.
//!
//! Every test has a network namespace of its own.

mod stage;

mod input;

mod render;

mod diff;

mod oneshot;

mod live;

mod privilege;
