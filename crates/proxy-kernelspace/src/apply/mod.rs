//! IO of mode kernelspace.

mod installed;

pub(super) mod kernel;
