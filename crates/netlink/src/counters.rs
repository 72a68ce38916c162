//! Counters of a socket.

use crate::message::Messages;

/// Counters of a socket since it was opened.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Counters {
    /// Number of datagrams sent, each by one `sendmsg`.
    pub sends: u64,
    /// Number of messages sent.
    pub messages: u64,
    /// Number of bytes sent.
    pub bytes_sent: u64,
    /// Number of datagrams received.
    pub receives: u64,
}

impl Counters {
    /// Adds a sent datagram.
    pub(crate) fn add_sent(&mut self, datagram: &[u8]) {
        self.sends += 1;
        self.messages += Messages::new(datagram).count() as u64;
        self.bytes_sent += datagram.len() as u64;
    }
}
