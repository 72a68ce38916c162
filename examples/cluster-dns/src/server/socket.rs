//! UDP sockets, with the local address of each packet.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::libc::{in_addr, in_pktinfo, in6_addr, in6_pktinfo};
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, SockaddrIn,
    SockaddrIn6, SockaddrStorage, bind, recvmsg, sendmsg, setsockopt, socket, sockopt,
};

/// Receive buffer of a socket in bytes. The kernel limits it by `net.core.rmem_max`.
const RECEIVE_BUFFER: usize = 4 << 20;

/// A UDP socket of a listener.
///
/// Several sockets have the same address: the kernel distributes clients over them. A
/// socket on a wildcard address responds from the address that the client used.
#[derive(Debug)]
pub(super) struct UdpSocket {
    fd: OwnedFd,
    /// Whether the local address of a packet can differ from that of the socket.
    is_wildcard: bool,
}

/// A received packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    /// Number of bytes.
    pub(super) size: usize,
    /// Address of the client.
    pub(super) client: SocketAddr,
    /// Local address, on a wildcard socket.
    pub(super) local: Option<Local>,
}

/// Local address of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) enum Local {
    V4(in_addr),
    V6(in6_pktinfo),
}

impl UdpSocket {
    /// Opens a socket.
    ///
    /// # Errors
    ///
    /// Returns the error of the failed system call.
    pub(super) fn bind(address: SocketAddr) -> io::Result<Self> {
        let family = match address {
            SocketAddr::V4(_) => AddressFamily::Inet,
            SocketAddr::V6(_) => AddressFamily::Inet6,
        };
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let fd = socket(family, SockType::Datagram, flags, None)?;
        setsockopt(&fd, sockopt::ReusePort, &true)?;
        // The kernel takes the largest permitted size.
        let _ = setsockopt(&fd, sockopt::RcvBuf, &RECEIVE_BUFFER);
        let is_wildcard = address.ip().is_unspecified();
        match address {
            SocketAddr::V4(v4) => {
                setsockopt(&fd, sockopt::Ipv4PacketInfo, &is_wildcard)?;
                bind(fd.as_raw_fd(), &SockaddrIn::from(v4))?;
            }
            SocketAddr::V6(v6) => {
                setsockopt(&fd, sockopt::Ipv6V6Only, &true)?;
                setsockopt(&fd, sockopt::Ipv6RecvPacketInfo, &is_wildcard)?;
                bind(fd.as_raw_fd(), &SockaddrIn6::from(v6))?;
            }
        }
        Ok(Self { fd, is_wildcard })
    }

    /// Receives a packet. Returns `None` if there is none.
    ///
    /// # Errors
    ///
    /// Returns the error of the system call, such as that of a former response to a client
    /// without a receiver.
    pub(super) fn receive(
        &self,
        buffer: &mut [u8],
        control: &mut [u8],
    ) -> io::Result<Option<Packet>> {
        let mut slices = [IoSliceMut::new(buffer)];
        let control = self.is_wildcard.then_some(control);
        let flags = MsgFlags::MSG_DONTWAIT;
        let fd = self.fd.as_raw_fd();
        let message = match recvmsg::<SockaddrStorage>(fd, &mut slices, control, flags) {
            Ok(message) => message,
            Err(Errno::EAGAIN) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let local = match self.is_wildcard {
            true => message.cmsgs()?.find_map(Local::of),
            false => None,
        };
        let Some(client) = message.address.as_ref().and_then(client) else {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        };
        Ok(Some(Packet {
            size: message.bytes,
            client,
            local,
        }))
    }

    /// Sends a response. The kernel discards it if the send buffer is full.
    ///
    /// # Errors
    ///
    /// Returns the error of the system call.
    pub(super) fn send(
        &self,
        response: &[u8],
        client: SocketAddr,
        local: Option<Local>,
    ) -> io::Result<()> {
        let slices = [IoSlice::new(response)];
        let fd = self.fd.as_raw_fd();
        let client = SockaddrStorage::from(client);
        let flags = MsgFlags::MSG_DONTWAIT;
        match local {
            None => sendmsg(fd, &slices, &[], flags, Some(&client))?,
            Some(Local::V4(address)) => {
                let info = in_pktinfo {
                    ipi_ifindex: 0,
                    ipi_spec_dst: address,
                    ipi_addr: in_addr { s_addr: 0 },
                };
                let control = [ControlMessage::Ipv4PacketInfo(&info)];
                sendmsg(fd, &slices, &control, flags, Some(&client))?
            }
            Some(Local::V6(info)) => {
                let control = [ControlMessage::Ipv6PacketInfo(&info)];
                sendmsg(fd, &slices, &control, flags, Some(&client))?
            }
        };
        Ok(())
    }
}

/// Returns whether the kernel has sockets of IPv6.
pub(super) fn has_ipv6() -> bool {
    let flags = SockFlag::SOCK_CLOEXEC;
    let opened = socket(AddressFamily::Inet6, SockType::Datagram, flags, None);
    !matches!(opened, Err(Errno::EAFNOSUPPORT))
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Returns a buffer for the control messages of [`UdpSocket::receive`].
pub(super) fn control_buffer() -> Vec<u8> {
    nix::cmsg_space!(in6_pktinfo, in_pktinfo)
}

impl Local {
    fn of(message: ControlMessageOwned) -> Option<Self> {
        match message {
            ControlMessageOwned::Ipv4PacketInfo(info) => Some(Self::V4(info.ipi_spec_dst)),
            ControlMessageOwned::Ipv6PacketInfo(info) => {
                let in6_addr { s6_addr } = info.ipi6_addr;
                let is_scoped = Ipv6Addr::from(s6_addr).is_unicast_link_local();
                Some(Self::V6(in6_pktinfo {
                    // Only a link-local address needs the interface. Otherwise the route
                    // to the client may lead through another one.
                    ipi6_ifindex: if is_scoped { info.ipi6_ifindex } else { 0 },
                    ..info
                }))
            }
            _ => None,
        }
    }
}

fn client(address: &SockaddrStorage) -> Option<SocketAddr> {
    if let Some(v4) = address.as_sockaddr_in() {
        let ip: Ipv4Addr = v4.ip();
        return Some(SocketAddr::new(IpAddr::V4(ip), v4.port()));
    }
    address
        .as_sockaddr_in6()
        .map(|v6| SocketAddr::V6((*v6).into()))
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket as Client;
    use std::time::Duration;

    use super::*;

    /// Receives a packet on a socket of the wildcard address, and responds.
    fn responds_from(wildcard: &str, local: &str) {
        let free = Client::bind((wildcard, 0)).unwrap().local_addr().unwrap();
        let socket = UdpSocket::bind(free).unwrap();
        let client = Client::bind((local, 0)).unwrap();
        client
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        let target = SocketAddr::new(local.parse().unwrap(), free.port());
        client.send_to(b"request", target).unwrap();
        let (mut buffer, mut control) = ([0; 64], control_buffer());
        let packet = (0..1000)
            .find_map(|_| {
                std::thread::sleep(Duration::from_millis(1));
                socket.receive(&mut buffer, &mut control).unwrap()
            })
            .unwrap();
        assert_eq!(&buffer[..packet.size], b"request");
        assert_eq!(packet.client, client.local_addr().unwrap());
        socket
            .send(b"response", packet.client, packet.local)
            .unwrap();
        let (size, from) = client.recv_from(&mut buffer).unwrap();
        assert_eq!((&buffer[..size], from), (&b"response"[..], target));
    }

    #[test]
    fn a_wildcard_socket_responds_from_the_address_that_the_client_used() {
        responds_from("0.0.0.0", "127.0.0.77");
        responds_from("::", "::1");
    }
}
