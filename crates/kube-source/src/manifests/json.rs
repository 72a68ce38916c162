//! Plain JSON, decoded directly into the types of the model.
//!
//! [`tree`](super::tree) reads any YAML with positions, but takes several times the time
//! and memory. It reads a file that is not plain JSON, and objects that have a fault.

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::fault::{Fault, Position};
use super::strict::Strict;
use super::tree::{self, Node, Value};

/// Maximum depth of nested lists and objects. YAML may be deeper.
const MAX_DEPTH: usize = 32;

/// A JSON value of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Json<'a> {
    /// Start of the value.
    pub(crate) at: Position,
    text: &'a str,
}

/// The fields of an object that determine its handling.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Header<'a> {
    #[serde(borrow)]
    api_version: Option<Name<'a>>,
    #[serde(borrow)]
    kind: Option<Name<'a>>,
    #[serde(borrow)]
    items: Option<&'a RawValue>,
}

impl Header<'_> {
    /// Returns the API version, if any.
    pub(crate) fn api_version(&self) -> Option<&str> {
        text(self.api_version.as_ref())
    }

    /// Returns the kind, if any.
    pub(crate) fn kind(&self) -> Option<&str> {
        text(self.kind.as_ref())
    }
}

fn text<'a>(name: Option<&'a Name<'_>>) -> Option<&'a str> {
    name.map(|Name(text)| &**text)
        .filter(|text| !text.is_empty())
}

/// Splits a file of JSON objects, which are separated by lines with `---`.
///
/// Returns `None` if the file has any other content, duplicate keys or deep nesting.
/// [`tree::read`] reads it then, or returns the error.
pub(crate) fn documents(text: &str) -> Option<Vec<Json<'_>>> {
    let mut documents = Vec::new();
    let mut cursor = Cursor::new(text)?;
    let mut may_begin = true;
    loop {
        cursor.skip_whitespace();
        if cursor.rest().is_empty() {
            return Some(documents);
        }
        if cursor.skip_marker() {
            may_begin = true;
            continue;
        }
        if !may_begin || !cursor.rest().starts_with('{') {
            return None;
        }
        let at = cursor.at;
        let length = object_length(cursor.rest())?;
        let text = cursor.advance(length);
        documents.push(Json { at, text });
        may_begin = false;
    }
}

/// Returns the length of the JSON object at the start of a text.
fn object_length(text: &str) -> Option<usize> {
    let mut keys = Vec::new();
    let mut json = serde_json::Deserializer::from_str(text);
    let unique = Unique {
        keys: &mut keys,
        depth: 0,
    };
    unique.deserialize(&mut json).ok()?;
    Some(json.into_iter::<de::IgnoredAny>().byte_offset())
}

impl<'a> Json<'a> {
    /// Returns whether the value is null.
    pub(crate) fn is_null(&self) -> bool {
        self.text == "null"
    }

    /// Decodes the fields that determine the handling. Returns `None` if the value is not
    /// an object, or a field has another type.
    pub(crate) fn header(&self) -> Option<Header<'a>> {
        // serde would accept a list, too.
        let is_object = self.text.starts_with('{');
        is_object.then(|| serde_json::from_str(self.text).ok())?
    }

    /// Decodes the items of a list. Returns `None` if the items are not a list.
    pub(crate) fn items(&self, header: &Header<'a>) -> Option<Vec<Self>> {
        let Some(items) = header.items else {
            return Some(Vec::new());
        };
        let texts: Vec<&'a RawValue> = serde_json::from_str(items.get()).ok()?;
        let mut cursor = Cursor::new(self.text)?;
        cursor.at = self.at;
        let place = |text: &'a RawValue| {
            let text = text.get();
            cursor.seek(offset(self.text, text)?);
            Some(Self {
                at: cursor.at,
                text,
            })
        };
        texts.into_iter().map(place).collect()
    }

    /// Decodes an object. Returns `None` if the object does not have the type.
    pub(crate) fn decode<T: Deserialize<'a>>(&self) -> Option<T> {
        let mut json = serde_json::Deserializer::from_str(self.text);
        T::deserialize(Strict(&mut json)).ok()
    }

    /// Parses the value as a tree, with the positions in the file.
    ///
    /// # Errors
    ///
    /// YAML does not accept the value, for example because of an unprintable character.
    pub(crate) fn tree(&self) -> Result<Node<'a>, Fault> {
        let documents = tree::read(self.text).map_err(|mut fault| {
            fault.at = shifted(fault.at, self.at);
            fault
        })?;
        let node = documents.into_iter().next();
        let mut node = node.unwrap_or(Node {
            at: Position { line: 1, column: 1 },
            value: Value::Null,
        });
        shift(&mut node, self.at);
        Ok(node)
    }
}

/// Returns the offset of a part within a text.
fn offset(text: &str, part: &str) -> Option<usize> {
    (part.as_ptr().addr()).checked_sub(text.as_ptr().addr())
}

/// Converts positions relative to `start` into positions in the file.
fn shift(node: &mut Node<'_>, start: Position) {
    node.at = shifted(node.at, start);
    match &mut node.value {
        Value::List(items) => items.iter_mut().for_each(|item| shift(item, start)),
        Value::Map(entries) => entries.iter_mut().for_each(|(_, item)| shift(item, start)),
        _ => {}
    }
}

fn shifted(at: Position, start: Position) -> Position {
    Position {
        line: start.line + at.line.saturating_sub(1),
        column: match at.line {
            0 | 1 => start.column + at.column.saturating_sub(1),
            _ => at.column,
        },
    }
}

/// A place in a text and its position.
struct Cursor<'a> {
    text: &'a str,
    offset: usize,
    at: Position,
}

impl<'a> Cursor<'a> {
    /// Returns a cursor at the start. Returns `None` if the text has a line break that
    /// JSON does not know.
    fn new(text: &'a str) -> Option<Self> {
        let mut returns = text.match_indices('\r');
        if returns.any(|(index, _)| text.as_bytes().get(index + 1) != Some(&b'\n')) {
            return None;
        }
        Some(Self {
            text,
            offset: 0,
            at: Position { line: 1, column: 1 },
        })
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.offset..).unwrap_or_default()
    }

    /// Moves forward and returns the text between.
    fn advance(&mut self, length: usize) -> &'a str {
        let passed = self.rest().get(..length).unwrap_or_default();
        let lines = passed.bytes().filter(|&byte| byte == b'\n').count();
        self.at.line += lines as u64;
        let last = match passed.rsplit_once('\n') {
            Some((_, last)) => {
                self.at.column = 1;
                last
            }
            None => passed,
        };
        self.at.column += last.chars().count() as u64;
        self.offset += passed.len();
        passed
    }

    /// Moves forward to an offset.
    fn seek(&mut self, offset: usize) {
        self.advance(offset.saturating_sub(self.offset));
    }

    fn skip_whitespace(&mut self) {
        let rest = self.rest();
        self.advance(rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n']).len());
    }

    /// Skips `---` at the start of a line. Returns whether there was one.
    fn skip_marker(&mut self) -> bool {
        let after = self.rest().strip_prefix("---");
        let is_marker = after
            .is_some_and(|after| after.is_empty() || after.starts_with([' ', '\t', '\r', '\n']));
        let is_marker = is_marker && self.at.column == 1;
        if is_marker {
            self.advance(3);
        }
        is_marker
    }
}

/// Checks that the keys of all objects within a value are unique.
struct Unique<'k, 'de> {
    /// Keys of the enclosing objects, then of this one.
    keys: &'k mut Vec<Cow<'de, str>>,
    depth: usize,
}

impl<'de> Unique<'_, 'de> {
    fn inner(&mut self) -> Unique<'_, 'de> {
        Unique {
            keys: &mut *self.keys,
            depth: self.depth + 1,
        }
    }

    fn check_depth<E: de::Error>(&self) -> Result<(), E> {
        match self.depth < MAX_DEPTH {
            true => Ok(()),
            false => Err(E::custom("nested too deeply")),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Unique<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Unique<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        self.check_depth()?;
        while items.next_element_seed(self.inner())?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut entries: A) -> Result<(), A::Error> {
        self.check_depth()?;
        let start = self.keys.len();
        while let Some(Name(key)) = entries.next_key()? {
            self.keys.push(key);
            entries.next_value_seed(self.inner())?;
        }
        let own = &mut self.keys[start..];
        own.sort_unstable();
        let is_unique = own.is_sorted_by(|one, other| one < other);
        self.keys.truncate(start);
        match is_unique {
            true => Ok(()),
            false => Err(de::Error::custom("duplicate key")),
        }
    }
}

/// A string, borrowed from the text if it has no escapes.
#[derive(Debug, serde::Deserialize)]
#[serde(transparent)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::super::parse::{parse, parse_trees};
    use super::*;

    const JSON_SERVICE: &str = "{\"apiVersion\": \"v1\", \"kind\": \"Service\",\n\
        \"metadata\": {\"name\": \"web\", \"labels\": null, \"managedFields\": [{\"x\": 1}]},\n\
        \"spec\": {\"clusterIP\": \"10.96.0.1\", \"sessionAffinityConfig\": {\"x\": 1},\n\
        \"ports\": [{\"protocol\": \"TCP\", \"port\": 80}]}, \"status\": {}}\n";

    const JSON_SLICE: &str = "{\"apiVersion\": \"discovery.k8s.io/v1\", \"kind\": \"EndpointSlice\",\n\
        \"metadata\": {\"name\": \"web-1\", \"namespace\": \"shop\"}, \"addressType\": \"IPv4\",\n\
        \"endpoints\": [{\"addresses\": [\"10.0.0.1\"], \"conditions\": {\"ready\": true}}]}\n";

    #[test]
    fn plain_json_is_read_like_its_tree() {
        let (service, slice) = (JSON_SERVICE, JSON_SLICE);
        let list = |items: &str| {
            format!("{{\"apiVersion\": \"v1\", \"items\": {items}, \"kind\": \"List\"}}\n")
        };
        let with = |from: &str, to: &str| service.replace(from, to);
        let texts = [
            format!("{service}---\n{slice}\n--- {slice}---\n---\n"),
            format!("\n---\r\n---\n{service}\r\n---\n{slice}"),
            list(&format!(
                "[{service},\n null, {slice}, {{}}, 7, [], {service}]"
            )),
            list("null") + "---\n" + &list("{}") + "---\n" + &list("[]"),
            with("\"web\"", "\"w\\u0065b\\/ü\""),
            with("\"web\"", "\"\""),
            with("\"web\"", "7"),
            with("\"web\"", "\"ü\", \"ü\": [[[1.5, -7, 1e3, true]]]"),
            with("{\"x\": 1}", "[]"),
            with("80", "70000").replace("TCP", "ICMP") + "---\n" + slice,
            with("80", "80.5"),
            with("\"ports\": [{", "\"ports\": [[], {"),
            slice.replace("{\"ready\": true}", "[true, true, true]"),
            slice.replace("IPv4", "IPX"),
            with("\"v1\"", "\"v2\""),
            with("\"v1\"", "\"\""),
            with("\"v1\"", "[1]"),
            with("\"Service\"", "\"Secret\""),
            with("\"Service\"", "\"ServiceList\", \"items\": [{}]"),
        ];
        let faults_of = |text: &str| {
            assert!(documents(text).is_some(), "{text}");
            let manifest = parse(text).unwrap();
            assert_eq!(manifest, parse_trees(text).unwrap(), "{text}");
            manifest.invalid.len()
        };
        let faults: Vec<_> = texts.iter().map(|text| faults_of(text)).collect();
        let expected = [0, 0, 3, 1, 0, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1];
        assert_eq!(faults, expected);
    }

    #[test]
    fn yaml_and_invalid_json_are_read_as_trees() {
        let service = JSON_SERVICE;
        let valid = [
            format!("# comment\n{service}"),
            format!("{service}# comment\n"),
            format!("{service}...\n"),
            service.replace("\"TCP\"", "TCP"),
            service.replace("80}", "80,}"),
            service.replace('\n', "\r"),
            "kind: Secret\napiVersion: v1\n".into(),
        ];
        let deep = format!(
            "{{\"a\": {}{}}}",
            "[".repeat(MAX_DEPTH),
            "]".repeat(MAX_DEPTH)
        );
        let invalid = [
            service.replace("\"x\": 1", "\"x\": 1, \"x\": 2"),
            service.replace("\"kind\"", "\"kind\": \"A\", \"k\\u0069nd\""),
            format!("{service}{service}"),
            format!("{service} ---\n{service}"),
            format!("{service}]"),
            service.replace("80", "80\u{7}"),
            service.trim_end().trim_end_matches('}').to_owned(),
        ];
        assert!(documents(&deep).is_none());
        assert_eq!(parse(&deep), parse_trees(&deep));
        for text in valid.iter().chain(&invalid) {
            assert!(documents(text).is_none(), "{text}");
            assert_eq!(parse(text), parse_trees(text), "{text}");
        }
        for text in &valid {
            let manifest = parse(text).unwrap();
            assert!(manifest.invalid.is_empty(), "{text}: {manifest:?}");
        }
        for text in &invalid {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
