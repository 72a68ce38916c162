//! Entries of connection tracking, which packets follow instead of rules.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]

use std::net::SocketAddr;

use proxy_core::conntrack::{self, Filter, Flow, TupleFilter};
use proxy_core::netlink::Dump;
use proxy_core::reason::Question;
use vipline_service_model::Transport;

/// Maximum number of entries that an answer shows.
const MAX_SHOWN: usize = 16;

/// An entry of connection tracking to a destination.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Entry {
    /// Entry in the format of `conntrack -L`, of the first 16.
    pub(super) text: Option<String>,
    pub(super) client: SocketAddr,
    /// Source of replies: the endpoint, or the destination itself.
    pub(super) server: SocketAddr,
    /// Seconds until the entry ends without packets.
    pub(super) timeout: Option<u32>,
}

/// Entries that lead packets to addresses that are no endpoints.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Stale {
    /// The entry of the client that asks.
    pub(super) own: Option<Entry>,
    /// Number of entries of other clients.
    pub(super) others: usize,
}

impl Stale {
    /// Sorts the entries by their clients.
    pub(super) fn of(entries: &[&Entry], question: &Question) -> Self {
        let is_own = |it: &&&Entry| it.client.ip() == question.source;
        let own = entries.iter().filter(is_own).count();
        Self {
            own: entries.iter().find(is_own).map(|it| (**it).clone()),
            others: entries.len() - own,
        }
    }
}

/// Reads the entries to a destination. Empty if they cannot be read.
pub(super) fn read(protocol: Transport, destination: SocketAddr) -> Vec<Entry> {
    let to = TupleFilter::new()
        .with_destination(destination.ip())
        .with_destination_port(destination.port());
    let filter = Filter::new()
        .with_protocol(protocol.into())
        .with_original(to);
    // A busy destination has many entries, of which few are shown.
    let mut entries: Vec<Entry> = Vec::new();
    let add = |flow: Flow| {
        let is_shown = entries.len() < MAX_SHOWN;
        entries.push(Entry {
            text: is_shown.then(|| flow.to_string()),
            client: end(&flow.original),
            server: end(&flow.reply),
            timeout: flow.timeout,
        });
    };
    let read = conntrack::Client::open().and_then(|mut client| client.dump(&filter, add));
    match read {
        Ok(Dump::Complete(()) | Dump::Interrupted(())) => entries,
        Err(_) => Vec::new(),
    }
}

/// Returns the source of a tuple.
fn end(tuple: &conntrack::Tuple) -> SocketAddr {
    SocketAddr::new(tuple.source, tuple.source_port().unwrap_or_default())
}
