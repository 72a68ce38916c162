//! `-m rpfilter`: routes back to the source.

use crate::extensions::structure::{Reader, Structure, Writer, flags};
use crate::options::field::extension;

extension! {
    /// Matches packets whose reply leaves through their input interface: `-m rpfilter`.
    pub struct Rpfilter = "-m rpfilter" {
        /// Whether any interface with a route to the source is enough.
        loose: bool = "--loose",
        /// Whether the packet mark selects the route.
        validmark: bool = "--validmark",
        /// Whether packets from this host match.
        accept_local: bool = "--accept-local",
        /// Whether packets match that fail the test.
        invert: bool = "--invert",
    }
    complete |_| true;
}

// Flags of `struct xt_rpfilter_info`.
const XT_RPFILTER_LOOSE: u8 = 1 << 0;
const XT_RPFILTER_VALID_MARK: u8 = 1 << 1;
const XT_RPFILTER_ACCEPT_LOCAL: u8 = 1 << 2;
const XT_RPFILTER_INVERT: u8 = 1 << 3;

/// `struct xt_rpfilter_info`.
impl Structure for Rpfilter {
    const NAME: &'static str = "rpfilter";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        out.u8(flags([
            (self.loose, XT_RPFILTER_LOOSE),
            (self.validmark, XT_RPFILTER_VALID_MARK),
            (self.accept_local, XT_RPFILTER_ACCEPT_LOCAL),
            (self.invert, XT_RPFILTER_INVERT),
        ]));
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let flags = reader.u8()?;
        Some(Self {
            loose: flags & XT_RPFILTER_LOOSE != 0,
            validmark: flags & XT_RPFILTER_VALID_MARK != 0,
            accept_local: flags & XT_RPFILTER_ACCEPT_LOCAL != 0,
            invert: flags & XT_RPFILTER_INVERT != 0,
        })
    }
}
