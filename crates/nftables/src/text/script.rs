//! The text of objects, transactions and rulesets: scripts that `nft -f` loads.

use std::fmt;
use std::sync::Arc;

use super::listing::{Listing, Sets};
use super::literal::Span;
use super::operation::ElementText;
use crate::expr::{CmpOp, Expr, MetaKey, PayloadBase};
use crate::expression::Term;
use crate::language::header::Layer;
use crate::object::ruleset::TableContent;

use crate::transaction::Step;
use crate::{
    Chain, ChainFlags, Comment, DataKind, Element, Field, Flowtable, Name, Object, Rule, Ruleset,
    SetFlags, SetPolicy, SetSpec, StatefulObject, Table, TableFlags, TableId, Transaction,
};

impl SetSpec {
    /// Returns nft's keyword: `set` or `map`.
    pub(crate) fn keyword(&self) -> &'static str {
        match self.data {
            DataKind::None => "set",
            _ => "map",
        }
    }

    /// Returns the lines of the declaration.
    ///
    /// `any_transport`: see [`fields_text`].
    fn lines(&self, any_transport: bool) -> Vec<String> {
        let mut lines = vec![self.type_line(any_transport)];
        if self.policy == SetPolicy::Memory {
            lines.push("policy memory".to_owned());
        }
        if let Some(size) = self.size {
            lines.push(format!("size {size}"));
        }
        let words = [
            (SetFlags::CONSTANT, "constant"),
            (SetFlags::DYNAMIC, "dynamic"),
            (SetFlags::INTERVAL, "interval"),
            (SetFlags::TIMEOUT, "timeout"),
        ];
        lines.extend(flags_line(&words, |flag| self.flags.contains(flag)));
        if !self.exprs.is_empty() {
            let exprs: Vec<_> = self.exprs.iter().map(Expr::without_counts).collect();
            let text = Listing::new(Some(self.table.family)).inner(&exprs);
            lines.push(text.trim().to_owned());
        }
        if self.auto_merge {
            lines.push("auto-merge".to_owned());
        }
        if let Some(timeout) = self.timeout {
            lines.push(format!("timeout {}", Span(timeout)));
        }
        if let Some(interval) = self.gc_interval {
            lines.push(format!("gc-interval {}", Span(interval)));
        }
        if let Some(comment) = &self.comment {
            lines.push(comment.to_string());
        }
        lines
    }

    fn type_line(&self, any_transport: bool) -> String {
        let is_typeof = self.is_declared();
        let word = if is_typeof { "typeof" } else { "type" };
        let key = fields_text(&self.key, is_typeof, false);
        match &self.data {
            DataKind::None => format!("{word} {key}"),
            DataKind::Verdict => format!("{word} {key} : verdict"),
            DataKind::Object(kind) => {
                let kind = crate::expr::object_kind(*kind).unwrap_or("counter");
                format!("{word} {key} : {kind}")
            }
            DataKind::Fields(fields) => {
                let data = fields_text(fields, is_typeof, any_transport);
                let interval = if self.data_intervals { "interval " } else { "" };
                format!("{word} {key} : {interval}{data}")
            }
        }
    }

    /// Returns whether no key field belongs to a single transport protocol.
    fn is_of_any_transport(&self) -> bool {
        let of_one = |field: &Field| match field.expression.as_ref().map(|s| &s.0) {
            Some(Term::Header(header)) => matches!(header.layer, Layer::Transport(_)),
            _ => false,
        };
        !self.key.iter().any(of_one)
    }
}

/// Returns the text of fields after `type` or `typeof`.
///
/// If map data is declared as a port of one protocol, nft adds a protocol match
/// to the first rule that uses the map. With `any_transport` such a
/// port is therefore declared as `th sport` or `th dport`.
fn fields_text(fields: &[Field], is_typeof: bool, any_transport: bool) -> String {
    let text = |field: &Field| match (&field.expression, is_typeof) {
        (Some(expression), true) => match &expression.0 {
            Term::Header(header)
                if any_transport
                    && matches!(header.layer, Layer::Transport(_))
                    && header.name.ends_with("port") =>
            {
                format!("th {}", header.name)
            }
            _ => expression.to_string(),
        },
        (None, true) => match &field.declared {
            Some(declared) => declared.text.to_string(),
            None => field.datatype.to_string(),
        },
        (_, false) => field.datatype.to_string(),
    };
    let fields: Vec<String> = fields.iter().map(text).collect();
    fields.join(" . ")
}

impl fmt::Display for Object {
    /// Writes the commands that add the object. The alternate form (`{:#}`) names standard
    /// priorities: `priority filter + 10`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Table(table) => fmt_table(f, table),
            Self::Set(set) => fmt_set(f, set),
            Self::Element(element) => fmt_elements(f, "add", std::slice::from_ref(element)),
            Self::Stateful(object) => fmt_stateful(f, object),
            Self::Flowtable(flowtable) => fmt_flowtable(f, flowtable),
            Self::Chain(chain) => {
                fmt_chain(f, chain)?;
                (0..chain.rules.len()).try_for_each(|at| {
                    writeln!(f)?;
                    fmt_rule(f, chain, at)
                })
            }
        }
    }
}

impl Table {
    /// Returns the lines of the declaration.
    fn lines(&self) -> Vec<String> {
        let words = [
            (TableFlags::DORMANT, "dormant"),
            (TableFlags::OWNER, "owner"),
            (TableFlags::PERSIST, "persist"),
        ];
        let flags = flags_line(&words, |flag| self.flags.contains(flag));
        let mut lines: Vec<_> = flags.into_iter().collect();
        lines.extend(self.comment.as_ref().map(Comment::to_string));
        lines
    }
}

/// Returns the line of the flags that are set, if any.
fn flags_line<F: Copy>(words: &[(F, &str)], is_there: impl Fn(F) -> bool) -> Option<String> {
    let words = words.iter().filter(|(flag, _)| is_there(*flag));
    let words: Vec<&str> = words.map(|(_, word)| *word).collect();
    (!words.is_empty()).then(|| format!("flags {}", words.join(",")))
}

fn fmt_table(f: &mut fmt::Formatter<'_>, table: &Table) -> fmt::Result {
    write!(f, "add table {}", table.id)?;
    match &*table.lines() {
        [] => Ok(()),
        lines => write!(f, " {{ {}; }}", lines.join("; ")),
    }
}

fn fmt_stateful(f: &mut fmt::Formatter<'_>, object: &StatefulObject) -> fmt::Result {
    let keyword = object.state.keyword();
    if !object.has_syntax() {
        return write!(f, "# {keyword} {} {}", object.table, object.name);
    }
    let lines = object.lines().join("; ");
    write!(
        f,
        "add {keyword} {} {} {{ {lines}; }}",
        object.table, object.name
    )
}

fn fmt_flowtable(f: &mut fmt::Formatter<'_>, flowtable: &Flowtable) -> fmt::Result {
    let (lines, name) = (flowtable.lines().join("; "), &flowtable.name);
    write!(f, "add flowtable {} {name} {{ {lines}; }}", flowtable.table)
}

fn fmt_set(f: &mut fmt::Formatter<'_>, set: &SetSpec) -> fmt::Result {
    let lines = set.lines(set.is_of_any_transport()).join("; ");
    write!(
        f,
        "add {} {} {} {{ {lines}; }}",
        set.keyword(),
        set.table,
        set.name
    )
}

fn fmt_chain(f: &mut fmt::Formatter<'_>, chain: &Chain) -> fmt::Result {
    write!(f, "add chain {} {}", chain.table, chain.name)?;
    match (&chain.base, &chain.comment) {
        (None, None) => Ok(()),
        (base, comment) => {
            f.write_str(" {")?;
            if let Some(base) = base {
                match f.alternate() {
                    true => write!(f, " {}", base.named(chain.table.family))?,
                    false => write!(f, " {base}")?,
                }
            }
            if chain.flags.contains(ChainFlags::OFFLOAD) {
                f.write_str(" flags offload;")?;
            }
            if let Some(comment) = comment {
                write!(f, " {comment};")?;
            }
            f.write_str(" }")
        }
    }
}

fn fmt_rule(f: &mut fmt::Formatter<'_>, chain: &Chain, at: usize) -> fmt::Result {
    let text = chain
        .rules
        .get(at)
        .map(|rule| rule.text(Some(chain.table.family)));
    write!(
        f,
        "add rule {} {} {}",
        chain.table,
        chain.name,
        text.unwrap_or_default()
    )
}

fn fmt_elements(f: &mut fmt::Formatter<'_>, action: &str, elements: &[Element]) -> fmt::Result {
    let Some(first) = elements.first() else {
        return Ok(());
    };
    let with_data = action == "add";
    write!(
        f,
        "{action} element {} {} {{",
        first.set().table,
        first.set().name
    )?;
    if let [element] = elements {
        return write!(f, " {} }}", ElementText { element, with_data });
    }
    for element in elements {
        write!(f, "\n\t{},", ElementText { element, with_data })?;
    }
    f.write_str("\n}")
}

impl fmt::Display for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let delete = match self.destroys {
            true => "destroy",
            false => "delete",
        };
        for step in &self.steps {
            match step {
                Step::AddTable(table) => fmt_table(f, table)?,
                Step::DeleteTable(table) => write!(f, "{delete} table {}", table.id)?,
                Step::AddStateful(object) => fmt_stateful(f, object)?,
                Step::DeleteStateful(object) => {
                    let (keyword, name) = (object.state.keyword(), &object.name);
                    write!(f, "{delete} {keyword} {} {name}", object.table)?;
                }
                Step::AddFlowtable(flowtable) => fmt_flowtable(f, flowtable)?,
                Step::DeleteFlowtable(flowtable) => {
                    write!(
                        f,
                        "{delete} flowtable {} {}",
                        flowtable.table, flowtable.name
                    )?;
                }
                Step::AddSet(set) => fmt_set(f, set)?,
                Step::DeleteSet(set) => {
                    write!(f, "{delete} {} {} {}", set.keyword(), set.table, set.name)?;
                }
                Step::AddChain(chain) => fmt_chain(f, chain)?,
                Step::FlushChain(chain) => {
                    // Only a message can flush a chain that may not exist.
                    let flush = match self.destroys {
                        true => "# destroy rules of chain",
                        false => "flush chain",
                    };
                    write!(f, "{flush} {} {}", chain.table, chain.name)?;
                }
                Step::DeleteChain(chain) => {
                    write!(f, "{delete} chain {} {}", chain.table, chain.name)?;
                }
                Step::AddRule(chain, at) => fmt_rule(f, chain, *at)?,
                Step::AddElements(elements) => fmt_elements(f, "add", elements)?,
                Step::DeleteElements(elements) => fmt_elements(f, delete, elements)?,
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Ruleset {
    /// Writes the ruleset like `nft list ruleset`. The alternate form (`{:#}`) names
    /// standard priorities: `priority filter + 10`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tables
            .iter()
            .try_for_each(|(id, content)| content.fmt(f, id))
    }
}

impl TableContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>, id: &TableId) -> fmt::Result {
        let named_sets = Arc::new(self.named_sets());
        writeln!(f, "table {id} {{")?;
        for line in self.table.iter().flat_map(|table| table.lines()) {
            writeln!(f, "\t{line}")?;
        }
        for object in self.stateful.values() {
            let (keyword, name) = (object.state.keyword(), &object.name);
            fmt_block(f, keyword, name, &object.lines())?;
        }
        for flowtable in self.flowtables.values() {
            fmt_block(f, "flowtable", &flowtable.name, &flowtable.lines())?;
        }
        for (name, (set, elements)) in &self.sets {
            let Some(set) = set.as_ref().or_else(|| elements.first().map(Element::set)) else {
                continue;
            };
            writeln!(f, "\t{} {name} {{", set.keyword())?;
            let any_transport = set.is_of_any_transport() && self.is_used_for_any(name);
            for line in set.lines(any_transport) {
                writeln!(f, "\t\t{line}")?;
            }
            fmt_listed(f, elements)?;
            writeln!(f, "\t}}")?;
        }
        for chain in self.ordered_chains() {
            writeln!(f, "\tchain {} {{", chain.name)?;
            if let Some(comment) = &chain.comment {
                writeln!(f, "\t\t{comment}")?;
            }
            if let Some(base) = &chain.base {
                let offload = match chain.flags.contains(ChainFlags::OFFLOAD) {
                    true => " flags offload;",
                    false => "",
                };
                let base = match f.alternate() {
                    true => base.named(id.family),
                    false => base.to_string(),
                };
                writeln!(f, "\t\t{base}{offload}")?;
            }
            for rule in &*chain.rules {
                writeln!(f, "\t\t{}", rule.text_with(Some(id.family), &named_sets))?;
            }
            writeln!(f, "\t}}")?;
        }
        writeln!(f, "}}")
    }
}

impl TableContent {
    /// Returns whether a rule without a match of the transport protocol uses the set.
    fn is_used_for_any(&self, set: &Name) -> bool {
        let rules = self.chains.values().flat_map(|chain| &*chain.rules);
        let uses = |rule: &&Rule| rule.sets().any(|used| used.name() == set);
        let is_l4proto = |expr: &Expr| match expr {
            Expr::Meta(meta) => meta.key == MetaKey::L4Proto,
            Expr::Payload(payload) => payload.base == PayloadBase::Network && payload.len == 1,
            _ => false,
        };
        let is_match = |pair: &[Expr]| match pair {
            [load, Expr::Cmp(cmp)] => is_l4proto(load) && cmp.op == CmpOp::Eq,
            _ => false,
        };
        let mut rules = rules.filter(uses);
        rules.any(|rule| !rule.exprs.windows(2).any(is_match))
    }

    fn named_sets(&self) -> Sets {
        let sets = self.sets.values().filter_map(|(set, _)| set.as_ref());
        sets.map(|set| (set.name.clone(), set.clone())).collect()
    }
}

/// Writes a named block of a table.
fn fmt_block(
    f: &mut fmt::Formatter<'_>,
    keyword: &str,
    name: &Name,
    lines: &[String],
) -> fmt::Result {
    writeln!(f, "\t{keyword} {name} {{")?;
    for line in lines {
        writeln!(f, "\t\t{line}")?;
    }
    writeln!(f, "\t}}")
}

fn fmt_listed(f: &mut fmt::Formatter<'_>, elements: &[Element]) -> fmt::Result {
    if elements.is_empty() {
        return Ok(());
    }
    let mut sorted: Vec<&Element> = elements.iter().collect();
    sorted.sort_by(|a, b| a.key_bytes().cmp(b.key_bytes()));
    writeln!(f, "\t\telements = {{")?;
    for element in sorted {
        writeln!(f, "\t\t\t{element},")?;
    }
    writeln!(f, "\t\t}}")
}

#[cfg(test)]
mod tests {
    use crate::expression::{concat, ip_daddr, l4proto, tcp_dport, th_dport};
    use crate::{Family, Field, Name, Object, Set, TableId};

    fn declared(key: &[Field]) -> String {
        let table = TableId::new(Family::Ip, Name::new("t").unwrap());
        let data = concat((ip_daddr(), tcp_dport())).into_fields();
        let map = Set::map(table, Name::new("m").unwrap(), key, data);
        Object::from(map).to_string()
    }

    #[test]
    fn the_port_in_map_data_is_declared_for_any_protocol() {
        assert_eq!(
            declared(&concat((ip_daddr(), l4proto(), th_dport())).into_fields()),
            "add map ip t m { typeof ip daddr . meta l4proto . th dport : ip daddr . th dport; }"
        );
    }

    #[test]
    fn the_port_in_map_data_keeps_the_protocol_of_the_key() {
        assert_eq!(
            declared(&concat((ip_daddr(), tcp_dport())).into_fields()),
            "add map ip t m { typeof ip daddr . tcp dport : ip daddr . tcp dport; }"
        );
    }
}
