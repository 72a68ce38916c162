//! Upstream name servers and the cache of their answers.
//!
//! [`Forwarder::cached`] answers from the cache, without waiting and without allocation.
//! [`Forwarder::answer`] asks the upstreams if necessary. [`Forwarder::resolve`] does the
//! same with decoded messages.
//!
//! # Upstreams
//!
//! Upstreams are those of `/etc/resolv.conf`, which is read again every 5 s, or constant
//! addresses, and name servers of stub domains. [`ForwardOptions`] lists all options with
//! units and defaults. Addresses on which this process serves are never upstreams.
//!
//! A query uses UDP with a random port and a random ID, and ignores replies with another
//! source, ID or question. It continues over TCP if the reply is truncated or malformed, or
//! after 16 replies that do not match. A server that rejects or drops EDNS is asked without.
//!
//! The next upstream is asked after a timeout, an error of a socket, or an RCODE other
//! than NOERROR and NXDOMAIN. The client gets the last RCODE, or SERVFAIL. Two failures
//! in succession mark an upstream as down. Upstreams that are down are tried last, and are
//! checked every 500 ms with a query for the root's name servers.
//!
//! Identical questions share one query. So a loop through another forwarder ends after one
//! round: the query that returns waits for itself. Module `probe` finds and names loops.
//!
//! The upstreams of each stub domain, and those of all other names, have places of their
//! own for queries and for waiting clients: module `places`.
//!
//! # Differences from the client's query
//!
//! Upstreams get the name in lower case, RD, AD, CD of the client, and an OPT record with
//! DO of the client. They get no EDNS options: not the client's subnet, and no cookies.
//! Zone transfers are refused.
//!
//! # Cache
//!
//! The key is name, type, class, DO and CD. Truncated responses are never cached, and
//! failures at most 5 s. Negative answers need a SOA record, RFC 2308. Popular entries are
//! refreshed before their end. If the upstreams fail, expired entries answer for an hour
//! with a TTL of 30 s, RFC 8767, and with an Extended DNS Error for clients with EDNS.
//! Module `screen` lists the records that are kept.

mod answer;
mod ask;
mod cache;
mod counters;
mod error;
mod exchange;
mod flight;
mod forwarder;
mod options;
mod places;
mod probe;
mod query;
mod request;
mod resolv_conf;
mod routes;
mod screen;
mod store;
mod upstream;

pub use ask::answer_from_reply;
pub use cache::AnswerType;
pub use counters::{
    BUCKETS, ByProtocol, ByType, Counter, Counters, Histogram, RCODES, UpstreamCounters, rcode_name,
};
pub use error::ForwardError;
pub use forwarder::{CachedAnswer, Forwarder};
pub use options::{CacheOptions, ForwardOptions, Policy, StubDomain, Upstreams, parse_upstream};
pub use query::{Query, QueryEdns};
pub use upstream::Upstream;
