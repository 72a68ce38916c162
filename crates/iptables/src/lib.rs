//! What `iptables-save` prints and `iptables-restore` reads, of both variants.
#![forbid(unsafe_code)]

mod name;

pub use name::{ChainName, InvalidName, TableName};
