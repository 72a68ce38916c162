//! Stores: in memory for one process, in etcd for many.

mod memory;

#[cfg(feature = "etcd")]
mod etcd;

#[cfg(feature = "etcd")]
pub use etcd::{Envelope, Etcd, EtcdCluster, EtcdSetupError, EtcdTls};
pub use memory::Memory;
