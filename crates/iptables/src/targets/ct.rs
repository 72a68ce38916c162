//! `-j CT`: connection tracking parameters.

use std::borrow::Cow;
use std::fmt;

use bitflags::bitflags;

use crate::extensions::structure::{Reader, Structure, Writer, flags};
use crate::options::list;
use crate::options::number;
use crate::options::quote::Bare;
use crate::options::{Extension, Parsed, Unsupported, Values, set_flag, set_once};

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

// Flags of `struct xt_ct_target_info_v1`.
const XT_CT_NOTRACK: u16 = 1 << 0;
const XT_CT_NOTRACK_ALIAS: u16 = 1 << 1;
const XT_CT_ZONE_DIR_ORIG: u16 = 1 << 2;
const XT_CT_ZONE_DIR_REPL: u16 = 1 << 3;
const XT_CT_ZONE_MARK: u16 = 1 << 4;

/// Bit of `exp_events`: a new expectation, `IPEXP_NEW`.
const EXPECT_NEW: u32 = 1;
/// Length of the name of a helper with its NUL byte.
const HELPER_LEN: usize = 16;
/// Length of the name of a timeout policy with its NUL byte.
const TIMEOUT_LEN: usize = 32;

impl Ct<'_> {
    /// Writes `struct xt_ct_target_info_v1`. Returns `None` if a name is too long.
    fn write_with(&self, flags: u16, out: &mut Writer<'_>) -> Option<()> {
        let events = self.events.map_or(0, |events| events.bits());
        out.u16(flags);
        out.u16(self.zone.and_then(|zone| zone.id).unwrap_or(0));
        out.u32(events.into());
        out.u32(if self.expect_new { EXPECT_NEW } else { 0 });
        out.text(self.helper.as_deref().unwrap_or_default(), HELPER_LEN)?;
        out.text(self.timeout.as_deref().unwrap_or_default(), TIMEOUT_LEN)?;
        out.pointer();
        Some(())
    }

    /// Reads `struct xt_ct_target_info_v1`. Returns whether it is the alias `NOTRACK`, too.
    /// Returns `None` for unknown events or flags, and for a zone that iptables cannot express.
    fn read_with(reader: &mut Reader<'_>) -> Option<(Self, bool)> {
        let (flags, id) = (reader.u16()?, reader.u16()?);
        let (events, expected) = (reader.u32()?, reader.u32()?);
        let (helper, timeout) = (reader.text(HELPER_LEN)?, reader.text(TIMEOUT_LEN)?);
        let name = |text: String| (!text.is_empty()).then(|| text.into());
        let direction = match flags & (XT_CT_ZONE_DIR_ORIG | XT_CT_ZONE_DIR_REPL) {
            0 => ZoneDirection::Both,
            XT_CT_ZONE_DIR_ORIG => ZoneDirection::Original,
            XT_CT_ZONE_DIR_REPL => ZoneDirection::Reply,
            _ => return None,
        };
        let zone = match (flags & XT_CT_ZONE_MARK, id) {
            (0, 0) if direction == ZoneDirection::Both => None,
            (0, 1..) => Some(Some(id)),
            (XT_CT_ZONE_MARK, 0) => Some(None),
            _ => return None,
        };
        let events = CtEvents::from_bits(events.try_into().ok()?)?;
        let is_known = flags < XT_CT_ZONE_MARK << 1 && expected <= EXPECT_NEW;
        let ct = Self {
            notrack: flags & XT_CT_NOTRACK != 0,
            helper: name(helper),
            timeout: name(timeout),
            events: (!events.is_empty()).then_some(events),
            expect_new: expected == EXPECT_NEW,
            zone: zone.map(|id| Zone { id, direction }),
        };
        is_known.then_some((ct, flags & XT_CT_NOTRACK_ALIAS != 0))
    }
}

/// `struct xt_ct_target_info_v1`.
impl Structure for Ct<'_> {
    const NAME: &'static str = "CT";
    const REVISION: u32 = 2;

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        let direction = self.zone.map(|zone| zone.direction);
        let has_mark = self.zone.is_some_and(|zone| zone.id.is_none());
        let flags = flags([
            (self.notrack, XT_CT_NOTRACK),
            (
                direction == Some(ZoneDirection::Original),
                XT_CT_ZONE_DIR_ORIG,
            ),
            (direction == Some(ZoneDirection::Reply), XT_CT_ZONE_DIR_REPL),
            (has_mark, XT_CT_ZONE_MARK),
        ]);
        self.write_with(flags, out)
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (ct, is_alias) = Self::read_with(reader)?;
        (!is_alias).then_some(ct)
    }
}

/// Target `NOTRACK`: `struct xt_ct_target_info_v1` with the flag `XT_CT_NOTRACK_ALIAS`.
pub(super) struct Notrack;

impl Structure for Notrack {
    const NAME: &'static str = Ct::NAME;
    const REVISION: u32 = Ct::REVISION;

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        Ct::default().write_with(XT_CT_NOTRACK | XT_CT_NOTRACK_ALIAS, out)
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (ct, is_alias) = Ct::read_with(reader)?;
        let notrack = Ct {
            notrack: true,
            ..Ct::default()
        };
        (is_alias && ct == notrack).then_some(Self)
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
            let rule = Rule::new().with_target(ct);
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
