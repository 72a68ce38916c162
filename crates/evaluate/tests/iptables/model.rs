//! The state outside of the rules: the router, IP sets, and lists of `recent`.

use std::collections::BTreeSet;
use std::net::IpAddr;

use vipline_evaluate::{
    Environment, Host, Interface, Limited, ListUpdate, Question, Route, RouteQuery, SetEntry,
};
use vipline_nftables::expr::{AddrType, DynsetOp};

use crate::generate::Random;
use crate::lab;

/// IP sets: name, type, and entries that are there at first with some probability.
const SETS: [(&str, &str, &[&str]); 4] = [
    ("sources", "hash:ip", &["10.0.0.2", "10.0.0.9", "10.0.0.1"]),
    (
        "services",
        "hash:ip,port",
        &[
            "10.9.0.1,udp:5000",
            "10.9.0.2,udp:5001",
            "10.1.0.2,udp:5100",
        ],
    ),
    (
        "flows",
        "hash:ip,port,ip",
        &["10.1.0.3,udp:5100,10.0.0.2", "10.9.0.1,udp:5002,10.0.0.3"],
    ),
    ("seen", "hash:ip", &[]),
];

/// The router with its sets and lists.
#[derive(Debug)]
pub(crate) struct Model {
    host: Host,
    /// Names of sets with their entries.
    sets: BTreeSet<(String, String)>,
    /// Names of lists with their addresses.
    recent: BTreeSet<(String, IpAddr)>,
}

impl Model {
    pub(crate) fn new(random: &mut Random) -> Self {
        let [left, right] = ["left", "right"].map(Interface::new);
        let host = Host::new()
            .with_addr(left, lab::LEFT.parse().unwrap())
            .with_addr(right.clone(), lab::RIGHT.parse().unwrap())
            .with_route(lab::SERVICES.parse().unwrap(), right);
        let entries = SETS.iter().flat_map(|(name, _, entries)| {
            entries
                .iter()
                .map(|it| ((*name).to_owned(), (*it).to_owned()))
        });
        Self {
            host,
            sets: entries.filter(|_| random.below(3) > 0).collect(),
            recent: BTreeSet::new(),
        }
    }

    /// Returns commands of `ipset restore` that create the sets.
    pub(crate) fn commands(&self) -> String {
        let mut commands = String::new();
        for (name, kind, _) in SETS {
            commands += &format!("create {name} {kind} -exist\nflush {name}\n");
        }
        for (name, entry) in &self.sets {
            commands += &format!("add {name} {entry}\n");
        }
        commands
    }

    /// Applies the updates of a packet.
    pub(crate) fn apply(&mut self, updates: &[ListUpdate]) {
        for update in updates {
            match update {
                ListUpdate::Set {
                    name, op, entry, ..
                } => {
                    let entry = (name.clone(), text(name, entry));
                    match op {
                        DynsetOp::Delete => drop(self.sets.remove(&entry)),
                        _ => drop(self.sets.insert(entry)),
                    }
                }
                ListUpdate::Recent { name, op, addr, .. } => {
                    let entry = (name.clone(), *addr);
                    match op {
                        DynsetOp::Delete => drop(self.recent.remove(&entry)),
                        _ => drop(self.recent.insert(entry)),
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

/// Returns the entry of a set with the values of a packet.
fn text(set: &str, entry: &SetEntry) -> String {
    let (_, kind, _) = SETS.iter().find(|(name, ..)| *name == set).unwrap();
    let kinds = kind.strip_prefix("hash:").unwrap().split(',');
    let fields = entry
        .fields
        .iter()
        .zip(kinds)
        .map(|(field, kind)| match kind {
            "ip" => field.addr.to_string(),
            _ => {
                assert_eq!(entry.protocol, 17);
                format!("udp:{}", field.port.unwrap())
            }
        });
    fields.collect::<Vec<_>>().join(",")
}

impl Environment for Model {
    fn route(&self, query: &RouteQuery<'_>) -> Option<Route> {
        self.host.route(query)
    }

    fn addr_type(&self, addr: IpAddr, interface: Option<&Interface>) -> Option<AddrType> {
        self.host.addr_type(addr, interface)
    }

    fn interface_addr(&self, interface: &Interface, destination: IpAddr) -> Option<IpAddr> {
        self.host.interface_addr(interface, destination)
    }

    fn is_over(&self, limited: Limited<'_>) -> Option<bool> {
        self.host.is_over(limited)
    }

    fn answer(&self, question: &Question<'_>) -> Option<bool> {
        match question {
            Question::Set(lookup) => {
                let entry = (lookup.name.to_owned(), text(lookup.name, lookup.entry));
                Some(self.sets.contains(&entry))
            }
            Question::SameEntry {
                set,
                changed,
                wanted,
            } => Some(text(set, changed) == text(set, wanted)),
            Question::Recent(lookup) => {
                let entry = (lookup.name.to_owned(), lookup.addr);
                Some(self.recent.contains(&entry))
            }
            _ => None,
        }
    }
}
