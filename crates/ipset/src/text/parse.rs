//! Parser of `ipset restore` input.

use std::collections::HashMap;
use std::net::IpAddr;

use super::create::{create, timeout};
use super::element::{self, Hosts};
use super::words::{Fault, Words, split};
use crate::{
    Command, Commands, Comment, Entry, EntryFlags, ListPosition, Name, Set, SetFamily, SetType,
    SkbInfo, Strictness,
};

/// A line that could not be parsed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("line {line}: expected {expected}, found {text:?}")]
#[non_exhaustive]
pub struct ParseError {
    /// Line number, from 1.
    pub line: usize,
    /// The expected item, such as `number`.
    pub expected: &'static str,
    /// The text found instead.
    pub text: Box<str>,
}

impl Commands {
    /// Parses `ipset save` output or `ipset restore` input.
    ///
    /// Commands, types and options can have the names of old versions of `ipset`, such
    /// as `-N web iphash --hashsize 64`. Options that `ipset` ignores are ignored.
    ///
    /// The syntax of an entry depends on the type of its set.
    /// The text must create the set, or `known` must contain it.
    /// Names of hosts are errors: [`Self::parse_with_hosts`] resolves names. Names of ports
    /// are those of the registry of IANA.
    ///
    /// ```
    /// use vipline_ipset::Commands;
    ///
    /// let text = "create web hash:ip,port family inet\nadd web 10.0.0.1,tcp:80\n";
    /// assert_eq!(Commands::parse(text, &[])?.to_string(), text);
    /// # Ok::<(), vipline_ipset::ParseError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ParseError`] for the first line that could not be parsed: an unknown command,
    /// type or option, an element that the type cannot hold, or a set that is unknown.
    pub fn parse(text: &str, known: &[Set]) -> Result<Self, ParseError> {
        Self::parse_with_hosts(text, known, |_, _| None)
    }

    /// Parses like [`Self::parse`], and resolves names of hosts by `address`.
    ///
    /// `address` gets a name and the family of the set, and returns the first address of
    /// that family, as `ipset` uses it. A name with a hyphen must be in brackets: `[web-1]`.
    ///
    /// ```
    /// use std::net::{IpAddr, ToSocketAddrs};
    ///
    /// use vipline_ipset::{Commands, SetFamily};
    ///
    /// let resolve = |name: &str, family| {
    ///     let mut addresses = (name, 0).to_socket_addrs().ok()?.map(|address| address.ip());
    ///     addresses.find(|ip: &IpAddr| ip.is_ipv4() == (family == SetFamily::V4))
    /// };
    /// let text = "create web hash:ip,port family inet\nadd web localhost,80\n";
    /// let commands = Commands::parse_with_hosts(text, &[], resolve)?;
    /// assert!(commands.to_string().ends_with("add web 127.0.0.1,tcp:80\n"));
    /// # Ok::<(), vipline_ipset::ParseError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Self::parse`]. A name without an address is an error of its entry.
    pub fn parse_with_hosts(
        text: &str,
        known: &[Set],
        address: impl Fn(&str, SetFamily) -> Option<IpAddr>,
    ) -> Result<Self, ParseError> {
        let of = |set: &Set| (set.name.clone(), (set.set_type.clone(), set.family));
        let mut set_types: SetTypes = known.iter().map(of).collect();
        let mut commands = Self::new();
        for (index, line) in text.lines().enumerate() {
            let command =
                read(line, &mut set_types, &address).map_err(|fault| fault.at(index + 1))?;
            commands.extend(command);
        }
        Ok(commands)
    }
}

/// Types and families of the sets defined so far.
type SetTypes = HashMap<Name, (SetType, SetFamily)>;

/// The command of a line.
#[derive(Clone, Copy)]
enum Verb {
    Create,
    Add,
    Delete,
    Test,
    Destroy,
    Flush,
    Rename,
    Swap,
}

/// Names of the commands, in the order in which `ipset` compares them. The start of a
/// name, with or without two hyphens, is enough.
const VERBS: [(Verb, &[&str]); 8] = [
    (Verb::Create, &["create", "new", "-N"]),
    (Verb::Add, &["add", "-A"]),
    (Verb::Delete, &["del", "-D"]),
    (Verb::Test, &["test", "-T"]),
    (Verb::Destroy, &["destroy", "x", "-X"]),
    (Verb::Flush, &["flush", "-F"]),
    (Verb::Rename, &["rename", "e", "-E"]),
    (Verb::Swap, &["swap", "w", "-W"]),
];

fn verb(word: &str) -> Result<Verb, Fault> {
    let bare = word.strip_prefix("--").unwrap_or(word);
    let is_meant = |names: &[&str]| {
        let starts = names.iter().any(|name| name.starts_with(bare));
        starts && !matches!(bare, "" | "-")
    };
    // These starts mean `restore` and `save`.
    let found = VERBS.iter().find(|(_, names)| is_meant(names));
    let found = found.filter(|_| !matches!(bare, "r" | "re" | "s"));
    found
        .map(|(verb, _)| *verb)
        .ok_or_else(|| Fault::new("command", word))
}

fn read(line: &str, set_types: &mut SetTypes, hosts: &Hosts<'_>) -> Result<Option<Command>, Fault> {
    let words = split(line)?;
    let mut words: Vec<&str> = words.iter().map(|word| &**word).collect();
    let first = words.first().copied().unwrap_or_default();
    if matches!(first, "" | "COMMIT") || first.starts_with('#') {
        return Ok(None);
    }
    let before = words.len();
    words.retain(|word| !matches!(*word, "-exist" | "-!" | "--exist"));
    let strictness = match words.len() == before {
        true => Strictness::Strict,
        false => Strictness::Exist,
    };
    let mut words = Words(words.into_iter());
    let verb = words.take("command", Some).and_then(verb)?;
    let command = command(verb, strictness, &mut words, set_types, hosts)?;
    match words.0.next() {
        None => Ok(Some(command)),
        Some(word) => Err(Fault::new("end of the line", word)),
    }
}

fn command(
    verb: Verb,
    strictness: Strictness,
    words: &mut Words<'_>,
    set_types: &mut SetTypes,
    hosts: &Hosts<'_>,
) -> Result<Command, Fault> {
    match verb {
        Verb::Destroy if words.0.len() == 0 => return Ok(Command::DestroyAll),
        Verb::Flush if words.0.len() == 0 => return Ok(Command::FlushAll),
        _ => {}
    }
    let name = words.name()?;
    Ok(match verb {
        Verb::Create => {
            let set = create(name, words)?;
            set_types.insert(set.name.clone(), (set.set_type.clone(), set.family));
            Command::Create(Box::new(set), strictness)
        }
        Verb::Add => Command::Add(
            Box::new(entry(verb, name, words, set_types, hosts)?),
            strictness,
        ),
        Verb::Delete => Command::Delete(
            Box::new(entry(verb, name, words, set_types, hosts)?),
            strictness,
        ),
        Verb::Test => Command::Test(Box::new(entry(verb, name, words, set_types, hosts)?)),
        Verb::Destroy => Command::Destroy(name, strictness),
        Verb::Flush => Command::Flush(name),
        Verb::Rename | Verb::Swap => {
            let other = words.name()?;
            let (one, two) = (set_types.remove(&name), set_types.remove(&other));
            set_types.extend(one.map(|set_type| (other.clone(), set_type)));
            set_types.extend(two.map(|set_type| (name.clone(), set_type)));
            match verb {
                Verb::Rename => Command::Rename(name, other),
                _ => Command::Swap(name, other),
            }
        }
    })
}

fn entry(
    verb: Verb,
    name: Name,
    words: &mut Words<'_>,
    set_types: &SetTypes,
    hosts: &Hosts<'_>,
) -> Result<Entry, Fault> {
    let set_type = set_types.get(&name);
    let (set_type, family) = set_type.ok_or_else(|| Fault::new("known set", name.as_str()))?;
    let ((first, last), position) = words.take("entry of its set", |word| {
        let (word, position) = match set_type {
            SetType::ListSet => element::listed(word)?,
            _ => (word, None),
        };
        Some((element::member(set_type, *family, hosts, word)?, position))
    })?;
    let mut entry = Entry::new(name, first);
    entry.range_end = Some(last.truncated()).filter(|last| *last != entry.member);
    entry.position = position;
    let mut seen = Vec::new();
    while let Some(word) = words.option() {
        if seen.contains(&word) {
            return Err(Fault::new("option that is not repeated", word));
        }
        if !is_option(verb, set_type, word) {
            return Err(Fault::new("option of the entry", word));
        }
        seen.push(word);
        option(word, words, &mut entry)?;
    }
    Ok(entry)
}

/// Returns whether entries of such sets have the option in the command.
fn is_option(verb: Verb, set_type: &SetType, word: &str) -> bool {
    match word {
        "before" | "after" => *set_type == SetType::ListSet,
        "nomatch" => set_type.has_nomatch() && !matches!(verb, Verb::Delete),
        "wildcard" => *set_type == SetType::HashNetIface && matches!(verb, Verb::Add),
        _ => matches!(verb, Verb::Add),
    }
}

/// Parses an option with its value.
fn option(word: &str, words: &mut Words<'_>, entry: &mut Entry) -> Result<(), Fault> {
    match word {
        "timeout" => entry.timeout = Some(words.take("number of seconds", timeout)?),
        "packets" => entry.counters.get_or_insert_default().packets = words.number()?,
        "bytes" => entry.counters.get_or_insert_default().bytes = words.number()?,
        "nomatch" => entry.flags |= EntryFlags::NOMATCH,
        "wildcard" => entry.flags |= EntryFlags::WILDCARD,
        "skbmark" => entry.skbinfo = words.take("mark", |word| mark(word, entry.skbinfo))?,
        "skbprio" => {
            let (major, minor) = words.take("priority", priority)?;
            entry.skbinfo = entry.skbinfo.with_priority(major, minor);
        }
        "skbqueue" => entry.skbinfo.queue = Some(words.number()?),
        "before" | "after" if entry.position.is_none() => {
            let name = words.name()?;
            entry.position = Some(match word {
                "before" => ListPosition::Before(name),
                _ => ListPosition::After(name),
            });
        }
        "comment" => {
            let comment = words.take("comment", |word| Comment::new(word).ok());
            entry.comment = Some(comment?);
        }
        other => return Err(Fault::new("option of an entry", other)),
    }
    Ok(())
}

/// Parses `0xMARK[/0xMASK]`, the mark of packets.
fn mark(word: &str, info: SkbInfo) -> Option<SkbInfo> {
    let hex = |word: &str| {
        let digits = word.strip_prefix("0x")?;
        let plain = digits.starts_with(|c: char| c.is_ascii_hexdigit());
        u32::from_str_radix(digits, 16).ok().filter(|_| plain)
    };
    Some(match word.split_once('/') {
        Some((mark, mask)) => info.with_mark(hex(mark)?, hex(mask)?),
        None => info.with_mark(hex(word)?, u32::MAX),
    })
}

/// Parses `MAJOR:MINOR`, two hexadecimal numbers.
fn priority(word: &str) -> Option<(u16, u16)> {
    let hex = |word: &str| {
        let plain = word.starts_with(|c: char| c.is_ascii_hexdigit());
        u16::from_str_radix(word, 16).ok().filter(|_| plain)
    };
    let (major, minor) = word.split_once(':')?;
    Some((hex(major)?, hex(minor)?))
}
