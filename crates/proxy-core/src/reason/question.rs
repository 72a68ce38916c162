//! A connection attempt.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use vipline_service_model::Transport;

/// A connection attempt of a client.
///
/// Exhaustive: callers ask about connections that they describe.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Question {
    /// Protocol.
    pub protocol: Transport,
    /// Destination address and port.
    pub destination: SocketAddr,
    /// Source address.
    pub source: IpAddr,
    /// Origin of the connection.
    pub origin: Origin,
}

/// Origin of a connection, as rules distinguish it.
///
/// Exhaustive: rules distinguish these origins.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Origin {
    /// A process of this node.
    Node,
    /// A pod that [`EngineConfig::detect_local`](crate::EngineConfig::detect_local) detects.
    Pod,
    /// Any other client.
    Outside,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Node => "node",
            Self::Pod => "pod",
            Self::Outside => "outside",
        })
    }
}
