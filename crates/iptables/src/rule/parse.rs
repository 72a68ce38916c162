//! Rules of text, in one pass over its words.
//!
//! What is not understood is kept as it is written: the match or target it
//! stands in, from its name up to the next, or the whole rule if it stands in
//! none, or if options of several are mixed.

use std::borrow::Cow;

use crate::ChainName;
use crate::address::Network;
use crate::lexer::{Lexer, Word};
use crate::matches::Match;
use crate::negatable::Negatable;
use crate::options::{Parsed, Unsupported, Values, set_once};
use crate::protocol::Protocol;
use crate::quote::is_bare;
use crate::rule::{Problem, Rule, RuleError};
use crate::targets::Target;

/// The number of options given to what is complete: more than any has.
const CLOSED: usize = usize::MAX / 2;

/// How many matches most rules have at most.
const MATCHES: usize = 3;

/// Reads a rule.
pub(super) struct Parser<'a> {
    words: Lexer<'a>,
    rule: Rule<'a>,
    /// What options belong to first.
    open: Open,
    /// The byte at which that begins.
    start: usize,
    /// How many options it was given.
    given: usize,
    /// Whether options stand where they do in no save.
    mixed: bool,
}

/// What options belong to first.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Open {
    /// None of matches and target.
    Head,
    /// The last match.
    Match,
    /// The target.
    Target,
}

/// Why an option was not taken.
enum Stop {
    /// The text is no rule.
    Error(RuleError),
    /// It is not understood.
    Unsupported,
}

impl From<RuleError> for Stop {
    fn from(error: RuleError) -> Self {
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
        }
    }

    pub(super) fn parse(mut self) -> Result<Rule<'a>, RuleError> {
        loop {
            match self.option() {
                Ok(true) => {}
                Ok(false) => return Ok(self.rule),
                Err(Stop::Error(error)) => return Err(error),
                Err(Stop::Unsupported) if self.mixed || self.open == Open::Head => {
                    return self.keep_all();
                }
                Err(Stop::Unsupported) => self.keep()?,
            }
        }
    }

    /// Takes the next option, if there is one.
    fn option(&mut self) -> Result<bool, Stop> {
        let Some(mut word) = self.words.next()? else {
            self.close()?;
            return Ok(false);
        };
        let negated = !word.quoted && word.text == "!";
        if negated {
            word = self.value(word.start)?;
        }
        if !word.text.starts_with('-') {
            return Err(self.error(word.start, Problem::UnexpectedWord).into());
        }
        match &*word.text {
            "-m" | "--match" => self.open_match(&word, negated)?,
            "-j" | "--jump" => self.open_target(&word, negated, Target::open)?,
            "-g" | "--goto" => self.open_target(&word, negated, |name| {
                ChainName::new(name).ok().map(Target::Goto)
            })?,
            option => {
                let head = self.head(option, word.start, negated);
                if matches!(head, Ok(false)) {
                    self.hand_out(word.text, negated)?;
                } else {
                    // What is odd of it is odd of no match and target before.
                    self.mixed |= self.rule.target.is_some() || !self.rule.matches.is_empty();
                    head?;
                }
            }
        }
        Ok(true)
    }

    /// Takes an option of the rule itself, if it is one.
    fn head(&mut self, option: &str, at: usize, negated: bool) -> Result<bool, Stop> {
        match option {
            "-s" | "--source" | "--src" => {
                let network = self.network(at, negated)?;
                fill(&mut self.rule.source, network)?;
            }
            "-d" | "--destination" | "--dst" => {
                let network = self.network(at, negated)?;
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
            "-p" | "--protocol" | "--proto" => {
                let protocol = Protocol::parse(&self.value(at)?.text).ok_or(Unsupported)?;
                let wanted = (protocol != Protocol(0)).then(|| Negatable::new(negated, protocol));
                if negated && wanted.is_none() {
                    return Err(Stop::Unsupported);
                }
                fill(&mut self.rule.protocol, wanted)?;
            }
            "-f" | "--fragment" | "--fragments" => {
                set_once(&mut self.rule.fragment, Negatable::new(negated, ()))?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Reads addresses; every address, however it is written, is no condition.
    ///
    /// Every address negated is one, which the legacy variant saves.
    fn network(&mut self, at: usize, negated: bool) -> Result<Option<Negatable<Network>>, Stop> {
        let text = self.value(at)?.text;
        match Network::parse(&text) {
            Some(network) if network.is_all() && !negated => Ok(None),
            Some(network) => Ok(Some(Negatable::new(negated, network))),
            None if text == "0/0" && !negated => Ok(None),
            None => Err(Stop::Unsupported),
        }
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

    fn open_match(&mut self, option: &Word<'_>, negated: bool) -> Result<(), Stop> {
        self.close()?;
        let start = option.start;
        let name = self.value(start)?;
        if negated || option.quoted {
            self.mixed = true;
            return Err(Stop::Unsupported);
        }
        // It is printed before the target, where its last option has a word behind.
        self.mixed |= self.rule.target.is_some();
        // Before a target that is kept as text, the match would take its options.
        if matches!(self.rule.target, Some(Target::Other(_))) {
            return Err(Stop::Unsupported);
        }
        if self.rule.matches.capacity() == 0 {
            self.rule.matches.reserve_exact(MATCHES);
        }
        if let Some(one) = Match::open(&name.text) {
            self.rule.matches.push(one);
            self.begin(Open::Match, start);
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

    /// Makes sure that the match or target that is open is complete.
    fn close(&self) -> Result<(), Unsupported> {
        let least = match self.open {
            Open::Head => 0,
            Open::Match => self.rule.matches.last().map_or(0, Match::min_options),
            Open::Target => self.rule.target.as_ref().map_or(0, Target::min_options),
        };
        if self.given < least {
            Err(Unsupported)
        } else {
            Ok(())
        }
    }

    /// Gives an option to the match or target it belongs to.
    fn hand_out(&mut self, word: Cow<'a, str>, negated: bool) -> Result<(), Unsupported> {
        let (option, inline) = split(word);
        let mut values = Values::new(&mut self.words, self.given, negated, inline);
        let taken = match self.open {
            Open::Head => false,
            Open::Match => match self.rule.matches.last_mut() {
                Some(last) => last.parse_option(&option, &mut values)?,
                None => false,
            },
            Open::Target => match &mut self.rule.target {
                Some(target) => target.parse_option(&option, &mut values)?,
                None => false,
            },
        };
        if taken {
            self.given += 1;
            return values.finish();
        }
        let late = take_late(&mut self.rule, &option, &mut values);
        // It may have changed something even if it was refused.
        self.mixed |= !matches!(late, Ok(false));
        match late? {
            true => values.finish(),
            false => Err(Unsupported),
        }
    }

    /// Keeps the match or target that is open as it is written.
    fn keep(&mut self) -> Result<(), RuleError> {
        let open = self.open;
        self.words.set_at(self.start);
        // Its option and name come first.
        self.words.next()?;
        self.words.next()?;
        let text = self.skip(self.start)?;
        if open == Open::Target {
            self.rule.target = Some(Target::Other(Cow::Borrowed(text)));
        } else {
            self.rule.matches.pop();
            self.rule.matches.push(Match::Other(Cow::Borrowed(text)));
        }
        Ok(())
    }

    /// Keeps the whole text as it is written.
    fn keep_all(mut self) -> Result<Rule<'a>, RuleError> {
        while self.words.next()?.is_some() {}
        let text = self.words.text().trim_matches([' ', '\t', '\n']);
        Ok(Rule::new().matching(Match::Other(Cow::Borrowed(text))))
    }

    /// Goes on to the next match or target, and returns the text up to there.
    fn skip(&mut self, start: usize) -> Result<&'a str, RuleError> {
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

    /// Returns the value of the option at a byte.
    fn value(&mut self, at: usize) -> Result<Word<'a>, RuleError> {
        let value = self.words.next()?;
        value.ok_or_else(|| self.error(at, Problem::NoValue))
    }

    fn error(&self, at: usize, problem: Problem) -> RuleError {
        RuleError::new(self.words.text(), at, problem)
    }
}

/// Fills a place that can be filled once.
fn fill<T>(place: &mut Option<T>, value: Option<T>) -> Result<(), Unsupported> {
    if let Some(value) = value {
        set_once(place, value)?;
    }
    Ok(())
}

/// Takes an option that comes late, or that the protocol has without `-m`.
fn take_late<'a>(rule: &mut Rule<'a>, option: &str, values: &mut Values<'_, 'a>) -> Parsed {
    values.set_given(CLOSED);
    if let Some(target) = &mut rule.target {
        if target.parse_option(option, values)? {
            return Ok(true);
        }
    }
    for one in rule.matches.iter_mut().rev() {
        if one.parse_option(option, values)? {
            return Ok(true);
        }
    }
    let Some(mut implied) = rule.protocol.as_ref().and_then(implied) else {
        return Ok(false);
    };
    values.set_given(0);
    let taken = implied.parse_option(option, values)?;
    if taken {
        rule.matches.push(implied);
    }
    Ok(taken)
}

/// Splits `--option=value`.
fn split(word: Cow<'_, str>) -> (Cow<'_, str>, Option<Cow<'_, str>>) {
    match word {
        Cow::Borrowed(text) if text.starts_with("--") => match text.split_once('=') {
            Some((option, value)) => (option.into(), Some(value.into())),
            None => (word, None),
        },
        // A word with a quote in its middle is not worth the trouble.
        _ => (word, None),
    }
}

/// Returns the match whose options need no `-m`.
fn implied<'a>(protocol: &Negatable<Protocol>) -> Option<Match<'a>> {
    match *protocol {
        Negatable::Is(Protocol::TCP) => Match::open("tcp"),
        Negatable::Is(Protocol::UDP) => Match::open("udp"),
        Negatable::Is(Protocol::SCTP) => Match::open("sctp"),
        Negatable::Is(Protocol::ICMP) => Match::open("icmp"),
        Negatable::Is(Protocol::ICMP6) => Match::open("icmp6"),
        _ => None,
    }
}
