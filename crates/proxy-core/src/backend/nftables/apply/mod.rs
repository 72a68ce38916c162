//! IO of mode nftables: the kernel of a family, and the watch.

pub(super) mod kernel;

mod rejections;
