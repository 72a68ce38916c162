//! Errors in manifests, with their positions.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use vipline_service_model::{Kind, ObjectName};

/// A position in a file. Lines and characters are counted from 1.
///
/// Exhaustive: a position is a line and a column.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Position {
    /// The line; 0 if unknown.
    pub line: u64,
    /// The character within the line.
    pub column: u64,
}

impl From<serde_saphyr::Location> for Position {
    fn from(location: serde_saphyr::Location) -> Self {
        Self {
            line: location.line(),
            column: location.column(),
        }
    }
}

/// An error within a file.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Fault {
    /// The position. Unknown if the line is 0.
    pub at: Position,
    /// The field, such as `spec.ports[0].port`. May be empty.
    pub path: String,
    /// The reason.
    pub reason: Cow<'static, str>,
}

impl Fault {
    /// Creates a fault of a field.
    pub fn new(at: Position, path: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            at,
            path: path.into(),
            reason: Cow::Owned(reason.into()),
        }
    }

    /// Creates a fault of the whole file.
    pub fn unplaced(reason: impl Into<String>) -> Self {
        Self::new(Position::default(), "", reason)
    }

    /// Prepends a field name to the path. `at` is the start of the object, used
    /// if the fault has no position.
    #[must_use]
    pub fn in_field(self, name: &str, at: Position) -> Self {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let name = match name.chars().all(plain) {
            true => Cow::Borrowed(name),
            false => Cow::Owned(format!("[{name:?}]")),
        };
        self.within(&name, at)
    }

    /// Prepends a list index to the path. `at` is the start of the list, used if
    /// the fault has no position.
    #[must_use]
    pub fn in_item(self, index: usize, at: Position) -> Self {
        self.within(&format!("[{index}]"), at)
    }

    fn within(mut self, step: &str, at: Position) -> Self {
        let separator = if self.path.is_empty() || self.path.starts_with('[') {
            ""
        } else {
            "."
        };
        self.path = format!("{step}{separator}{}", self.path);
        if self.at.line == 0 {
            self.at = at;
        }
        self
    }
}

/// Displays as `LINE:COLUMN: FIELD: REASON`, without unknown parts.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, path, reason } = self;
        if at.line > 0 {
            write!(f, "{}:{}: ", at.line, at.column)?;
        }
        if !path.is_empty() {
            write!(f, "{path}: ")?;
        }
        f.write_str(reason)
    }
}

impl std::error::Error for Fault {}

/// Kind and name, which identify an object.
///
/// Exhaustive: kind and name identify an object.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Key {
    /// The kind.
    pub kind: Kind,
    /// The name.
    pub name: ObjectName,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}

/// Start of an object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Place {
    /// Number of the document in the file, counted from 1.
    pub document: usize,
    /// Position of the object.
    pub at: Position,
}

/// An error in a file, displayed as one line.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ManifestError {
    /// The file.
    pub file: Arc<Path>,
    /// Number of the document in the file, counted from 1, if known.
    pub document: Option<usize>,
    /// The object, if known.
    pub object: Option<Key>,
    /// The error and its position.
    pub fault: Fault,
}

/// Displays as `FILE:LINE:COLUMN: document N: KIND NAME: FIELD: REASON`.
impl fmt::Display for ManifestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fault { at, path, reason } = &self.fault;
        write!(f, "{}:", self.file.display())?;
        if at.line > 0 {
            write!(f, "{}:{}:", at.line, at.column)?;
        }
        if let Some(document) = self.document {
            write!(f, " document {document}:")?;
        }
        if let Some(object) = &self.object {
            write!(f, " {object}:")?;
        }
        if !path.is_empty() {
            write!(f, " {path}:")?;
        }
        write!(f, " {reason}")
    }
}

impl std::error::Error for ManifestError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_grow_from_the_inside() {
        let at = |line| Position { line, column: 1 };
        let fault = Fault::new(Position::default(), "", "wrong");
        let fault = fault
            .in_field("port", at(4))
            .in_item(0, at(3))
            .in_field("ports", at(2));
        assert_eq!(fault.path, "ports[0].port");
        assert_eq!(fault.at, at(4));
        let label = Fault::new(at(1), "", "wrong").in_field("a.b/c", at(1));
        assert_eq!(label.in_field("labels", at(1)).path, r#"labels["a.b/c"]"#);
        assert_eq!(fault.to_string(), "4:1: ports[0].port: wrong");
        assert_eq!(Fault::unplaced("wrong").to_string(), "wrong");
    }

    #[test]
    fn an_error_names_file_document_object_field_and_reason() {
        let mut error = ManifestError {
            file: Path::new("m/web.yaml").into(),
            document: Some(2),
            object: Some(Key {
                kind: Kind::Service,
                name: ObjectName::new("default", "web"),
            }),
            fault: Fault::new(
                Position {
                    line: 7,
                    column: 14,
                },
                "spec.clusterIP",
                "missing",
            ),
        };
        let expected = "m/web.yaml:7:14: document 2: Service default/web: spec.clusterIP: missing";
        assert_eq!(error.to_string(), expected);
        error.document = None;
        error.object = None;
        error.fault = Fault::new(Position::default(), "", "permission denied");
        assert_eq!(error.to_string(), "m/web.yaml: permission denied");
    }
}
