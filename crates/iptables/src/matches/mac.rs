//! `-m mac`: source address of Ethernet frames.

use std::fmt;

use crate::extensions::structure::{Reader, Structure, Writer};
use crate::options::field::{extension, word_values};
use crate::options::negatable::Negatable;

extension! {
    /// Matches the source address of Ethernet frames: `-m mac --mac-source 42:01:02:03:04:05`.
    pub struct Mac = "-m mac" {
        /// Source address.
        source: Option<Negatable<MacAddress>> = "--mac-source",
    }
}

/// An Ethernet address, printed as `42:01:02:03:04:05`.
///
/// Exhaustive: an address has six bytes.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    /// Parses six hexadecimal numbers of one or two digits.
    fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().filter(|part| matches!(part.len(), 1 | 2))?;
            let is_hex = part.bytes().all(|b| b.is_ascii_hexdigit());
            *byte = u8::from_str_radix(part, 16).ok().filter(|_| is_hex)?;
        }
        parts.next().is_none().then_some(Self(bytes))
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, rest @ ..] = self.0;
        write!(f, "{first:02x}")?;
        rest.iter().try_for_each(|byte| write!(f, ":{byte:02x}"))
    }
}

word_values! { MacAddress = MacAddress::parse, }

/// `struct xt_mac_info`.
impl Structure for Mac {
    const NAME: &'static str = "mac";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        let source = self.source?;
        out.bytes(&source.value().0).zeros(2);
        out.u32(source.is_negated().into());
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let address = MacAddress(reader.array()?);
        reader.bytes(2)?;
        let source = Some(Negatable::new(reader.u32()? != 0, address));
        Some(Self { source })
    }
}
