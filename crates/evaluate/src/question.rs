//! Questions about state outside of nf_tables: IP sets, lists of `recent`, and others.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use vipline_nftables::expr::DynsetOp;

use super::packet::Packet;

/// A question of a match of xtables that neither packet nor ruleset answers.
///
/// [`Environment::answer`](super::Environment::answer) answers it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Question<'a> {
    /// Whether an IP set contains the packet: `-m set --match-set pods src,dst`.
    Set(SetLookup<'a>),
    /// Whether both values have the same key in an IP set: the type of the set determines
    /// which values form a key. Asked if target `SET` changed the set before, for the same
    /// packet.
    SameEntry {
        /// Name of the set.
        set: &'a str,
        /// Values that a rule added or deleted.
        changed: &'a SetEntry,
        /// Values of the lookup.
        wanted: &'a SetEntry,
    },
    /// Whether a list of match `recent` has the address, with the conditions of the rule.
    Recent(RecentLookup<'a>),
    /// Whether any other match matches the packet.
    Match {
        /// The match in the syntax of iptables, such as `-m socket --transparent`.
        text: &'a str,
        /// The packet.
        packet: &'a Packet,
    },
}

/// A lookup in an IP set.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct SetLookup<'a> {
    /// Name of the set.
    pub name: &'a str,
    /// Values of the packet.
    pub entry: &'a SetEntry,
    /// Whether entries with option `nomatch` match, and others do not.
    pub return_nomatch: bool,
}

/// Values of a packet for a lookup or an entry of an IP set.
///
/// Exhaustive: callers create entries to compare. The type of the set determines which
/// values form its key. Set type `hash:ip,port,ip` with directions `src,dst,dst` uses the
/// address of the first field, port and protocol of the second, and the address of the
/// third.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct SetEntry {
    /// Values of each dimension: source or destination, as the rule says.
    pub fields: Vec<SetField>,
    /// Transport protocol.
    pub protocol: u8,
    /// Packet mark.
    pub mark: u32,
}

/// Values of one side of a packet.
///
/// Exhaustive: these values form all keys of IP sets, with protocol and mark.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct SetField {
    /// Whether the values are those of the source (`src`).
    pub is_source: bool,
    /// Address.
    pub addr: IpAddr,
    /// Port, or type and code of an ICMP message. 0 for a protocol without ports. `None`:
    /// a fragment without ports, which matches no set with ports.
    pub port: Option<u16>,
    /// Name of the input interface (`src`) or output interface (`dst`), if any.
    pub interface: Option<String>,
    /// Ethernet address of the received frame, if known.
    pub mac: Option<[u8; 6]>,
}

/// A lookup in a list of match `recent`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct RecentLookup<'a> {
    /// Name of the list.
    pub name: &'a str,
    /// Address with the mask of the rule applied.
    pub addr: IpAddr,
    /// Maximum age of the counted packets. `None`: any age.
    pub age: Option<Duration>,
    /// Minimum number of counted packets. `None`: an entry suffices, or one packet within
    /// the age.
    pub hits: Option<u32>,
    /// TTL that the entry must have, if the rule compares it.
    pub ttl: Option<u8>,
}

/// An update of state outside of nf_tables.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum ListUpdate {
    /// An entry of an IP set, changed by target `SET`.
    Set {
        /// Name of the set.
        name: String,
        /// Operation. [`DynsetOp::Update`] also resets the timeout of an existing entry.
        op: DynsetOp,
        /// Values of the packet.
        entry: SetEntry,
        /// Timeout. `None`: that of the set.
        timeout: Option<Duration>,
    },
    /// An address of a list, changed by match `recent`.
    Recent {
        /// Name of the list.
        name: String,
        /// Operation. [`DynsetOp::Add`] adds the time of the packet also to an existing
        /// entry.
        op: DynsetOp,
        /// Address with the mask of the rule applied.
        addr: IpAddr,
        /// TTL, if known.
        ttl: Option<u8>,
    },
    /// A persistence template of IPVS, which a packet created.
    IpvsTemplate {
        /// Address of the client under the netmask of the virtual server.
        client: IpAddr,
        /// Transport protocol, or 0 for a firewall mark.
        protocol: u8,
        /// Address of the virtual server. `None`: a firewall mark.
        address: Option<IpAddr>,
        /// Firewall mark, or 0.
        mark: u32,
        /// Port of the virtual server, or 0.
        port: u16,
        /// Real server.
        server: SocketAddr,
    },
}

impl<'a> SetLookup<'a> {
    /// Creates a lookup.
    pub fn new(name: &'a str, entry: &'a SetEntry) -> Self {
        Self {
            name,
            entry,
            return_nomatch: false,
        }
    }
}

impl<'a> RecentLookup<'a> {
    /// Creates a lookup of an entry.
    pub fn new(name: &'a str, addr: IpAddr) -> Self {
        Self {
            name,
            addr,
            age: None,
            hits: None,
            ttl: None,
        }
    }
}
