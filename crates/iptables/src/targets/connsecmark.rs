//! `-j CONNSECMARK`: copies of security marks.

use crate::extensions::structure::{Reader, Structure, Writer};
use crate::options::field::extension;

extension! {
    /// Copies security marks: `-j CONNSECMARK --save`.
    ///
    /// iptables requires exactly one option.
    pub struct Connsecmark = "-j CONNSECMARK" {
        /// Whether the mark of the packet is copied to the connection.
        save: bool = "--save",
        /// Whether the mark of the connection is copied to the packet.
        restore: bool = "--restore",
    }
    complete |it| it.save != it.restore;
}

const CONNSECMARK_SAVE: u8 = 1;
const CONNSECMARK_RESTORE: u8 = 2;

/// `struct xt_connsecmark_target_info`.
impl Structure for Connsecmark {
    const NAME: &'static str = "CONNSECMARK";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        out.u8(match self.save {
            true => CONNSECMARK_SAVE,
            false => CONNSECMARK_RESTORE,
        });
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let mode = reader.u8()?;
        Some(Self {
            save: mode == CONNSECMARK_SAVE,
            restore: mode == CONNSECMARK_RESTORE,
        })
    }
}
