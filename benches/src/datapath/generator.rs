//! Transmission of many packets.

use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;

use rustix::net::{
    AddressFamily, MMsgHdr, SendAncillaryBuffer, SendFlags, SocketType, connect, ipproto, sendmmsg,
    socket,
};
use testkit::netns::Netns;

use crate::time::Time;

/// Number of packets per system call.
const BATCH: usize = 256;

/// A raw socket that sends complete packets to one neighbor.
#[derive(Debug)]
pub struct Generator(OwnedFd);

impl Generator {
    /// Opens a socket in a namespace. All packets are sent to the link-layer address of
    /// `gateway`, regardless of their destination.
    ///
    /// # Errors
    ///
    /// If the process lacks CAP_NET_RAW, or if the gateway is unreachable.
    pub fn open(netns: &Netns, gateway: Ipv4Addr) -> io::Result<Self> {
        netns.run(|| {
            let socket = socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::RAW))?;
            // The address of a raw socket selects the route. The packet has its own.
            connect(&socket, &SocketAddrV4::new(gateway, 0))?;
            Ok(Self(socket))
        })
    }

    /// Sends packets, and returns the time of all system calls.
    ///
    /// # Errors
    ///
    /// The error of the socket.
    pub fn send(&self, packets: &[Vec<u8>]) -> io::Result<Time> {
        let slices: Vec<_> = packets
            .iter()
            .map(|packet| [IoSlice::new(packet)])
            .collect();
        let control = packets.iter().map(|_| SendAncillaryBuffer::default());
        let mut control: Vec<_> = control.collect();
        let messages = slices.iter().zip(&mut control);
        let messages = messages.map(|(slice, control)| MMsgHdr::new(slice, control));
        let mut messages: Vec<_> = messages.collect();
        let (time, sent) = Time::of(|| {
            let mut rest = messages.as_mut_slice();
            while !rest.is_empty() {
                let count = rest.len().min(BATCH);
                let sent = sendmmsg(&self.0, &mut rest[..count], SendFlags::empty())?;
                rest = &mut rest[sent..];
            }
            io::Result::Ok(())
        });
        sent.map(|()| time)
    }
}
