//! Text format of `ipset save` and `ipset restore`.

mod icmp;

mod parse;

use std::fmt::{self, Display};
use std::net::IpAddr;

use ipnet::IpNet;

use crate::{
    Command, Commands, Counters, Entry, EntryFlags, Member, Port, Range, Set, SetDump, SetFlags,
    Sets, Strictness,
};

pub use parse::ParseError;

/// Protocols that are printed by name; others are printed as numbers.
const PROTOCOLS: [(u8, &str); 11] = [
    (1, "icmp"),
    (2, "igmp"),
    (6, "tcp"),
    (17, "udp"),
    (33, "dccp"),
    (47, "gre"),
    (50, "esp"),
    (51, "ah"),
    (58, "ipv6-icmp"),
    (132, "sctp"),
    (136, "udplite"),
];

/// Set flags in the order of `ipset save`.
const FLAGS: [(SetFlags, &str); 4] = [
    (SetFlags::COUNTERS, "counters"),
    (SetFlags::COMMENT, "comment"),
    (SetFlags::FORCEADD, "forceadd"),
    (SetFlags::SKBINFO, "skbinfo"),
];

impl Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = PROTOCOLS
            .iter()
            .find(|(number, _)| *number == self.protocol);
        match known {
            Some((_, name)) => write!(f, "{name}:")?,
            None => write!(f, "{}:", self.protocol)?,
        }
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
        option(f, "hashsize", self.hashsize)?;
        option(f, "maxelem", self.maxelem)?;
        option(f, "size", self.size)?;
        option(f, "netmask", self.netmask)?;
        option(f, "timeout", self.timeout)?;
        for (flag, word) in FLAGS {
            if self.flags.contains(flag) {
                write!(f, " {word}")?;
            }
        }
        option(f, "bucketsize", self.bucketsize)?;
        match self.initval {
            Some(initval) => write!(f, " initval {initval:#010x}"),
            None => Ok(()),
        }
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
        match (self, last) {
            (Self::Ip(ip), Self::Ip(to)) => span(f, ip, to),
            (Self::IpPort(ip, port), Self::IpPort(to, end)) => {
                span(f, ip, to)?;
                f.write_str(",")?;
                ports(f, *port, *end)
            }
            (Self::IpPortIp(ip, port, second), Self::IpPortIp(to, end, second_to)) => {
                span(f, ip, to)?;
                f.write_str(",")?;
                ports(f, *port, *end)?;
                f.write_str(",")?;
                span(f, second, second_to)
            }
            (Self::IpPortNet(ip, port, net), Self::IpPortNet(to, end, _)) => {
                span(f, ip, to)?;
                f.write_str(",")?;
                ports(f, *port, *end)?;
                write!(f, ",{}", Network(*net))
            }
            (Self::Net(net), Self::Net(to)) => nets(f, *net, *to),
            (Self::NetPort(net, port), Self::NetPort(to, end)) => {
                nets(f, *net, *to)?;
                f.write_str(",")?;
                ports(f, *port, *end)
            }
            (Self::Port(port), Self::Port(to)) => span(f, port, to),
            (Self::Set(name), _) => write!(f, "{name}"),
            (Self::Other(bytes), _) => write!(f, "({} bytes of an unknown type)", bytes.len()),
            // Elements of different types form no range.
            (first, _) => first.through(first, f),
        }
    }
}

fn span<T: Display + PartialEq>(f: &mut fmt::Formatter<'_>, from: &T, to: &T) -> fmt::Result {
    match from == to {
        true => write!(f, "{from}"),
        false => write!(f, "{from}-{to}"),
    }
}

fn ports(f: &mut fmt::Formatter<'_>, from: Port, to: Port) -> fmt::Result {
    match from == to {
        true => write!(f, "{from}"),
        false => write!(f, "{from}-{}", to.number),
    }
}

fn nets(f: &mut fmt::Formatter<'_>, from: IpNet, to: IpNet) -> fmt::Result {
    match from == to {
        true => write!(f, "{}", Network(from)),
        false => write!(f, "{}-{}", from.addr(), to.addr()),
    }
}

/// Prints a network, or an address if the prefix has full length.
struct Network(IpNet);

impl Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(net) = self;
        match net.prefix_len() == net.max_prefix_len() {
            true => IpAddr::fmt(&net.addr(), f),
            false => IpNet::fmt(net, f),
        }
    }
}

/// The arguments of `add` or `del`: the set, the element and options.
impl Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.set)?;
        self.member
            .through(self.range_end.as_ref().unwrap_or(&self.member), f)?;
        option(f, "timeout", self.timeout)?;
        if self.flags.contains(EntryFlags::NOMATCH) {
            f.write_str(" nomatch")?;
        }
        if let Some(Counters { packets, bytes }) = self.counters {
            write!(f, " packets {packets} bytes {bytes}")?;
        }
        match &self.comment {
            Some(comment) => write!(f, " {comment}"),
            None => Ok(()),
        }
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
            Self::Flush(name) => write!(f, "flush {name}"),
            Self::Rename(from, to) => write!(f, "rename {from} {to}"),
            Self::Swap(one, other) => write!(f, "swap {one} {other}"),
            Self::Add(entry, strictness) => write!(f, "add {entry}{strictness}"),
            Self::Delete(entry, strictness) => write!(f, "del {entry}{strictness}"),
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
