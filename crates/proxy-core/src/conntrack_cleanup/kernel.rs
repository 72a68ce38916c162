//! The tracked flows of the kernel.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]

use vipline_conntrack::{self as conntrack, Client, Dump, Filter, Flow, Key};

use super::Flows;
use crate::Error;

/// The tracked flows of a network namespace.
#[derive(Debug)]
pub(crate) struct Kernel {
    client: Client,
}

impl Kernel {
    /// Opens a client in the network namespace of the calling thread. Returns `None` if
    /// the kernel does not support conntrack dumps.
    pub(crate) fn open() -> Result<Option<Self>, Error> {
        match Client::open() {
            Ok(client) => Ok(Some(Self { client })),
            Err(conntrack::Error::Unsupported { .. }) => Ok(None),
            Err(error) => Err(error.into()),
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
