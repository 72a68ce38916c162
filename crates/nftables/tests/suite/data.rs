//! The rules: data files and their format.
//!
//! A file has sections that start with a line `subject NAME`. The other lines are:
//!
//! - `in FAMILY TYPE HOOK PRIORITY [DEVICE]`: the rules belong to a base chain of this
//!   kind. With several such lines, each rule is tested in each of the chains.
//! - `with DECLARATION`: a set or an object that the rules use.
//! - `refused: RULE`: nft 1.0.6 or the kernel refuses the rule.
//! - `refused 0,2: RULE`: so it is in the chains with these numbers.
//! - Any other line is a rule.

use std::fmt;

use vipline_nftables::{Family, Name, TableId};

const FILES: [(&str, &str); 7] = [
    ("any", include_str!("any.rules")),
    ("arp", include_str!("arp.rules")),
    ("bridge", include_str!("bridge.rules")),
    ("inet", include_str!("inet.rules")),
    ("ip", include_str!("ip.rules")),
    ("ip6", include_str!("ip6.rules")),
    ("netdev", include_str!("netdev.rules")),
];

/// A table with one base chain.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) id: TableId,
    /// File, subject and kind of the chain, for messages.
    place: String,
    declaration: String,
    rules: Vec<String>,
}

/// A rule that `nft` loads.
#[derive(Clone, Debug)]
pub(crate) struct Loaded {
    prefix: String,
    place: String,
    pub(crate) text: String,
}

impl fmt::Display for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] {}", self.place, self.text)
    }
}

impl Loaded {
    /// Returns the command that adds `text` to the chain of the rule.
    pub(crate) fn command(&self, text: &str) -> String {
        format!("{}{text}", self.prefix)
    }
}

impl Table {
    /// Returns the script that creates the table.
    pub(crate) fn declaration(&self) -> &str {
        &self.declaration
    }

    pub(crate) fn rule_prefix(&self) -> String {
        format!("add rule {} c ", self.id)
    }

    pub(crate) fn rules(&self) -> impl Iterator<Item = Loaded> {
        self.rules.iter().map(|text| Loaded {
            prefix: self.rule_prefix(),
            place: self.place.clone(),
            text: text.clone(),
        })
    }
}

impl Table {
    /// Returns a table with one chain for rules that come over netlink. Their texts are
    /// for messages.
    pub(crate) fn of_family(family: Family, hook: &str, rules: Vec<String>) -> Self {
        let id = TableId::new(family, Name::new("t").unwrap());
        let declaration = format!("table {id} {{\nchain c {{ type filter hook {hook}; }}\n}}\n");
        Self {
            place: id.to_string(),
            id,
            declaration,
            rules,
        }
    }
}

/// Returns the tables of all files.
pub(crate) fn tables() -> Vec<Table> {
    let mut tables = Vec::new();
    for (file, text) in FILES {
        for section in text.split("subject ").skip(1) {
            let (subject, body) = section.split_once('\n').unwrap();
            add_section(&mut tables, &format!("{file}/{subject}"), body);
        }
    }
    tables
}

fn add_section(tables: &mut Vec<Table>, place: &str, body: &str) {
    let lines = || body.lines().filter(|line| !line.is_empty());
    let chains = lines().filter_map(|line| line.strip_prefix("in "));
    let objects: Vec<&str> = lines()
        .filter_map(|line| line.strip_prefix("with "))
        .collect();
    for (number, chain) in chains.enumerate() {
        let words: Vec<&str> = chain.split(' ').collect();
        let [family, kind, hook, priority, device @ ..] = &*words else {
            panic!("{place}: {chain}");
        };
        let name = format!("t{}", tables.len());
        let device: String = device
            .iter()
            .map(|name| format!(" device {name}"))
            .collect();
        let objects: String = objects.iter().map(|object| format!("{object}\n")).collect();
        let hook = format!("type {kind} hook {hook}{device} priority {priority};");
        let declaration = format!("table {family} {name} {{\n{objects}chain c {{ {hook} }}\n}}\n");
        let rules = lines().filter_map(|line| rule(line, number));
        tables.push(Table {
            id: TableId::new(self::family(family), Name::new(&name).unwrap()),
            place: format!("{place} in {chain}"),
            declaration,
            rules: rules.map(str::to_owned).collect(),
        });
    }
}

/// Returns the rule of a line, unless it is refused in this chain.
fn rule(line: &str, chain: usize) -> Option<&str> {
    if line.starts_with("in ") || line.starts_with("with ") || line.starts_with("refused: ") {
        return None;
    }
    let Some((chains, rule)) = line
        .strip_prefix("refused ")
        .and_then(|rest| rest.split_once(": "))
    else {
        return Some(line);
    };
    let is_refused = chains.split(',').any(|it| it == chain.to_string());
    (!is_refused).then_some(rule)
}

fn family(text: &str) -> Family {
    let families = [
        Family::Ip,
        Family::Ip6,
        Family::Inet,
        Family::Arp,
        Family::Bridge,
        Family::Netdev,
    ];
    let found = families.into_iter().find(|it| it.as_str() == text);
    found.unwrap_or_else(|| panic!("unknown family {text}"))
}
