//! `-m connlimit`: number of parallel connections.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::Family;
use crate::extensions::structure::{Reader, Structure, Writer, address_of, flags};
use crate::options::direction::Direction;
use crate::options::negatable::Negatable;
use crate::options::number;
use crate::options::{Extension, Parsed, Values, set_once};

/// Matches the number of parallel connections of a network: `-m connlimit
/// --connlimit-above 10`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Connlimit {
    /// Number of connections; iptables requires one.
    ///
    /// [`Negatable::Is`] matches up to this number, [`Negatable::Not`] matches above it.
    pub upto: Option<Negatable<u32>>,
    /// Prefix length of the counted network. Default: the full length.
    ///
    /// iptables always prints the length;
    /// [`Rule::for_family`](crate::Rule::for_family) sets the default.
    pub prefix_len: Option<u8>,
    /// The address that is counted. Default: the source.
    ///
    /// iptables always prints the direction;
    /// [`Rule::for_family`](crate::Rule::for_family) sets the default.
    pub direction: Option<Direction>,
}

impl Connlimit {
    /// Matches if the source address has more connections.
    pub fn above(count: u32) -> Self {
        Self {
            upto: Some(Negatable::Not(count)),
            ..Self::default()
        }
    }

    /// Matches if the source address has at most this number of connections.
    pub fn upto(count: u32) -> Self {
        Self {
            upto: Some(Negatable::Is(count)),
            ..Self::default()
        }
    }
}

impl<'a> Extension<'a> for Connlimit {
    fn open() -> Self {
        Self::default()
    }

    fn options() -> &'static [&'static str] {
        &[
            "--connlimit-upto",
            "--connlimit-above",
            "--connlimit-mask",
            "--connlimit-saddr",
            "--connlimit-daddr",
        ]
    }

    fn min_options(&self) -> usize {
        if self.upto.is_some() { 1 } else { usize::MAX }
    }

    fn parse_option(&mut self, option: &str, values: &mut Values<'_, 'a>) -> Parsed {
        match option {
            "--connlimit-upto" | "--connlimit-above" => {
                let negated = values.negated() != option.ends_with("above");
                let count = values.parse(number::parse_as)?;
                set_once(&mut self.upto, Negatable::new(negated, count))
            }
            "--connlimit-mask" => {
                let is_length = |len: &u8| *len <= 128;
                let len = values.parse(|text| number::parse_as(text).filter(is_length))?;
                set_once(&mut self.prefix_len, len)
            }
            "--connlimit-saddr" => set_once(&mut self.direction, Direction::Source),
            "--connlimit-daddr" => set_once(&mut self.direction, Direction::Destination),
            _ => Ok(false),
        }
    }

    fn apply_family_defaults(&mut self, family: Family) {
        self.prefix_len.get_or_insert(match family {
            Family::V4 => 32,
            Family::V6 => 128,
        });
        self.direction.get_or_insert_default();
    }
}

impl fmt::Display for Connlimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("-m connlimit")?;
        match self.upto {
            Some(Negatable::Is(count)) => write!(f, " --connlimit-upto {count}")?,
            Some(Negatable::Not(count)) => write!(f, " --connlimit-above {count}")?,
            None => {}
        }
        if let Some(len) = self.prefix_len {
            write!(f, " --connlimit-mask {len}")?;
        }
        f.write_str(match self.direction {
            Some(Direction::Source) => " --connlimit-saddr",
            Some(Direction::Destination) => " --connlimit-daddr",
            None => "",
        })
    }
}

// Flags of `struct xt_connlimit_info`.
const XT_CONNLIMIT_INVERT: u32 = 1;
const XT_CONNLIMIT_DADDR: u32 = 2;

/// Returns the mask of a prefix length.
fn netmask(len: u8, family: Family) -> Option<IpAddr> {
    let any = match family {
        Family::V4 => IpAddr::from([0; 4]),
        Family::V6 => IpAddr::from([0; 16]),
    };
    Some(IpNet::new(any, len).ok()?.netmask())
}

/// `struct xt_connlimit_info`.
impl Structure for Connlimit {
    const NAME: &'static str = "connlimit";
    const REVISION: u32 = 1;

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        let upto = self.upto?;
        match self.prefix_len {
            Some(len) => out.address(netmask(len, out.family())?)?,
            None => out.bytes(&[u8::MAX; 16]),
        };
        let is_destination = self.direction == Some(Direction::Destination);
        out.u32(*upto.value()).u32(flags([
            // The kernel matches more connections, and inverts it for fewer ones.
            (!upto.is_negated(), XT_CONNLIMIT_INVERT),
            (is_destination, XT_CONNLIMIT_DADDR),
        ]));
        out.pointer();
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let mask: [u8; 16] = reader.array()?;
        let (limit, flags) = (reader.u32()?, reader.u32()?);
        let prefix_len = match mask {
            mask if mask == [u8::MAX; 16] => None,
            mask => Some(ipnet::ip_mask_to_prefix(address_of(mask, reader.family())).ok()?),
        };
        Some(Self {
            upto: Some(Negatable::new(flags & XT_CONNLIMIT_INVERT == 0, limit)),
            prefix_len,
            direction: Some(match flags & XT_CONNLIMIT_DADDR {
                0 => Direction::Source,
                _ => Direction::Destination,
            }),
        })
    }
}
