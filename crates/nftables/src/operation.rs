//! Single operations of a transaction, to name them in errors.

use std::fmt;

use crate::{Chain, Element, Object, Rule};

/// One operation of a transaction.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Operation {
    /// What is to be done.
    pub action: Action,
    /// What it is to be done to.
    pub subject: Subject,
}

impl Operation {
    /// Returns the operation that does something to a subject.
    pub fn new(action: Action, subject: Subject) -> Self {
        Self { action, subject }
    }
}

/// What is to be done.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Action {
    /// The object is made.
    Add,
    /// The object is removed.
    Delete,
    /// The rules of the chain are removed.
    Flush,
    /// The transaction as a whole is begun or committed.
    Commit,
}

/// What an operation is done to.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Subject {
    /// A table, a set, a chain without its rules or an element.
    Object(Box<Object>),
    /// A rule of a chain.
    Rule(Box<Chain>, Box<Rule>),
    /// One of many elements: it is unknown which.
    Elements {
        /// The first of them.
        first: Box<Element>,
        /// The last of them.
        last: Box<Element>,
        /// How many there are.
        count: usize,
    },
    /// All of the transaction.
    Transaction,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Add => "add",
            Self::Delete => "delete",
            Self::Flush => "flush",
            Self::Commit => "commit",
        })
    }
}

impl fmt::Display for Operation {
    /// Writes the operation as nft does, without the properties of objects.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let action = self.action;
        match &self.subject {
            Subject::Object(object) => match &**object {
                Object::Table(table) => write!(f, "{action} table {}", table.id),
                Object::Set(set) => {
                    write!(f, "{action} {} {} {}", set.noun(), set.table, set.name)
                }
                Object::Chain(chain) => write!(f, "{action} chain {} {}", chain.table, chain.name),
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
            Subject::Transaction => write!(f, "{action} transaction"),
        }
    }
}

/// An element with or without what it maps to.
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
