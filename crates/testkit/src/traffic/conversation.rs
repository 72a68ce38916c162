//! A connection that stays open.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use super::ask::{greeting, timed_out};
use super::{Ask, Protocol};
use crate::netns::Netns;

/// A TCP connection to a server that stays open, to see whether it survives.
#[derive(Debug)]
pub struct Conversation {
    stream: TcpStream,
    server: String,
}

impl Conversation {
    /// Connects from a namespace and learns who answered.
    ///
    /// # Errors
    ///
    /// Nobody answered, and why; or the question is not asked by TCP.
    pub fn open(from: &Netns, ask: Ask) -> io::Result<Self> {
        if ask.protocol != Protocol::Tcp {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let stream = from.run(|| ask.connect())?;
        let server = greeting(&stream).map_err(timed_out)?.server;
        Ok(Self { stream, server })
    }

    /// Returns the name of the server.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Sends some words and waits for them to come back.
    ///
    /// # Errors
    ///
    /// They did not, and why.
    pub fn say(&mut self, words: &str) -> io::Result<()> {
        let mut back = vec![0; words.len()];
        self.stream
            .write_all(words.as_bytes())
            .and_then(|()| self.stream.read_exact(&mut back))
            .map_err(timed_out)?;
        if back != words.as_bytes() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "other words"));
        }
        Ok(())
    }
}
