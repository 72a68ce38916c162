//! `-j CONNSECMARK`: copies of security marks.

use crate::field::extension;

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
