//! Pictures of paths in the language of Graphviz.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::answer::{Answer, Explanation, Side};
use super::sentence::line;

/// Returns a graph with one cluster for each side of each answer.
pub(super) fn dot(explanation: &Explanation) -> String {
    let mut graph = Graph {
        text: "digraph explain {\n  rankdir=TB;\n  node [shape=box, fontname=\"monospace\"];\n"
            .to_owned(),
        nodes: 0,
    };
    for answer in explanation.answers() {
        graph.answer(answer);
    }
    graph.text + "}\n"
}

struct Graph {
    text: String,
    nodes: usize,
}

impl Graph {
    fn answer(&mut self, answer: &Answer) {
        let question = &answer.question;
        let client = self.node(
            &format!("{} ({})", question.source, question.from),
            "shape=ellipse",
        );
        let sides = [
            ("plan", Some(&answer.plan)),
            ("kernel", answer.kernel.as_ref()),
        ];
        for (name, side) in sides {
            if let Some(side) = side {
                let title = format!("{name}: {} {}", question.protocol, question.destination);
                self.side(&title, client, side);
            }
        }
    }

    fn side(&mut self, title: &str, client: usize, side: &Side) {
        let (cluster, title) = (self.nodes, quoted(title));
        let _ = writeln!(
            self.text,
            "  subgraph cluster_{cluster} {{\n  label={title};"
        );
        // Equal beginnings of paths share their nodes.
        let mut places: BTreeMap<(usize, String), usize> = BTreeMap::new();
        let mut edges = Vec::new();
        for path in &side.paths {
            let mut from = client;
            for step in &path.steps {
                let mut label = line(step);
                for element in &step.elements {
                    label = format!("{label}\n{element}");
                }
                let key = (from, label.clone());
                let to = match places.get(&key) {
                    Some(&known) => known,
                    None => {
                        let to = self.node(&label, "");
                        places.insert(key, to);
                        edges.push((from, to, String::new()));
                        to
                    }
                };
                from = to;
            }
            let color = match path.end.starts_with("to endpoint") {
                true => "color=darkgreen, shape=ellipse",
                false => "color=red, shape=ellipse",
            };
            let to = self.node(&path.end, color);
            edges.push((from, to, format!("{:.4}", path.probability)));
        }
        if let Some(error) = &side.error {
            let to = self.node(error, "color=red");
            edges.push((client, to, String::new()));
        }
        let _ = writeln!(self.text, "  }}");
        for (from, to, label) in edges {
            let label = quoted(&label);
            let _ = writeln!(self.text, "  n{from} -> n{to} [label={label}];");
        }
    }

    /// Adds a node and returns its number.
    fn node(&mut self, label: &str, attributes: &str) -> usize {
        let (number, label) = (self.nodes, quoted(label));
        let separator = if attributes.is_empty() { "" } else { ", " };
        let _ = writeln!(
            self.text,
            "  n{number} [label={label}{separator}{attributes}];"
        );
        self.nodes += 1;
        number
    }
}

/// Returns a quoted string of the language. The lines of a text with several are left-aligned.
fn quoted(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
    let end = if escaped.contains('\n') { "\\l" } else { "" };
    format!("\"{}{end}\"", escaped.replace('\n', "\\l"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_backslashes_and_line_breaks_are_escaped() {
        assert_eq!(quoted("a \"b\" \\\nc"), r#""a \"b\" \\\lc\l""#);
        assert_eq!(quoted(r"\N\n\"), r#""\\N\\n\\""#);
        assert_eq!(quoted("one\ntwo\nthree"), r#""one\ltwo\lthree\l""#);
    }
}
