//! `-m recent`: lists of recently seen addresses.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

use crate::Family;
use crate::extensions::structure::{Reader, Structure, Writer, address_of, flags};
use crate::options::address::Address;
use crate::options::direction::Direction;
use crate::options::negatable::Negatable;
use crate::options::number;
use crate::options::quote::Bare;
use crate::options::{Extension, Parsed, Values, set_flag, set_once};

/// Uses a list of recently seen addresses: `-m recent --set --name list`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Recent<'a> {
    /// Action; iptables requires one.
    pub action: Option<Negatable<RecentAction>>,
    /// Maximum age in seconds.
    pub seconds: Option<u32>,
    /// Whether addresses above the maximum age are removed.
    pub reap: bool,
    /// Minimum number of hits.
    pub hitcount: Option<u32>,
    /// Whether the TTL must match.
    pub rttl: bool,
    /// Name of the list.
    pub name: Cow<'a, str>,
    /// Address mask. Default: the full length.
    ///
    /// iptables always prints the mask;
    /// [`Rule::for_family`](crate::Rule::for_family) sets the default.
    pub mask: Option<IpAddr>,
    /// The address of the packet to use.
    pub direction: Direction,
}

/// Action on the address of a packet.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum RecentAction {
    /// Adds the address to the list.
    Set,
    /// Checks whether the list has the address.
    Check,
    /// Checks whether the list has the address, and updates its time.
    Update,
    /// Removes the address from the list.
    Remove,
}

impl RecentAction {
    const ALL: [Self; 4] = [Self::Set, Self::Check, Self::Update, Self::Remove];

    fn option(self) -> &'static str {
        match self {
            Self::Set => "--set",
            Self::Check => "--rcheck",
            Self::Update => "--update",
            Self::Remove => "--remove",
        }
    }
}

impl<'a> Recent<'a> {
    /// Default name of a list.
    const DEFAULT: &'static str = "DEFAULT";

    /// Applies an action to the source address, in the list with this name.
    pub fn new(action: RecentAction, name: impl Into<Cow<'a, str>>) -> Self {
        Self {
            action: Some(Negatable::Is(action)),
            name: name.into(),
            ..Self::open()
        }
    }

    /// Adds the source address to the list.
    pub fn set(name: impl Into<Cow<'a, str>>) -> Self {
        Self::new(RecentAction::Set, name)
    }

    /// Checks whether the list has the source address.
    pub fn check(name: impl Into<Cow<'a, str>>) -> Self {
        Self::new(RecentAction::Check, name)
    }

    /// Sets the maximum age in seconds.
    #[must_use]
    pub fn with_seconds(mut self, seconds: u32) -> Self {
        self.seconds = Some(seconds);
        self
    }

    /// Removes addresses above the maximum age from the list.
    #[must_use]
    pub fn with_reap(mut self) -> Self {
        self.reap = true;
        self
    }
}

impl<'a> Extension<'a> for Recent<'a> {
    fn open() -> Self {
        Self {
            action: None,
            seconds: None,
            reap: false,
            hitcount: None,
            rttl: false,
            name: Cow::Borrowed(Self::DEFAULT),
            mask: None,
            direction: Direction::Source,
        }
    }

    fn options() -> &'static [&'static str] {
        &[
            "--set",
            "--rcheck",
            "--update",
            "--remove",
            "--seconds",
            "--reap",
            "--hitcount",
            "--rttl",
            "--name",
            "--mask",
            "--rsource",
            "--rdest",
        ]
    }

    fn min_options(&self) -> usize {
        if self.action.is_some() { 1 } else { usize::MAX }
    }

    fn parse_option(&mut self, option: &str, values: &mut Values<'_, 'a>) -> Parsed {
        match option {
            "--name" => {
                self.name = values.bare()?;
                Ok(true)
            }
            "--seconds" => set_once(&mut self.seconds, values.parse(number::parse_as)?),
            "--hitcount" => match values.parse(number::parse_as)? {
                0 => Ok(true),
                count => set_once(&mut self.hitcount, count),
            },
            "--reap" => set_flag(&mut self.reap),
            "--rttl" => set_flag(&mut self.rttl),
            "--mask" => set_once(&mut self.mask, values.parse(|text| text.parse().ok())?),
            "--rsource" => {
                self.direction = Direction::Source;
                Ok(true)
            }
            "--rdest" => {
                self.direction = Direction::Destination;
                Ok(true)
            }
            _ => {
                let is_it = |action: &RecentAction| action.option() == option;
                match RecentAction::ALL.into_iter().find(is_it) {
                    Some(action) => {
                        set_once(&mut self.action, Negatable::new(values.negated(), action))
                    }
                    None => Ok(false),
                }
            }
        }
    }

    fn apply_family_defaults(&mut self, family: Family) {
        self.mask.get_or_insert_with(|| match family {
            Family::V4 => IpAddr::from([u8::MAX; 4]),
            Family::V6 => IpAddr::from([u8::MAX; 16]),
        });
    }
}

impl fmt::Display for Recent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("-m recent")?;
        if let Some(action) = &self.action {
            write!(f, " {}{}", action.bang(), action.value().option())?;
        }
        if let Some(seconds) = self.seconds {
            write!(f, " --seconds {seconds}")?;
        }
        if self.reap {
            f.write_str(" --reap")?;
        }
        if let Some(count) = self.hitcount {
            write!(f, " --hitcount {count}")?;
        }
        if self.rttl {
            f.write_str(" --rttl")?;
        }
        write!(f, " --name {}", Bare(&self.name))?;
        if let Some(mask) = self.mask {
            write!(f, " --mask {}", Address(mask))?;
        }
        f.write_str(match self.direction {
            Direction::Source => " --rsource",
            Direction::Destination => " --rdest",
        })
    }
}

/// Length of the name of a list with its NUL byte.
const XT_RECENT_NAME_LEN: usize = 200;

// Flags of `check_set`.
const XT_RECENT_CHECK: u8 = 1 << 0;
const XT_RECENT_SET: u8 = 1 << 1;
const XT_RECENT_UPDATE: u8 = 1 << 2;
const XT_RECENT_REMOVE: u8 = 1 << 3;
const XT_RECENT_TTL: u8 = 1 << 4;
const XT_RECENT_REAP: u8 = 1 << 5;

/// Flags of the actions.
const ACTIONS: [(RecentAction, u8); 4] = [
    (RecentAction::Check, XT_RECENT_CHECK),
    (RecentAction::Set, XT_RECENT_SET),
    (RecentAction::Update, XT_RECENT_UPDATE),
    (RecentAction::Remove, XT_RECENT_REMOVE),
];

// Values of `side`.
const XT_RECENT_SOURCE: u8 = 0;
const XT_RECENT_DEST: u8 = 1;

/// Returns the name of a list as iptables writes it: over its default.
fn list_name(name: &str) -> Option<Vec<u8>> {
    let mut bytes = b"DEFAULT\0".to_vec();
    if name.len() >= XT_RECENT_NAME_LEN {
        return None;
    }
    bytes.splice(
        ..bytes.len().min(name.len() + 1),
        [name.as_bytes(), &[0]].concat(),
    );
    Some(bytes)
}

/// `struct xt_recent_mtinfo_v1`.
impl Structure for Recent<'_> {
    const NAME: &'static str = "recent";
    const REVISION: u32 = 1;

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        let action = self.action?;
        let (_, flag) = ACTIONS.iter().find(|(known, _)| known == action.value())?;
        out.u32(self.seconds.unwrap_or(0));
        out.u32(self.hitcount.unwrap_or(0));
        out.u8(flags([
            (true, *flag),
            (self.rttl, XT_RECENT_TTL),
            (self.reap, XT_RECENT_REAP),
        ]));
        out.u8(action.is_negated().into());
        out.padded(&list_name(&self.name)?, XT_RECENT_NAME_LEN)?;
        out.u8(match self.direction {
            Direction::Source => XT_RECENT_SOURCE,
            Direction::Destination => XT_RECENT_DEST,
        });
        out.zeros(1);
        match self.mask {
            Some(mask) => out.address(mask)?,
            None => out.bytes(&[u8::MAX; 16]),
        };
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (seconds, hitcount) = (reader.u32()?, reader.u32()?);
        let (flags, inverted) = (reader.u8()?, reader.u8()?);
        let mut actions = ACTIONS.iter().filter(|(_, flag)| flags & flag != 0);
        let (action, _) = *actions.next()?;
        let name = reader.text(XT_RECENT_NAME_LEN)?;
        let [side, _]: [u8; 2] = reader.array()?;
        let mask: [u8; 16] = reader.array()?;
        let mask = Some(mask).filter(|mask| *mask != [u8::MAX; 16]);
        Some(Self {
            action: Some(Negatable::new(inverted != 0, action)),
            seconds: Some(seconds).filter(|seconds| *seconds != 0),
            reap: flags & XT_RECENT_REAP != 0,
            hitcount: Some(hitcount).filter(|count| *count != 0),
            rttl: flags & XT_RECENT_TTL != 0,
            name: name.into(),
            mask: mask.map(|mask| address_of(mask, reader.family())),
            direction: match side {
                XT_RECENT_SOURCE => Direction::Source,
                _ => Direction::Destination,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rule;

    #[test]
    fn recent_is_parsed_and_printed() {
        let all = Recent {
            action: Some(Negatable::Not(RecentAction::Update)),
            seconds: Some(5),
            reap: true,
            hitcount: Some(3),
            rttl: true,
            mask: Some(IpAddr::from([255, 255, 255, 0])),
            direction: Direction::Destination,
            ..Recent::set("a")
        };
        let check = Recent::check("KUBE-SEP-X").with_seconds(10_800).with_reap();
        let table = [
            ("-m recent --set --name a --rsource", Recent::set("a")),
            (
                "-m recent --rcheck --seconds 10800 --reap --name KUBE-SEP-X --rsource",
                check,
            ),
            (
                "-m recent ! --update --seconds 5 --reap --hitcount 3 --rttl --name a --mask 255.255.255.0 --rdest",
                all,
            ),
        ];
        for (text, recent) in table {
            let rule = Rule::new().with_match(recent);
            assert_eq!(rule.to_string(), text);
            assert_eq!(Rule::parse(text), Ok(rule));
        }
    }

    #[test]
    fn the_default_list_is_named_and_a_hit_count_of_zero_is_dropped() {
        let rule = Rule::parse("-m recent --hitcount 0 --set").unwrap();
        assert_eq!(rule, Rule::new().with_match(Recent::set("DEFAULT")));
        for text in [
            "-m recent --name a",
            "-m recent --set --rcheck",
            "-m recent --set --name \"a b\"",
        ] {
            assert_eq!(Rule::parse(text).unwrap().to_string(), text);
        }
    }
}
