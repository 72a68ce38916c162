//! `-m connlabel`: labels of connections.

use std::fmt;

use crate::extensions::structure::{Reader, Structure, Writer, flags};
use crate::options::field::{extension, word_values};
use crate::options::negatable::Negatable;
use crate::options::number;

extension! {
    /// Matches a label of the connection: `-m connlabel --label "40"`.
    pub struct Connlabel = "-m connlabel" {
        /// Label.
        label: Option<Negatable<ConnectionLabel>> = "--label",
        /// Whether the label is set on the connection.
        set: bool = "--set",
    }
    complete |it| it.label.is_some();
}

/// The number of a label, printed as `"40"`.
///
/// Names of labels are not supported: they depend on a file of the host.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct ConnectionLabel(u8);

impl ConnectionLabel {
    /// Creates a label from 0 to 127, otherwise returns `None`.
    pub fn new(number: u8) -> Option<Self> {
        (number < 128).then_some(Self(number))
    }

    /// Returns the number.
    pub fn get(self) -> u8 {
        self.0
    }
}

impl fmt::Display for ConnectionLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0)
    }
}

word_values! { ConnectionLabel = |text| Self::new(number::parse_as(text)?), }

// enum xt_connlabel_mtopts
const XT_CONNLABEL_OP_INVERT: u16 = 1;
const XT_CONNLABEL_OP_SET: u16 = 2;

/// `struct xt_connlabel_mtinfo`.
impl Structure for Connlabel {
    const NAME: &'static str = "connlabel";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        let label = self.label?;
        out.u16(label.value().get().into()).u16(flags([
            (label.is_negated(), XT_CONNLABEL_OP_INVERT),
            (self.set, XT_CONNLABEL_OP_SET),
        ]));
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (label, options) = (reader.u16()?, reader.u16()?);
        let label = ConnectionLabel::new(u8::try_from(label).ok()?)?;
        let is_negated = options & XT_CONNLABEL_OP_INVERT != 0;
        Some(Self {
            label: Some(Negatable::new(is_negated, label)),
            set: options & XT_CONNLABEL_OP_SET != 0,
        })
    }
}
