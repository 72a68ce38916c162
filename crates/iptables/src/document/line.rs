//! Lines of a document.

use std::fmt;

use crate::Rule;
use crate::counters::Counters;
use crate::name::MAX_NAME;
use crate::parse_error::{Expected, ParseError};

/// Word separators.
const BLANKS: [char; 2] = [' ', '\t'];

/// A line of a document of `iptables-save` or for `iptables-restore`.
///
/// The line borrows from its text and prints the same bytes.
///
/// Exhaustive: other lines are [`Line::Command`] or errors.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Line<'a> {
    /// An empty line.
    Blank,
    /// `:INPUT ACCEPT [0:0]`.
    Chain(ChainLine<'a>),
    /// Any other command or option: `-N web`, `-I INPUT 2 -j web`, `-P INPUT DROP`.
    Command(CommandLine<'a>),
    /// `# text`, including `#`.
    Comment(&'a str),
    /// `COMMIT`.
    Commit,
    /// `-A INPUT -j web`, with or without counters.
    Rule(RuleLine<'a>),
    /// `*nat`.
    Table(TableLine<'a>),
}

impl<'a> Line<'a> {
    /// Parses a line, with or without a trailing newline.
    ///
    /// Does not check the position of the line in the document.
    ///
    /// ```
    /// use vipline_iptables::Line;
    ///
    /// let Line::Rule(line) = Line::parse("[7:420] -A INPUT -p tcp -j web\n")? else { panic!() };
    /// assert_eq!((line.chain(), line.spec()), ("INPUT", "-p tcp -j web"));
    /// assert_eq!(line.counters().map(|counters| counters.packets), Some(7));
    /// # Ok::<(), vipline_iptables::ParseError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ParseError::Line`] if `iptables-restore` would reject the line.
    pub fn parse(text: &'a str) -> Result<Self, ParseError> {
        let text = text.strip_suffix('\n').unwrap_or(text);
        if text.contains('\n') {
            return Err(ParseError::of_line(Expected::Line, text));
        }
        Self::parse_one(text)
    }

    /// Parses text without newlines.
    pub(crate) fn parse_one(text: &'a str) -> Result<Self, ParseError> {
        let line = match text.as_bytes().first() {
            None => Ok(Self::Blank),
            Some(b'#') => Ok(Self::Comment(text)),
            Some(b'*') => TableLine::parse(text).map(Self::Table),
            Some(b':') => ChainLine::parse(text).map(Self::Chain),
            Some(b'C') if text == "COMMIT" => Ok(Self::Commit),
            Some(_) => Self::parse_command(text),
        };
        line.map_err(|expected| ParseError::of_line(expected, text))
    }

    /// Parses a rule or another command.
    fn parse_command(text: &'a str) -> Result<Self, Expected> {
        let body = match text.as_bytes().first() {
            Some(b'[') => Counters::split(text).ok_or(Expected::Counters)?.1,
            _ => text,
        };
        let body = body.trim_matches(BLANKS);
        let rest = match body.strip_prefix("--append") {
            Some(rest) if rest.starts_with(['=', ' ', '\t']) => {
                rest.strip_prefix('=').or(Some(rest))
            }
            _ => body.strip_prefix("-A"),
        };
        let Some(rest) = rest else {
            let word = split_word(body).0;
            return (word.len() > 1 && word.starts_with('-'))
                .then_some(Self::Command(CommandLine { text, body }))
                .ok_or(Expected::Command);
        };
        let (chain, spec) = split_word(rest);
        let unquoted = chain
            .strip_prefix('"')
            .and_then(|name| name.strip_suffix('"'));
        let chain = chain_name(unquoted.unwrap_or(chain))?;
        Ok(Self::Rule(RuleLine { text, chain, spec }))
    }

    /// Returns the text of the line without newline.
    pub fn text(&self) -> &'a str {
        match self {
            Self::Blank => "",
            Self::Chain(line) => line.text,
            Self::Command(line) => line.text,
            Self::Comment(text) => text,
            Self::Commit => "COMMIT",
            Self::Rule(line) => line.text,
            Self::Table(line) => line.text,
        }
    }
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// `*nat`: the start of a table.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TableLine<'a> {
    text: &'a str,
    name: &'a str,
}

impl<'a> TableLine<'a> {
    fn parse(text: &'a str) -> Result<Self, Expected> {
        let (name, _) = split_word(text.get(1..).unwrap_or_default());
        let is_name =
            !name.is_empty() && name.len() <= MAX_NAME && !name.contains(char::is_control);
        is_name
            .then_some(Self { text, name })
            .ok_or(Expected::TableName)
    }

    /// Returns the name of the table.
    pub fn name(&self) -> &'a str {
        self.name
    }
}

/// `:INPUT ACCEPT [0:0]`: a chain, its policy if it is built in, and its counters.
///
/// `iptables-restore --noflush` also flushes a declared user-defined chain.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ChainLine<'a> {
    text: &'a str,
    name: &'a str,
    policy: Option<Policy>,
}

impl<'a> ChainLine<'a> {
    fn parse(text: &'a str) -> Result<Self, Expected> {
        let [name, policy, rest] = Self::split(text);
        let name = chain_name(name)?;
        let policy = match policy {
            "-" => None,
            "ACCEPT" => Some(Policy::Accept),
            "DROP" => Some(Policy::Drop),
            _ => return Err(Expected::Policy),
        };
        let line = Self { text, name, policy };
        if !rest.is_empty() && line.counters().is_none() {
            return Err(Expected::Counters);
        }
        Ok(line)
    }

    /// Returns the first two words and the remaining text.
    fn split(text: &'a str) -> [&'a str; 3] {
        let (name, rest) = split_word(text.get(1..).unwrap_or_default());
        let (policy, rest) = split_word(rest);
        [name, policy, rest]
    }

    /// Returns the name of the chain.
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// Returns the policy of a built-in chain; `None` for a user-defined chain.
    pub fn policy(&self) -> Option<Policy> {
        self.policy
    }

    /// Returns the counters of the policy, if present.
    pub fn counters(&self) -> Option<Counters> {
        let [_, _, rest] = Self::split(self.text);
        Counters::parse(split_word(rest).0)
    }
}

/// `-A INPUT -j web`: a rule, with or without counters.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RuleLine<'a> {
    pub(super) text: &'a str,
    chain: &'a str,
    spec: &'a str,
}

impl<'a> RuleLine<'a> {
    /// Returns the name of the chain.
    pub fn chain(&self) -> &'a str {
        self.chain
    }

    /// Returns the rule specification: the text after the chain name, without
    /// surrounding blanks.
    pub fn spec(&self) -> &'a str {
        self.spec
    }

    /// Parses the rule specification.
    ///
    /// # Errors
    ///
    /// The same as [`Rule::parse`].
    pub fn rule(&self) -> Result<Rule<'a>, ParseError> {
        Rule::parse(self.spec)
    }

    /// Returns the counters of the rule, if present.
    pub fn counters(&self) -> Option<Counters> {
        Counters::split(self.text).map(|(counters, _)| counters)
    }
}

/// A command other than `-A`.
///
/// Only hand-written documents have such commands. `iptables-restore` executes them
/// like `iptables`.
/// Commands whose first word is an option are included, such as `-p tcp -A INPUT`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CommandLine<'a> {
    pub(super) text: &'a str,
    body: &'a str,
}

impl<'a> CommandLine<'a> {
    /// Returns the first word: `-I`, `--insert`.
    pub fn name(&self) -> &'a str {
        split_word(self.body).0
    }

    /// Returns the text after the first word, without surrounding blanks.
    pub fn args(&self) -> &'a str {
        split_word(self.body).1
    }

    /// Returns the counters for the rule, if present.
    pub fn counters(&self) -> Option<Counters> {
        Counters::split(self.text).map(|(counters, _)| counters)
    }
}

/// Policy of a built-in chain.
///
/// Exhaustive: the kernel has two policies.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Policy {
    /// Accepts packets.
    Accept,
    /// Drops packets.
    Drop,
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Accept => "ACCEPT",
            Self::Drop => "DROP",
        })
    }
}

/// Returns the chain name if it is valid.
///
/// Quotes are accepted: the kernel allows them, so documents of other programs can
/// have them.
fn chain_name(name: &str) -> Result<&str, Expected> {
    let is_name = !name.is_empty() && name.len() <= MAX_NAME && !name.starts_with(['-', '!']);
    is_name.then_some(name).ok_or(Expected::Chain)
}

/// Returns the first word, and the text after it without leading blanks.
fn split_word(text: &str) -> (&str, &str) {
    let text = text.trim_start_matches(BLANKS);
    let end = text.bytes().position(|byte| matches!(byte, b' ' | b'\t'));
    let (word, rest) = text.split_at(end.unwrap_or(text.len()));
    (word, rest.trim_start_matches(BLANKS))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the expected item of an invalid line.
    fn expected(text: &str) -> Expected {
        Line::parse(text).unwrap_err().expected().unwrap()
    }

    #[test]
    fn the_first_character_determines_the_kind_of_line() {
        assert_eq!(Line::parse("").unwrap(), Line::Blank);
        assert_eq!(Line::parse("\n").unwrap(), Line::Blank);
        assert_eq!(Line::parse("COMMIT\n").unwrap(), Line::Commit);
        assert_eq!(Line::parse("# a\t").unwrap(), Line::Comment("# a\t"));
        for text in [
            " ",
            "COMMIT ",
            "COMMIT\r",
            " # a",
            " *nat",
            " :a - [0:0]",
            "-",
            "- a",
            "a",
        ] {
            assert_eq!(expected(text), Expected::Command, "{text:?}");
        }
        assert_eq!(expected("-A a\n-A b\n"), Expected::Line);
    }

    #[test]
    fn table_lines_have_a_name() {
        for text in ["*nat", "* nat", "*nat \t", "*nat and more"] {
            let Line::Table(line) = Line::parse(text).unwrap() else {
                panic!("{text:?} is a table");
            };
            assert_eq!(line.name(), "nat");
            assert_eq!(Line::Table(line).text(), text);
        }
        let long = format!("*{}", "n".repeat(29));
        for text in ["*", "*\t", "*nat\r", &long] {
            assert_eq!(expected(text), Expected::TableName, "{text:?}");
        }
    }

    #[test]
    fn chain_policies_and_counters_are_optional() {
        let chain = |text| match Line::parse(text).unwrap() {
            Line::Chain(line) => (line.name(), line.policy(), line.counters()),
            line => panic!("{line:?}"),
        };
        let counters = |packets, bytes| Some(Counters { packets, bytes });
        let (accept, drop) = (Some(Policy::Accept), Some(Policy::Drop));
        assert_eq!(chain(":a ACCEPT [1:22]"), ("a", accept, counters(1, 22)));
        assert_eq!(chain(": a\tDROP"), ("a", drop, None));
        assert_eq!(chain(":a - [0:0] [1:1] b "), ("a", None, counters(0, 0)));
        assert_eq!(expected(":"), Expected::Chain);
        assert_eq!(expected(":-a - [0:0]"), Expected::Chain);
        assert_eq!(expected(&format!(":{} -", "a".repeat(29))), Expected::Chain);
        assert_eq!(expected(":a"), Expected::Policy);
        assert_eq!(expected(":a [0:0]"), Expected::Policy);
        for text in [
            ":a - 0:0",
            ":a - [0]",
            ":a - [0:b]",
            ":a - [0:0]\r",
            ":a - [0:0",
        ] {
            assert_eq!(expected(text), Expected::Counters, "{text:?}");
        }
    }

    #[test]
    fn rules_have_a_chain_and_optional_counters() {
        let rule = |text| match Line::parse(text).unwrap() {
            Line::Rule(line) => (line.chain(), line.spec(), line.counters()),
            line => panic!("{line:?}"),
        };
        let counters = Some(Counters {
            packets: 1,
            bytes: 22,
        });
        assert_eq!(rule("-A a"), ("a", "", None));
        assert_eq!(rule("-A  a\t-j  b \t"), ("a", "-j  b", None));
        assert_eq!(rule("[1:22] -A a -j b"), ("a", "-j b", counters));
        assert_eq!(rule("[1:22]-Aa"), ("a", "", counters));
        assert_eq!(rule(" --append a -j b"), ("a", "-j b", None));
        assert_eq!(rule("--append=a -j b"), ("a", "-j b", None));
        assert_eq!(rule("-A \"a\" -j b"), ("a", "-j b", None));
        assert_eq!(rule("-A a\"b"), ("a\"b", "", None));
        for text in ["-A", "-A ", "-A -j b", "--append", "--append "] {
            let line = Line::parse(text);
            assert!(!matches!(line, Ok(Line::Rule(_))), "{line:?}");
        }
        for text in ["[1:2", "[1] -A a", "[] -A a", "[a:2] -A a"] {
            assert_eq!(expected(text), Expected::Counters, "{text:?}");
        }
        assert_eq!(expected(" [1:2] -A a"), Expected::Command);
    }

    #[test]
    fn other_commands_are_preserved() {
        let command = |text| match Line::parse(text).unwrap() {
            Line::Command(line) => (line.name(), line.args(), line.counters()),
            line => panic!("{line:?}"),
        };
        let counters = Some(Counters {
            packets: 1,
            bytes: 2,
        });
        assert_eq!(command("-X"), ("-X", "", None));
        assert_eq!(command("-I a 2  -j b "), ("-I", "a 2  -j b", None));
        assert_eq!(command("[1:2] --insert a"), ("--insert", "a", counters));
        assert_eq!(command("--appendix a"), ("--appendix", "a", None));
        assert_eq!(command("-p tcp -A a"), ("-p", "tcp -A a", None));
    }
}
