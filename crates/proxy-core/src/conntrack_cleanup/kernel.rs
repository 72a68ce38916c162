//! The tracked flows of the kernel.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]

use vipline_conntrack::{self as conntrack, Client, Dump, Filter, Flow, Protocol, Status};
use vipline_service_model::Family;

use super::served::Served;
use super::{Flows, Found};
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
    fn find(&mut self, family: Family, served: &Served) -> Result<Found, Error> {
        let mut found = Found {
            flows: Vec::new(),
            is_complete: true,
        };
        for search in searches(family, served) {
            let dump = self.client.dump(&search, |flow| {
                // Unanswered UDP flows match both filters.
                let is_new = search.protocol.is_some() || flow.original.protocol != Protocol::UDP;
                if is_new && served.is_stale(&flow) {
                    found.flows.push(flow);
                }
            })?;
            found.is_complete &= matches!(dump, Dump::Complete(()));
        }
        Ok(found)
    }

    fn delete(&mut self, flows: &[Flow]) -> Result<usize, Error> {
        let keys = flows.iter().map(Flow::key);
        Ok(self.client.delete_all(keys)?.deleted)
    }
}

/// Returns the filters of flows that may be stale.
fn searches(family: Family, served: &Served) -> Vec<Filter> {
    let of_family = Filter::new().family(match family {
        Family::V4 => conntrack::Family::V4,
        Family::V6 => conntrack::Family::V6,
    });
    let protocols = served.protocols(family);
    let has = |protocol| protocols.contains(&protocol);
    let mut searches = Vec::new();
    if has(Protocol::UDP) {
        searches.push(of_family.protocol(Protocol::UDP));
    }
    if has(Protocol::TCP) || has(Protocol::SCTP) {
        searches.push(of_family.status(Status::empty(), Status::SEEN_REPLY));
    }
    searches
}
