//! Commands of a document.

use std::borrow::Cow;
use std::fmt;

use super::arguments;
use super::{CommandLine, Line, Policy, RuleLine};
use crate::counters::Counters;
use crate::{Family, ParseError, Rule};

/// A command of `iptables`, as a line of a restore document or as arguments.
///
/// `Display` prints the short options, in the order of the man page.
/// Rule numbers start at 1.
///
/// ```
/// use vipline_iptables::{Command, Family};
///
/// let text = "--insert=INPUT 2 -p tcp --dport 22 -j ACCEPT";
/// let command = Command::parse(text, Family::V4)?.unwrap();
/// assert_eq!(command.chain(), Some("INPUT"));
/// assert_eq!(command.to_string(), "-I INPUT 2 -p tcp --dport 22 -j ACCEPT");
/// # Ok::<(), vipline_iptables::ParseError>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Command<'a> {
    /// `-A CHAIN RULE`: appends a rule.
    Append {
        /// Name of the chain.
        chain: Cow<'a, str>,
        /// The rule.
        spec: RuleSpec<'a>,
    },
    /// `-C CHAIN RULE`: fails unless the rule exists.
    Check {
        /// Name of the chain.
        chain: Cow<'a, str>,
        /// The rule.
        spec: RuleSpec<'a>,
    },
    /// `-D CHAIN RULE`: deletes the first equal rule.
    Delete {
        /// Name of the chain.
        chain: Cow<'a, str>,
        /// The rule.
        spec: RuleSpec<'a>,
    },
    /// `-X [CHAIN]`: deletes an empty user-defined chain, or all of them.
    DeleteChain {
        /// Name of the chain; `None` for all user-defined chains.
        chain: Option<Cow<'a, str>>,
    },
    /// `-D CHAIN NUMBER`: deletes the rule with a number.
    DeleteNumber {
        /// Name of the chain.
        chain: Cow<'a, str>,
        /// Number of the rule.
        number: u32,
    },
    /// `-F [CHAIN]`: deletes all rules of a chain, or of all chains.
    Flush {
        /// Name of the chain; `None` for all chains.
        chain: Option<Cow<'a, str>>,
    },
    /// `-I CHAIN [NUMBER] RULE`: inserts a rule, which gets the number.
    Insert {
        /// Name of the chain.
        chain: Cow<'a, str>,
        /// Number of the rule; `None` is 1.
        number: Option<u32>,
        /// The rule.
        spec: RuleSpec<'a>,
    },
    /// `-L [CHAIN [NUMBER]]` or `-S [CHAIN [NUMBER]]`: prints rules.
    List {
        /// Whether the output has the form of rule specifications: `-S`.
        as_rules: bool,
        /// Name of the chain; `None` for all chains.
        chain: Option<Cow<'a, str>>,
        /// Number of the rule; `None` for all rules.
        number: Option<u32>,
    },
    /// `-N CHAIN`: creates a user-defined chain.
    NewChain {
        /// Name of the chain.
        chain: Cow<'a, str>,
    },
    /// `-E CHAIN NAME`: renames a user-defined chain.
    RenameChain {
        /// Name of the chain.
        chain: Cow<'a, str>,
        /// The new name.
        name: Cow<'a, str>,
    },
    /// `-R CHAIN NUMBER RULE`: replaces the rule with a number.
    Replace {
        /// Name of the chain.
        chain: Cow<'a, str>,
        /// Number of the rule.
        number: u32,
        /// The new rule.
        spec: RuleSpec<'a>,
    },
    /// `-P CHAIN POLICY`: sets the policy of a built-in chain.
    SetPolicy {
        /// Name of the chain.
        chain: Cow<'a, str>,
        /// The policy.
        policy: Policy,
        /// Counters of the policy, if present.
        counters: Option<Counters>,
    },
    /// `-Z [CHAIN [NUMBER]]`: sets counters to zero.
    Zero {
        /// Name of the chain; `None` for all chains.
        chain: Option<Cow<'a, str>>,
        /// Number of the rule; `None` for all rules and the policy.
        number: Option<u32>,
    },
}

/// The rule of a command.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct RuleSpec<'a> {
    /// The rule specification: the text for [`Rule::parse`].
    pub text: Cow<'a, str>,
    /// Counters of the rule, if present: `-c` or a prefix `[packets:bytes]`.
    pub counters: Option<Counters>,
}

impl<'a> RuleSpec<'a> {
    /// Creates a specification without counters.
    pub fn new(text: impl Into<Cow<'a, str>>) -> Self {
        Self {
            text: text.into(),
            counters: None,
        }
    }

    /// Parses the rule.
    ///
    /// # Errors
    ///
    /// The same as [`Rule::parse`].
    pub fn rule(&self) -> Result<Rule<'_>, ParseError> {
        Rule::parse(&self.text)
    }
}

impl<'a> Command<'a> {
    /// Parses a line of a restore document, or the arguments of `iptables` after the
    /// table.
    ///
    /// The command need not be first, long options may be abbreviated, and values may
    /// follow their option without a blank. The rule itself is not parsed.
    ///
    /// Returns `None` if the line is for the other family: `-4` or `-6`.
    ///
    /// # Errors
    ///
    /// [`ParseError`] for a missing, second or incomplete command, an invalid chain name,
    /// rule number or policy, an unclosed quote, and options that a document must not
    /// have, such as `-t`.
    pub fn parse(text: &'a str, family: Family) -> Result<Option<Self>, ParseError> {
        arguments::parse(text, family)
    }

    /// Returns the name of the chain, if the command names one.
    pub fn chain(&self) -> Option<&str> {
        match self {
            Self::Append { chain, .. }
            | Self::Check { chain, .. }
            | Self::Delete { chain, .. }
            | Self::DeleteNumber { chain, .. }
            | Self::Insert { chain, .. }
            | Self::NewChain { chain }
            | Self::RenameChain { chain, .. }
            | Self::Replace { chain, .. }
            | Self::SetPolicy { chain, .. } => Some(chain),
            Self::DeleteChain { chain }
            | Self::Flush { chain }
            | Self::List { chain, .. }
            | Self::Zero { chain, .. } => chain.as_deref(),
        }
    }

    /// Returns the rule, if the command has one.
    pub fn spec(&self) -> Option<&RuleSpec<'a>> {
        match self {
            Self::Append { spec, .. }
            | Self::Check { spec, .. }
            | Self::Delete { spec, .. }
            | Self::Insert { spec, .. }
            | Self::Replace { spec, .. } => Some(spec),
            _ => None,
        }
    }
}

impl<'a> Line<'a> {
    /// Returns the command of the line.
    ///
    /// Returns `None` for a line that is no command, and for a command of the other
    /// family.
    ///
    /// # Errors
    ///
    /// The same as [`Command::parse`].
    pub fn command(&self, family: Family) -> Result<Option<Command<'a>>, ParseError> {
        match self {
            Self::Command(CommandLine { text, .. }) | Self::Rule(RuleLine { text, .. }) => {
                Command::parse(text, family)
            }
            _ => Ok(None),
        }
    }
}

impl fmt::Display for Command<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counters = match self {
            Self::SetPolicy { counters, .. } => *counters,
            other => other.spec().and_then(|spec| spec.counters),
        };
        if let Some(counters) = counters {
            write!(f, "{counters} ")?;
        }
        f.write_str(self.option())?;
        if let Some(chain) = self.chain() {
            write!(f, " {chain}")?;
        }
        match self {
            Self::DeleteNumber { number, .. }
            | Self::Insert {
                number: Some(number),
                ..
            }
            | Self::List {
                number: Some(number),
                ..
            }
            | Self::Replace { number, .. }
            | Self::Zero {
                number: Some(number),
                ..
            } => write!(f, " {number}")?,
            Self::RenameChain { name, .. } => write!(f, " {name}")?,
            Self::SetPolicy { policy, .. } => write!(f, " {policy}")?,
            _ => {}
        }
        match self.spec() {
            Some(spec) if !spec.text.is_empty() => write!(f, " {}", spec.text),
            _ => Ok(()),
        }
    }
}

impl Command<'_> {
    /// Returns the short option.
    fn option(&self) -> &'static str {
        match self {
            Self::Append { .. } => "-A",
            Self::Check { .. } => "-C",
            Self::Delete { .. } | Self::DeleteNumber { .. } => "-D",
            Self::DeleteChain { .. } => "-X",
            Self::Flush { .. } => "-F",
            Self::Insert { .. } => "-I",
            Self::List { as_rules: true, .. } => "-S",
            Self::List { .. } => "-L",
            Self::NewChain { .. } => "-N",
            Self::RenameChain { .. } => "-E",
            Self::Replace { .. } => "-R",
            Self::SetPolicy { .. } => "-P",
            Self::Zero { .. } => "-Z",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a command as printed, or its error.
    fn printed(text: &str) -> String {
        match Command::parse(text, Family::V4) {
            Ok(Some(command)) => command.to_string(),
            Ok(None) => "other family".to_owned(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn commands_in_their_usual_form_are_printed_unchanged() {
        for text in [
            "-A INPUT",
            "-A INPUT -p tcp -j ACCEPT",
            "[1:2] -A INPUT -j ACCEPT",
            "-C INPUT -j ACCEPT",
            "-D INPUT -j ACCEPT",
            "-D INPUT 3",
            "-E old new",
            "-F",
            "-F INPUT",
            "-I INPUT -j ACCEPT",
            "-I INPUT 1 -j ACCEPT",
            "-L",
            "-S INPUT 2",
            "-N web",
            "[3:4] -P INPUT DROP",
            "-R INPUT 1 -j ACCEPT",
            "-X",
            "-X web",
            "-Z",
            "-Z INPUT 1",
            r#"-A INPUT -m comment --comment "-X a" -j ACCEPT"#,
            "-A INPUT -m recent --set",
            "-A INPUT -m policy --pol ipsec --dir in",
        ] {
            assert_eq!(printed(text), text);
        }
    }

    #[test]
    fn other_spellings_are_normalized() {
        for (text, normal) in [
            ("-AINPUT -j ACCEPT", "-A INPUT -j ACCEPT"),
            ("--append=INPUT -j ACCEPT", "-A INPUT -j ACCEPT"),
            ("--insert INPUT 2 -j A", "-I INPUT 2 -j A"),
            ("--inse INPUT -j A", "-I INPUT -j A"),
            ("-p tcp -A INPUT -j A", "-A INPUT -p tcp -j A"),
            ("  -A\t\"INPUT\"  -j  A ", "-A INPUT -j  A"),
            ("-A INPUT -j A -c 1 2", "[1:2] -A INPUT -j A"),
            ("-A INPUT -c 1,2 -j A", "[1:2] -A INPUT -j A"),
            ("-4 -A INPUT -v -j A", "-A INPUT -j A"),
            ("-6 -A INPUT -j A", "other family"),
            ("-A INPUT --ipv6 -d ::1", "other family"),
            ("-Fweb", "-F web"),
            ("--delete-chain", "-X"),
        ] {
            assert_eq!(printed(text), normal, "{text}");
        }
    }

    #[test]
    fn errors_name_the_word() {
        for (text, error) in [
            ("-p tcp", r#""-p" at byte 0: expected a command such as -A"#),
            ("-A a -D b", r#""-D" at byte 5: second command"#),
            ("-A", r#""-A" at byte 0: missing value"#),
            ("-E a", r#""-E" at byte 0: missing value"#),
            ("-P a", r#""-P" at byte 0: missing value"#),
            ("-R a -j b", r#""-R" at byte 0: missing value"#),
            (
                "-I a 0",
                r#""0" at byte 5: expected a rule number of 1 or more"#,
            ),
            (
                "-P a QUEUE",
                r#""QUEUE" at byte 5: expected the policy ACCEPT or DROP"#,
            ),
            (
                "-E a a\"b c\"",
                r#""a\"b" at byte 5: expected a chain name of 1 to 28 bytes"#,
            ),
            ("-F a -p tcp", r#""-F" at byte 0: the command has no rule"#),
            (
                "-t nat -A a",
                r#""-t" at byte 0: not allowed in a document"#,
            ),
            ("-A a -c 1", r#""-c" at byte 5: missing value"#),
            (
                "-A a -c x 1",
                r#""-c" at byte 5: expected counters such as [0:0] or -c 0 0"#,
            ),
            ("-A a \"b", r#""\"b" at byte 5: unclosed quote"#),
        ] {
            assert_eq!(printed(text), error, "{text}");
        }
    }

    #[test]
    fn lines_without_commands_have_none() {
        for text in ["", "# -A", "*nat", ":a - [0:0]", "COMMIT"] {
            assert_eq!(Line::parse(text).unwrap().command(Family::V4), Ok(None));
        }
        let line = Line::parse("-X web").unwrap();
        let command = line.command(Family::V6).unwrap().unwrap();
        assert_eq!((command.chain(), command.spec()), (Some("web"), None));
    }
}
