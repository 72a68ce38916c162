//! `-m hbh`: hop-by-hop options header of IPv6.

use std::fmt;

use crate::Family;
use crate::extensions::structure::{Conditions, Reader, Structure, Writer};
use crate::options::field::{extension, word_values};
use crate::options::negatable::Negatable;
use crate::options::number;

extension! {
    /// Matches the hop-by-hop options header: `-m hbh --hbh-opts 5:2`.
    pub struct Hbh = "-m hbh" {
        /// Length of the header in bytes.
        length: Option<Negatable<u32>> = "--hbh-len",
        /// Options of the header.
        options: Option<HeaderOptions> = "--hbh-opts",
    }
    complete |_| true;
}

/// Options of a header, printed as `4:2,5`.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct HeaderOptions(Vec<(u8, Option<u8>)>);

impl HeaderOptions {
    /// Maximum number of options.
    const MAX: usize = 16;

    /// Creates a list of 1 to 16 option types with an optional length in bytes, otherwise
    /// returns `None`.
    pub fn new(options: impl IntoIterator<Item = (u8, Option<u8>)>) -> Option<Self> {
        let options: Vec<_> = options.into_iter().collect();
        (1..=Self::MAX)
            .contains(&options.len())
            .then_some(Self(options))
    }

    /// Returns the types with their lengths.
    pub fn get(&self) -> &[(u8, Option<u8>)] {
        &self.0
    }

    fn parse(text: &str) -> Option<Self> {
        let option = |text: &str| match text.split_once(':') {
            Some((ty, len)) => Some((number::parse_as(ty)?, Some(number::parse_as(len)?))),
            None => Some((number::parse_as(text)?, None)),
        };
        Self::new(text.split(',').map(option).collect::<Option<Vec<_>>>()?)
    }
}

impl fmt::Display for HeaderOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (ty, len)) in self.0.iter().enumerate() {
            write!(f, "{}{ty}", if at == 0 { "" } else { "," })?;
            if let Some(len) = len {
                write!(f, ":{len}")?;
            }
        }
        Ok(())
    }
}

word_values! { HeaderOptions = HeaderOptions::parse, }

/// Number of options of `struct ip6t_opts`.
const IP6T_OPTS_OPTSNR: usize = 16;

// Flags of `struct ip6t_opts`. The first one is `IP6T_OPTS_INV_LEN` in `invflags`.
const IP6T_OPTS_LEN: u8 = 1;
const IP6T_OPTS_OPTS: u8 = 2;

/// An option type without a length, which stands in the low byte.
const ANY_LENGTH: u16 = 0xff;

/// Length and options of a header.
type Header = (Option<Negatable<u32>>, Option<HeaderOptions>);

/// Writes `struct ip6t_opts`.
pub(super) fn write(
    length: &Option<Negatable<u32>>,
    options: &Option<HeaderOptions>,
    out: &mut Writer<'_>,
) -> Option<()> {
    if out.family() == Family::V4 {
        return None;
    }
    let mut conditions = Conditions::default();
    out.u32(conditions.put(IP6T_OPTS_LEN, length).unwrap_or(0));
    conditions.put_flag(IP6T_OPTS_OPTS, options.is_some());
    out.u8(conditions.used).u8(conditions.negated);
    let options = options.as_ref().map_or(&[][..], HeaderOptions::get);
    for (ty, length) in options {
        let length = length.map_or(ANY_LENGTH, u16::from);
        out.u16(u16::from(*ty) << 8 | length);
    }
    let unused = IP6T_OPTS_OPTSNR.checked_sub(options.len())?;
    out.zeros(unused * 2).u8(options.len().try_into().ok()?);
    Some(())
}

/// Reads `struct ip6t_opts`.
pub(super) fn read(reader: &mut Reader<'_>) -> Option<Header> {
    let length = reader.u32()?;
    let [used, negated] = reader.array()?;
    let conditions = Conditions { used, negated };
    let mut entries = [0; IP6T_OPTS_OPTSNR];
    for entry in &mut entries {
        *entry = reader.u16()?;
    }
    let count = usize::from(reader.u8()?);
    let option = |entry: &u16| {
        let [ty, length] = entry.to_be_bytes();
        (ty, Some(length).filter(|it| u16::from(*it) != ANY_LENGTH))
    };
    let options = entries.get(..count)?.iter().map(option);
    let length = conditions.get(IP6T_OPTS_LEN, length);
    Some((length, HeaderOptions::new(options)))
}

/// `struct ip6t_opts`.
impl Structure for Hbh {
    const NAME: &'static str = "hbh";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        write(&self.length, &self.options, out)
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (length, options) = read(reader)?;
        Some(Self { length, options })
    }
}
