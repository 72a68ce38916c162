//! Parser of the arguments of commands.

use std::borrow::Cow;
use std::ops::Range;

use super::{Command, RuleSpec};
use crate::Family;
use crate::counters::Counters;
use crate::document::Policy;
use crate::name::MAX_NAME;
use crate::options::lexer::{Lexer, Word};
use crate::parse_error::{ParseError, RuleProblem};

/// Minimum length of an abbreviation. Shorter ones are options of extensions, such as
/// `--pol`.
const ABBREVIATION: usize = 4;

/// Long options of iptables and the short option of each.
const LONG: [(&str, char); 36] = [
    ("append", 'A'),
    ("check", 'C'),
    ("delete", 'D'),
    ("delete-chain", 'X'),
    ("destination", 'd'),
    ("dst", 'd'),
    ("exact", 'x'),
    ("flush", 'F'),
    ("fragments", 'f'),
    ("goto", 'g'),
    ("help", 'h'),
    ("in-interface", 'i'),
    ("insert", 'I'),
    ("ipv4", '4'),
    ("ipv6", '6'),
    ("jump", 'j'),
    ("line-numbers", '0'),
    ("list", 'L'),
    ("list-rules", 'S'),
    ("match", 'm'),
    ("modprobe", 'M'),
    ("new-chain", 'N'),
    ("numeric", 'n'),
    ("out-interface", 'o'),
    ("policy", 'P'),
    ("protocol", 'p'),
    ("rename-chain", 'E'),
    ("replace", 'R'),
    ("set-counters", 'c'),
    ("source", 's'),
    ("src", 's'),
    ("table", 't'),
    ("verbose", 'v'),
    ("version", 'V'),
    ("wait", 'w'),
    ("zero", 'Z'),
];

/// Commands whose chain is optional.
const OPTIONAL: &str = "FLSXZ";

/// Commands with a chain.
const COMMANDS: &str = "ACDEFILNPRSXZ";

/// Parses a line.
pub(super) fn parse(text: &str, family: Family) -> Result<Option<Command<'_>>, ParseError> {
    let mut parser = Parser {
        text,
        lexer: Lexer::new(text),
        removed: Vec::new(),
        command: None,
        counters: None,
        is_for_family: true,
    };
    if text.starts_with('[') {
        let (counters, rest) = Counters::split(text)
            .ok_or_else(|| ParseError::of_word(text, 0, RuleProblem::InvalidCounters))?;
        parser.counters = Some(counters);
        let at = text.len() - rest.len();
        parser.lexer.set_at(at);
        parser.removed.push(0..at);
    }
    parser.read(family)?;
    if !parser.is_for_family {
        return Ok(None);
    }
    parser.finish().map(Some)
}

/// State of the parser.
struct Parser<'a> {
    text: &'a str,
    lexer: Lexer<'a>,
    /// Text that is not part of the rule.
    removed: Vec<Range<usize>>,
    command: Option<Given<'a>>,
    counters: Option<Counters>,
    /// Whether the line is for the family.
    is_for_family: bool,
}

/// A command with its arguments.
struct Given<'a> {
    letter: char,
    at: usize,
    chain: Option<Cow<'a, str>>,
    /// Number, new name or policy.
    argument: Option<Word<'a>>,
}

impl<'a> Parser<'a> {
    fn read(&mut self, family: Family) -> Result<(), ParseError> {
        let mut is_value = false;
        while let Some(word) = self.lexer.next()? {
            // A word after a long option may be its value.
            let was_value = is_value;
            is_value = !word.quoted && word.text.starts_with("--") && !word.text.contains('=');
            if word.quoted || was_value && !is_value {
                continue;
            }
            let Some((letter, attached)) = option(&word.text) else {
                continue;
            };
            let (start, has_value) = (word.start, attached.is_some());
            match letter {
                '4' | '6' if !has_value => {
                    is_value = false;
                    self.removed.push(start..self.lexer.at());
                    self.is_for_family &= (letter == '4') == (family == Family::V4);
                    if !self.is_for_family {
                        return Ok(());
                    }
                }
                'v' | 'n' | 'x' | '0' if !has_value => {
                    is_value = false;
                    self.removed.push(start..self.lexer.at());
                }
                'c' => {
                    is_value = false;
                    self.set_counters(start, attached)?;
                }
                't' | 'w' | 'W' | 'h' | 'V' => {
                    return Err(self.error(start, RuleProblem::NotAllowed));
                }
                letter if COMMANDS.contains(letter) => {
                    is_value = false;
                    self.take_command(letter, start, attached)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Parses `-c PACKETS BYTES` or `-c PACKETS,BYTES`.
    fn set_counters(&mut self, start: usize, attached: Option<String>) -> Result<(), ParseError> {
        let invalid = self.error(start, RuleProblem::InvalidCounters);
        let first = match attached {
            Some(text) => text,
            None => match self.lexer.next()? {
                Some(word) => word.text.into_owned(),
                None => return Err(self.error(start, RuleProblem::NoValue)),
            },
        };
        let (packets, bytes) = match first.split_once(',') {
            Some((packets, bytes)) => (packets.to_owned(), bytes.to_owned()),
            None => match self.lexer.next()? {
                Some(word) => (first, word.text.into_owned()),
                None => return Err(self.error(start, RuleProblem::NoValue)),
            },
        };
        self.counters = Some(Counters::of_numbers(&packets, &bytes).ok_or(invalid)?);
        self.removed.push(start..self.lexer.at());
        Ok(())
    }

    fn take_command(
        &mut self,
        letter: char,
        start: usize,
        attached: Option<String>,
    ) -> Result<(), ParseError> {
        if self.command.is_some() {
            return Err(self.error(start, RuleProblem::SecondCommand));
        }
        let chain = match attached {
            Some(chain) => Some(chain.into()),
            None if OPTIONAL.contains(letter) => self.argument()?.map(|word| word.text),
            None => match self.lexer.next()? {
                Some(word) => Some(word.text),
                None => return Err(self.error(start, RuleProblem::NoValue)),
            },
        };
        let has_argument = match letter {
            'A' | 'C' | 'F' | 'N' | 'X' => false,
            // A number without a chain would be the chain.
            'L' | 'S' | 'Z' => chain.is_some(),
            _ => true,
        };
        let argument = match has_argument {
            true => self.argument()?,
            false => None,
        };
        if argument.is_none() && matches!(letter, 'E' | 'P' | 'R') {
            return Err(self.error(start, RuleProblem::NoValue));
        }
        if chain.as_deref().is_some_and(|name| !is_chain(name)) {
            return Err(self.error(start, RuleProblem::InvalidChain));
        }
        self.removed.push(start..self.lexer.at());
        self.command = Some(Given {
            letter,
            at: start,
            chain,
            argument,
        });
        Ok(())
    }

    /// Returns the next word, unless it is an option or a negation.
    fn argument(&mut self) -> Result<Option<Word<'a>>, ParseError> {
        let at = self.lexer.at();
        let word = self.lexer.next()?;
        let word = word.filter(|word| !word.text.starts_with(['-', '!']));
        if word.is_none() {
            self.lexer.set_at(at);
        }
        Ok(word)
    }

    fn finish(mut self) -> Result<Command<'a>, ParseError> {
        let given = self.command.take();
        let Some(given) = given else {
            return Err(self.error(0, RuleProblem::NoCommand));
        };
        let spec = RuleSpec {
            text: self.rest(),
            counters: self.counters,
        };
        let at = given.at;
        let has_rule = matches!(given.letter, 'A' | 'C' | 'I' | 'R')
            || given.letter == 'D' && given.argument.is_none();
        if !has_rule && !spec.text.is_empty() {
            return Err(self.error(at, RuleProblem::UnexpectedRule));
        }
        let number = |word: &Word<'_>| match word.text.parse() {
            Ok(number) if number > 0 && i32::try_from(number).is_ok() => Ok(number),
            _ => Err(self.error(word.start, RuleProblem::InvalidNumber)),
        };
        let Given {
            letter,
            chain,
            argument,
            ..
        } = given;
        let named = chain.clone().unwrap_or_default();
        Ok(match (letter, argument) {
            ('A', _) => Command::Append { chain: named, spec },
            ('C', _) => Command::Check { chain: named, spec },
            ('D', Some(word)) => Command::DeleteNumber {
                chain: named,
                number: number(&word)?,
            },
            ('D', None) => Command::Delete { chain: named, spec },
            ('E', Some(word)) if is_chain(&word.text) => Command::RenameChain {
                chain: named,
                name: word.text,
            },
            ('E', Some(word)) => return Err(self.error(word.start, RuleProblem::InvalidChain)),
            ('F', _) => Command::Flush { chain },
            ('I', word) => Command::Insert {
                chain: named,
                number: word.as_ref().map(number).transpose()?,
                spec,
            },
            ('L' | 'S', word) => Command::List {
                as_rules: letter == 'S',
                chain,
                number: word.as_ref().map(number).transpose()?,
            },
            ('N', _) => Command::NewChain { chain: named },
            ('P', Some(word)) => Command::SetPolicy {
                chain: named,
                policy: policy(&word.text)
                    .ok_or_else(|| self.error(word.start, RuleProblem::InvalidPolicy))?,
                counters: self.counters,
            },
            ('R', Some(word)) => Command::Replace {
                chain: named,
                number: number(&word)?,
                spec,
            },
            ('X', _) => Command::DeleteChain { chain },
            ('Z', word) => Command::Zero {
                chain,
                number: word.as_ref().map(number).transpose()?,
            },
            _ => return Err(self.error(at, RuleProblem::NoCommand)),
        })
    }

    /// Returns the text without the removed parts.
    fn rest(&self) -> Cow<'a, str> {
        let blanks = [' ', '\t', '\n'];
        let mut removed = self.removed.clone();
        removed.sort_unstable_by_key(|range| range.start);
        let mut pieces = Vec::new();
        let mut at = 0;
        for range in removed {
            pieces.push(self.text.get(at..range.start).unwrap_or_default());
            at = range.end;
        }
        pieces.push(self.text.get(at..).unwrap_or_default());
        let pieces = pieces.into_iter().map(|piece| piece.trim_matches(blanks));
        let mut pieces = pieces.filter(|piece| !piece.is_empty());
        let Some(first) = pieces.next() else {
            return Cow::Borrowed("");
        };
        match pieces.next() {
            None => Cow::Borrowed(first),
            Some(second) => {
                let pieces = [first, second].into_iter().chain(pieces);
                Cow::Owned(pieces.collect::<Vec<_>>().join(" "))
            }
        }
    }

    fn error(&self, at: usize, problem: RuleProblem) -> ParseError {
        ParseError::of_word(self.text, at, problem)
    }
}

/// Returns the short option of a word, and the value that follows it without a blank.
fn option(word: &str) -> Option<(char, Option<String>)> {
    if let Some(long) = word.strip_prefix("--") {
        let (name, value) = match long.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (long, None),
        };
        let exact = LONG.iter().find(|(known, _)| *known == name);
        let mut alike = LONG.iter().filter(|(known, _)| known.starts_with(name));
        let found = exact.or_else(|| {
            let first = alike.next()?;
            let is_command = name.len() >= ABBREVIATION && COMMANDS.contains(first.1);
            (is_command && alike.next().is_none()).then_some(first)
        });
        return found.map(|(_, letter)| (*letter, value));
    }
    let mut letters = word.strip_prefix('-')?.chars();
    let letter = letters.next()?;
    let rest = letters.as_str();
    let value = (!rest.is_empty()).then(|| rest.to_owned());
    Some((letter, value))
}

fn is_chain(name: &str) -> bool {
    let is_blank = |c: char| c.is_ascii_whitespace();
    !name.is_empty()
        && name.len() <= MAX_NAME
        && !name.starts_with(['-', '!'])
        && !name.contains(is_blank)
}

fn policy(text: &str) -> Option<Policy> {
    match text {
        "ACCEPT" => Some(Policy::Accept),
        "DROP" => Some(Policy::Drop),
        _ => None,
    }
}
