//! `-m recent`: lists of addresses seen of late.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

use crate::Family;
use crate::address::Address;
use crate::direction::Direction;
use crate::negatable::Negatable;
use crate::number;
use crate::options::{Extension, Parsed, Values, set_flag, set_once};
use crate::quote::Bare;

/// A list of addresses seen of late: `-m recent --set --name list`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Recent<'a> {
    /// What is done; iptables wants something to be.
    pub action: Option<Negatable<RecentAction>>,
    /// How many seconds ago it was seen at most.
    pub seconds: Option<u32>,
    /// Whether addresses that were not seen for that long are removed.
    pub reap: bool,
    /// How often it was seen at least.
    pub hitcount: Option<u32>,
    /// Whether the packets had the same time to live.
    pub rttl: bool,
    /// The name of the list.
    pub name: Cow<'a, str>,
    /// The bits of addresses that count; all of them where none is told.
    ///
    /// iptables prints it always: [`Rule::for_family`](crate::Rule::for_family)
    /// tells it.
    pub mask: Option<IpAddr>,
    /// Which address of a packet it is about.
    pub direction: Direction,
}

/// What is done with the address of a packet.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum RecentAction {
    /// It is added to the list.
    Set,
    /// It is looked for in the list.
    Check,
    /// It is looked for, and counted as seen if it is there.
    Update,
    /// It is removed from the list.
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
    /// The name of a list that was given none.
    const DEFAULT: &'static str = "DEFAULT";

    /// Does this with the source address in the list of this name.
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

    /// Looks for the source address in the list.
    pub fn check(name: impl Into<Cow<'a, str>>) -> Self {
        Self::new(RecentAction::Check, name)
    }

    /// Wants it to have been seen at most that many seconds ago.
    #[must_use]
    pub fn seconds(mut self, seconds: u32) -> Self {
        self.seconds = Some(seconds);
        self
    }

    /// Removes what was not seen for that many seconds.
    #[must_use]
    pub fn reap(mut self) -> Self {
        self.reap = true;
        self
    }

    /// Tells the mask of the family where none is told.
    pub(crate) fn apply_family_defaults(&mut self, family: Family) {
        self.mask.get_or_insert_with(|| match family {
            Family::V4 => IpAddr::from([u8::MAX; 4]),
            Family::V6 => IpAddr::from([u8::MAX; 16]),
        });
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rule;

    #[test]
    fn it_is_read_and_printed() {
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
        let check = Recent::check("KUBE-SEP-X").seconds(10_800).reap();
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
            let rule = Rule::new().matching(recent);
            assert_eq!(rule.to_string(), text);
            assert_eq!(Rule::parse(text), Ok(rule));
        }
    }

    #[test]
    fn a_list_has_a_name_and_no_hits_are_no_condition() {
        let rule = Rule::parse("-m recent --hitcount 0 --set").unwrap();
        assert_eq!(rule, Rule::new().matching(Recent::set("DEFAULT")));
        for text in [
            "-m recent --name a",
            "-m recent --set --rcheck",
            "-m recent --set --name \"a b\"",
        ] {
            assert_eq!(Rule::parse(text).unwrap().to_string(), text);
        }
    }
}
