//! Raw dumps: the messages of the kernel as text, independent of the tested decoders.
//!
//! Omits what differs between equal rulesets: handles, positions, use counters, the
//! time until elements expire, and the numbers of anonymous sets and chains.

use std::collections::{BTreeMap, BTreeSet};

use vipline_netlink::attr::{Attr, Attrs, put_str};
use vipline_netlink::{Protocol, Socket};

// enum nf_tables_msg_types of linux/netfilter/nf_tables.h
const NFT_MSG_GETTABLE: u16 = 0x0a01;
const NFT_MSG_GETCHAIN: u16 = 0x0a04;
const NFT_MSG_GETRULE: u16 = 0x0a07;
const NFT_MSG_GETSET: u16 = 0x0a0a;
const NFT_MSG_GETSETELEM: u16 = 0x0a0d;
const NFT_MSG_GETOBJ: u16 = 0x0a13;
const NFT_MSG_GETFLOWTABLE: u16 = 0x0a17;

/// A message: family, and attributes by type.
type Object = (u8, BTreeMap<u16, Vec<u8>>);

/// Dumps all objects of a network namespace.
pub(crate) struct Raw {
    socket: Socket,
}

impl Raw {
    /// Opens a socket in the network namespace of the calling thread.
    pub(crate) fn open() -> Self {
        let socket = Socket::open(Protocol::NETFILTER).unwrap();
        Self { socket }
    }

    /// Returns the lines of the ruleset, sorted except for the rules of a chain.
    pub(crate) fn lines(&mut self) -> Vec<String> {
        let mut names = Names::default();
        let mut lines: Vec<String> = Vec::new();
        for object in self.get(NFT_MSG_GETTABLE, |_| {}) {
            lines.push(line("table", &object, &[3, 4, 5], &names));
        }
        for object in self.get(NFT_MSG_GETOBJ, |_| {}) {
            lines.push(line("object", &object, &[5, 6, 7], &names));
        }
        for object in self.get(NFT_MSG_GETFLOWTABLE, |_| {}) {
            lines.push(line("flowtable", &object, &[4, 5, 6], &names));
        }
        lines.extend(self.rules(&mut names));
        for object in self.get(NFT_MSG_GETCHAIN, |_| {}) {
            lines.push(line("chain", &object, &[2, 6, 11], &names));
        }
        for object in self.get(NFT_MSG_GETSET, |_| {}) {
            lines.push(line("set", &object, &[14, 16], &names));
            lines.extend(self.elements(&object, &names));
        }
        lines.sort();
        lines
    }

    /// Returns the rules, numbered within their chains.
    fn rules(&mut self, names: &mut Names) -> Vec<String> {
        let mut chains: BTreeMap<_, Vec<Object>> = BTreeMap::new();
        for object in self.get(NFT_MSG_GETRULE, |_| {}) {
            let chain = (object.0, text(&object.1[&1]), text(&object.1[&2]));
            chains.entry(chain).or_default().push(object);
        }
        let mut lines = Vec::new();
        let is_named = |chain: &&(u8, String, String)| !chain.2.starts_with("__chain");
        let mut pending: Vec<_> = chains.keys().filter(is_named).rev().cloned().collect();
        let mut done = BTreeSet::new();
        while let Some(chain) = pending.pop() {
            if !done.insert(chain.clone()) {
                continue;
            }
            let rules = chains.get(&chain).into_iter().flatten();
            for (at, (family, attrs)) in rules.enumerate() {
                let mut exprs = String::new();
                for expr in Attrs::new(attrs.get(&4).map_or(&[][..], |list| list)) {
                    for anonymous in names.expr(&chain, expr.unwrap(), &mut exprs) {
                        pending.push((chain.0, chain.1.clone(), anonymous));
                    }
                }
                let name = names.of(&chain.1, &chain.2);
                let rest: Vec<_> = [5, 7].map(|kind| hex(attrs.get(&kind))).into();
                lines.push(format!(
                    "rule {family} {} {name} {at:04} {} {exprs}",
                    chain.1,
                    rest.join(" ")
                ));
            }
        }
        lines
    }

    fn elements(&mut self, (family, set): &Object, names: &Names) -> Vec<String> {
        let (table, name) = (text(&set[&1]), text(&set[&2]));
        let lists = self.get_in(NFT_MSG_GETSETELEM, *family, |out| {
            put_str(out, 1, &table);
            put_str(out, 2, &name);
        });
        let lists = lists.iter().filter_map(|(_, attrs)| attrs.get(&3));
        let elements = lists.flat_map(|list| Attrs::new(list));
        elements
            .map(|element| {
                let name = names.of(&table, &name);
                let mut line = format!("element {family} {table} {name}");
                for attr in element.unwrap().attrs().map(Result::unwrap) {
                    let value = match attr.kind {
                        // The time until the element expires.
                        5 => "…".to_owned(),
                        _ => hex(Some(&attr.value.to_vec())),
                    };
                    line += &format!(" {}={value}", attr.kind);
                }
                line
            })
            .collect()
    }

    fn get(&mut self, ty: u16, body: impl FnOnce(&mut Vec<u8>)) -> Vec<Object> {
        self.get_in(ty, 0, body)
    }

    fn get_in(&mut self, ty: u16, family: u8, body: impl FnOnce(&mut Vec<u8>)) -> Vec<Object> {
        let mut payload = vec![family, 0, 0, 0];
        body(&mut payload);
        let dump = self.socket.dump(ty, &payload, 1, Vec::new, |all, message| {
            let (header, attrs) = message.payload.split_at(4);
            let attrs = Attrs::new(attrs).map(Result::unwrap);
            let attrs = attrs.map(|attr| (attr.kind, attr.value.to_vec()));
            all.push((header[0], attrs.collect()));
            Ok::<_, vipline_netlink::Error>(())
        });
        dump.unwrap().complete().unwrap()
    }
}

/// Names of anonymous sets and chains, numbered in the order of their use.
#[derive(Default)]
struct Names(BTreeMap<(String, String), String>);

impl Names {
    fn of(&self, table: &str, name: &str) -> String {
        let key = (table.to_owned(), name.to_owned());
        self.0.get(&key).cloned().unwrap_or_else(|| name.to_owned())
    }

    /// Appends an expression. Returns the names of the anonymous chains that it uses.
    fn expr(
        &mut self,
        (_, table, _): &(u8, String, String),
        expr: Attr<'_>,
        out: &mut String,
    ) -> Vec<String> {
        let mut anonymous = Vec::new();
        let mut stack: Vec<Attr<'_>> = expr.attrs().map(Result::unwrap).collect();
        stack.reverse();
        while let Some(attr) = stack.pop() {
            let name = String::from_utf8_lossy(attr.value).into_owned();
            let name = name.trim_end_matches('\0').to_owned();
            let is_chain = name.starts_with("__chain");
            let is_nest = attr
                .value
                .windows(7)
                .any(|part| part == b"__chain" || part == b"__set__")
                || attr
                    .value
                    .windows(5)
                    .any(|part| part == b"__set" || part == b"__map");
            if is_chain || name.starts_with("__set") || name.starts_with("__map") {
                let key = (table.clone(), name.clone());
                let next = format!("anonymous{:03}", self.0.len());
                let value = self.0.entry(key).or_insert(next);
                *out += &format!("{}={value} ", attr.kind);
                if is_chain {
                    anonymous.push(name);
                }
            } else if is_nest {
                let mut inner: Vec<_> = attr.attrs().map(Result::unwrap).collect();
                inner.reverse();
                stack.extend(inner);
            } else {
                *out += &format!("{}={} ", attr.kind, hex(Some(&attr.value.to_vec())));
            }
        }
        out.push_str("; ");
        anonymous
    }
}

fn line(kind: &str, (family, attrs): &Object, omitted: &[u16], names: &Names) -> String {
    let mut line = format!("{kind} {family}");
    let table = text(&attrs[&1]);
    for (kind, value) in attrs.iter().filter(|(kind, _)| !omitted.contains(kind)) {
        let name = names.of(&table, &text(value));
        match name == text(value) {
            true => line += &format!(" {kind}={}", hex(Some(value))),
            false => line += &format!(" {kind}={name}"),
        }
    }
    line
}

fn text(value: &[u8]) -> String {
    let text = String::from_utf8_lossy(value);
    text.trim_end_matches('\0').to_owned()
}

/// Returns bytes as text if they are printable, otherwise as numbers.
fn hex(value: Option<&Vec<u8>>) -> String {
    let Some(value) = value else {
        return "-".to_owned();
    };
    match value.split_last() {
        Some((0, rest)) if !rest.is_empty() && rest.iter().all(u8::is_ascii_graphic) => text(rest),
        _ => value.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}
