//! The engine and the planners with kernels in memory.

use testkit::allocation::Counting;

#[path = "../shared/fixtures/mod.rs"]
mod fixtures;

#[path = "../shared/good_and_bad.rs"]
mod good_and_bad;

mod claims;
mod costs;
mod engine;
mod evaluate;
mod golden;
mod laws;
mod parts;
mod reasons;
mod rejections;

#[global_allocator]
static ALLOCATOR: Counting = Counting;
