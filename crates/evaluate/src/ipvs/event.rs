//! Events of IPVS on the path of a packet.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use vipline_ipvs::VirtualServer;

/// What IPVS did with a packet.
///
/// Displays as a line of a trace, with virtual servers as arguments of `ipvsadm`:
/// `ipvs -A -t 10.96.0.10:80 -s rr, -r 10.244.1.11:8080`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum IpvsEvent {
    /// The packet goes to a real server.
    Forwarded {
        /// Virtual server.
        service: VirtualServer,
        /// Address of the real server, and the port of the packet there.
        to: SocketAddr,
    },
    /// The virtual server has no available real server, and rejects the packet.
    NoRealServer {
        /// Virtual server.
        service: VirtualServer,
    },
    /// A persistence template chose the real server.
    TemplateFound(Template),
    /// The packet creates a persistence template.
    TemplateCreated(Template),
    /// A reply gets the address of the virtual server as its source.
    ReplyTranslated {
        /// Address and port of the virtual server.
        source: SocketAddr,
    },
}

/// A persistence template: the connections of a client go to one real server.
///
/// Exhaustive: the [key](super::TemplateKey) has the other values.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Template {
    /// Address of the client under the netmask of the virtual server.
    pub client: IpAddr,
    /// Real server.
    pub server: SocketAddr,
}

impl fmt::Display for IpvsEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forwarded { service, to } => write!(f, "ipvs -A {service}, -r {to}"),
            Self::NoRealServer { service } => write!(f, "ipvs -A {service}: no real server"),
            Self::TemplateFound(template) => write!(f, "ipvs template found: {template}"),
            Self::TemplateCreated(template) => write!(f, "ipvs template created: {template}"),
            Self::ReplyTranslated { source } => {
                write!(f, "ipvs translates the reply to come from {source}")
            }
        }
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.client, self.server)
    }
}
