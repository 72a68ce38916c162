//! `-j LED`: LEDs.

use std::borrow::Cow;
use std::fmt;

use crate::extensions::structure::Structure;
use crate::options::field::{Value, extension, word_values};
use crate::options::number;
use crate::options::{Unsupported, Values};

extension! {
    /// Switches an LED on: `-j LED --led-trigger-id "eth0"`.
    pub struct Led<'a> = "-j LED" {
        /// Name of the trigger; iptables requires one.
        trigger: Option<LedTrigger<'a>> = "--led-trigger-id",
        /// Time until the LED is switched off. Default: at once.
        delay: Option<LedDelay> = "--led-delay",
        /// Whether an LED that is on blinks for each packet.
        always_blink: bool = "--led-always-blink",
    }
    complete |it| it.trigger.is_some();
    normalize |it| it.delay = it.delay.filter(|delay| *delay != LedDelay::Milliseconds(0));
}

/// The name of an LED trigger, printed as `"eth0"`.
///
/// Exhaustive: a name is its characters.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct LedTrigger<'a>(pub Cow<'a, str>);

/// Time until an LED is switched off.
///
/// Exhaustive: an LED is switched off or not.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum LedDelay {
    /// After this number of milliseconds.
    Milliseconds(u32),
    /// Never.
    Infinite,
}

impl<'a> Value<'a> for LedTrigger<'a> {
    fn take(_: &str, values: &mut Values<'_, 'a>) -> Result<Self, Unsupported> {
        values.word().map(Self)
    }

    fn write(&self, option: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {option} \"")?;
        for letter in self.0.chars() {
            match letter {
                '"' | '\\' => write!(f, "\\{letter}")?,
                // A newline ends the rule, even in quotes.
                '\n' => f.write_str(" ")?,
                _ => write!(f, "{letter}")?,
            }
        }
        f.write_str("\"")
    }
}

impl LedDelay {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "inf" => Some(Self::Infinite),
            _ => number::parse_as(text).map(Self::Milliseconds),
        }
    }
}

impl fmt::Display for LedDelay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Milliseconds(delay) => delay.fmt(f),
            Self::Infinite => f.write_str("inf"),
        }
    }
}

word_values! { LedDelay = LedDelay::parse, }

/// `struct xt_led_info` is not written: no kernel of the tests has the target.
impl Structure for Led<'_> {
    const NAME: &'static str = "LED";
}
