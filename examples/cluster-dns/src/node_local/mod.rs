//! Use on a node beside kube-proxy: addresses that only exist on this node, and rules that
//! exempt their traffic from connection tracking.
//!
//! Pods send their questions to a link-local address, and optionally to the cluster IP of
//! the cluster's DNS Service. Both are addresses of an interface of this node, so the node
//! delivers the questions to this process. Without connection tracking, two questions from
//! one port cannot race for a conntrack entry, and kube-proxy does not translate the
//! cluster IP.
//!
//! Everything that this module adds is recorded in sets of its table, before it is added:
//! see `journal`. So a later process removes the same, even if this one was killed.
//!
//! The order of the calls loses no question:
//!
//! 1. [`NodeLocal::open`] adds interface and addresses, so that sockets can be bound.
//! 2. [`NodeLocal::serve`] adds the rules once the sockets are bound. Until then,
//!    kube-proxy serves the cluster IP.
//! 3. [`NodeLocal::withdraw`] removes the rules when the shutdown begins.
//! 4. [`NodeLocal::close`] removes addresses and interface when the sockets are closed.

mod error;

mod journal;

mod kernel;

mod options;

mod rules;

mod watch;

pub use error::Error;
pub use kernel::cleanup;
pub use options::{InvalidOptions, Options};
pub use watch::{Counters, NodeLocal};
