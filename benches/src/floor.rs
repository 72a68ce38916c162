//! Time of the kernel alone: replay of encoded messages.

use std::io;
use std::time::Duration;

use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketType, connect, recv, send, socket, sockopt,
};
use vipline_netlink::message::{Content, Messages};

use crate::time::Time;

/// Reply timeout.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Sends nfnetlink batches and returns the time of each.
///
/// # Errors
///
/// The errors of [`replay_over`].
pub fn replay(batches: &[Vec<u8>]) -> io::Result<Vec<Time>> {
    replay_over(Some(netlink::NETFILTER), batches)
}

/// Sends datagrams over a netlink protocol, and returns the time of each. Without a
/// protocol, sends over rtnetlink.
///
/// Excludes opening of the socket and its buffers. Each datagram is one `send`, followed
/// by the acknowledgment.
///
/// # Errors
///
/// The error of the socket, or of a rejected message.
pub fn replay_over(protocol: Option<Protocol>, datagrams: &[Vec<u8>]) -> io::Result<Vec<Time>> {
    let socket = socket(AddressFamily::NETLINK, SocketType::RAW, protocol)?;
    connect(&socket, &SocketAddrNetlink::new(0, 0))?;
    let largest = datagrams.iter().map(Vec::len).max().unwrap_or_default();
    sockopt::set_socket_send_buffer_size_force(&socket, largest)?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(TIMEOUT))?;
    let mut answer = [0; 8192];
    let times = datagrams.iter().map(|datagram| {
        let (time, result) = Time::of(|| {
            send(&socket, datagram, SendFlags::empty())?;
            let (bytes, _) = recv(&socket, &mut answer, RecvFlags::empty())?;
            acknowledged(&answer[..bytes])
        });
        result.map(|()| time)
    });
    times.collect()
}

/// Returns the error of an acknowledgment.
fn acknowledged(datagram: &[u8]) -> io::Result<()> {
    let first = Messages::new(datagram).next();
    let message = first.ok_or_else(|| io::Error::other("an empty answer"))?;
    let content = message.and_then(|message| message.content());
    match content.map_err(io::Error::other)? {
        Content::Ack(answer) if answer.errno.is_none() => Ok(()),
        other => Err(io::Error::other(format!(
            "the message is refused: {other:?}"
        ))),
    }
}
