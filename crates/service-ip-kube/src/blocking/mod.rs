//! The client and the store for threads without an async runtime.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use vipline_service_ip::{
    AsyncStore, Change, Cidrs, CommitError, Family, Snapshot, Store, StoreError, Version,
};

use crate::{Error, Event};

mod client;

pub use client::Client;

/// A [`Kube`](crate::Kube) for a blocking [`Registry`](vipline_service_ip::Registry).
///
/// One allocation is one request, which blocks the thread (see [`Client`]).
#[derive(Debug)]
pub struct Kube {
    client: Arc<Client>,
    store: crate::Kube,
}

impl Kube {
    /// Returns the store of a family. Does not send a request.
    ///
    /// # Errors
    ///
    /// [`Cause::Configuration`](crate::Cause::Configuration): the credentials cannot be read or used.
    pub fn open(kubeconfig: Option<&Path>, family: Family) -> Result<Self, Error> {
        Ok(Self::new(Arc::new(Client::open(kubeconfig)?), family))
    }

    /// Returns the store of a family with a shared client.
    #[must_use]
    pub fn new(client: Arc<Client>, family: Family) -> Self {
        Self {
            store: crate::Kube::new(client.client.clone(), family),
            client,
        }
    }

    /// As [`Kube::with_manager`](crate::Kube::with_manager).
    #[must_use]
    pub fn with_manager(mut self, manager: &str) -> Self {
        self.store = self.store.with_manager(manager);
        self
    }

    /// As [`Kube::unreadable`](crate::Kube::unreadable).
    #[must_use]
    pub fn unreadable(&self) -> &[Error] {
        self.store.unreadable()
    }

    /// As [`Kube::watch`](crate::Kube::watch).
    pub fn watch(&mut self, event: Event) {
        self.store.watch(event);
    }
}

impl Store<Cidrs> for Kube {
    fn load(&mut self) -> Result<Snapshot<Cidrs>, StoreError> {
        self.client.wait(self.store.load())?
    }

    fn commit(
        &mut self,
        base: Version,
        change: &Change<IpAddr>,
        after: &Snapshot<Cidrs>,
    ) -> Result<Version, CommitError<Cidrs>> {
        let committed = self.client.wait(self.store.commit(base, change, after));
        committed.unwrap_or_else(|error| Err(CommitError::Failed(error.into())))
    }
}
