//! `-m socket`: sockets of this host.

use crate::field::extension;

extension! {
    /// Matches packets that have a socket on this host: `-m socket --transparent`.
    pub struct Socket = "-m socket" {
        /// Whether the socket is transparent.
        transparent: bool = "--transparent",
        /// Whether sockets that listen on all addresses match, too.
        nowildcard: bool = "--nowildcard",
        /// Whether the packet gets the mark of the socket.
        restore_skmark: bool = "--restore-skmark",
    }
    complete |_| true;
}
