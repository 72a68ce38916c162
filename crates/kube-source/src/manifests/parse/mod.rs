//! Parsing of manifests.

use serde::{Deserialize, Deserializer};
use vipline_service_model::{Event, Kind, api};

use super::fault::{Fault, Key, Place, Position};
use super::json::{self, Json};
use super::object::Object;
use super::tree::{Duplicates, Node, Value};
use super::{tree, typed, validate};

/// Content of a manifest.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Manifest {
    /// Valid objects, in the order of the file.
    pub objects: Vec<ValidObject>,
    /// Invalid objects.
    pub invalid: Vec<InvalidObject>,
    /// Objects of other kinds.
    pub ignored: Vec<IgnoredObject>,
}

/// An object and its position.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ValidObject {
    /// Kind and name.
    pub key: Key,
    /// Start of the object.
    pub place: Place,
    /// The object.
    pub object: Box<Object>,
}

impl ValidObject {
    fn new(kind: Kind, place: Place, mut object: Object) -> Self {
        let metadata = object.metadata_mut();
        let key = Key::new(kind, &metadata.namespace, &metadata.name);
        metadata.namespace = key.name.namespace.as_ref().into();
        object.shrink();
        let object = Box::new(object);
        Self { key, place, object }
    }
}

/// An invalid object.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct InvalidObject {
    /// Kind and name, if known.
    pub key: Option<Key>,
    /// Start of the object.
    pub place: Place,
    /// The faults; never empty.
    pub faults: Vec<Fault>,
}

/// An object of a kind that this crate does not read.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct IgnoredObject {
    /// API version and kind.
    pub kind: String,
    /// Start of the object.
    pub place: Place,
}

/// Parses a manifest: YAML or JSON documents, each an object or a list of
/// objects.
///
/// A file of plain JSON takes less time and memory than the same file in YAML.
///
/// # Errors
///
/// The text is neither YAML nor JSON. Then no object is known.
pub fn parse(text: &str) -> Result<Manifest, Fault> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let Some(documents) = json::documents(text) else {
        return parse_trees(text);
    };
    let numbers = Documents::new(text);
    let mut manifest = Manifest::default();
    for document in documents {
        let number = numbers.number(document.at.line);
        manifest.read_json(&document, number, Inherited::default());
    }
    Ok(manifest)
}

/// Parses a manifest to the events of a first list: one for each object, and then
/// [`Event::Synced`].
///
/// Objects of other kinds are ignored.
///
/// # Errors
///
/// The first fault: the text is neither YAML nor JSON, or an object is invalid.
///
/// ```
/// use vipline_kube_source::manifests::parse::events;
///
/// let node = "apiVersion: v1\nkind: Node\nmetadata: {name: node-1}\n";
/// assert_eq!(events(node)?.len(), 2);
/// let error = events("apiVersion: v1\nkind: Node\n").unwrap_err();
/// assert_eq!(error.to_string(), "1:1: metadata: missing");
/// # Ok::<(), vipline_kube_source::manifests::fault::Fault>(())
/// ```
pub fn events(text: &str) -> Result<Vec<Event>, Fault> {
    let Manifest {
        objects, invalid, ..
    } = parse(text)?;
    let mut faults = invalid.into_iter().flat_map(|object| object.faults);
    match faults.next() {
        Some(fault) => Err(fault),
        None => {
            let applied = objects.into_iter().map(|valid| valid.object.applied());
            Ok(applied.chain([Event::Synced]).collect())
        }
    }
}

/// Parses a manifest of YAML or JSON documents.
pub(super) fn parse_trees(text: &str) -> Result<Manifest, Fault> {
    let numbers = Documents::new(text);
    let mut manifest = Manifest::default();
    for document in tree::read_as::<Document>(text, Duplicates::Reject)? {
        let number = numbers.number(document.at.line);
        manifest.append(document.manifest, number);
    }
    Ok(manifest)
}

/// The content of a document, which is read from the tree at once.
///
/// The tree of a document takes several times the memory of its objects.
struct Document {
    /// Start of the document.
    at: Position,
    /// Objects without the number of the document.
    manifest: Manifest,
}

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let node = Node::deserialize(deserializer)?;
        let mut manifest = Manifest::default();
        manifest.read(&node, 0, Inherited::default());
        manifest.objects.shrink_to_fit();
        Ok(Self {
            at: node.at,
            manifest,
        })
    }
}

/// Returns the number of the document that contains a line.
pub fn document_number(text: &str, line: u64) -> usize {
    Documents::new(text).number(line)
}

/// Starts of the documents of a file.
struct Documents {
    /// First line of each document, counted from 1.
    lines: Vec<u64>,
}

impl Documents {
    fn new(text: &str) -> Self {
        let mut lines = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let marker = line
                .strip_prefix("---")
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace));
            let content =
                !line.trim_start().is_empty() && !line.trim_start().starts_with(['#', '%']);
            if marker || (content && lines.is_empty()) {
                lines.push(number);
            }
        }
        Self { lines }
    }

    fn number(&self, line: u64) -> usize {
        self.lines.partition_point(|&first| first <= line).max(1)
    }
}

/// API version and kind that a list defines for its items.
#[derive(Clone, Copy, Default)]
struct Inherited<'a> {
    version: Option<&'a str>,
    kind: Option<&'a str>,
}

impl Manifest {
    /// Adds the content of a document.
    fn append(&mut self, content: Self, document: usize) {
        let Self {
            mut objects,
            mut invalid,
            mut ignored,
        } = content;
        let places = objects.iter_mut().map(|object| &mut object.place);
        let places = places.chain(invalid.iter_mut().map(|object| &mut object.place));
        for place in places.chain(ignored.iter_mut().map(|object| &mut object.place)) {
            place.document = document;
        }
        self.objects.append(&mut objects);
        self.invalid.append(&mut invalid);
        self.ignored.append(&mut ignored);
    }

    /// Reads an object. An object with a fault is read as a tree, which has the
    /// positions.
    fn read_json(&mut self, json: &Json<'_>, document: usize, inherited: Inherited<'_>) {
        if json.is_null() || self.try_json(json, document, inherited).is_some() {
            return;
        }
        match json.tree() {
            Ok(node) => self.read(&node, document, inherited),
            Err(fault) => self.invalid.push(InvalidObject {
                key: None,
                place: Place {
                    document,
                    at: json.at,
                },
                faults: vec![fault],
            }),
        }
    }

    /// Reads an object that has no fault. Returns `None`, and reads nothing, otherwise.
    fn try_json(
        &mut self,
        json: &Json<'_>,
        document: usize,
        inherited: Inherited<'_>,
    ) -> Option<()> {
        let header = json.header()?;
        let version = header.api_version().or(inherited.version)?;
        let kind = header.kind().or(inherited.kind)?;
        let place = Place {
            document,
            at: json.at,
        };
        match Handling::of(version, kind) {
            Handling::List(inherited) => {
                for item in json.items(&header)? {
                    self.read_json(&item, document, inherited);
                }
            }
            Handling::Object(kind) => {
                let object = decode_kind(json, kind)?;
                if !validate::is_valid(&object) {
                    return None;
                }
                self.objects.push(ValidObject::new(kind, place, object));
            }
            Handling::Version(_) => return None,
            Handling::Ignored => self.ignored.push(IgnoredObject {
                kind: format!("{version} {kind}"),
                place,
            }),
        }
        Some(())
    }

    fn read(&mut self, node: &Node<'_>, document: usize, inherited: Inherited<'_>) {
        let place = Place {
            document,
            at: node.at,
        };
        let invalid = |path: &str, reason: &str| InvalidObject {
            key: None,
            place,
            faults: vec![Fault::new(node.position(path), path, reason)],
        };
        if node.value == Value::Null {
            return;
        }
        if !matches!(node.value, Value::Map(_)) {
            return self.invalid.push(invalid("", "expected an object"));
        }
        let word = |name: &str| {
            node.get(name)
                .and_then(Node::text)
                .filter(|text| !text.is_empty())
        };
        let Some(version) = word("apiVersion").or(inherited.version) else {
            return self.invalid.push(invalid("apiVersion", "missing"));
        };
        let Some(kind) = word("kind").or(inherited.kind) else {
            return self.invalid.push(invalid("kind", "missing"));
        };
        match Handling::of(version, kind) {
            Handling::List(inherited) => self.read_list(node, document, inherited),
            Handling::Object(kind) => self.read_object(node, kind, place),
            Handling::Version(expected) => {
                let reason = format!("{kind} must have version {expected}, found {version}");
                self.invalid.push(invalid("apiVersion", &reason));
            }
            Handling::Ignored => {
                self.ignored.push(IgnoredObject {
                    kind: format!("{version} {kind}"),
                    place,
                });
            }
        }
    }

    fn read_list(&mut self, node: &Node<'_>, document: usize, inherited: Inherited<'_>) {
        match node.get("items").map(|items| &items.value) {
            None | Some(Value::Null) => {}
            Some(Value::List(items)) => {
                for item in items {
                    self.read(item, document, inherited);
                }
            }
            Some(_) => self.invalid.push(InvalidObject {
                key: None,
                place: Place {
                    document,
                    at: node.at,
                },
                faults: vec![Fault::new(
                    node.position("items"),
                    "items",
                    "expected a list",
                )],
            }),
        }
    }

    fn read_object(&mut self, node: &Node<'_>, kind: Kind, place: Place) {
        let name = |field| node.get("metadata")?.get(field)?.text();
        let key = name("name")
            .filter(|name| !name.is_empty())
            .map(|text| Key::new(kind, name("namespace").unwrap_or_default(), text));
        let faults = match read_kind(node, kind) {
            Err(fault) => vec![fault],
            Ok(object) => {
                let faults = validate::faults(&object, node);
                if faults.is_empty() {
                    return self.objects.push(ValidObject::new(kind, place, object));
                }
                faults
            }
        };
        self.invalid.push(InvalidObject { key, place, faults });
    }
}

fn read_kind(node: &Node<'_>, kind: Kind) -> Result<Object, Fault> {
    Ok(match kind {
        Kind::Service => Object::Service(typed::read(node)?),
        Kind::EndpointSlice => Object::Slice(typed::read(node)?),
        Kind::Node => Object::Node(typed::read(node)?),
        Kind::Namespace => Object::Namespace(typed::read(node)?),
        Kind::ServiceCidr => Object::ServiceCidr(typed::read(node)?),
    })
}

fn decode_kind(json: &Json<'_>, kind: Kind) -> Option<Object> {
    Some(match kind {
        Kind::Service => Object::Service(json.decode()?),
        Kind::EndpointSlice => Object::Slice(json.decode()?),
        Kind::Node => Object::Node(json.decode()?),
        Kind::Namespace => Object::Namespace(json.decode()?),
        Kind::ServiceCidr => Object::ServiceCidr(json.decode()?),
    })
}

/// How an object of some kind is handled.
enum Handling<'a> {
    /// A list, whose items are parsed.
    List(Inherited<'a>),
    /// An object that is parsed.
    Object(Kind),
    /// An object whose API version must be another one.
    Version(&'static str),
    /// An object that is ignored.
    Ignored,
}

impl<'a> Handling<'a> {
    fn of(version: &'a str, kind: &'a str) -> Self {
        if (version, kind) == ("v1", "List") {
            return Self::List(Inherited::default());
        }
        let (single, is_list) = match kind.strip_suffix("List") {
            Some(single) => (single, true),
            None => (kind, false),
        };
        let (expected, known) = match single {
            api::Service::KIND => (api::Service::API_VERSION, Kind::Service),
            api::EndpointSlice::KIND => (api::EndpointSlice::API_VERSION, Kind::EndpointSlice),
            api::Node::KIND => (api::Node::API_VERSION, Kind::Node),
            api::Namespace::KIND => (api::Namespace::API_VERSION, Kind::Namespace),
            api::ServiceCidr::KIND => (api::ServiceCidr::API_VERSION, Kind::ServiceCidr),
            _ => return Self::Ignored,
        };
        let group = |version: &'a str| version.split_once('/').map(|(group, _)| group);
        if group(version) != group(expected) {
            Self::Ignored
        } else if version != expected {
            Self::Version(expected)
        } else if is_list {
            Self::List(Inherited {
                version: Some(version),
                kind: Some(single),
            })
        } else {
            Self::Object(known)
        }
    }
}

#[cfg(test)]
mod tests;
