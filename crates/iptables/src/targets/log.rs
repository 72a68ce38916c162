//! `-j LOG`: kernel log.

use std::borrow::Cow;
use std::fmt;

use crate::extensions::structure::{Reader, Structure, Writer, flags};
use crate::options::quote::Quoted;
use crate::options::{Extension, Parsed, Values, set_flag, set_once};

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
    /// Sets the prefix of the message.
    #[must_use]
    pub fn with_prefix(mut self, prefix: impl Into<Cow<'a, str>>) -> Self {
        self.prefix = Some(prefix.into());
        self
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

// Flags `logflags` of `struct xt_log_info`.
const XT_LOG_TCPSEQ: u8 = 0x01;
const XT_LOG_TCPOPT: u8 = 0x02;
const XT_LOG_IPOPT: u8 = 0x04;
const XT_LOG_UID: u8 = 0x08;
const XT_LOG_MACDECODE: u8 = 0x20;

/// Length of the prefix of a log line with its NUL byte.
const PREFIX_LEN: usize = 30;

/// `struct xt_log_info`.
impl Structure for Log<'_> {
    const NAME: &'static str = "LOG";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        out.u8(self.level).u8(flags([
            (self.tcp_sequence, XT_LOG_TCPSEQ),
            (self.tcp_options, XT_LOG_TCPOPT),
            (self.ip_options, XT_LOG_IPOPT),
            (self.uid, XT_LOG_UID),
            (self.macdecode, XT_LOG_MACDECODE),
        ]));
        out.text(self.prefix.as_deref().unwrap_or_default(), PREFIX_LEN)?;
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (level, flags) = (reader.u8()?, reader.u8()?);
        let prefix = reader.text(PREFIX_LEN)?;
        Some(Self {
            prefix: (!prefix.is_empty()).then(|| prefix.into()),
            level,
            tcp_sequence: flags & XT_LOG_TCPSEQ != 0,
            tcp_options: flags & XT_LOG_TCPOPT != 0,
            ip_options: flags & XT_LOG_IPOPT != 0,
            uid: flags & XT_LOG_UID != 0,
            macdecode: flags & XT_LOG_MACDECODE != 0,
        })
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
            ("-j LOG --log-prefix x", Log::new().with_prefix("x")),
            (
                "-j LOG --log-prefix \"a b: \" --log-level 0 --log-tcp-sequence --log-tcp-options --log-ip-options --log-uid --log-macdecode",
                all,
            ),
        ];
        for (text, log) in table {
            let rule = Rule::new().with_target(log);
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
