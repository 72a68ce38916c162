//! System calls that all netlink sockets share.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use netlink_sys::SocketAddr;
use rustix::buffer::spare_capacity;
use rustix::io::Errno as SystemErrno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, connect, getsockname, recv, sockopt};

use crate::{Errno, Error, Protocol};

/// Size of the receive buffer, in bytes; the kernel uses up to 32 KiB per datagram.
pub(crate) const BUFFER: usize = 64 << 10;

/// Maximum number of calls of a system call that signals interrupt.
pub(crate) const MAX_INTERRUPTED_CALLS: usize = 64;

/// An option of netlink sockets (level `SOL_NETLINK`, `netlink(7)`).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum SocketOption {
    /// `NETLINK_BROADCAST_ERROR`: reports the failure of a broadcast to the sender.
    BroadcastError,
    /// `NETLINK_CAP_ACK`: errors omit the payload of the request.
    CapAck,
    /// `NETLINK_EXT_ACK`: acknowledgments have the attributes of the extended ACK.
    ExtAck,
    /// `NETLINK_LISTEN_ALL_NSID`: the socket receives notifications of all network
    /// namespaces that have an ID in the namespace of the socket. Requires
    /// `CAP_NET_BROADCAST`. The message does not contain the ID.
    ListenAllNsid,
    /// `NETLINK_NO_ENOBUFS`: the kernel does not report lost notifications.
    NoEnobufs,
    /// `NETLINK_GET_STRICT_CHK`: the kernel applies filters in rtnetlink dump requests
    /// instead of ignoring them, and rejects malformed requests.
    StrictCheck,
}

/// The descriptor of a netlink socket that is connected to the kernel.
#[derive(Debug)]
pub(crate) struct Descriptor {
    inner: Inner,
    port_id: u32,
}

#[derive(Debug)]
enum Inner {
    /// A socket that this crate opened.
    Opened(netlink_sys::Socket),
    /// A descriptor of the caller.
    Given(OwnedFd),
}

impl Descriptor {
    /// Opens a socket in the network namespace of the calling thread.
    pub(crate) fn open(protocol: Protocol) -> Result<Self, Error> {
        let mut inner = netlink_sys::Socket::new(protocol.number().into())
            .map_err(io_error("open a netlink socket"))?;
        let address = inner
            .bind_auto()
            .map_err(io_error("bind a netlink socket"))?;
        // A connected socket receives messages of the kernel only.
        inner
            .connect(&SocketAddr::new(0, 0))
            .map_err(io_error("connect a netlink socket"))?;
        Ok(Self {
            inner: Inner::Opened(inner),
            port_id: address.port_number(),
        })
    }

    /// Connects an existing netlink socket to the kernel.
    pub(crate) fn from_fd(fd: OwnedFd) -> Result<Self, Error> {
        let family = sockopt::socket_domain(&fd).map_err(failed("read the family of a socket"))?;
        if family != AddressFamily::NETLINK {
            return Err(Error::Io {
                operation: "use a socket of another family as a netlink socket",
                source: Errno::AFNOSUPPORT.into(),
            });
        }
        // The kernel binds an unbound socket, and keeps the memberships.
        connect(&fd, &SocketAddrNetlink::new(0, 0)).map_err(failed("connect a netlink socket"))?;
        let address = getsockname(&fd)
            .and_then(SocketAddrNetlink::try_from)
            .map_err(failed("read the address of a netlink socket"))?;
        Ok(Self {
            inner: Inner::Given(fd),
            port_id: address.pid(),
        })
    }

    /// Returns the port ID of the socket.
    pub(crate) fn port_id(&self) -> u32 {
        self.port_id
    }

    /// Enables or disables an option.
    pub(crate) fn set_option(&self, option: SocketOption, value: bool) -> Result<(), Error> {
        let socket = self.opened()?;
        let set = match option {
            SocketOption::BroadcastError => socket.set_broadcast_error(value),
            SocketOption::CapAck => socket.set_cap_ack(value),
            SocketOption::ExtAck => socket.set_ext_ack(value),
            SocketOption::ListenAllNsid => socket.set_listen_all_namespaces(value),
            SocketOption::NoEnobufs => socket.set_no_enobufs(value),
            SocketOption::StrictCheck => socket.set_netlink_get_strict_chk(value),
        };
        set.map_err(io_error("set an option of a netlink socket"))
    }

    /// Joins a multicast group.
    pub(crate) fn join(&self, group: u32) -> Result<(), Error> {
        let joined = self.opened()?.add_membership(group);
        joined.map_err(io_error("join a netlink multicast group"))
    }

    /// Leaves a multicast group.
    pub(crate) fn leave(&self, group: u32) -> Result<(), Error> {
        let left = self.opened()?.drop_membership(group);
        left.map_err(io_error("leave a netlink multicast group"))
    }

    /// Sets the size of the receive buffer, in bytes.
    pub(crate) fn set_recv_buffer_size(&self, bytes: usize) -> Result<(), Error> {
        // The kernel doubles the requested size, in a signed integer.
        let half = (bytes / 2).min(i32::MAX as usize / 2);
        sockopt::set_socket_recv_buffer_size_force(self.as_fd(), half)
            .or_else(|_| sockopt::set_socket_recv_buffer_size(self.as_fd(), half))
            .map_err(failed("set the receive buffer size of a netlink socket"))
    }

    /// Returns the socket if this crate opened it.
    ///
    /// Options of the level `SOL_NETLINK` need a function without `unsafe`, which
    /// netlink-sys has for its own sockets only.
    fn opened(&self) -> Result<&netlink_sys::Socket, Error> {
        match &self.inner {
            Inner::Opened(socket) => Ok(socket),
            Inner::Given(_) => Err(Error::Io {
                operation: "set a netlink option of an existing descriptor",
                source: io::ErrorKind::Unsupported.into(),
            }),
        }
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.inner {
            Inner::Opened(socket) => socket.as_fd(),
            Inner::Given(fd) => fd.as_fd(),
        }
    }
}

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

/// Receives one datagram into a buffer without growing the buffer.
pub(crate) fn receive(
    socket: BorrowedFd<'_>,
    datagram: &mut Vec<u8>,
    wait: RecvFlags,
) -> Result<(), Error> {
    let limit = datagram.capacity();
    let mut result = Err(SystemErrno::INTR);
    for _ in 0..MAX_INTERRUPTED_CALLS {
        datagram.clear();
        let room = spare_capacity(datagram);
        result = recv(socket, room, wait | RecvFlags::TRUNC).map(|(_, bytes)| bytes);
        if result != Err(SystemErrno::INTR) {
            break;
        }
    }
    match result {
        Ok(bytes) if bytes > limit => Err(Error::Truncated { bytes, limit }),
        Ok(_) => Ok(()),
        Err(SystemErrno::AGAIN) => Err(Error::Timeout),
        Err(SystemErrno::NOBUFS) => Err(Error::Overrun),
        Err(errno) => Err(failed("receive from the kernel")(errno)),
    }
}

/// Returns a conversion to [`Error::Io`].
pub(crate) fn io_error(operation: &'static str) -> impl Fn(io::Error) -> Error {
    move |source| Error::Io { operation, source }
}

/// Returns a conversion to [`Error::Io`].
pub(crate) fn failed(operation: &'static str) -> impl Fn(SystemErrno) -> Error {
    move |errno| Error::Io {
        operation,
        source: errno.into(),
    }
}
