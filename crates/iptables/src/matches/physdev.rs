//! `-m physdev`: bridge ports.

use std::borrow::Cow;
use std::fmt;

use crate::extensions::structure::{Conditions, IFNAMSIZ, Reader, Structure, Writer};
use crate::options::negatable::Negatable;
use crate::options::quote::Bare;
use crate::options::{Extension, Parsed, Values, set_once};

/// Matches bridge ports: `-m physdev --physdev-is-bridged`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Physdev<'a> {
    /// Whether the packet entered through a bridge port.
    pub is_in: Option<Negatable<()>>,
    /// Input port of the bridge.
    pub input: Option<Negatable<Cow<'a, str>>>,
    /// Whether the packet leaves through a bridge port.
    pub is_out: Option<Negatable<()>>,
    /// Output port of the bridge.
    pub output: Option<Negatable<Cow<'a, str>>>,
    /// Whether the packet is bridged and not routed.
    pub is_bridged: Option<Negatable<()>>,
}

impl Physdev<'_> {
    /// Matches packets that are bridged and not routed.
    pub fn bridged() -> Self {
        Self {
            is_bridged: Some(Negatable::Is(())),
            ..Self::default()
        }
    }
}

impl<'a> Extension<'a> for Physdev<'a> {
    fn open() -> Self {
        Self::default()
    }

    fn options() -> &'static [&'static str] {
        &[
            "--physdev-in",
            "--physdev-out",
            "--physdev-is-in",
            "--physdev-is-out",
            "--physdev-is-bridged",
        ]
    }

    fn parse_option(&mut self, option: &str, values: &mut Values<'_, 'a>) -> Parsed {
        match option {
            "--physdev-is-in" => set_once(&mut self.is_in, Negatable::new(values.negated(), ())),
            "--physdev-in" => name(&mut self.input, values),
            "--physdev-is-out" => set_once(&mut self.is_out, Negatable::new(values.negated(), ())),
            "--physdev-out" => name(&mut self.output, values),
            "--physdev-is-bridged" => {
                set_once(&mut self.is_bridged, Negatable::new(values.negated(), ()))
            }
            _ => Ok(false),
        }
    }
}

fn name<'a>(place: &mut Option<Negatable<Cow<'a, str>>>, values: &mut Values<'_, 'a>) -> Parsed {
    set_once(place, Negatable::new(values.negated(), values.bare()?))
}

impl fmt::Display for Physdev<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("-m physdev")?;
        if let Some(is_in) = &self.is_in {
            write!(f, " {}--physdev-is-in", is_in.bang())?;
        }
        if let Some(name) = &self.input {
            write!(f, " {}--physdev-in {}", name.bang(), Bare(name.value()))?;
        }
        if let Some(is_out) = &self.is_out {
            write!(f, " {}--physdev-is-out", is_out.bang())?;
        }
        if let Some(name) = &self.output {
            write!(f, " {}--physdev-out {}", name.bang(), Bare(name.value()))?;
        }
        if let Some(is_bridged) = &self.is_bridged {
            write!(f, " {}--physdev-is-bridged", is_bridged.bang())?;
        }
        Ok(())
    }
}

// Flags `bitmask` and `invert` of `struct xt_physdev_info`.
const XT_PHYSDEV_OP_IN: u8 = 1;
const XT_PHYSDEV_OP_OUT: u8 = 2;
const XT_PHYSDEV_OP_BRIDGED: u8 = 4;
const XT_PHYSDEV_OP_ISIN: u8 = 8;
const XT_PHYSDEV_OP_ISOUT: u8 = 0x10;

/// `struct xt_physdev_info`.
impl Structure for Physdev<'_> {
    const NAME: &'static str = "physdev";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        let mut conditions = Conditions::default();
        for (flag, name) in [
            (XT_PHYSDEV_OP_IN, &self.input),
            (XT_PHYSDEV_OP_OUT, &self.output),
        ] {
            let name = conditions.put(flag, name).unwrap_or_default();
            // Bytes that are compared: all before `+`, or the name with its NUL byte.
            let compared = match name.strip_suffix('+') {
                Some(start) => start.len(),
                None if name.is_empty() => 0,
                None => name.len() + 1,
            };
            out.text(&name, IFNAMSIZ)?;
            out.padded(&vec![0xff; compared], IFNAMSIZ)?;
        }
        conditions.put(XT_PHYSDEV_OP_BRIDGED, &self.is_bridged);
        conditions.put(XT_PHYSDEV_OP_ISIN, &self.is_in);
        conditions.put(XT_PHYSDEV_OP_ISOUT, &self.is_out);
        out.u8(conditions.negated).u8(conditions.used);
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let mut name = || {
            let name = reader.text(IFNAMSIZ)?;
            reader.bytes(IFNAMSIZ)?;
            Some(Cow::from(name))
        };
        let (input, output) = (name()?, name()?);
        let (negated, used) = (reader.u8()?, reader.u8()?);
        let conditions = Conditions { used, negated };
        Some(Self {
            is_in: conditions.get(XT_PHYSDEV_OP_ISIN, ()),
            input: conditions.get(XT_PHYSDEV_OP_IN, input),
            is_out: conditions.get(XT_PHYSDEV_OP_ISOUT, ()),
            output: conditions.get(XT_PHYSDEV_OP_OUT, output),
            is_bridged: conditions.get(XT_PHYSDEV_OP_BRIDGED, ()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rule;

    #[test]
    fn physdev_is_parsed_and_printed() {
        let all = Physdev {
            is_in: Some(Negatable::Is(())),
            input: Some(Negatable::Not("a+".into())),
            is_out: Some(Negatable::Not(())),
            output: Some(Negatable::Is("b".into())),
            is_bridged: Some(Negatable::Not(())),
        };
        let table = [
            ("-m physdev --physdev-is-bridged", Physdev::bridged()),
            (
                "-m physdev --physdev-is-in ! --physdev-in a+ ! --physdev-is-out --physdev-out b ! --physdev-is-bridged",
                all,
            ),
        ];
        for (text, physdev) in table {
            let rule = Rule::new().with_match(physdev);
            assert_eq!(rule.to_string(), text);
            assert_eq!(Rule::parse(text), Ok(rule));
        }
    }
}
