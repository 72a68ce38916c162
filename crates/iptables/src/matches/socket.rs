//! `-m socket`: sockets of this host.

use crate::extensions::structure::{Reader, Structure, Writer, flags};
use crate::options::field::extension;

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

// Flags of `struct xt_socket_mtinfo3`.
const XT_SOCKET_TRANSPARENT: u8 = 1 << 0;
const XT_SOCKET_NOWILDCARD: u8 = 1 << 1;
const XT_SOCKET_RESTORESKMARK: u8 = 1 << 2;

/// `struct xt_socket_mtinfo3`.
impl Structure for Socket {
    const NAME: &'static str = "socket";
    const REVISION: u32 = 3;

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        out.u8(flags([
            (self.transparent, XT_SOCKET_TRANSPARENT),
            (self.nowildcard, XT_SOCKET_NOWILDCARD),
            (self.restore_skmark, XT_SOCKET_RESTORESKMARK),
        ]));
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let flags = reader.u8()?;
        Some(Self {
            transparent: flags & XT_SOCKET_TRANSPARENT != 0,
            nowildcard: flags & XT_SOCKET_NOWILDCARD != 0,
            restore_skmark: flags & XT_SOCKET_RESTORESKMARK != 0,
        })
    }
}
