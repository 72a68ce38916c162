//! `-j LOG`: kernel log.

use std::borrow::Cow;
use std::fmt;

use crate::options::{Extension, Parsed, Values, set_flag, set_once};
use crate::quote::Quoted;

/// Logs packets to the kernel log: `-j LOG --log-prefix "dropped: "`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Log<'a> {
    /// Prefix of the log line; the kernel keeps 29 bytes.
    pub prefix: Option<Cow<'a, str>>,
    /// Log level, 0 to 7. Default: 4 (warning).
    pub level: u8,
    /// Whether TCP sequence numbers are logged.
    pub tcp_sequence: bool,
    /// Whether TCP options are logged.
    pub tcp_options: bool,
    /// Whether IP options are logged.
    pub ip_options: bool,
    /// Whether the user ID is logged.
    pub uid: bool,
    /// Whether MAC addresses and protocol are decoded.
    pub macdecode: bool,
}

/// Names of levels 0 to 7; the last name is an alias of level 0.
const LEVELS: [&str; 9] = [
    "emerg", "alert", "crit", "error", "warning", "notice", "info", "debug", "panic",
];

/// Default level.
const WARNING: u8 = 4;

impl Log<'_> {
    /// Logs without a prefix.
    pub fn new() -> Self {
        Self {
            prefix: None,
            level: WARNING,
            tcp_sequence: false,
            tcp_options: false,
            ip_options: false,
            uid: false,
            macdecode: false,
        }
    }
}

impl<'a> Log<'a> {
    /// Logs with a prefix.
    pub fn with_prefix(prefix: impl Into<Cow<'a, str>>) -> Self {
        Self {
            prefix: Some(prefix.into()),
            ..Self::new()
        }
    }
}

impl Default for Log<'_> {
    fn default() -> Self {
        Self::new()
    }
}

/// Parses a name or a number.
fn level(text: &str) -> Option<u8> {
    match LEVELS.iter().position(|name| *name == text) {
        Some(at) => u8::try_from(at % 8).ok(),
        None => text.parse().ok().filter(|level| *level < 8),
    }
}

impl<'a> Extension<'a> for Log<'a> {
    fn open() -> Self {
        Self::new()
    }

    fn options() -> &'static [&'static str] {
        &[
            "--log-prefix",
            "--log-level",
            "--log-tcp-sequence",
            "--log-tcp-options",
            "--log-ip-options",
            "--log-uid",
            "--log-macdecode",
        ]
    }

    fn min_options(&self) -> usize {
        0
    }

    fn parse_option(&mut self, option: &str, values: &mut Values<'_, 'a>) -> Parsed {
        match option {
            "--log-prefix" => set_once(&mut self.prefix, values.word()?),
            "--log-level" => {
                self.level = values.parse(level)?;
                Ok(true)
            }
            "--log-tcp-sequence" => set_flag(&mut self.tcp_sequence),
            "--log-tcp-options" => set_flag(&mut self.tcp_options),
            "--log-ip-options" => set_flag(&mut self.ip_options),
            "--log-uid" => set_flag(&mut self.uid),
            "--log-macdecode" => set_flag(&mut self.macdecode),
            _ => Ok(false),
        }
    }
}

impl fmt::Display for Log<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("-j LOG")?;
        if let Some(prefix) = &self.prefix {
            write!(f, " --log-prefix {}", Quoted(prefix))?;
        }
        if self.level != WARNING {
            write!(f, " --log-level {}", self.level)?;
        }
        let flags = [
            (self.tcp_sequence, " --log-tcp-sequence"),
            (self.tcp_options, " --log-tcp-options"),
            (self.ip_options, " --log-ip-options"),
            (self.uid, " --log-uid"),
            (self.macdecode, " --log-macdecode"),
        ];
        for (_, option) in flags.iter().filter(|(set, _)| *set) {
            f.write_str(option)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rule;

    #[test]
    fn log_is_parsed_and_printed() {
        let all = Log {
            prefix: Some("a b: ".into()),
            level: 0,
            tcp_sequence: true,
            tcp_options: true,
            ip_options: true,
            uid: true,
            macdecode: true,
        };
        let table = [
            ("-j LOG", Log::new()),
            ("-j LOG --log-prefix x", Log::with_prefix("x")),
            (
                "-j LOG --log-prefix \"a b: \" --log-level 0 --log-tcp-sequence --log-tcp-options --log-ip-options --log-uid --log-macdecode",
                all,
            ),
        ];
        for (text, log) in table {
            let rule = Rule::new().target(log);
            assert_eq!(rule.to_string(), text);
            assert_eq!(Rule::parse(text), Ok(rule));
        }
    }

    #[test]
    fn levels_have_names() {
        let table = [
            ("debug", "-j LOG --log-level 7"),
            ("panic", "-j LOG --log-level 0"),
            ("warning", "-j LOG"),
            ("4", "-j LOG"),
            ("8", "-j LOG --log-level 8"),
        ];
        for (level, printed) in table {
            let text = format!("-j LOG --log-level {level}");
            assert_eq!(Rule::parse(&text).unwrap().to_string(), printed);
        }
    }
}
