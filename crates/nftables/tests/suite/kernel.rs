//! Rules in the kernel, compared by the bytes of their expressions.
//!
//! The bytes come from netlink without the codecs of this crate.

use std::collections::{BTreeMap, HashMap};

use testkit::netns::Netns;
use vipline_netlink::attr::{Attr, Attrs};
use vipline_netlink::{Error, Protocol, Socket};
use vipline_nftables::{Chain, Client};

use crate::Outcome;
use crate::data::Table;
use crate::program;

const NFT_MSG_GETRULE: u16 = 10 << 8 | 7;
const NFT_MSG_GETSET: u16 = 10 << 8 | 10;
const NFT_MSG_GETSETELEM: u16 = 10 << 8 | 13;
/// Length of `struct nfgenmsg`.
const HEADER: usize = 4;

/// A network namespace with a client.
pub(crate) struct Lab {
    netns: Netns,
    pub(crate) client: Client,
}

/// An expression of a rule: its name and its attributes. The name of an anonymous set is
/// replaced by the content.
type Expression = String;

/// Family, table and name of a set.
type SetId = (u8, String, String);

impl Lab {
    pub(crate) fn new() -> Self {
        let netns = Netns::new().unwrap();
        let client = netns.run(Client::open).unwrap();
        Self { netns, client }
    }

    /// Loads the tables and lines of a script with `nft`, and returns the refused lines.
    pub(crate) fn load(&self, tables: &[Table], lines: &[String]) -> Vec<(usize, String)> {
        let declarations: String = tables.iter().map(Table::declaration).collect();
        self.netns.run(|| program::load(&declarations, lines))
    }

    /// Returns the chains of tables as the client of this crate dumps them.
    pub(crate) fn chains(&mut self, tables: &[Table]) -> Vec<Chain> {
        let ids: Vec<_> = tables.iter().map(|table| table.id.clone()).collect();
        let ruleset = self.client.dump(&ids).unwrap();
        let chain = |id| ruleset.chain(id, "c").unwrap().clone();
        ids.iter().map(chain).collect()
    }

    /// Returns the expressions of all rules, in the order of the tables.
    pub(crate) fn expressions(&self, tables: &[Table]) -> Vec<Vec<Expression>> {
        let mut rules = self.netns.run(|| {
            let mut socket = Socket::open(Protocol::NETFILTER).unwrap();
            let sets = anonymous_sets(&mut socket);
            rules(&mut socket, &sets)
        });
        let of = |table: &Table| {
            let key = (table.id.family.number(), table.id.name.to_string());
            rules.remove(&key).unwrap_or_default()
        };
        tables.iter().flat_map(of).collect()
    }
}

/// Compares the expressions of a rule with those of a copy.
pub(crate) fn compare(expected: &[Expression], actual: &[Expression]) -> Outcome {
    if expected == actual {
        return Outcome::Equal;
    }
    let (expected, actual) = (expected.join("\n\t\t"), actual.join("\n\t\t"));
    Outcome::Different(format!("{expected}\n\tinstead\n\t\t{actual}"))
}

fn dump<T>(
    socket: &mut Socket,
    kind: u16,
    payload: &[u8],
    start: impl FnMut() -> T,
    mut each: impl FnMut(&mut T, u8, Attrs<'_>),
) -> T {
    let each = |value: &mut T, message: vipline_netlink::message::Message<'_>| {
        let (header, attrs) = message.payload.split_at(HEADER);
        each(value, header[0], Attrs::new(attrs));
        Ok::<(), Error>(())
    };
    socket
        .dump(kind, payload, 1, start, each)
        .unwrap()
        .complete()
        .unwrap()
}

/// Returns the values of attributes by kind.
fn by_kind(attrs: Attrs<'_>) -> BTreeMap<u16, Attr<'_>> {
    attrs
        .map(Result::unwrap)
        .map(|attr| (attr.kind, attr))
        .collect()
}

fn text(attr: Option<&Attr<'_>>) -> String {
    attr.unwrap().str().unwrap().to_owned()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the rules of each table.
fn rules(
    socket: &mut Socket,
    sets: &HashMap<SetId, String>,
) -> HashMap<(u8, String), Vec<Vec<Expression>>> {
    dump(
        socket,
        NFT_MSG_GETRULE,
        &[0; HEADER],
        HashMap::new,
        |rules: &mut HashMap<_, Vec<_>>, family, attrs| {
            let attrs = by_kind(attrs);
            let table = text(attrs.get(&1));
            let expressions = attrs.get(&4).map(Attr::attrs).into_iter().flatten();
            let expressions =
                expressions.map(|it| expression(it.unwrap().attrs(), family, &table, sets));
            let rule: Vec<String> = expressions.collect();
            rules.entry((family, table)).or_default().push(rule);
        },
    )
}

fn expression(
    attrs: Attrs<'_>,
    family: u8,
    table: &str,
    sets: &HashMap<SetId, String>,
) -> Expression {
    let attrs = by_kind(attrs);
    let mut out = text(attrs.get(&1));
    let data = attrs.get(&2).map(Attr::attrs).into_iter().flatten();
    for attr in data.map(Result::unwrap) {
        let name = attr.str().ok().filter(|it| it.starts_with("__"));
        let content = name.and_then(|name| sets.get(&(family, table.to_owned(), name.to_owned())));
        out += &match content {
            Some(content) => format!(" {}={content}", attr.kind),
            None => format!(" {}={}", attr.kind, hex(attr.value)),
        };
    }
    out
}

/// Returns the contents of all anonymous sets.
fn anonymous_sets(socket: &mut Socket) -> HashMap<SetId, String> {
    let ids = dump(
        socket,
        NFT_MSG_GETSET,
        &[0; HEADER],
        Vec::new,
        |sets, family, attrs| {
            let attrs = by_kind(attrs);
            let (table, name) = (text(attrs.get(&1)), text(attrs.get(&2)));
            // Flags, length of the key, length of the data.
            let number = |kind| attrs.get(&kind).map_or(0, |it| it.be32().unwrap());
            let kind = format!("{:x}/{}/{}", number(3), number(5), number(7));
            if name.starts_with("__") {
                sets.push(((family, table, name), kind));
            }
        },
    );
    let with_content = |(id, kind): (SetId, String)| {
        let content = format!("{{{kind}: {}}}", elements(socket, &id).join(", "));
        (id, content)
    };
    ids.into_iter().map(with_content).collect()
}

/// Returns the elements of a set, sorted.
fn elements(socket: &mut Socket, (family, table, set): &SetId) -> Vec<String> {
    let mut payload = vec![*family, 0, 0, 0];
    vipline_netlink::attr::put_str(&mut payload, 1, table);
    vipline_netlink::attr::put_str(&mut payload, 2, set);
    let mut elements: Vec<(String, bool, String)> = dump(
        socket,
        NFT_MSG_GETSETELEM,
        &payload,
        Vec::new,
        |elements, _, attrs| {
            let attrs = by_kind(attrs);
            for element in attrs.get(&3).map(Attr::attrs).into_iter().flatten() {
                let attrs = by_kind(element.unwrap().attrs());
                let value = |kind| attrs.get(&kind).map(|it| hex(it.value)).unwrap_or_default();
                let is_start = attrs.get(&3).map_or(0, |it| it.be32().unwrap()) & 1 == 0;
                // Data, flags, expression, object, end of the key, expressions. A user
                // data is a note of `nft`.
                let rest: Vec<String> = [2, 3, 7, 9, 10, 11]
                    .into_iter()
                    .map(|kind| format!("{kind}={}", value(kind)))
                    .collect();
                elements.push((value(1), is_start, rest.join(" ")));
            }
        },
    );
    elements.sort();
    // The end of an interval has no effect if another interval starts there, or if none
    // precedes it: nft writes an end of key 0.
    let starts: Vec<String> = elements
        .iter()
        .filter(|(_, is_start, _)| *is_start)
        .map(|(key, ..)| key.clone())
        .collect();
    elements.retain(|(key, is_start, _)| {
        *is_start || starts.first() < Some(key) && starts.binary_search(key).is_err()
    });
    elements
        .into_iter()
        .map(|(key, _, rest)| format!("{key} {rest}"))
        .collect()
}
