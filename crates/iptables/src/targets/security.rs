//! Targets of security marks, scheduling classes, timers and LEDs: `-j SECMARK`,
//! `-j CONNSECMARK`, `-j CLASSIFY`, `-j IDLETIMER` and `-j LED`.

use std::borrow::Cow;
use std::fmt;

use crate::field::{Value, extension, word_values};
use crate::number;
use crate::options::{Unsupported, Values};

extension! {
    /// Sets the security mark: `-j SECMARK --selctx system_u:object_r:http_packet_t:s0`.
    pub struct Secmark<'a> = "-j SECMARK" {
        /// Security context of SELinux; iptables requires one.
        context: Option<Cow<'a, str>> = "--selctx",
    }
}

extension! {
    /// Copies security marks: `-j CONNSECMARK --save`.
    ///
    /// iptables requires exactly one option.
    pub struct Connsecmark = "-j CONNSECMARK" {
        /// Whether the mark of the packet is copied to the connection.
        save: bool = "--save",
        /// Whether the mark of the connection is copied to the packet.
        restore: bool = "--restore",
    }
    complete |it| it.save != it.restore;
}

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

extension! {
    /// Notifies processes of idle interfaces: `-j IDLETIMER --timeout 60 --label eth0`.
    ///
    /// iptables requires a timeout and a label.
    pub struct Idletimer<'a> = "-j IDLETIMER" {
        /// Timeout in seconds, not 0.
        timeout: Option<u32> = "--timeout",
        /// Name in `/sys/class/xt_idletimer/timers`.
        label: Option<Cow<'a, str>> = "--label",
        /// Whether the timer wakes a suspended host.
        alarm: bool = "--alarm",
        /// Whether netlink messages are sent.
        send_nl_msg: bool = "--send_nl_msg",
    }
    complete |it| it.timeout.is_some_and(|timeout| timeout > 0) && it.label.is_some();
}

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
