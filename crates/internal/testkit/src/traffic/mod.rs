//! Traffic: servers that answer with their name, clients that count who did.
//!
//! Everything here takes the [`Netns`](crate::netns::Netns) it happens in, waits
//! no longer than told, and tells each failure with its time and reason.
//!
//! ```no_run
//! # use testkit::lab::Lab;
//! # use testkit::traffic::{Ask, Protocol, Server};
//! let lab = Lab::new()?;
//! let backend = &lab.backends[0];
//! let address = (backend.v4, 8080).into();
//! let server = Server::start(&backend.netns, Protocol::Tcp, address, &backend.name)?;
//! let answers = Ask::new(Protocol::Tcp, server.address()).times(&lab.client.netns, 100);
//! assert_eq!(answers.by(&backend.name), 100);
//! # Ok::<(), std::io::Error>(())
//! ```

use std::fmt;

mod server;

mod ask;

mod answers;

mod load;

mod conversation;

pub use answers::{Answers, Failure};
pub use ask::{Answer, Ask};
pub use conversation::Conversation;
pub use load::Load;
pub use server::Server;

/// What a server listens to and a client asks by.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Protocol {
    /// A connection for each question.
    Tcp,
    /// A datagram, from a port of its own, for each question.
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
