//! `-j CT`: connection tracking parameters.

use std::borrow::Cow;
use std::fmt;

use bitflags::bitflags;

use crate::options::{Extension, Parsed, Unsupported, Values, set_flag, set_once};
use crate::quote::Bare;
use crate::{list, number};

/// Sets connection tracking parameters: `-j CT --zone 5`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Ct<'a> {
    /// Whether connection tracking is disabled for the packet.
    pub notrack: bool,
    /// Conntrack helper.
    pub helper: Option<Cow<'a, str>>,
    /// Name of the timeout policy.
    pub timeout: Option<Cow<'a, str>>,
    /// Conntrack events to report.
    pub events: Option<CtEvents>,
    /// Whether events for new expectations are reported.
    pub expect_new: bool,
    /// Conntrack zone; `None` for zone 0.
    pub zone: Option<Zone>,
}

bitflags! {
    /// Conntrack events.
    #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
    pub struct CtEvents: u16 {
        /// New connection.
        const NEW = 1;
        /// New related connection.
        const RELATED = 2;
        /// Connection destroyed.
        const DESTROY = 4;
        /// First reply seen.
        const REPLY = 8;
        /// Connection became assured.
        const ASSURED = 16;
        /// Protocol information changed.
        const PROTOINFO = 32;
        /// Helper assigned.
        const HELPER = 64;
        /// Mark changed.
        const MARK = 128;
        /// Sequence number adjustment changed.
        const NATSEQINFO = 256;
        /// Security mark changed.
        const SECMARK = 512;
    }
}

/// A zone and the directions to which it applies.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Zone {
    /// Zone ID; `None` to use the packet mark.
    pub id: Option<u16>,
    /// Directions.
    pub direction: ZoneDirection,
}

/// Directions to which a zone applies.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ZoneDirection {
    /// Both directions.
    Both,
    /// Original direction.
    Original,
    /// Reply direction.
    Reply,
}

impl Ct<'_> {
    /// Assigns packets to a zone.
    pub fn zone(id: u16) -> Self {
        let direction = ZoneDirection::Both;
        Self {
            zone: Some(Zone {
                id: Some(id),
                direction,
            }),
            ..Self::default()
        }
    }

    fn take_zone(&mut self, direction: ZoneDirection, values: &mut Values<'_, '_>) -> Parsed {
        let id = match &*values.word()? {
            "mark" => None,
            text => match number::parse_as(text) {
                // Zone 0 is the default.
                Some(0) => return Ok(true),
                id => Some(id.ok_or(Unsupported)?),
            },
        };
        set_once(&mut self.zone, Zone { id, direction })
    }
}

/// Parses lower-case event names.
fn events(text: &str) -> Option<CtEvents> {
    let small = !text.bytes().any(|b| b.is_ascii_uppercase());
    list::parse(text).filter(|_| small)
}

impl<'a> Extension<'a> for Ct<'a> {
    fn open() -> Self {
        Self::default()
    }

    fn options() -> &'static [&'static str] {
        &[
            "--notrack",
            "--helper",
            "--timeout",
            "--ctevents",
            "--expevents",
            "--zone",
            "--zone-orig",
            "--zone-reply",
        ]
    }

    fn min_options(&self) -> usize {
        0
    }

    fn parse_option(&mut self, option: &str, values: &mut Values<'_, 'a>) -> Parsed {
        match option {
            "--notrack" => set_flag(&mut self.notrack),
            "--helper" => set_once(&mut self.helper, values.bare()?),
            "--timeout" => set_once(&mut self.timeout, values.bare()?),
            "--ctevents" => set_once(&mut self.events, values.parse(events)?),
            "--expevents" => match &*values.word()? {
                "new" => set_flag(&mut self.expect_new),
                _ => Err(Unsupported),
            },
            "--zone" => self.take_zone(ZoneDirection::Both, values),
            "--zone-orig" => self.take_zone(ZoneDirection::Original, values),
            "--zone-reply" => self.take_zone(ZoneDirection::Reply, values),
            _ => Ok(false),
        }
    }
}

impl fmt::Display for Ct<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("-j CT")?;
        if self.notrack {
            f.write_str(" --notrack")?;
        }
        if let Some(helper) = &self.helper {
            write!(f, " --helper {}", Bare(helper))?;
        }
        if let Some(timeout) = &self.timeout {
            write!(f, " --timeout {}", Bare(timeout))?;
        }
        if let Some(events) = self.events {
            f.write_str(" --ctevents ")?;
            list::write_small(events, f)?;
        }
        if self.expect_new {
            f.write_str(" --expevents new")?;
        }
        let Some(Zone { id, direction }) = self.zone else {
            return Ok(());
        };
        f.write_str(match direction {
            ZoneDirection::Both => " --zone ",
            ZoneDirection::Original => " --zone-orig ",
            ZoneDirection::Reply => " --zone-reply ",
        })?;
        match id {
            Some(id) => id.fmt(f),
            None => f.write_str("mark"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rule;

    #[test]
    fn ct_is_parsed_and_printed() {
        let all = Ct {
            notrack: true,
            helper: Some("ftp".into()),
            timeout: Some("long".into()),
            events: Some(CtEvents::NEW | CtEvents::SECMARK),
            expect_new: true,
            zone: Some(Zone {
                id: None,
                direction: ZoneDirection::Reply,
            }),
        };
        let table = [
            ("-j CT", Ct::default()),
            ("-j CT --zone 5", Ct::zone(5)),
            (
                "-j CT --notrack --helper ftp --timeout long --ctevents new,secmark --expevents new --zone-reply mark",
                all,
            ),
        ];
        for (text, ct) in table {
            let rule = Rule::new().target(ct);
            assert_eq!(rule.to_string(), text);
            assert_eq!(Rule::parse(text), Ok(rule));
        }
    }

    #[test]
    fn other_forms_are_normalized() {
        let table = [
            ("-j CT --zone 0", "-j CT"),
            ("-j CT --zone-orig 0x10", "-j CT --zone-orig 16"),
            (
                "-j CT --ctevents destroy,new",
                "-j CT --ctevents new,destroy",
            ),
            ("-j CT --ctevents NEW", "-j CT --ctevents NEW"),
        ];
        for (text, printed) in table {
            assert_eq!(Rule::parse(text).unwrap().to_string(), printed);
        }
    }
}
