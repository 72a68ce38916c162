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

/// An error within a file, displayed as one line.
///
/// A parser of text knows neither file nor document: [`Self::in_file`] adds them.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Fault {
    /// The file, if known.
    pub file: Option<Arc<Path>>,
    /// Number of the document in the file, counted from 1, if known.
    pub document: Option<usize>,
    /// The object, if known.
    pub object: Option<Box<Key>>,
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
            file: None,
            document: None,
            object: None,
            at,
            path: path.into(),
            reason: Cow::Owned(reason.into()),
        }
    }

    /// Creates a fault of the whole file.
    pub fn unplaced(reason: impl Into<String>) -> Self {
        Self::new(Position::default(), "", reason)
    }

    /// Adds the file, and document and object if known.
    #[must_use]
    pub fn in_file(self, file: Arc<Path>, document: Option<usize>, object: Option<Key>) -> Self {
        Self {
            file: Some(file),
            document,
            object: object.map(Box::new),
            ..self
        }
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

/// Displays as `FILE:LINE:COLUMN: document N: KIND NAME: FIELD: REASON`, without unknown parts.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        if let Some(file) = &self.file {
            write!(f, "{}:", file.display())?;
            separator = " ";
        }
        if self.at.line > 0 {
            write!(f, "{}:{}:", self.at.line, self.at.column)?;
            separator = " ";
        }
        if let Some(document) = self.document {
            write!(f, "{separator}document {document}:")?;
            separator = " ";
        }
        if let Some(object) = &self.object {
            write!(f, "{separator}{object}:")?;
            separator = " ";
        }
        if !self.path.is_empty() {
            write!(f, "{separator}{}:", self.path)?;
            separator = " ";
        }
        write!(f, "{separator}{}", self.reason)
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
        let at = Position {
            line: 7,
            column: 14,
        };
        let file: Arc<Path> = Path::new("m/web.yaml").into();
        let key = Key {
            kind: Kind::Service,
            name: ObjectName::new("default", "web"),
        };
        let error = Fault::new(at, "spec.clusterIP", "missing");
        let error = error.in_file(Arc::clone(&file), Some(2), Some(key));
        let expected = "m/web.yaml:7:14: document 2: Service default/web: spec.clusterIP: missing";
        assert_eq!(error.to_string(), expected);
        let error = Fault::unplaced("permission denied").in_file(file, None, None);
        assert_eq!(error.to_string(), "m/web.yaml: permission denied");
    }
}
