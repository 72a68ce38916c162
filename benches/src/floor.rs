//! What the kernel itself needs: batches replayed with nothing around them.

use std::io;
use std::time::Duration;

use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketType, connect, recv, send, socket, sockopt,
};
use vipline_netlink::message::{Content, Messages};

use crate::time::Time;

/// How long the kernel may take to answer.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Sends batches, each on a socket of its own, and tells how long that took.
///
/// The sockets are open before and have room enough; a batch is one `send`, and
/// its acknowledgement is waited for.
///
/// # Errors
///
/// What the kernel says, a refused batch included.
pub fn replay(batches: &[Vec<u8>]) -> io::Result<Time> {
    let mut sockets = Vec::new();
    for batch in batches {
        let socket = socket(
            AddressFamily::NETLINK,
            SocketType::RAW,
            Some(netlink::NETFILTER),
        )?;
        connect(&socket, &SocketAddrNetlink::new(0, 0))?;
        sockopt::set_socket_send_buffer_size_force(&socket, batch.len())?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(TIMEOUT))?;
        sockets.push(socket);
    }
    let mut answer = [0; 8192];
    let (time, result) = Time::of(|| {
        sockets.iter().zip(batches).try_for_each(|(socket, batch)| {
            send(socket, batch, SendFlags::empty())?;
            let (bytes, _) = recv(socket, &mut answer, RecvFlags::empty())?;
            acknowledged(&answer[..bytes])
        })
    });
    result.map(|()| time)
}

/// Fails unless the kernel says yes.
fn acknowledged(datagram: &[u8]) -> io::Result<()> {
    for message in Messages::new(datagram) {
        let message = message.map_err(io::Error::other)?;
        match message.content().map_err(io::Error::other)? {
            Content::Answer(answer) if answer.errno.is_none() => return Ok(()),
            other => {
                return Err(io::Error::other(format!(
                    "the batch was refused: {other:?}"
                )));
            }
        }
    }
    Err(io::Error::other("the kernel did not answer"))
}
