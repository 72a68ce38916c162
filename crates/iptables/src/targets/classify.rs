//! `-j CLASSIFY`: scheduling classes.

use std::fmt;

use crate::extensions::structure::{Reader, Structure, Writer};
use crate::options::field::{extension, word_values};

extension! {
    /// Sets the scheduling class: `-j CLASSIFY --set-class 0001:0010`.
    pub struct Classify = "-j CLASSIFY" {
        /// Class; iptables requires one.
        class: Option<ClassId> = "--set-class",
    }
}

/// A scheduling class, printed as `0001:0010`.
///
/// Exhaustive: major and minor number are the whole ID.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct ClassId {
    /// Number of the queueing discipline.
    pub major: u16,
    /// Number of the class.
    pub minor: u16,
}

impl ClassId {
    fn parse(text: &str) -> Option<Self> {
        let number = |text: &str| {
            let is_hex = !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit());
            u16::from_str_radix(text, 16).ok().filter(|_| is_hex)
        };
        let (major, minor) = text.split_once(':')?;
        Some(Self {
            major: number(major)?,
            minor: number(minor)?,
        })
    }
}

impl fmt::Display for ClassId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:04x}", self.major, self.minor)
    }
}

word_values! { ClassId = ClassId::parse, }

/// `struct xt_classify_target_info`.
impl Structure for Classify {
    const NAME: &'static str = "CLASSIFY";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        let ClassId { major, minor } = self.class?;
        out.u32(u32::from(major) << 16 | u32::from(minor));
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let priority = reader.u32()?;
        let class = Some(ClassId {
            major: u16::try_from(priority >> 16).ok()?,
            minor: u16::try_from(priority & 0xffff).ok()?,
        });
        Some(Self { class })
    }
}
