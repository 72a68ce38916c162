//! IO of mode nftables: the kernel of a family, the watch, and the removal of the tables.

pub(super) mod kernel;

pub(super) mod cleanup;

mod rejections;
