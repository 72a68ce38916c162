//! Reasons why a client reaches a Service or does not, from the objects of the API alone.
//!
//! [`Scene::find`] answers a [`Question`] with a [`Finding`]: the service port, the endpoints,
//! and the field of the API that decides. It does not
//! depend on rules, so a comparison with an evaluation of rules finds errors of either.

mod question;

mod explanation;

mod search;

mod service;

pub use explanation::{Expectation, Reason};
pub use question::{Origin, Question};
pub use search::{Finding, Scene};
