//! The state of a kernel that decides about packets, as text to save and to load.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use vipline_evaluate::{Discard, Host, Interface, ReversePath};
use vipline_netlink::DecodeError;
use vipline_nftables::{
    Family, Hook, HookEntry, Name, RecordedDump, RecordedMessage, Ruleset, TableId,
};

use crate::Error;

/// First line of the text.
const HEADER: &str = "# kube-proxy kernel state 1";

/// Last line of the text. Without it the text is incomplete.
const FOOTER: &str = "# end";

/// Hooks whose order of base chains is read.
pub(super) const HOOKS: [Hook; 5] = [
    Hook::Prerouting,
    Hook::Input,
    Hook::Forward,
    Hook::Output,
    Hook::Postrouting,
];

/// Precedes the preferred source address of a route. Names of interfaces have no spaces.
const SOURCE: &str = " src ";

/// Addresses, routes, bridges, tables of nf_tables, which include those of iptables-nft, and the
/// state of modes iptables and ipvs besides them.
///
/// Displays as text, one address, route, table, message or other line in each line, and is
/// parsed from it. [`read_kernel`](super::read_kernel) reads the state of this node.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct KernelState {
    pub(super) addresses: Vec<(IpNet, Link)>,
    pub(super) routes: Vec<SavedRoute>,
    /// Names of bridges whose packets pass the rules.
    pub(super) bridges: Vec<String>,
    /// Names of bridges whose packets between their ports pass no rules.
    pub(super) unfiltered: Vec<String>,
    /// Names of interfaces that are down or have no carrier.
    pub(super) down: Vec<String>,
    /// Names of interfaces that do not forward packets of a family.
    pub(super) not_forwarding: Vec<(Family, String)>,
    /// Reverse path filters of interfaces.
    pub(super) filters: Vec<(ReversePath, String)>,
    /// Priorities of rules of policy routing.
    pub(super) policies: Vec<u32>,
    /// Base chains in the order in which the kernel runs them. Empty: unknown.
    pub(super) hooks: Vec<HookEntry>,
    pub(super) dump: RecordedDump,
    pub(super) texts: BTreeMap<Source, String>,
}

/// The source of state besides nf_tables: the name of a program or a file, and its text.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Source {
    /// Rules of the legacy variant of iptables, IPv4.
    IptablesSave,
    /// Rules of the legacy variant of iptables, IPv6.
    Ip6tablesSave,
    /// Index and name of each IP set.
    SetNames,
    /// IP sets and their elements.
    IpsetSave,
    /// Virtual servers.
    IpvsadmSave,
    /// Connections and persistence templates of IPVS.
    IpVsConn,
    /// Name of a list of match `recent`, and one of its lines.
    XtRecent,
    /// The time in the unit of these lists, or `# ` and the reason why it is unknown.
    Jiffies,
}

impl Source {
    const ALL: [Self; 8] = [
        Self::IptablesSave,
        Self::Ip6tablesSave,
        Self::SetNames,
        Self::IpsetSave,
        Self::IpvsadmSave,
        Self::IpVsConn,
        Self::XtRecent,
        Self::Jiffies,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::IptablesSave => "iptables-save",
            Self::Ip6tablesSave => "ip6tables-save",
            Self::SetNames => "set",
            Self::IpsetSave => "ipset-save",
            Self::IpvsadmSave => "ipvsadm-save",
            Self::IpVsConn => "ip_vs_conn",
            Self::XtRecent => "xt_recent",
            Self::Jiffies => "jiffies",
        }
    }
}

/// A route of the main table.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct SavedRoute {
    pub(super) destination: IpNet,
    pub(super) metric: u32,
    pub(super) way: Way,
}

/// The use of a route.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Way {
    /// Interface, and preferred source address.
    Interface(Link, Option<IpAddr>),
    Discard(Discard),
}

/// Index, if known, and name of an interface.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Link {
    pub(super) index: Option<u32>,
    pub(super) name: String,
}

impl KernelState {
    /// Returns addresses and routes. No packet exceeds a limit.
    pub fn host(&self) -> Host {
        // The network of a link that is down yields to an equal one of another link.
        let is_down = |(_, link): &&(IpNet, Link)| self.down.contains(&link.name);
        let (down, up): (Vec<_>, Vec<_>) = self.addresses.iter().partition(is_down);
        let addresses = down.into_iter().chain(up);
        let host = addresses.fold(Host::new(), |host, (net, link)| {
            host.with_addr(link.interface(), *net)
        });
        // Of several routes to a network, the last one with the lowest metric is used.
        let mut routes: Vec<_> = self.routes.iter().collect();
        routes.sort_by_key(|it| std::cmp::Reverse(it.metric));
        let host = routes.into_iter().fold(host, |host, it| it.add_to(host));
        let bridges = self.bridges.iter();
        let host = bridges.fold(host, |host, name| host.with_bridge(name));
        let unfiltered = self.unfiltered.iter();
        let host = unfiltered.fold(host, |host, name| host.with_unfiltered_bridge(name));
        let down = self.down.iter();
        let host = down.fold(host, |host, name| host.with_link_down(name));
        let stopped = self.not_forwarding.iter();
        let host = stopped.fold(host, |host, (family, name)| {
            host.without_forwarding(name, *family)
        });
        let filters = self.filters.iter();
        let host = filters.fold(host, |host, (filter, name)| {
            host.with_reverse_path(name, *filter)
        });
        let host = host.with_policies(self.policies.iter().copied());
        host.with_limits_exceeded(false)
    }

    /// Returns the base chains in the order in which the kernel runs them; empty if the kernel
    /// does not list them.
    pub(crate) fn hooks(&self) -> &[HookEntry] {
        &self.hooks
    }

    /// Returns the tables of nf_tables.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if a message is malformed.
    pub fn ruleset(&self) -> Result<Ruleset, DecodeError> {
        self.dump.ruleset()
    }

    /// Returns the text of a source; empty if the kernel has no such state.
    #[cfg(feature = "iptables")]
    pub(crate) fn text(&self, source: Source) -> &str {
        self.texts.get(&source).map_or("", |text| text)
    }

    /// Adds lines of a source.
    pub(crate) fn add_text(&mut self, source: Source, text: &str) {
        for line in text.lines() {
            let own = self.texts.entry(source).or_default();
            own.push_str(line);
            own.push('\n');
        }
    }

    fn parse_line(&mut self, line: &str) -> Option<()> {
        let (kind, rest) = line.split_once(' ')?;
        if let Some(source) = Source::ALL.into_iter().find(|it| it.name() == kind) {
            self.add_text(source, rest);
            return Some(());
        }
        match kind {
            "bridge" => {
                self.bridges.push(rest.to_owned());
                return Some(());
            }
            "unfiltered" => {
                self.unfiltered.push(rest.to_owned());
                return Some(());
            }
            "down" => {
                self.down.push(rest.to_owned());
                return Some(());
            }
            "rule" => {
                self.policies.push(rest.parse().ok()?);
                return Some(());
            }
            "hook" => {
                self.hooks.push(hook(rest)?);
                return Some(());
            }
            _ => {}
        }
        let mut words = rest.splitn(3, ' ');
        let (first, second) = (words.next()?, words.next()?);
        match kind {
            "address" => {
                let link = Link::parse(second, words.next()?)?;
                self.addresses.push((first.parse().ok()?, link));
            }
            "route" => {
                let mut rest = words.next()?.split(SOURCE);
                let link = Link::parse("0", rest.next()?)?;
                let source = match rest.next() {
                    Some(source) => Some(source.parse().ok()?),
                    None => None,
                };
                let way = Way::Interface(link, source);
                self.routes.push(SavedRoute::parse(first, second, way)?);
            }
            "noforward" => {
                let family = [Family::Ip, Family::Ip6].into_iter();
                let mut family = family.filter(|it| it.as_str() == first);
                self.not_forwarding
                    .push((family.next()?, second.to_owned()));
            }
            "rp_filter" => {
                let filter = ReversePath::from_number(first.parse().ok()?)?;
                self.filters.push((filter, second.to_owned()));
            }
            "table" => {
                let family = Family::ALL.into_iter().find(|it| it.as_str() == first)?;
                let name = Name::new(second).ok()?;
                self.dump.tables.push(TableId::new(family, name));
            }
            "message" => self.dump.messages.push(RecordedMessage {
                message_type: first.parse().ok()?,
                payload: bytes(second)?,
            }),
            _ => {
                let mut kinds = Discard::ALL.into_iter();
                let way = Way::Discard(kinds.find(|it| it.as_str() == kind)?);
                self.routes.push(SavedRoute::parse(first, second, way)?);
            }
        }
        Some(())
    }
}

impl SavedRoute {
    fn parse(destination: &str, metric: &str, way: Way) -> Option<Self> {
        Some(Self {
            destination: destination.parse().ok()?,
            metric: metric.parse().ok()?,
            way,
        })
    }

    fn add_to(&self, host: Host) -> Host {
        match &self.way {
            Way::Discard(kind) => host.with_discard(self.destination, *kind),
            Way::Interface(link, None) => host.with_route(self.destination, link.interface()),
            Way::Interface(link, Some(source)) => {
                host.with_route_from(self.destination, link.interface(), *source)
            }
        }
    }
}

impl fmt::Display for SavedRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (net, metric) = (self.destination, self.metric);
        match &self.way {
            Way::Discard(kind) => write!(f, "{kind} {net} {metric}"),
            Way::Interface(link, None) => write!(f, "route {net} {metric} {}", link.name),
            Way::Interface(link, Some(source)) => {
                write!(f, "route {net} {metric} {}{SOURCE}{source}", link.name)
            }
        }
    }
}

impl Link {
    fn parse(index: &str, name: &str) -> Option<Self> {
        let index: u32 = index.parse().ok()?;
        let index = (index != 0).then_some(index);
        let name = name.to_owned();
        Some(Self { index, name })
    }

    fn interface(&self) -> Interface {
        let interface = Interface::new(&*self.name);
        match self.index {
            Some(index) => interface.with_index(index),
            None => interface,
        }
    }
}

impl fmt::Display for KernelState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEADER}")?;
        for (net, link) in &self.addresses {
            let index = link.index.unwrap_or_default();
            writeln!(f, "address {net} {index} {}", link.name)?;
        }
        for route in &self.routes {
            writeln!(f, "{route}")?;
        }
        for name in &self.bridges {
            writeln!(f, "bridge {name}")?;
        }
        for name in &self.unfiltered {
            writeln!(f, "unfiltered {name}")?;
        }
        for name in &self.down {
            writeln!(f, "down {name}")?;
        }
        for (family, name) in &self.not_forwarding {
            writeln!(f, "noforward {family} {name}")?;
        }
        for (filter, name) in &self.filters {
            writeln!(f, "rp_filter {} {name}", filter.number())?;
        }
        for priority in &self.policies {
            writeln!(f, "rule {priority}")?;
        }
        for entry in &self.hooks {
            if let Some((table, chain)) = &entry.chain {
                let HookEntry {
                    family,
                    hook,
                    priority,
                    ..
                } = entry;
                writeln!(f, "hook {family} {hook} {priority} {table} {chain}")?;
            }
        }
        for table in &self.dump.tables {
            writeln!(f, "table {} {}", table.family, table.name)?;
        }
        for message in &self.dump.messages {
            writeln!(
                f,
                "message {} {}",
                message.message_type,
                hex(&message.payload)
            )?;
        }
        for (source, text) in &self.texts {
            for line in text.lines() {
                writeln!(f, "{} {line}", source.name())?;
            }
        }
        writeln!(f, "{FOOTER}")
    }
}

impl FromStr for KernelState {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let mut state = Self::default();
        let mut lines = (1..).zip(text.lines());
        if lines.next().is_none_or(|(_, line)| line != HEADER) {
            return Err(Error::StateLine(1));
        }
        let mut last = 1;
        for (number, line) in lines.by_ref().take_while(|(_, line)| *line != FOOTER) {
            let parsed = state.parse_line(line);
            parsed.ok_or(Error::StateLine(number))?;
            last = number;
        }
        if text.lines().nth(last).is_none() {
            return Err(Error::IncompleteState(last + 1));
        }
        match lines.next() {
            Some((number, _)) => Err(Error::StateLine(number)),
            None => Ok(state),
        }
    }
}

/// Parses a base chain at a hook: family of the packets, hook, priority, table and chain.
fn hook(text: &str) -> Option<HookEntry> {
    let words: Vec<&str> = text.split(' ').collect();
    let &[packets, hook, priority, table_family, table, chain] = &*words else {
        return None;
    };
    let family = |text: &str| Family::ALL.into_iter().find(|it| it.as_str() == text);
    let table = TableId::new(family(table_family)?, Name::new(table).ok()?);
    Some(HookEntry {
        family: family(packets)?,
        hook: HOOKS.into_iter().find(|it| it.to_string() == hook)?,
        priority: priority.parse().ok()?,
        chain: Some((table, Name::new(chain).ok()?)),
        function: None,
        module: None,
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn bytes(text: &str) -> Option<Box<[u8]>> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return None;
    }
    let pairs = (0..text.len()).step_by(2).map(|at| text.get(at..at + 2));
    pairs
        .map(|pair| u8::from_str_radix(pair?, 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_parsed_from_its_text() {
        let text = "# kube-proxy kernel state 1\naddress 192.168.0.5/24 2 eth0\n\
                    route 0.0.0.0/0 100 eth0\nroute 10.0.0.0/8 0 eth0 src 192.168.0.50\n\
                    unreachable 10.244.1.13/32 0\nbridge cni0\nunfiltered cni1\ndown eth1\n\
                    noforward ip eth0\nrp_filter 2 eth0\nrule 100\n\
                    hook ip forward -150 inet firewall base\ntable ip kube-proxy\nmessage 2560 02000a\n\
                    iptables-save *nat\niptables-save COMMIT\nset 3 KUBE-CLUSTER-IP\n\
                    xt_recent KUBE-SEP-A src=192.0.2.7 ttl: 63 last_seen: 5 oldest_pkt: 1 5\n# end\n";
        let state: KernelState = text.parse().unwrap();
        assert_eq!(state.text(Source::IptablesSave), "*nat\nCOMMIT\n");
        assert_eq!(state.text(Source::IpsetSave), "");
        assert_eq!(state.to_string(), text);
        for (wrong, number) in [
            ("", 1),
            ("# kube-proxy kernel state 1\nmessage 2560 0", 2),
            ("# kube-proxy kernel state 1\ntable osi kube-proxy", 2),
            ("# kube-proxy kernel state 1\nroute here 1 eth0", 2),
            ("# kube-proxy kernel state 1\nroute ::/0 1 eth0 src here", 2),
            ("# kube-proxy kernel state 1\nlost 10.0.0.0/8 1", 2),
            ("# kube-proxy kernel state 1\nrp_filter 3 eth0", 2),
            ("# kube-proxy kernel state 1\nnoforward arp eth0", 2),
            (
                "# kube-proxy kernel state 1\nhook ip forward 0 inet firewall",
                2,
            ),
        ] {
            let parsed = wrong.parse::<KernelState>();
            assert!(matches!(parsed, Err(Error::StateLine(line)) if line == number));
        }
        // A state that ends early, and one that is written twice.
        let early = text.strip_suffix("# end\n").unwrap();
        let parsed = early.parse::<KernelState>();
        assert!(matches!(parsed, Err(Error::IncompleteState(19))));
        let twice = format!("{text}{text}");
        let parsed = twice.parse::<KernelState>();
        assert!(matches!(parsed, Err(Error::StateLine(20))));
    }
}
