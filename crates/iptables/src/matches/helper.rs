//! `-m helper`: conntrack helpers.

use crate::extensions::structure::{Reader, Structure, Writer};
use crate::options::field::{Text, extension};
use crate::options::negatable::Negatable;

extension! {
    /// Matches connections of a conntrack helper: `-m helper --helper ftp-2121`.
    pub struct Helper<'a> = "-m helper" {
        /// Name of the helper, with an optional port.
        name: Option<Negatable<Text<'a>>> = "--helper",
    }
}

/// Length of the name of a helper with its NUL byte.
const NAME_LEN: usize = 30;

/// `struct xt_helper_info`.
impl Structure for Helper<'_> {
    const NAME: &'static str = "helper";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        let name = self.name.as_ref()?;
        out.u32(name.is_negated().into());
        out.text(&name.value().0, NAME_LEN)?;
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let is_negated = reader.u32()? != 0;
        let name = Text::from(reader.text(NAME_LEN)?);
        let name = Some(Negatable::new(is_negated, name));
        Some(Self { name })
    }
}
