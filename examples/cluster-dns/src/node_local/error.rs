//! Errors of the use on a node.

use thiserror::Error;
use vipline_rtnl::Name;

/// An error of the use on a node.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel has no dummy links.
    #[error(
        "interface {0}: cannot be created: the kernel has no dummy links (module `dummy`); name an existing interface, such as `lo`"
    )]
    NoDummy(Name),
    /// The interface or an address could not be read, added or removed.
    #[error("interface {interface}: {error}")]
    Interface {
        /// Name of the interface.
        interface: Name,
        /// Error of the kernel.
        #[source]
        error: vipline_rtnl::Error,
    },
    /// The rules could not be read, added or removed.
    #[error("table {table}: {error}")]
    Rules {
        /// Family and name of the table.
        table: String,
        /// Error of the kernel.
        #[source]
        error: vipline_nftables::Error,
    },
    /// Notifications of the kernel are not available.
    #[error("cannot subscribe to changes of interfaces: {0}")]
    Listener(#[source] vipline_netlink::Error),
    /// The thread that repairs changes could not be started.
    #[error("the thread that repairs changes cannot be started: {0}")]
    Thread(#[source] std::io::Error),
}
