//! Inputs of the programs.

use std::fmt::Write;
use std::path::PathBuf;

use jobs::Outcome;
use testkit::scoped::Directory;

/// Files with the objects of the jobs in the formats of the programs.
pub struct Files {
    directory: Directory,
}

/// Adds the elements.
pub const ELEMENTS: &str = "elements.nft";
/// Adds the rules.
pub const RULES: &str = "rules.nft";
/// Adds the entries.
pub const ENTRIES: &str = "entries.ipset";
/// The output of `iptables-save`.
pub const SAVE: &str = "save.iptables";

impl Files {
    /// Writes the files.
    pub fn new() -> Outcome<Self> {
        let directory = Directory::new()?;
        for (name, text) in [
            (ELEMENTS, elements()?),
            (RULES, rules()?),
            (ENTRIES, entries()?),
            (SAVE, save()?),
        ] {
            directory.write(name, &text)?;
        }
        Ok(Self { directory })
    }

    /// Returns the path of a file.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

fn elements() -> Outcome<String> {
    let (table, set) = (jobs::TABLE, jobs::SET);
    let addresses: Vec<_> = jobs::addresses()
        .map(|address| address.to_string())
        .collect();
    let mut text = format!("add set ip {table} {set} {{ type ipv4_addr; }}\n");
    writeln!(
        text,
        "add element ip {table} {set} {{ {} }}",
        addresses.join(", ")
    )?;
    Ok(text)
}

fn rules() -> Outcome<String> {
    let (table, chain) = (jobs::TABLE, jobs::CHAIN);
    let base = "type filter hook input priority 0;";
    let mut text = format!("add chain ip {table} {chain} {{ {base} }}\n");
    for (source, port) in jobs::rules() {
        let rule = format!("ip saddr {source} tcp dport {port} counter accept");
        writeln!(text, "add rule ip {table} {chain} {rule}")?;
    }
    Ok(text)
}

fn entries() -> Outcome<String> {
    let mut text = format!("create {} hash:ip\n", jobs::SET);
    for address in jobs::addresses() {
        writeln!(text, "add {} {address}", jobs::SET)?;
    }
    Ok(text)
}

fn save() -> Outcome<String> {
    let mut text = String::from("*filter\n:INPUT ACCEPT [0:0]\n:PEERS - [0:0]\n");
    for number in 0..jobs::LINES {
        let [_, _, high, low] = number.to_be_bytes();
        let (source, port) = (format!("10.1.{high}.{low}/32"), 1024 + number % 60_000);
        let comment = format!("-m comment --comment \"client {number}\"");
        let rule = format!("-s {source} -p tcp {comment} -m tcp --dport {port} -j ACCEPT");
        writeln!(text, "-A PEERS {rule}")?;
    }
    text.push_str("COMMIT\n");
    Ok(text)
}
