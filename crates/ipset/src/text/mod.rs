//! Text format of `ipset save` and `ipset restore`.

mod create;

mod element;

mod icmp;

mod parse;

mod service;

mod words;

use std::fmt::{self, Display};
use std::net::IpAddr;

use crate::{
    Command, Commands, Counters, Entry, EntryFlags, Interface, ListPosition, MacAddr, Member, Port,
    Range, Set, SetDump, SetFlags, SetType, Sets, SkbInfo, Strictness,
};

pub use parse::ParseError;

/// `IPSET_MAX_TIMEOUT`, in seconds.
const MAX_TIMEOUT: u32 = (u32::MAX >> 1) / 1000;

/// Set flags in the order of `ipset save`.
const FLAGS: [(SetFlags, &str); 4] = [
    (SetFlags::COUNTERS, "counters"),
    (SetFlags::COMMENT, "comment"),
    (SetFlags::FORCEADD, "forceadd"),
    (SetFlags::SKBINFO, "skbinfo"),
];

impl Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.protocol)?;
        let [ty, code] = self.number.to_be_bytes();
        match icmp::name(self.protocol, ty, code) {
            Some(name) => f.write_str(name),
            None if icmp::has_types(self.protocol) => write!(f, "{ty}/{code}"),
            None => write!(f, "{}", self.number),
        }
    }
}

impl Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Addrs(from, to) => write!(f, "{from}-{to}"),
            Self::Ports(from, to) => write!(f, "{from}-{to}"),
        }
    }
}

/// `create NAME TYPE OPTIONS`.
impl Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "create {} {}", self.name, self.set_type)?;
        match self.range {
            Some(range) => write!(f, " range {range}")?,
            None if self.set_type.family().is_none() => write!(f, " family {}", self.family)?,
            None => {}
        }
        if let Some(markmask) = self.markmask {
            write!(f, " markmask {markmask:#010x}")?;
        }
        option(f, "hashsize", self.hashsize)?;
        option(f, "maxelem", self.maxelem)?;
        option(f, "size", self.size)?;
        // These types got masks later, and `ipset` prints their masks last.
        let masks_last = matches!(self.set_type, SetType::HashIpPort | SetType::HashNetNet);
        if !masks_last {
            option(f, "netmask", self.netmask)?;
            option(f, "bitmask", self.bitmask)?;
        }
        option(f, "timeout", self.timeout)?;
        for (flag, word) in FLAGS {
            if self.flags.contains(flag) {
                write!(f, " {word}")?;
            }
        }
        option(f, "bucketsize", self.bucketsize)?;
        if let Some(initval) = self.initval {
            write!(f, " initval {initval:#010x}")?;
        }
        if masks_last {
            option(f, "bitmask", self.bitmask)?;
            option(f, "netmask", self.netmask)?;
        }
        Ok(())
    }
}

fn option(f: &mut fmt::Formatter<'_>, word: &str, value: Option<impl Display>) -> fmt::Result {
    match value {
        Some(value) => write!(f, " {word} {value}"),
        None => Ok(()),
    }
}

/// The element as in `add NAME ELEMENT`, without options.
impl Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.through(self, f)
    }
}

impl Member {
    /// Writes the range from this element to `last`.
    fn through(&self, last: &Self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Other(bytes) = self {
            return write!(f, "({} bytes of an unknown type)", bytes.len());
        }
        let (first, last) = (self.parts(), last.parts());
        let mut separator = "";
        let mut next = |f: &mut fmt::Formatter<'_>| {
            f.write_str(separator)?;
            separator = ",";
            Ok(())
        };
        if let Some(ip) = first.ip {
            next(f)?;
            address(f, ip, first.prefix, last.ip)?;
        }
        if let Some(port) = first.port {
            next(f)?;
            match first.protocol {
                Some(protocol) => Port::new(protocol, port).fmt(f)?,
                None => write!(f, "{port}")?,
            }
            if let Some(to) = last.port.filter(|to| *to != port) {
                write!(f, "-{to}")?;
            }
        }
        if let Some(mark) = first.mark {
            next(f)?;
            write!(f, "{mark:#010x}")?;
        }
        if let Some(mac) = first.mac {
            next(f)?;
            mac.fmt(f)?;
        }
        if let Some(ip) = first.second {
            next(f)?;
            address(f, ip, first.second_prefix, last.second)?;
        }
        if let Some(interface) = &first.interface {
            next(f)?;
            interface.fmt(f)?;
        }
        if let Some(name) = &first.name {
            next(f)?;
            name.fmt(f)?;
        }
        Ok(())
    }
}

/// Writes an address, a network or a range of addresses.
///
/// A network of full prefix length is printed as an address.
fn address(
    f: &mut fmt::Formatter<'_>,
    ip: IpAddr,
    prefix: Option<u8>,
    to: Option<IpAddr>,
) -> fmt::Result {
    let full = match ip {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    };
    match (to.filter(|to| *to != ip), prefix) {
        (Some(to), _) => write!(f, "{ip}-{to}"),
        (None, Some(prefix)) if prefix != full => write!(f, "{ip}/{prefix}"),
        (None, _) => write!(f, "{ip}"),
    }
}

/// Six hexadecimal numbers with colons.
impl Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self([a, b, c, d, e, g]) = self;
        write!(f, "{a:02X}:{b:02X}:{c:02X}:{d:02X}:{e:02X}:{g:02X}")
    }
}

/// `[physdev:]NAME`.
impl Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = if self.is_bridge_port { "physdev:" } else { "" };
        write!(f, "{prefix}{}", self.name)
    }
}

/// ` skbmark MARK[/MASK] skbprio MAJOR:MINOR skbqueue QUEUE`, without missing values.
fn skbinfo(f: &mut fmt::Formatter<'_>, info: SkbInfo) -> fmt::Result {
    match info.mark {
        Some((mark, u32::MAX)) => write!(f, " skbmark {mark:#x}")?,
        Some((mark, mask)) => write!(f, " skbmark {mark:#x}/{mask:#x}")?,
        None => {}
    }
    if let Some(priority) = info.priority {
        write!(f, " skbprio {:x}:{:x}", priority >> 16, priority & 0xffff)?;
    }
    option(f, "skbqueue", info.queue)
}

/// The arguments of `add` or `del`: the set, the element and options.
impl Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.set)?;
        self.member
            .through(self.range_end.as_ref().unwrap_or(&self.member), f)?;
        match &self.position {
            Some(ListPosition::Before(name)) => write!(f, " before {name}")?,
            Some(ListPosition::After(name)) => write!(f, " after {name}")?,
            None => {}
        }
        option(f, "timeout", self.timeout)?;
        for (flag, word) in [
            (EntryFlags::NOMATCH, "nomatch"),
            (EntryFlags::WILDCARD, "wildcard"),
        ] {
            if self.flags.contains(flag) {
                write!(f, " {word}")?;
            }
        }
        if let Some(Counters { packets, bytes }) = self.counters {
            write!(f, " packets {packets} bytes {bytes}")?;
        }
        if let Some(comment) = &self.comment {
            write!(f, " {comment}")?;
        }
        skbinfo(f, self.skbinfo)
    }
}

impl Display for Strictness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Strict => Ok(()),
            Self::Exist => f.write_str(" -exist"),
        }
    }
}

/// A line of `ipset restore` input, or a comment for [`Command::Copy`].
impl Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create(set, strictness) => write!(f, "{set}{strictness}"),
            Self::Destroy(name, strictness) => write!(f, "destroy {name}{strictness}"),
            Self::DestroyAll => f.write_str("destroy"),
            Self::Flush(name) => write!(f, "flush {name}"),
            Self::FlushAll => f.write_str("flush"),
            Self::Rename(from, to) => write!(f, "rename {from} {to}"),
            Self::Swap(one, other) => write!(f, "swap {one} {other}"),
            Self::Add(entry, strictness) => write!(f, "add {entry}{strictness}"),
            Self::Delete(entry, strictness) => write!(f, "del {entry}{strictness}"),
            Self::Test(entry) => write!(f, "test {entry}"),
            Self::Copy { from, to } => write!(f, "# entries of {from} are added to {}", to.name),
        }
    }
}

/// The input of `ipset restore`.
impl Display for Commands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice()
            .iter()
            .try_for_each(|command| writeln!(f, "{command}"))
    }
}

/// The output of `ipset save NAME`. Entries of unknown types are printed as
/// comments.
impl Display for SetDump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.set)?;
        self.entries
            .iter()
            .try_for_each(|entry| match entry.member {
                Member::Other(_) => writeln!(f, "# {entry}"),
                _ => writeln!(f, "add {entry}"),
            })
    }
}

/// The output of `ipset save`, in name order.
impl Display for Sets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.iter().try_for_each(|listed| write!(f, "{listed}"))
    }
}
