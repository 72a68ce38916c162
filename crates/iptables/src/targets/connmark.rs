//! `-j CONNMARK`: connection mark.

use std::fmt;

use crate::extensions::structure::{Reader, Structure, Writer};
use crate::options::number::{self, Masked};
use crate::options::{Extension, Parsed, Unsupported, Values, set_once};
use crate::targets::mark;

/// Changes or copies the connection mark: `-j CONNMARK --save-mark …`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Connmark {
    /// Action; iptables requires one.
    pub action: Option<ConnmarkAction>,
    /// Shift of the mark.
    pub shift: Option<Shift>,
}

/// Action on the connection mark.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ConnmarkAction {
    /// Clears the bits of the mask, then flips the bits of the value.
    Set(Masked),
    /// Copies the packet mark to the connection mark.
    Save(Masks),
    /// Copies the connection mark to the packet mark.
    Restore(Masks),
}

/// Masks for copying marks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Masks {
    /// Mask of the packet mark.
    pub packet: u32,
    /// Mask of the connection mark.
    pub connection: u32,
}

/// Shift of a mark, in bits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Shift {
    /// Left shift.
    Left(u8),
    /// Right shift.
    Right(u8),
}

impl Masks {
    /// All bits of both marks.
    pub const ALL: Self = Self {
        packet: u32::MAX,
        connection: u32::MAX,
    };
}

impl From<ConnmarkAction> for Connmark {
    fn from(action: ConnmarkAction) -> Self {
        Self {
            action: Some(action),
            shift: None,
        }
    }
}

impl Connmark {
    /// Parses a mask for the packet mark, the connection mark or both.
    fn take_mask(&mut self, option: &str, values: &mut Values<'_, '_>) -> Parsed {
        let Some(ConnmarkAction::Save(masks) | ConnmarkAction::Restore(masks)) = &mut self.action
        else {
            return Err(Unsupported);
        };
        let mask = values.parse(number::parse_as)?;
        if option != "--ctmask" {
            masks.packet = mask;
        }
        if option != "--nfmask" {
            masks.connection = mask;
        }
        Ok(true)
    }

    fn take_shift(&mut self, shift: fn(u8) -> Shift, values: &mut Values<'_, '_>) -> Parsed {
        match values.parse(number::parse_as)? {
            0 => Ok(true),
            bits @ 1..32 => set_once(&mut self.shift, shift(bits)),
            _ => Err(Unsupported),
        }
    }
}

impl<'a> Extension<'a> for Connmark {
    fn open() -> Self {
        Self {
            action: None,
            shift: None,
        }
    }

    fn options() -> &'static [&'static str] {
        &[
            "--set-xmark",
            "--set-mark",
            "--and-mark",
            "--or-mark",
            "--xor-mark",
            "--save-mark",
            "--restore-mark",
            "--left-shift-mark",
            "--right-shift-mark",
            "--ctmask",
            "--nfmask",
            "--mask",
        ]
    }

    fn min_options(&self) -> usize {
        if self.action.is_some() { 1 } else { usize::MAX }
    }

    fn parse_option(&mut self, option: &str, values: &mut Values<'_, 'a>) -> Parsed {
        match option {
            "--save-mark" => set_once(&mut self.action, ConnmarkAction::Save(Masks::ALL)),
            "--restore-mark" => set_once(&mut self.action, ConnmarkAction::Restore(Masks::ALL)),
            "--nfmask" | "--ctmask" | "--mask" => self.take_mask(option, values),
            "--left-shift-mark" => self.take_shift(Shift::Left, values),
            "--right-shift-mark" => self.take_shift(Shift::Right, values),
            _ => match mark::change(option, values)? {
                Some(masked) => set_once(&mut self.action, ConnmarkAction::Set(masked)),
                None => Ok(false),
            },
        }
    }
}

impl fmt::Display for Connmark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("-j CONNMARK")?;
        let (option, masks) = match self.action {
            Some(ConnmarkAction::Set(masked)) => {
                write!(f, " --set-xmark {masked}")?;
                ("", None)
            }
            Some(ConnmarkAction::Save(masks)) => ("--save-mark", Some(masks)),
            Some(ConnmarkAction::Restore(masks)) => ("--restore-mark", Some(masks)),
            None => ("", None),
        };
        if let Some(Masks { packet, connection }) = masks {
            write!(f, " {option} --nfmask {packet:#x} --ctmask {connection:#x}")?;
        }
        match self.shift {
            Some(Shift::Left(bits)) => write!(f, " --left-shift-mark {bits}"),
            Some(Shift::Right(bits)) => write!(f, " --right-shift-mark {bits}"),
            None => Ok(()),
        }
    }
}

// Modes of `struct xt_connmark_tginfo2`.
const XT_CONNMARK_SET: u8 = 0;
const XT_CONNMARK_SAVE: u8 = 1;
const XT_CONNMARK_RESTORE: u8 = 2;

const D_SHIFT_LEFT: u8 = 0;
const D_SHIFT_RIGHT: u8 = 1;

/// `struct xt_connmark_tginfo2`.
impl Structure for Connmark {
    const NAME: &'static str = "CONNMARK";
    const REVISION: u32 = 2;

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        let all = |mode, masks: Masks| (mode, 0, masks.connection, masks.packet);
        let (mode, value, connection, packet) = match self.action? {
            ConnmarkAction::Set(Masked { value, mask }) => (XT_CONNMARK_SET, value, mask, u32::MAX),
            ConnmarkAction::Save(masks) => all(XT_CONNMARK_SAVE, masks),
            ConnmarkAction::Restore(masks) => all(XT_CONNMARK_RESTORE, masks),
        };
        let (direction, bits) = match self.shift {
            Some(Shift::Left(bits)) => (D_SHIFT_LEFT, bits),
            Some(Shift::Right(bits)) => (D_SHIFT_RIGHT, bits),
            None => (0, 0),
        };
        out.u32(value).u32(connection).u32(packet);
        out.u8(direction).u8(bits).u8(mode);
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (value, connection, packet) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let [direction, bits, mode] = reader.array()?;
        let masks = Masks { packet, connection };
        let action = match mode {
            // iptables prints no mask of the packet mark.
            XT_CONNMARK_SET if packet != u32::MAX => return None,
            XT_CONNMARK_SET => ConnmarkAction::Set(Masked {
                value,
                mask: connection,
            }),
            XT_CONNMARK_SAVE => ConnmarkAction::Save(masks),
            XT_CONNMARK_RESTORE => ConnmarkAction::Restore(masks),
            _ => return None,
        };
        let shift = match (direction, bits) {
            (_, 0) => None,
            (D_SHIFT_LEFT, bits) => Some(Shift::Left(bits)),
            (D_SHIFT_RIGHT, bits) => Some(Shift::Right(bits)),
            _ => return None,
        };
        Some(Self {
            action: Some(action),
            shift,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rule;

    #[test]
    fn connmark_is_parsed_and_printed() {
        let masks = Masks {
            packet: 0xff,
            connection: 0xf,
        };
        let masked = Masked { value: 5, mask: 7 };
        let shifted = Connmark {
            shift: Some(Shift::Left(3)),
            ..ConnmarkAction::Set(masked).into()
        };
        let table = [
            ("--save-mark", ConnmarkAction::Save(Masks::ALL).into()),
            (
                "--restore-mark --nfmask 0xff --ctmask 0xf",
                ConnmarkAction::Restore(masks).into(),
            ),
            ("--set-mark 0x5/0x3", ConnmarkAction::Set(masked).into()),
            ("--left-shift-mark 3 --set-xmark 5/7", shifted),
            (
                "--set-xmark 0x5/7 --left-shift-mark 0",
                ConnmarkAction::Set(masked).into(),
            ),
        ];
        for (options, connmark) in table {
            let text = format!("-j CONNMARK {options}");
            let rule = Rule::parse(&text).unwrap();
            assert_eq!(rule, Rule::new().with_target(connmark), "{text}");
            assert_eq!(Rule::parse(&rule.to_string()).as_ref(), Ok(&rule));
        }
        for text in [
            "-j CONNMARK",
            "-j CONNMARK --nfmask 5",
            "-j CONNMARK --save-mark --set-mark 1",
        ] {
            assert_eq!(Rule::parse(text).unwrap().to_string(), text);
        }
    }
}
