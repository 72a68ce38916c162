//! What a socket has done so far, in numbers.

use crate::message::Messages;

/// What a socket has done so far.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Counters {
    /// Datagrams sent, each by one `sendmsg`.
    pub sends: u64,
    /// The messages in them.
    pub messages: u64,
    /// The bytes in them.
    pub bytes_sent: u64,
    /// Datagrams received.
    pub receives: u64,
}

impl Counters {
    /// Counts a datagram that was sent.
    pub(crate) fn sent(&mut self, datagram: &[u8]) {
        self.sends += 1;
        self.messages += Messages::new(datagram).count() as u64;
        self.bytes_sent += datagram.len() as u64;
    }
}
