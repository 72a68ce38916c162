//! A Kubernetes API server for tests.
#![forbid(unsafe_code)]
