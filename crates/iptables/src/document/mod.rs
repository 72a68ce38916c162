//! Losslessly parsed documents.

mod line;

mod arguments;

mod command;

mod index;

mod parse;

mod objects;

mod restore;

use std::fmt;
use std::slice;

use index::{Chain, Index};

pub use command::{Command, RuleSpec};
pub use line::{ChainLine, CommandLine, Line, Policy, RuleLine, TableLine};
pub use restore::{Restore, jump_target};

/// A document of `iptables-save` or for `iptables-restore`: tables with chains and
/// rules.
///
/// The document borrows from its text and prints the same bytes.
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
    /// Lines before the first table.
    pub(crate) before: Vec<Line<'a>>,
    pub(crate) tables: Vec<Table<'a>>,
    /// Whether the last line ends with a newline.
    pub(crate) is_terminated: bool,
}

impl<'a> Tables<'a> {
    /// Returns the first table with a name.
    ///
    /// `iptables-save` prints each table once.
    pub fn get(&self, name: &str) -> Option<&Table<'a>> {
        self.iter().find(|table| table.name == name)
    }

    /// Returns the tables in order.
    pub fn iter(&self) -> slice::Iter<'_, Table<'a>> {
        self.tables.iter()
    }

    /// Returns all lines in order.
    pub fn lines(&self) -> impl Iterator<Item = &Line<'a>> {
        let tables = self
            .iter()
            .flat_map(|table| table.lines.iter().chain(&table.after));
        self.before.iter().chain(tables)
    }
}

impl<'t, 'a> IntoIterator for &'t Tables<'a> {
    type Item = &'t Table<'a>;
    type IntoIter = slice::Iter<'t, Table<'a>>;

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
    /// Lines, including the first and last.
    lines: Vec<Line<'a>>,
    /// Lines between this table and the next one, or the end.
    after: Vec<Line<'a>>,
    index: Index<'a>,
}

impl<'a> Table<'a> {
    /// Creates a table from its lines, from `*nat` to `COMMIT`.
    pub(crate) fn new(name: &'a str, mut lines: Vec<Line<'a>>) -> Self {
        lines.shrink_to_fit();
        Self {
            name,
            index: Index::new(&lines),
            lines,
            after: Vec::new(),
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
    pub fn lines(&self) -> slice::Iter<'_, Line<'a>> {
        self.lines.iter()
    }

    /// Returns the declared chains in order.
    pub fn chains(&self) -> impl Iterator<Item = &ChainLine<'a>> {
        self.lines.iter().filter_map(|line| match line {
            Line::Chain(chain) => Some(chain),
            _ => None,
        })
    }

    /// Returns the declaration of a chain, if any.
    pub fn chain(&self, name: &str) -> Option<&ChainLine<'a>> {
        match self.lines.get(self.index.get(name)?.declared?)? {
            Line::Chain(chain) => Some(chain),
            _ => None,
        }
    }

    /// Returns the rules of all chains in order.
    pub fn rules(&self) -> impl Iterator<Item = &RuleLine<'a>> {
        rules_in(&self.lines)
    }

    /// Returns the rules of one chain in order.
    ///
    /// The lookup takes constant time. The chain need not be declared.
    pub fn rules_of(&self, chain: &str) -> impl Iterator<Item = &RuleLine<'a>> {
        let chain = self.index.get(chain).into_iter();
        let ranges = chain.flat_map(Chain::ranges);
        let lines = ranges.filter_map(|range| self.lines.get(range.clone()));
        lines.flat_map(rules_in)
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

    /// Writes a save with Services of five endpoints each.
    fn save(services: usize) -> String {
        let mut text = "*nat\n".to_owned();
        let names = (0..services).map(|service| {
            let endpoints = (0..5).map(move |place| format!("KUBE-SEP-{service:015X}{place}"));
            (format!("KUBE-SVC-{service:016X}"), endpoints)
        });
        for (service, endpoints) in names.clone() {
            text += &format!(":{service} - [0:0]\n");
            text.extend(endpoints.map(|endpoint| format!(":{endpoint} - [0:0]\n")));
        }
        for (service, endpoints) in names {
            for endpoint in endpoints.clone() {
                text += &format!("-A {service} -j {endpoint}\n");
            }
            for endpoint in endpoints {
                text += &format!("-A {endpoint} -s 10.0.0.1/32 -j KUBE-MARK-MASQ\n");
                text +=
                    &format!("-A {endpoint} -p tcp -m tcp -j DNAT --to-destination 10.0.0.1:1\n");
            }
        }
        text + "COMMIT\n"
    }

    /// Returns the heap size of a document without its text, in bytes.
    fn heap(tables: &Tables<'_>) -> usize {
        let lines = |lines: &Vec<Line<'_>>| lines.capacity() * size_of::<Line<'_>>();
        let table =
            |table: &Table<'_>| lines(&table.lines) + lines(&table.after) + table.index.heap();
        let of_tables = tables.tables.capacity() * size_of::<Table<'_>>();
        lines(&tables.before) + of_tables + tables.iter().map(table).sum::<usize>()
    }

    #[test]
    fn a_document_takes_at_most_twice_the_memory_of_its_text() {
        for services in (100..400).step_by(10) {
            let text = save(services);
            let heap = heap(&Tables::parse(&text).unwrap());
            assert!(
                heap > text.len() / 2,
                "{heap} bytes of {} are not all",
                text.len()
            );
            assert!(heap <= text.len() * 2, "{heap} bytes for {}", text.len());
        }
    }

    #[test]
    fn documents_print_unchanged() {
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
    fn rules_of_a_chain_are_found_anywhere_in_the_table() {
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
