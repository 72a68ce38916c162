//! Configuration of injected faults.

use std::time::Duration;

use crate::kind::Kind;

/// Faults to inject. Default: none.
///
/// See [`ApiServer::faults`](crate::ApiServer::faults).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Faults {
    /// Resource that the faults apply to, such as `services`. [`None`]: all resources.
    pub only: Option<String>,
    /// Error response to send instead of processing a request.
    pub error_response: Option<ErrorResponse>,
    /// Resources whose requests are answered with 403.
    pub forbidden: Vec<String>,
    /// Number of writes to reject with 409, as if another client had changed the object.
    pub conflicts: usize,
    /// Number of writes to apply without a response: the connection is closed.
    pub lost_responses: usize,
    /// Delay of each response. A change affects delayed responses immediately.
    pub delay: Duration,
    /// Delay of watch events.
    pub event_delay: Duration,
    /// Closes the connection of the next list or watch after some bytes, once.
    pub cut_after: Option<CutAfter>,
    /// Percentage of events to send twice.
    pub duplicates: u8,
    /// Order of events.
    pub order: Order,
    /// Whether watches send nothing, not even bookmarks or their end.
    pub silent_watches: bool,
    /// Number of versions that the cache lags behind. The cache serves lists and watches
    /// with `resourceVersion=0`.
    pub stale: u64,
    /// Number of versions that all lists lag behind, as if the client had listed long
    /// before it continues.
    pub outdated: u64,
    /// Failure of watches that begin with a list (`sendInitialEvents=true`).
    pub watch_list_failure: Option<WatchListFailure>,
}

impl Faults {
    /// Returns whether the faults apply to a kind.
    pub(crate) fn concern(&self, kind: Kind) -> bool {
        let only = self.only.as_deref();
        only.is_none_or(|plural| plural == kind.plural())
    }
}

/// Failure of a watch that begins with a list.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WatchListFailure {
    /// 422, as from a server without the feature `WatchList`.
    Forbidden,
    /// An error event, as from a server with etcd older than 3.4.25.
    Error,
}

/// An error response.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ErrorResponse {
    /// HTTP status code: 429, 500, 503, …
    pub code: u16,
    /// `Retry-After`, in seconds.
    pub retry_after: Option<u32>,
    /// Number of requests left to answer with the error.
    pub times: usize,
}

/// Position in a response at which its connection is closed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CutAfter {
    /// Number of bytes, including the header.
    pub bytes: usize,
    /// Layer whose bytes are counted.
    pub layer: Layer,
    /// Kind of disconnect.
    pub disconnect: Disconnect,
}

/// Layer whose bytes are counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Layer {
    /// HTTP: the cut is between two TLS records.
    Http,
    /// TCP: the cut may be inside a TLS record.
    Tcp,
}

/// Kind of disconnect.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Disconnect {
    /// End of file without a TLS `close_notify`, as when a server exits.
    Close,
    /// Connection reset, as when a server is gone.
    Reset,
}

/// Order of events.
///
/// Events of one object always keep their order. A resumed watch receives again all
/// events that it may have missed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Order {
    /// Order of the changes.
    #[default]
    Unchanged,
    /// Shuffled, except events of EndpointSlices of the same Service.
    Shuffled,
    /// Shuffled, including events of EndpointSlices of the same Service.
    SlicesShuffled,
}
