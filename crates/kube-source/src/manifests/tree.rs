//! YAML and JSON documents as trees with positions.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{
    DuplicateKeyPolicy, MergeKeyPolicy, Spanned, UserMessageFormatter, alias_limits, budget,
    options,
};

use super::fault::{Fault, Position};

/// A value and its position in the file.
///
/// Exhaustive: a node is a value with its position.
#[derive(Clone, Debug, PartialEq)]
pub struct Node<'a> {
    /// Start of the value.
    pub at: Position,
    /// The value.
    pub value: Value<'a>,
}

/// A value of the JSON data model. Strings are borrowed from the file if
/// possible.
///
/// Exhaustive: these are the values of YAML and JSON.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// Null.
    Null,
    /// A Boolean.
    Bool(bool),
    /// A non-negative integer.
    Unsigned(u64),
    /// A negative integer.
    Signed(i64),
    /// Any other number.
    Float(f64),
    /// A string.
    Text(Cow<'a, str>),
    /// A list.
    List(Vec<Node<'a>>),
    /// An object in the order of the file. Keys are unique, except with
    /// [`Duplicates::Keep`].
    Map(Vec<(String, Node<'a>)>),
}

/// Maximum depth of nested lists and objects.
const MAX_DEPTH: usize = 64;

/// Maximum number of values that all aliases together expand to.
const MAX_ALIASED: usize = 10_000;

/// A limit that no file in memory reaches.
const UNLIMITED: usize = 1 << 32;

/// Handling of duplicate keys of an object.
///
/// Exhaustive: duplicate keys are kept or rejected.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Duplicates {
    /// Keep all, in the order of the file.
    Keep,
    /// Report an error.
    Reject,
}

/// Parses all documents of a file. Empty documents are left out.
///
/// # Errors
///
/// The text is neither YAML nor JSON. The rest of the file cannot be parsed
/// then.
pub fn read(text: &str) -> Result<Vec<Node<'_>>, Fault> {
    read_with(text, Duplicates::Reject)
}

/// Parses all documents of a file like [`read`], with a choice for duplicate
/// keys.
///
/// # Errors
///
/// The text is neither YAML nor JSON. The rest of the file cannot be parsed
/// then.
pub fn read_with(text: &str, duplicates: Duplicates) -> Result<Vec<Node<'_>>, Fault> {
    read_as(text, duplicates)
}

/// Parses all documents of a file like [`read_with`], as values of another type.
///
/// # Errors
///
/// The text is neither YAML nor JSON, or a document does not have the type.
pub(super) fn read_as<'a, T: Deserialize<'a>>(
    text: &'a str,
    duplicates: Duplicates,
) -> Result<Vec<T>, Fault> {
    let limits = budget! {
        max_depth: MAX_DEPTH,
        max_events: UNLIMITED,
        max_nodes: UNLIMITED,
        max_documents: UNLIMITED,
        max_total_scalar_bytes: UNLIMITED
    };
    let options = options! {
        budget: limits,
        alias_limits: alias_limits! { max_total_replayed_events: MAX_ALIASED },
        merge_keys: MergeKeyPolicy::Merge,
        duplicate_keys: match duplicates {
            Duplicates::Keep => DuplicateKeyPolicy::LastWins,
            Duplicates::Reject => DuplicateKeyPolicy::Error,
        },
        with_snippet: false
    };
    serde_saphyr::from_multiple_with_options(text, options).map_err(|error| fault(&error))
}

fn fault(error: &serde_saphyr::Error) -> Fault {
    let error = error.without_snippet();
    let location = error.location().unwrap_or(serde_saphyr::Location::UNKNOWN);
    let text = error.render_with_formatter(&UserMessageFormatter);
    let suffix = format!(" at line {}, column {}", location.line(), location.column());
    let reason = text.strip_suffix(&suffix).unwrap_or(&text);
    Fault::new(Position::from(location), "", reason)
}

impl<'a> Node<'a> {
    /// Returns the value of a key. Returns `None` if the key is missing or the
    /// node is not an object.
    pub fn get(&self, key: &str) -> Option<&Self> {
        let Value::Map(entries) = &self.value else {
            return None;
        };
        entries
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, node)| node)
    }

    /// Returns the value if it is a string.
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the position of a field such as `spec.ports[0].port`.
    ///
    /// If the field is missing, returns the start of the enclosing object.
    pub fn position(&self, path: &str) -> Position {
        let mut node = self;
        for step in path.split(['.', '[']).filter(|step| !step.is_empty()) {
            let inner = match (&node.value, step.strip_suffix(']')) {
                (Value::List(items), Some(index)) => index
                    .parse::<usize>()
                    .ok()
                    .and_then(|index| items.get(index)),
                _ => node.get(step),
            };
            let Some(inner) = inner else { break };
            node = inner;
        }
        node.at
    }
}

impl<'de> Deserialize<'de> for Node<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Spanned {
            value, referenced, ..
        } = Spanned::deserialize(deserializer)?;
        Ok(Self {
            at: Position::from(referenced),
            value,
        })
    }
}

impl<'de> Deserialize<'de> for Value<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<Self::Value, D::Error> {
        inner.deserialize_any(self)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        Ok(Value::Unsigned(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
        Ok(u64::try_from(value).map_or(Value::Signed(value), Value::Unsigned))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_borrowed_str<E>(self, value: &'de str) -> Result<Self::Value, E> {
        Ok(Value::Text(Cow::Borrowed(value)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Self::Value, E> {
        Ok(Value::Text(Cow::Owned(value.to_owned())))
    }

    fn visit_string<E>(self, value: String) -> Result<Self::Value, E> {
        Ok(Value::Text(Cow::Owned(value)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut map = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            map.push(entry);
        }
        Ok(Value::Map(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yaml_and_json_are_read_with_their_positions() {
        let yaml =
            "# note\n---\nspec:\n  ports:\n  - port: 80\n---\n---\n{\"a\":\n\t[1, -2, null]}\n";
        let documents = read(yaml).unwrap();
        let [first, second] = &documents[..] else {
            panic!("{documents:?}")
        };
        assert_eq!(
            first.position("spec.ports[0].port"),
            Position {
                line: 5,
                column: 11
            }
        );
        assert_eq!(
            first.position("spec.ports[0].name"),
            Position { line: 5, column: 5 }
        );
        assert_eq!(
            first.position("spec.ports[1].port"),
            Position { line: 5, column: 5 }
        );
        assert_eq!(first.position(""), Position { line: 3, column: 1 });
        assert_eq!(second.position("a[1]"), Position { line: 9, column: 6 });
        let Some(Value::List(items)) = second.get("a").map(|node| &node.value) else {
            panic!()
        };
        let values: Vec<_> = items.iter().map(|item| item.value.clone()).collect();
        assert_eq!(values, [Value::Unsigned(1), Value::Signed(-2), Value::Null]);
    }

    #[test]
    fn invalid_yaml_is_a_fault_with_a_position() {
        let place = |text: &str| read(text).unwrap_err().at;
        assert_eq!(place("a: 1\nb: [1, 2\nc: 3\n").line, 3);
        assert_eq!(place("a: 1\nb: 2\na: 3\n"), Position { line: 3, column: 1 });
        assert_eq!(place("{\"a\": \"").line, 1);
    }

    #[test]
    fn a_small_file_cannot_grow_large_or_deep() {
        let deep = "[".repeat(10_000);
        assert!(read(&deep).is_err());
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..10 {
            let aliases = vec![format!("*a{}", level - 1); 9].join(", ");
            bomb += &format!("a{level}: &a{level} [{aliases}]\n");
        }
        assert!(read(&bomb).is_err());
    }

    #[test]
    fn reasons_do_not_repeat_the_position_or_name_a_library() {
        for text in ["a: 1\nb: [1, 2\nc: 3\n", "a: 1\na: 2\n", "a: *b\n"] {
            let reason = read(text).unwrap_err().reason;
            assert!(!reason.contains(" at line "), "{reason}");
            assert!(!reason.contains("Options"), "{reason}");
        }
    }
}
