//! Single-pass rule parser.
//!
//! Unsupported text is preserved: the match or target that contains it, from its
//! name to the next one.
//! The whole rule is preserved if the text is outside of matches and targets, or if
//! options of several are mixed.

use std::borrow::Cow;

use crate::ChainName;
use crate::Protocol;
use crate::counters::Counters;
use crate::matches::{Match, implied};
use crate::options::lexer::{Lexer, Word};
use crate::options::negatable::Negatable;
use crate::options::protocol;
use crate::options::quote::is_bare;
use crate::options::{Unsupported, Values, set_once};
use crate::parse_error::{ParseError, RuleProblem};
use crate::rule::Rule;
use crate::rule::abbreviation::expand;
use crate::rule::check::check;
use crate::rule::joined::{split, split_general};
use crate::rule::lists::{self, Condition, Lists};
use crate::rule::open::{Open, parse_late, parse_open};
use crate::targets::Target;

/// Initial capacity for matches.
const MATCHES: usize = 3;

/// A rule parser.
pub(super) struct Parser<'a> {
    words: Lexer<'a>,
    rule: Rule<'a>,
    /// The part to which options belong first.
    open: Open,
    /// Byte offset of the open part.
    start: usize,
    /// Number of options of the open part.
    given: usize,
    /// Whether options are in an order that no save has.
    mixed: bool,
    /// The value that is joined with its option: `-ptcp` or `--jump=ACCEPT`.
    joined: Option<Cow<'a, str>>,
    /// Lists of addresses; `None` if the text must be a single rule.
    lists: Option<Lists>,
}

/// The reason why parsing stopped.
enum Stop {
    /// The text is no rule.
    Error(ParseError),
    /// The text is unsupported.
    Unsupported,
}

impl From<ParseError> for Stop {
    fn from(error: ParseError) -> Self {
        Self::Error(error)
    }
}

impl From<Unsupported> for Stop {
    fn from(_: Unsupported) -> Self {
        Self::Unsupported
    }
}

impl<'a> Parser<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            words: Lexer::new(text),
            rule: Rule::new(),
            open: Open::Head,
            start: 0,
            given: 0,
            mixed: false,
            joined: None,
            lists: None,
        }
    }

    /// Parses one rule, or one for each pair of listed addresses.
    pub(super) fn parse_all(mut self) -> Result<Vec<Rule<'a>>, ParseError> {
        self.lists = Some(Lists::default());
        let mut lists = Lists::default();
        let rule = self.run(&mut lists)?;
        Ok(lists.expand(&rule))
    }

    pub(super) fn parse(self) -> Result<Rule<'a>, ParseError> {
        self.run(&mut Lists::default())
    }

    /// Parses a rule with the first address of each list, and returns the lists.
    fn run(mut self, lists: &mut Lists) -> Result<Rule<'a>, ParseError> {
        loop {
            match self.option() {
                Ok(true) => {}
                Ok(false) => {
                    check(&self.rule, None, self.words.text())?;
                    *lists = self.lists.unwrap_or_default();
                    return Ok(self.rule);
                }
                Err(Stop::Error(error)) => return Err(error),
                Err(Stop::Unsupported) if self.mixed || self.open == Open::Head => {
                    return self.keep_all();
                }
                Err(Stop::Unsupported) => self.keep()?,
            }
        }
    }

    /// Parses the next option, if any.
    fn option(&mut self) -> Result<bool, Stop> {
        let Some((word, negated)) = self.next_option()? else {
            self.close()?;
            return Ok(false);
        };
        let word = self.separate(word);
        self.dispatch(word, negated)?;
        Ok(true)
    }

    /// Separates a joined value from a general option.
    fn separate(&mut self, mut word: Word<'a>) -> Word<'a> {
        if let Cow::Borrowed(text) = word.text
            && let Some((option, value)) = split_general(text)
        {
            word.text = Cow::Borrowed(option);
            self.joined = Some(Cow::Borrowed(value));
        }
        word
    }

    fn dispatch(&mut self, word: Word<'a>, negated: bool) -> Result<(), Stop> {
        match &*word.text {
            "-m" | "--match" => self.open_match(&word, negated),
            "-j" | "--jump" => self.open_target(&word, negated, Target::open),
            "-g" | "--goto" => self.open_target(&word, negated, |name| {
                ChainName::new(name).ok().map(Target::Goto)
            }),
            _ => self.plain_option(word, negated),
        }
    }

    /// Returns the next option and whether it is negated.
    fn next_option(&mut self) -> Result<Option<(Word<'a>, bool)>, ParseError> {
        let Some(mut word) = self.words.next()? else {
            return Ok(None);
        };
        let negated = !word.quoted && word.text == "!";
        if negated {
            word = self.value(word.start)?;
        }
        if !word.text.starts_with('-') {
            return Err(self.error(word.start, RuleProblem::UnexpectedWord));
        }
        Ok(Some((word, negated)))
    }

    /// Parses an option of the rule itself, or of a match or target.
    fn plain_option(&mut self, word: Word<'a>, negated: bool) -> Result<(), Stop> {
        let head = self.head(&word.text, word.start, negated);
        if matches!(head, Ok(false)) {
            if self.hand_out(&word, negated)? {
                return Ok(());
            }
            let word = self.expand(word).ok_or(Unsupported)?;
            let word = self.separate(word);
            return self.dispatch(word, negated);
        }
        // If it is unsupported, no match or target before it can contain it.
        self.mixed |= self.rule.target.is_some() || !self.rule.matches.is_empty();
        head?;
        Ok(())
    }

    /// Parses an option of the rule itself, if it is one.
    fn head(&mut self, option: &str, at: usize, negated: bool) -> Result<bool, Stop> {
        match option {
            "-s" | "--source" | "--src" => {
                let network = self.network(at, negated, |lists| &mut lists.sources)?;
                fill(&mut self.rule.source, network)?;
            }
            "-d" | "--destination" | "--dst" => {
                let network = self.network(at, negated, |lists| &mut lists.destinations)?;
                fill(&mut self.rule.destination, network)?;
            }
            "-i" | "--in-interface" => {
                let interface = self.interface(at, negated)?;
                fill(&mut self.rule.in_interface, interface)?;
            }
            "-o" | "--out-interface" => {
                let interface = self.interface(at, negated)?;
                fill(&mut self.rule.out_interface, interface)?;
            }
            "-p" | "--protocol" => {
                let protocol = self.protocol(at, negated)?;
                fill(&mut self.rule.protocol, protocol)?;
            }
            "-f" | "--fragment" | "--fragments" => {
                set_once(&mut self.rule.fragment, Negatable::new(negated, ()))?;
            }
            "-c" | "--set-counters" => {
                let counters = self.counters(at)?;
                set_once(&mut self.rule.counters, counters)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Parses `PACKETS,BYTES` or `PACKETS BYTES`.
    fn counters(&mut self, at: usize) -> Result<Counters, Stop> {
        let first = self.value(at)?.text;
        let (packets, bytes) = match first.split_once(',') {
            Some((packets, bytes)) => (packets, Cow::Borrowed(bytes)),
            None => (&*first, self.value(at)?.text),
        };
        let invalid = || self.error(at, RuleProblem::InvalidCounters);
        Ok(Counters::of_numbers(packets, &bytes).ok_or_else(invalid)?)
    }

    /// Parses a network, or the first one of a list.
    fn network(
        &mut self,
        at: usize,
        negated: bool,
        list: fn(&mut Lists) -> &mut Vec<Condition>,
    ) -> Result<Condition, Stop> {
        let text = self.value(at)?.text;
        let Some((first, _)) = text.split_once(',') else {
            return Ok(lists::network(&text, negated)?);
        };
        if negated {
            return Err(self.error(at, RuleProblem::NegatedList).into());
        }
        let lists = self.lists.as_mut().ok_or(Unsupported)?;
        let networks = text.split(',').map(|text| lists::network(text, false));
        *list(lists) = networks.collect::<Result<_, _>>()?;
        Ok(lists::network(first, false)?)
    }

    fn interface(
        &mut self,
        at: usize,
        negated: bool,
    ) -> Result<Option<Negatable<Cow<'a, str>>>, Stop> {
        let name = self.value(at)?.text;
        if !is_bare(&name) {
            return Err(Stop::Unsupported);
        }
        Ok((negated || name != "+").then(|| Negatable::new(negated, name)))
    }

    /// Parses a protocol. Any protocol is no condition, and cannot be negated.
    fn protocol(&mut self, at: usize, negated: bool) -> Result<Option<Negatable<Protocol>>, Stop> {
        let protocol = protocol::parse(&self.value(at)?.text).ok_or(Unsupported)?;
        match protocol {
            Protocol(0) if negated => Err(Stop::Unsupported),
            Protocol(0) => Ok(None),
            protocol => Ok(Some(Negatable::new(negated, protocol))),
        }
    }

    fn open_match(&mut self, option: &Word<'_>, negated: bool) -> Result<(), Stop> {
        self.close()?;
        let start = option.start;
        let name = self.value(start)?;
        if negated || option.quoted {
            self.mixed = true;
            return Err(Stop::Unsupported);
        }
        // A match is printed before the target, so its last option is followed by
        // another word.
        self.mixed |= self.rule.target.is_some();
        // Printed before a target with text, the match would consume the target's
        // options.
        if matches!(self.rule.target, Some(Target::Other(_))) {
            return Err(Stop::Unsupported);
        }
        if self.rule.matches.capacity() == 0 {
            self.rule.matches.reserve_exact(MATCHES);
        }
        if let Some(one) = Match::open(&name.text) {
            let index = self.rule.matches.len();
            self.rule.matches.push(one);
            self.begin(Open::Match(index), start);
            return Ok(());
        }
        let text = self.skip(start)?;
        self.rule.matches.push(Match::Other(Cow::Borrowed(text)));
        Ok(())
    }

    fn open_target(
        &mut self,
        option: &Word<'_>,
        negated: bool,
        open: impl FnOnce(&str) -> Option<Target<'a>>,
    ) -> Result<(), Stop> {
        self.close()?;
        let start = option.start;
        let name = self.value(start)?;
        if negated || option.quoted || self.rule.target.is_some() {
            self.mixed = true;
            return Err(Stop::Unsupported);
        }
        if let Some(target) = open(&name.text) {
            self.rule.target = Some(target);
            self.begin(Open::Target, start);
            return Ok(());
        }
        let text = self.skip(start)?;
        self.rule.target = Some(Target::Other(Cow::Borrowed(text)));
        Ok(())
    }

    fn begin(&mut self, open: Open, start: usize) {
        self.open = open;
        self.start = start;
        self.given = 0;
    }

    /// Returns an error if the open match or target is incomplete.
    fn close(&self) -> Result<(), Unsupported> {
        let least = match self.open {
            Open::Head => 0,
            Open::Match(index) => {
                let open = self.rule.matches.get(index);
                open.map_or(0, Match::min_options)
            }
            Open::Target => self.rule.target.as_ref().map_or(0, Target::min_options),
        };
        if self.given < least {
            Err(Unsupported)
        } else {
            Ok(())
        }
    }

    /// Passes an option to the match or target that has it.
    ///
    /// Returns whether one has the option.
    fn hand_out(&mut self, word: &Word<'a>, negated: bool) -> Result<bool, Unsupported> {
        let (option, inline) = split(word);
        let mut values = Values::new(&mut self.words, self.given, negated, inline);
        if parse_open(&mut self.rule, self.open, &option, &mut values)? {
            self.given += 1;
            return values.finish().map(|()| true);
        }
        let late = parse_late(&mut self.rule, &option, &mut values);
        // The rule may have changed even if the option was rejected.
        self.mixed |= !matches!(late, Ok(false));
        match late? {
            true => values.finish().map(|()| true),
            false => Ok(false),
        }
    }

    /// Returns whether the rule has a match or a target that may have an option of any name.
    ///
    /// Its target may be a chain, too, which has no options.
    fn may_have_unknown_options(&self) -> bool {
        let mut matches = self.rule.matches.iter();
        matches!(self.rule.target, Some(Target::Jump(_) | Target::Other(_)))
            || matches.any(|one| matches!(one, Match::Other(_)))
    }

    /// Returns the option that a word abbreviates, with the value of `--option=value`.
    fn expand(&self, mut word: Word<'a>) -> Option<Word<'a>> {
        if self.may_have_unknown_options() {
            return None;
        }
        let implied = self.rule.protocol.as_ref().and_then(implied);
        let (name, value) = match word.text.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name, Some(value)),
            _ => (&*word.text, None),
        };
        let option = expand(name, &self.rule, implied.as_ref())?;
        // An exact name would have been parsed.
        word.text = match value {
            _ if option == name => return None,
            Some(value) => Cow::Owned(format!("{option}={value}")),
            None => Cow::Borrowed(option),
        };
        Some(word)
    }

    /// Preserves the open match or target as text.
    fn keep(&mut self) -> Result<(), ParseError> {
        let open = self.open;
        self.words.set_at(self.start);
        // Skip the option and the name, which may be joined.
        let option = self.words.next()?;
        if option.is_none_or(|word| split_general(&word.text).is_none()) {
            self.words.next()?;
        }
        let text = self.skip(self.start)?;
        if open == Open::Target {
            self.rule.target = Some(Target::Other(Cow::Borrowed(text)));
        } else {
            self.rule.matches.pop();
            self.rule.matches.push(Match::Other(Cow::Borrowed(text)));
        }
        Ok(())
    }

    /// Preserves the whole text.
    fn keep_all(mut self) -> Result<Rule<'a>, ParseError> {
        while self.words.next()?.is_some() {}
        let text = self.words.text().trim_matches([' ', '\t', '\n']);
        Ok(Rule::new().with_match(Match::Other(Cow::Borrowed(text))))
    }

    /// Skips to the next match or target and returns the skipped text from `start`.
    fn skip(&mut self, start: usize) -> Result<&'a str, ParseError> {
        let mut end = self.words.at();
        while let Some(word) = self.words.next()? {
            let ends = ["-m", "--match", "-j", "--jump", "-g", "--goto"];
            if !word.quoted && ends.contains(&&*word.text) {
                self.words.set_at(word.start);
                break;
            }
            end = self.words.at();
        }
        self.open = Open::Head;
        Ok(&self.words.text()[start..end])
    }

    /// Returns the value of the option at a byte offset.
    fn value(&mut self, at: usize) -> Result<Word<'a>, ParseError> {
        if let Some(text) = self.joined.take() {
            return Ok(Word {
                text,
                start: at,
                quoted: false,
            });
        }
        let value = self.words.next()?;
        value.ok_or_else(|| self.error(at, RuleProblem::NoValue))
    }

    fn error(&self, at: usize, problem: RuleProblem) -> ParseError {
        ParseError::of_word(self.words.text(), at, problem)
    }
}

/// Sets a value if there is one. Returns an error if it is already set.
fn fill<T>(place: &mut Option<T>, value: Option<T>) -> Result<(), Unsupported> {
    if let Some(value) = value {
        set_once(place, value)?;
    }
    Ok(())
}
