//! A whole document, as it is written.

mod line;

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;

pub use line::{ChainLine, CommandLine, Counters, Line, Policy, RuleLine, TableLine};

/// What `iptables-save` prints and `iptables-restore` reads: tables with their
/// chains and rules.
///
/// It borrows from the text, and prints the same bytes.
///
/// ```
/// use vipline_iptables::Tables;
///
/// let text = "\
/// *filter
/// :INPUT DROP [0:0]
/// :web - [0:0]
/// -A INPUT -p tcp -m tcp --dport 80 -j web
/// -A web -s 192.0.2.0/24 -j ACCEPT
/// COMMIT
/// ";
/// let tables = Tables::parse(text)?;
/// let filter = tables.get("filter").unwrap();
/// assert_eq!(filter.chains().count(), 2);
/// let rules: Vec<_> = filter.rules_of("web").map(|rule| rule.spec()).collect();
/// assert_eq!(rules, ["-s 192.0.2.0/24 -j ACCEPT"]);
/// assert_eq!(tables.to_string(), text);
/// # Ok::<(), vipline_iptables::ParseError>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Tables<'a> {
    /// What comes before the first table.
    pub(crate) before: Vec<Line<'a>>,
    pub(crate) tables: Vec<Table<'a>>,
    /// Whether the last line ends with a newline.
    pub(crate) is_terminated: bool,
}

impl<'a> Tables<'a> {
    /// Returns the first table of a name.
    ///
    /// `iptables-save` prints each once.
    pub fn get(&self, name: &str) -> Option<&Table<'a>> {
        self.iter().find(|table| table.name == name)
    }

    /// Returns the tables in their order.
    pub fn iter(&self) -> std::slice::Iter<'_, Table<'a>> {
        self.tables.iter()
    }

    /// Returns all lines in their order.
    pub fn lines(&self) -> impl Iterator<Item = &Line<'a>> {
        let tables = self
            .iter()
            .flat_map(|table| table.lines.iter().chain(&table.after));
        self.before.iter().chain(tables)
    }
}

impl<'t, 'a> IntoIterator for &'t Tables<'a> {
    type Item = &'t Table<'a>;
    type IntoIter = std::slice::Iter<'t, Table<'a>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for Tables<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, line) in self.lines().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            f.write_str(line.text())?;
        }
        f.write_str(if self.is_terminated { "\n" } else { "" })
    }
}

/// A table: the lines from `*nat` to `COMMIT`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Table<'a> {
    name: &'a str,
    /// With the first and last line.
    lines: Vec<Line<'a>>,
    /// What comes between this table and the next, or the end.
    after: Vec<Line<'a>>,
    chains: HashMap<&'a str, Chain>,
}

/// Where a chain is found in the lines of its table.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct Chain {
    /// The line that declares it, the last one if there are several.
    declared: Option<usize>,
    /// Its first rule, and those that stand next to it: in a save, all.
    rules: Range<usize>,
    /// More rules, each range as long as it can be.
    more: Vec<Range<usize>>,
}

impl<'a> Table<'a> {
    /// Returns the table of some lines, from `*nat` to `COMMIT`.
    pub(crate) fn new(name: &'a str, mut lines: Vec<Line<'a>>) -> Self {
        lines.shrink_to_fit();
        let mut chains: HashMap<&str, Chain> = HashMap::new();
        let mut at = 0;
        // Rules that stand together are looked up once.
        for run in lines.chunk_by(is_same_chain) {
            let range = at..at + run.len();
            match run.first() {
                Some(Line::Chain(line)) => {
                    chains.entry(line.name()).or_default().declared = Some(at);
                }
                Some(Line::Rule(line)) => {
                    let chain = chains.entry(line.chain()).or_default();
                    if chain.rules.is_empty() {
                        chain.rules = range.clone();
                    } else {
                        chain.more.push(range.clone());
                    }
                }
                _ => {}
            }
            at = range.end;
        }
        Self {
            name,
            lines,
            after: Vec::new(),
            chains,
        }
    }

    /// Adds a line after the end of the table.
    pub(crate) fn push_after(&mut self, line: Line<'a>) {
        self.after.push(line);
    }

    /// Returns the name of the table.
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// Returns the lines from `*nat` to `COMMIT`.
    pub fn lines(&self) -> std::slice::Iter<'_, Line<'a>> {
        self.lines.iter()
    }

    /// Returns the chains that are declared, in their order.
    pub fn chains(&self) -> impl Iterator<Item = &ChainLine<'a>> {
        self.lines.iter().filter_map(|line| match line {
            Line::Chain(chain) => Some(chain),
            _ => None,
        })
    }

    /// Returns the chain of a name, if it is declared.
    pub fn chain(&self, name: &str) -> Option<&ChainLine<'a>> {
        match self.lines.get(self.chains.get(name)?.declared?)? {
            Line::Chain(chain) => Some(chain),
            _ => None,
        }
    }

    /// Returns the rules of all chains, in their order.
    pub fn rules(&self) -> impl Iterator<Item = &RuleLine<'a>> {
        rules_in(&self.lines)
    }

    /// Returns the rules of one chain, in their order.
    ///
    /// The chain is found at once, and need not be declared.
    pub fn rules_of(&self, chain: &str) -> impl Iterator<Item = &RuleLine<'a>> {
        let chain = self.chains.get(chain).into_iter();
        let ranges = chain.flat_map(|chain| [&chain.rules].into_iter().chain(&chain.more));
        let lines = ranges.filter_map(|range| self.lines.get(range.clone()));
        lines.flat_map(rules_in)
    }
}

/// Tells whether two lines are rules of one chain.
fn is_same_chain(one: &Line<'_>, other: &Line<'_>) -> bool {
    match (one, other) {
        (Line::Rule(one), Line::Rule(other)) => one.chain() == other.chain(),
        _ => false,
    }
}

fn rules_in<'t, 'a>(lines: &'t [Line<'a>]) -> impl Iterator<Item = &'t RuleLine<'a>> {
    lines.iter().filter_map(|line| match line {
        Line::Rule(rule) => Some(rule),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_what_was_read() {
        for text in [
            "",
            "\n",
            "# a",
            "# a\n\n",
            "*nat\nCOMMIT",
            "\n# a\n*nat\n# b\n:a - \n\n-A a \t-j  b \nCOMMIT\n# c\n* raw x\nCOMMIT\n\n",
        ] {
            assert_eq!(Tables::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_chain_has_its_rules_wherever_they_stand() {
        let text =
            "*nat\n:a - [0:0]\n:b - [1:1]\n-A b -j c\n-A a\n\n-A b -j d\n-A b -j e\n:b -\nCOMMIT\n";
        let tables = Tables::parse(text).unwrap();
        let table = tables.get("nat").unwrap();
        let rules = |chain| {
            table
                .rules_of(chain)
                .map(RuleLine::spec)
                .collect::<Vec<_>>()
        };
        assert_eq!(rules("a"), [""]);
        assert_eq!(rules("b"), ["-j c", "-j d", "-j e"]);
        assert_eq!(rules("c"), [""; 0]);
        let all: Vec<_> = table.rules().map(RuleLine::chain).collect();
        assert_eq!(all, ["b", "a", "b", "b"]);
        let chains: Vec<_> = table.chains().map(ChainLine::name).collect();
        assert_eq!(chains, ["a", "b", "b"]);
        assert_eq!(table.chain("b").unwrap().counters(), None);
        assert!(table.chain("c").is_none());
    }

    #[test]
    fn tables_are_found_by_name() {
        let text = "*nat\nCOMMIT\n*raw\n:a - [0:0]\nCOMMIT\n*raw\nCOMMIT\n";
        let tables = Tables::parse(text).unwrap();
        let names: Vec<_> = tables.iter().map(Table::name).collect();
        assert_eq!(names, ["nat", "raw", "raw"]);
        assert_eq!(tables.get("raw").unwrap().lines().len(), 3);
        assert!(tables.get("filter").is_none());
    }
}
