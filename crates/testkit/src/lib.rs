//! Namespaces, labs, traffic and generators for the tests of Vipline.

pub mod netns;
