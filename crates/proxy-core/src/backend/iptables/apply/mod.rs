//! IO of mode iptables: the kernel of a family, and the watch.

pub(super) mod kernel;

pub(super) mod watch;

pub(super) mod installed;

mod own_commits;

mod rejections;
