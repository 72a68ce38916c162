//! Servers that answer with their name, and probes that count answers.
//!
//! All servers and probes run in a given [`Netns`](crate::netns::Netns). Probes have
//! timeouts and record time and reason of each failure.
//!
//! ```no_run
//! # use testkit::lab::Lab;
//! # use testkit::traffic::{Probe, Protocol, Server};
//! let lab = Lab::new()?;
//! let backend = &lab.backends[0];
//! let address = (backend.v4, 8080).into();
//! let server = Server::start(&backend.netns, Protocol::Tcp, address, &backend.name)?;
//! let answers = Probe::new(Protocol::Tcp, server.address()).times(&lab.client.netns, 100);
//! assert_eq!(answers.count(&backend.name), 100);
//! # Ok::<(), std::io::Error>(())
//! ```

use std::fmt;

mod server;

mod probe;

mod answers;

mod load;

mod connection;

pub use answers::{Answers, Failure};
pub use connection::Connection;
pub use load::Load;
pub use probe::{Answer, Probe, receive};
pub use server::Server;

/// A transport protocol of servers and probes.
///
/// The type is not that of vipline-inet, because kernels of test machines have no SCTP sockets.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Protocol {
    /// TCP, with one connection per request.
    Tcp,
    /// UDP, with one datagram and one source port per request.
    Udp,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        })
    }
}
