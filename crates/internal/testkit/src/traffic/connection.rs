//! Long-lived connections.

use std::io::{self, Read, Write};
use std::net::{TcpStream, UdpSocket};

use super::probe::{PAYLOAD, exchange, greeting, timed_out};
use super::{Probe, Protocol};
use crate::netns::Netns;

/// A connection to a server that stays open.
///
/// For UDP, datagrams from one port, which the same server should answer.
#[derive(Debug)]
pub struct Connection {
    transport: Transport,
    server: String,
}

#[derive(Debug)]
enum Transport {
    Tcp(TcpStream),
    Udp(UdpSocket),
}

impl Connection {
    /// Connects from a namespace and receives the server's name.
    ///
    /// # Errors
    ///
    /// If no server answers.
    pub fn open(from: &Netns, probe: Probe) -> io::Result<Self> {
        let (transport, answer) = match probe.protocol {
            Protocol::Tcp => {
                let stream = from.run(|| probe.connect_from_unique_port())?;
                let answer = greeting(&stream);
                (Transport::Tcp(stream), answer)
            }
            Protocol::Udp => {
                let socket = from.run(|| probe.socket())?;
                let answer = exchange(&socket, PAYLOAD);
                (Transport::Udp(socket), answer)
            }
        };
        let server = answer.map_err(timed_out)?.server;
        Ok(Self { transport, server })
    }

    /// Returns the name of the server.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Sends a message and waits for its echo or, for UDP, for the server's name.
    ///
    /// # Errors
    ///
    /// If the connection fails, or if the response differs.
    pub fn exchange(&mut self, message: &str) -> io::Result<()> {
        let is_same = match &mut self.transport {
            Transport::Tcp(stream) => echo(stream, message.as_bytes()),
            Transport::Udp(socket) => {
                let answer = exchange(socket, message.as_bytes());
                answer.map(|answer| answer.server == self.server)
            }
        };
        match is_same.map_err(timed_out)? {
            true => Ok(()),
            false => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "unexpected response",
            )),
        }
    }
}

/// Sends a message, and returns whether the echo is equal.
fn echo(stream: &mut TcpStream, message: &[u8]) -> io::Result<bool> {
    let mut back = vec![0; message.len()];
    stream.write_all(message)?;
    stream.read_exact(&mut back)?;
    Ok(back == message)
}
