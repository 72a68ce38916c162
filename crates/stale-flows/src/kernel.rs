//! The tracked flows of the kernel.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]

use vipline_conntrack::{Client, Dump, Error, Filter, Flow, Key};

use crate::Flows;

/// The tracked flows of a network namespace.
#[derive(Debug)]
pub struct Kernel {
    client: Client,
}

impl Kernel {
    /// Opens a client in the network namespace of the calling thread. Returns `None` if
    /// the kernel does not support conntrack dumps.
    pub fn open() -> Result<Option<Self>, Error> {
        match Client::open() {
            Ok(client) => Ok(Some(Self { client })),
            Err(Error::Unsupported { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Flows for Kernel {
    fn count(&mut self) -> Result<usize, Error> {
        Ok(self.client.usage()?.entries as usize)
    }

    fn dump(&mut self, filter: &Filter, each: &mut dyn FnMut(Flow)) -> Result<bool, Error> {
        let dump = self.client.dump(filter, each)?;
        Ok(matches!(dump, Dump::Complete(())))
    }

    fn delete(&mut self, keys: &[Key]) -> Result<usize, Error> {
        Ok(self.client.delete_all(keys.iter().copied())?.deleted)
    }
}
