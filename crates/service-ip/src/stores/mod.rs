//! Stores in memory and in etcd.

mod memory;

#[cfg(feature = "etcd")]
mod etcd;

#[cfg(feature = "etcd")]
pub use etcd::{Envelope, Etcd, EtcdCluster, EtcdTls};
pub use memory::Memory;
