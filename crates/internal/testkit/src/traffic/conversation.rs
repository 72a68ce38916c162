//! A connection that stays open.

use std::io::{self, Read, Write};
use std::net::{TcpStream, UdpSocket};

use super::ask::{ask_by, greeting, timed_out};
use super::{Ask, Protocol};
use crate::netns::Netns;

/// A connection to a server that stays open, to see whether it survives.
///
/// By UDP it is datagrams from one port, which one server should answer.
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
    /// Connects from a namespace and learns who answered.
    ///
    /// # Errors
    ///
    /// Nobody answered, and why.
    pub fn open(from: &Netns, ask: Ask) -> io::Result<Self> {
        let (line, answer) = match ask.protocol {
            Protocol::Tcp => {
                let stream = from.run(|| ask.connect())?;
                let answer = greeting(&stream);
                (Line::Tcp(stream), answer)
            }
            Protocol::Udp => {
                let socket = from.run(|| ask.socket())?;
                let answer = ask_by(&socket, b"who is there?");
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

    /// Sends some words and waits for them to come back; for its name, by UDP.
    ///
    /// # Errors
    ///
    /// They did not, and why.
    pub fn say(&mut self, words: &str) -> io::Result<()> {
        let is_same = match &mut self.line {
            Line::Tcp(stream) => echo(stream, words.as_bytes()),
            Line::Udp(socket) => {
                let answer = ask_by(socket, words.as_bytes());
                answer.map(|answer| answer.server == self.server)
            }
        };
        match is_same.map_err(timed_out)? {
            true => Ok(()),
            false => Err(io::Error::new(io::ErrorKind::InvalidData, "other words")),
        }
    }
}

/// Sends some words, and tells whether the same ones come back.
fn echo(stream: &mut TcpStream, words: &[u8]) -> io::Result<bool> {
    let mut back = vec![0; words.len()];
    stream.write_all(words)?;
    stream.read_exact(&mut back)?;
    Ok(back == words)
}
