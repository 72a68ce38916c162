//! IO of mode iptables: the kernel of a family, the watch, and the removal of rules.

pub(super) mod kernel;

pub(super) mod watch;

pub(super) mod cleanup;

pub(super) mod installed;

mod own_commits;

mod rejections;
