//! The text of operations, for error messages.

use std::fmt;

use crate::{Action, Element, Object, Operation, Subject};

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Add => "add",
            Self::Delete => "delete",
            Self::Destroy => "destroy",
            Self::Replace => "replace",
            Self::Flush => "flush",
            Self::Commit => "commit",
        })
    }
}

impl fmt::Display for Operation {
    /// Writes the operation in nft syntax, without the properties of objects.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let action = self.action;
        match &self.subject {
            Subject::Object(object) => match &**object {
                Object::Table(table) => write!(f, "{action} table {}", table.id),
                Object::Set(set) => {
                    write!(f, "{action} {} {} {}", set.keyword(), set.table, set.name)
                }
                Object::Chain(chain) => write!(f, "{action} chain {} {}", chain.table, chain.name),
                Object::Stateful(object) => {
                    let kind = object.state.keyword();
                    write!(f, "{action} {kind} {} {}", object.table, object.name)
                }
                Object::Flowtable(flowtable) => {
                    let (table, name) = (&flowtable.table, &flowtable.name);
                    write!(f, "{action} flowtable {table} {name}")
                }
                Object::Element(element) => {
                    let set = element.set();
                    let text = ElementText {
                        element,
                        with_data: action == Action::Add,
                    };
                    write!(
                        f,
                        "{action} element {} {} {{ {text} }}",
                        set.table, set.name
                    )
                }
            },
            Subject::Rule(chain, rule) => {
                let text = rule.text(Some(chain.table.family));
                write!(f, "{action} rule {} {} {text}", chain.table, chain.name)
            }
            Subject::RuleHandle {
                table,
                chain,
                handle,
            } => write!(f, "{action} rule {table} {chain} handle {}", handle.0),
            Subject::Elements { first, last, count } => {
                let set = first.set();
                let [first, last] = [first, last].map(|element| ElementText {
                    element,
                    with_data: false,
                });
                write!(
                    f,
                    "{action} {count} elements {} {} {{ {first}, …, {last} }}",
                    set.table, set.name
                )
            }
            Subject::Index(index) => write!(f, "{action} operation {index}"),
            Subject::Transaction => write!(f, "{action} transaction"),
        }
    }
}

impl Element {
    /// Returns the text of the key.
    pub(crate) fn key_text(&self) -> impl fmt::Display {
        ElementText {
            element: self,
            with_data: false,
        }
    }
}

/// Displays an element with or without its data.
pub(crate) struct ElementText<'a> {
    pub(crate) element: &'a Element,
    pub(crate) with_data: bool,
}

impl fmt::Display for ElementText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.with_data {
            self.element.fmt(f)
        } else {
            self.element.fmt_key(f)
        }
    }
}
