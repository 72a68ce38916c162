//! Errors of the configuration of forwarding.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// An error in the options of forwarding.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ForwardError {
    /// The text is not the address of a name server.
    #[error("{text:?} is not an address of a name server; expected ADDRESS[:PORT]")]
    Address {
        /// The text.
        text: String,
    },
    /// The text is not a policy.
    #[error("unknown policy {text:?}; expected random, round_robin or sequential")]
    Policy {
        /// The text.
        text: String,
    },
    /// The text is not a stub domain.
    #[error("{text:?} is not a stub domain; expected DOMAIN=ADDRESS[:PORT][,ADDRESS[:PORT]…]")]
    StubDomain {
        /// The text.
        text: String,
    },
    /// The file with the upstreams cannot be read.
    #[error("{}: {source}", path.display())]
    ResolvConf {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// No upstream is left after the addresses of this process are skipped.
    #[error("{origin} names no usable name server{}", of_this_process(skipped))]
    NoUpstream {
        /// The file, the domain, or the option.
        origin: String,
        /// Addresses of this process.
        skipped: Vec<SocketAddr>,
    },
    /// An upstream is an address on which this process serves.
    #[error("{origin} forwards to {address}, on which this process serves")]
    Loop {
        /// The domain or the option.
        origin: String,
        /// Address of this process.
        address: SocketAddr,
    },
}

/// Returns the end of the message about addresses of this process, if there are some.
fn of_this_process(skipped: &[SocketAddr]) -> String {
    let texts: Vec<_> = skipped.iter().map(ToString::to_string).collect();
    match texts.is_empty() {
        true => String::new(),
        false => format!("; skipped addresses of this process: {}", texts.join(", ")),
    }
}
