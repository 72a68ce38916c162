//! IO of mode iptables: the kernel of a family, the watch, the check of the node and the
//! removal of rules.

pub(in crate::backend) mod kernel;

pub(in crate::backend) mod watch;

pub(in crate::backend) mod support;

pub(in crate::backend) mod choice;

pub(crate) mod cleanup;

mod batch;

mod legacy;

pub(super) mod installed;

pub(in crate::backend) mod installed_rules;

pub(in crate::backend) mod saved;

mod netlink;

mod own_commits;

mod programs;

pub(in crate::backend) mod program_error;

mod rejections;

mod shared_chains;

mod tables;
