//! Parser of `ipset restore` input.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net};

use super::{FLAGS, PROTOCOLS, icmp};
use crate::{
    Command, Commands, Comment, Entry, EntryFlags, Member, Name, Port, Range, Set, SetFamily,
    SetFlags, SetType, Strictness,
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

/// The expected item and the text found instead.
type Fault = (&'static str, String);

impl Commands {
    /// Parses `ipset save` output or `ipset restore` input.
    ///
    /// The syntax of an entry depends on the type of its set.
    /// The text must create the set, or `known` must contain it.
    /// Names of hosts and ports are not resolved. ICMP type names are those that
    /// `ipset save` prints.
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
    /// [`ParseError`] for the first line that could not be parsed.
    pub fn parse(text: &str, known: &[Set]) -> Result<Self, ParseError> {
        let of = |set: &Set| (set.name.clone(), (set.set_type.clone(), set.family));
        let mut set_types: SetTypes = known.iter().map(of).collect();
        let mut commands = Self::new();
        for (index, line) in text.lines().enumerate() {
            let command = read(line, &mut set_types).map_err(|(expected, text)| ParseError {
                line: index + 1,
                expected,
                text: text.into(),
            })?;
            commands.extend(command);
        }
        Ok(commands)
    }
}

/// Types and families of the sets defined so far.
type SetTypes = HashMap<Name, (SetType, SetFamily)>;

fn read(line: &str, set_types: &mut SetTypes) -> Result<Option<Command>, Fault> {
    let mut words = words(line)?;
    let before = words.len();
    words.retain(|word| !matches!(*word, "-exist" | "-!"));
    let strictness = match words.len() == before {
        true => Strictness::Strict,
        false => Strictness::Exist,
    };
    let mut words = Words(words.into_iter());
    let verb = match words.0.next() {
        None | Some("COMMIT") => return Ok(None),
        Some(word) if word.starts_with('#') => return Ok(None),
        Some(verb) => verb,
    };
    let name = words.take("name of a set", |word| Name::new(word).ok())?;
    let command = match verb {
        "create" => {
            let set = create(name, &mut words)?;
            set_types.insert(set.name.clone(), (set.set_type.clone(), set.family));
            Command::Create(Box::new(set), strictness)
        }
        "add" => Command::Add(Box::new(entry(name, &mut words, set_types)?), strictness),
        "del" => Command::Delete(Box::new(entry(name, &mut words, set_types)?), strictness),
        "destroy" => Command::Destroy(name, strictness),
        "flush" => Command::Flush(name),
        "rename" | "swap" => {
            let other = words.take("name of a set", |word| Name::new(word).ok())?;
            let (one, two) = (set_types.remove(&name), set_types.remove(&other));
            set_types.extend(one.map(|set_type| (other.clone(), set_type)));
            set_types.extend(two.map(|set_type| (name.clone(), set_type)));
            match verb {
                "rename" => Command::Rename(name, other),
                _ => Command::Swap(name, other),
            }
        }
        other => return Err(("command", other.to_owned())),
    };
    match words.0.next() {
        None => Ok(Some(command)),
        Some(word) => Err(("end of the line", word.to_owned())),
    }
}

/// Splits a line at white space outside quotes.
fn words(line: &str) -> Result<Vec<&str>, Fault> {
    let (mut words, mut rest) = (Vec::new(), line.trim());
    while !rest.is_empty() {
        let (word, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted
                .split_once('"')
                .ok_or_else(|| ("closing quote", rest.to_owned()))?,
            None => rest.split_once(char::is_whitespace).unwrap_or((rest, "")),
        };
        words.push(word);
        rest = after.trim_start();
    }
    Ok(words)
}

/// The remaining words of a line.
struct Words<'a>(std::vec::IntoIter<&'a str>);

impl<'a> Words<'a> {
    /// Parses the next word.
    fn take<T>(
        &mut self,
        expected: &'static str,
        read: impl FnOnce(&'a str) -> Option<T>,
    ) -> Result<T, Fault> {
        let word = self.0.next().unwrap_or_default();
        read(word).ok_or_else(|| (expected, word.to_owned()))
    }

    fn number<T: FromStr>(&mut self) -> Result<T, Fault> {
        self.take("number", |word| word.parse().ok())
    }
}

fn create(name: Name, words: &mut Words<'_>) -> Result<Set, Fault> {
    let set_type = words.take("type of a set", |word| {
        word.contains(':').then(|| SetType::from_name(word))
    })?;
    let mut set = Set::new(name, set_type, SetFamily::V4);
    while let Some(word) = words.0.next() {
        match word {
            "family" => {
                let family = words.take("family", |word| match word {
                    "inet" => Some(SetFamily::V4),
                    "inet6" => Some(SetFamily::V6),
                    "unspec" => Some(SetFamily::Unspecified),
                    _ => None,
                })?;
                set.family = set.set_type.family().unwrap_or(family);
            }
            "range" => set.range = Some(words.take("range", range)?),
            "hashsize" => set.hashsize = Some(words.number()?),
            "maxelem" => set.maxelem = Some(words.number()?),
            "size" => set.size = Some(words.number()?),
            "netmask" => set.netmask = Some(words.number()?),
            "timeout" => set.timeout = Some(words.number()?),
            "bucketsize" => set.bucketsize = Some(words.number()?),
            "initval" => set.initval = Some(words.take("number", initval)?),
            word => set.flags |= flag(word)?,
        }
    }
    Ok(set)
}

fn flag(word: &str) -> Result<SetFlags, Fault> {
    let known = FLAGS.iter().find(|(_, name)| *name == word);
    known
        .map(|(flag, _)| *flag)
        .ok_or_else(|| ("option of a set", word.to_owned()))
}

fn initval(word: &str) -> Option<u32> {
    match word.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
}

/// Parses the range of a bitmap type: ports, addresses or a network.
fn range(word: &str) -> Option<Range> {
    if let Ok(net) = word.parse::<Ipv4Net>() {
        return Some(Range::Addrs(net.network(), net.broadcast()));
    }
    let (from, to) = word.split_once('-')?;
    match (from.parse::<Ipv4Addr>(), to.parse::<Ipv4Addr>()) {
        (Ok(from), Ok(to)) => Some(Range::Addrs(from, to)),
        _ => Some(Range::Ports(from.parse().ok()?, to.parse().ok()?)),
    }
}

fn entry(name: Name, words: &mut Words<'_>, set_types: &SetTypes) -> Result<Entry, Fault> {
    let set_type = set_types.get(&name);
    let (set_type, _) = set_type.ok_or_else(|| ("known set", name.to_string()))?;
    let (first, last) = words.take("entry of its set", |word| member(set_type, word))?;
    let mut entry = Entry::new(name, first);
    entry.range_end = Some(last).filter(|last| *last != entry.member);
    while let Some(word) = words.0.next() {
        match word {
            "timeout" => entry.timeout = Some(words.number()?),
            "packets" => entry.counters.get_or_insert_default().packets = words.number()?,
            "bytes" => entry.counters.get_or_insert_default().bytes = words.number()?,
            "nomatch" => entry.flags |= EntryFlags::NOMATCH,
            "comment" => {
                let comment = words.take("comment", |word| match word {
                    "" => Some(None),
                    word => Comment::new(word).ok().map(Some),
                });
                entry.comment = comment?;
            }
            other => return Err(("option of an entry", other.to_owned())),
        }
    }
    Ok(entry)
}

/// Parses the first and last element of an entry of this type.
fn member(set_type: &SetType, word: &str) -> Option<(Member, Member)> {
    let parts: Vec<&str> = word.split(',').collect();
    Some(match (set_type, parts.as_slice()) {
        (SetType::HashIp | SetType::BitmapIp, [ips]) => {
            let (from, to) = addresses(ips)?;
            (Member::Ip(from), Member::Ip(to))
        }
        (SetType::HashIpPort, [ips, ports]) => {
            let ((from, to), (port, end)) = (addresses(ips)?, port(ports)?);
            (Member::IpPort(from, port), Member::IpPort(to, end))
        }
        (SetType::HashIpPortIp, [ips, ports, seconds]) => {
            let ((from, to), (port, end)) = (addresses(ips)?, port(ports)?);
            let (second, second_to) = addresses(seconds)?;
            (
                Member::IpPortIp(from, port, second),
                Member::IpPortIp(to, end, second_to),
            )
        }
        (SetType::HashIpPortNet, [ips, ports, net]) => {
            let ((from, to), (port, end)) = (addresses(ips)?, port(ports)?);
            let net = network(net)?;
            (
                Member::IpPortNet(from, port, net),
                Member::IpPortNet(to, end, net),
            )
        }
        (SetType::HashNet, [nets]) => {
            let (from, to) = networks(nets)?;
            (Member::Net(from), Member::Net(to))
        }
        (SetType::HashNetPort, [nets, ports]) => {
            let ((from, to), (port, end)) = (networks(nets)?, port(ports)?);
            (Member::NetPort(from, port), Member::NetPort(to, end))
        }
        (SetType::BitmapPort, [ports]) => {
            let (from, to) = ports.split_once('-').unwrap_or((ports, ports));
            (
                Member::Port(from.parse().ok()?),
                Member::Port(to.parse().ok()?),
            )
        }
        (SetType::ListSet, [name]) => {
            let name = Name::new(name).ok()?;
            (Member::Set(name.clone()), Member::Set(name))
        }
        _ => return None,
    })
}

/// Parses an address, an address range or a network.
fn addresses(word: &str) -> Option<(IpAddr, IpAddr)> {
    if let Some((from, to)) = word.split_once('-') {
        return Some((from.parse().ok()?, to.parse().ok()?));
    }
    let net = network(word)?;
    Some((net.network(), net.broadcast()))
}

/// Parses a network, or an address range as networks of full prefix length.
fn networks(word: &str) -> Option<(IpNet, IpNet)> {
    if let Some((from, to)) = word.split_once('-') {
        let one = |word: &str| word.parse::<IpAddr>().ok().map(IpNet::from);
        return Some((one(from)?, one(to)?));
    }
    let net = network(word)?;
    Some((net, net))
}

fn network(word: &str) -> Option<IpNet> {
    let net = match word.parse::<IpNet>() {
        Ok(net) => net,
        Err(_) => IpNet::from(word.parse::<IpAddr>().ok()?),
    };
    Some(net.trunc())
}

/// Parses `[PROTOCOL:]PORT[-PORT]`, `PROTOCOL:TYPE/CODE` or `PROTOCOL:ICMP-NAME`.
fn port(word: &str) -> Option<(Port, Port)> {
    let (protocol, ports) = word.split_once(':').unwrap_or(("tcp", word));
    let protocol = match protocol {
        "icmpv6" => 58,
        name => match PROTOCOLS.iter().find(|(_, known)| *known == name) {
            Some((number, _)) => *number,
            None => name.parse().ok()?,
        },
    };
    if icmp::has_types(protocol) {
        let (ty, code) = match ports.split_once('/') {
            Some((ty, code)) => (ty.parse().ok()?, code.parse().ok()?),
            None => icmp::numbers(protocol, ports)?,
        };
        let port = Port::new(protocol, u16::from_be_bytes([ty, code]));
        return Some((port, port));
    }
    let (from, to) = ports.split_once('-').unwrap_or((ports, ports));
    Some((
        Port::new(protocol, from.parse().ok()?),
        Port::new(protocol, to.parse().ok()?),
    ))
}
