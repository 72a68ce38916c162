//! IO of mode nftables: the kernel of a family, the watch, the probe and the removal of the
//! tables.

pub(super) mod kernel;

pub(super) mod watch;

pub(super) mod probe;

pub(super) mod cleanup;

mod rejections;
