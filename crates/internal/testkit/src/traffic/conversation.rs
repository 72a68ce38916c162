//! Long-lived connections.

use std::io::{self, Read, Write};
use std::net::{TcpStream, UdpSocket};

use super::ask::{exchange, greeting, timed_out};
use super::{Ask, Protocol};
use crate::netns::Netns;

/// A connection to a server that stays open.
///
/// For UDP, datagrams from one port, which the same server should answer.
#[derive(Debug)]
pub struct Conversation {
    line: Line,
    server: String,
}

#[derive(Debug)]
enum Line {
    Tcp(TcpStream),
    Udp(UdpSocket),
}

impl Conversation {
    /// Connects from a namespace and receives the server's name.
    ///
    /// # Errors
    ///
    /// If no server answers.
    pub fn open(from: &Netns, ask: Ask) -> io::Result<Self> {
        let (line, answer) = match ask.protocol {
            Protocol::Tcp => {
                let stream = from.run(|| ask.connect())?;
                let answer = greeting(&stream);
                (Line::Tcp(stream), answer)
            }
            Protocol::Udp => {
                let socket = from.run(|| ask.socket())?;
                let answer = exchange(&socket, b"who is there?");
                (Line::Udp(socket), answer)
            }
        };
        let server = answer.map_err(timed_out)?.server;
        Ok(Self { line, server })
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
    pub fn say(&mut self, words: &str) -> io::Result<()> {
        let is_same = match &mut self.line {
            Line::Tcp(stream) => echo(stream, words.as_bytes()),
            Line::Udp(socket) => {
                let answer = exchange(socket, words.as_bytes());
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
fn echo(stream: &mut TcpStream, words: &[u8]) -> io::Result<bool> {
    let mut back = vec![0; words.len()];
    stream.write_all(words)?;
    stream.read_exact(&mut back)?;
    Ok(back == words)
}
