//! Label and field selectors.

use std::collections::BTreeMap;

use crate::kind::Kind;
use crate::store::Object;

/// Label and field selector of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<FieldRequirement>,
}

/// Requirement of a label selector.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Requirement {
    Exists(String),
    Missing(String),
    In(String, Vec<String>),
    /// Also matches objects without the label.
    NotIn(String, Vec<String>),
}

#[derive(Clone, Debug)]
struct FieldRequirement {
    field: &'static str,
    value: String,
    equal: bool,
}

impl Selector {
    /// Parses both selectors of a request. An empty string selects everything.
    ///
    /// # Errors
    ///
    /// A message about the invalid selector.
    pub(crate) fn parse(kind: Kind, labels: &str, fields: &str) -> Result<Self, String> {
        let field = |term| field(kind, term);
        Ok(Self {
            labels: terms(labels).map(requirement).collect::<Result<_, _>>()?,
            fields: terms(fields).map(field).collect::<Result<_, _>>()?,
        })
    }

    /// Returns whether the selector selects everything.
    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Returns whether an object is selected.
    pub(crate) fn matches(&self, object: &Object) -> bool {
        let (mut labels, mut fields) = (self.labels.iter(), self.fields.iter());
        labels.all(|requirement| requirement.holds(&object.labels))
            && fields.all(|requirement| requirement.holds(object))
    }
}

impl Requirement {
    fn holds(&self, labels: &BTreeMap<String, String>) -> bool {
        match self {
            Self::Exists(key) => labels.contains_key(key),
            Self::Missing(key) => !labels.contains_key(key),
            Self::In(key, values) => labels.get(key).is_some_and(|value| values.contains(value)),
            Self::NotIn(key, values) => {
                !labels.get(key).is_some_and(|value| values.contains(value))
            }
        }
    }
}

impl FieldRequirement {
    fn holds(&self, object: &Object) -> bool {
        (object.field(self.field) == self.value) == self.equal
    }
}

/// Splits a selector at commas outside parentheses.
fn terms(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    text.split(move |byte: char| {
        match byte {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        byte == ',' && depth == 0
    })
    .map(str::trim)
    .filter(|term| !term.is_empty())
}

fn requirement(term: &str) -> Result<Requirement, String> {
    if let Some(key) = term.strip_prefix('!') {
        return Ok(Requirement::Missing(name(key)?));
    }
    if let Some((key, value)) = term.split_once("!=") {
        return Ok(Requirement::NotIn(
            name(key)?,
            vec![value.trim().to_owned()],
        ));
    }
    if let Some((key, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
        return Ok(Requirement::In(name(key)?, vec![value.trim().to_owned()]));
    }
    let Some((key, rest)) = term.split_once(char::is_whitespace) else {
        return Ok(Requirement::Exists(name(term)?));
    };
    let rest = rest.trim();
    if let Some(values) = rest.strip_prefix("notin") {
        return Ok(Requirement::NotIn(name(key)?, list(values)?));
    }
    if let Some(values) = rest.strip_prefix("in") {
        return Ok(Requirement::In(name(key)?, list(values)?));
    }
    Err(format!("unable to parse requirement: {term}"))
}

/// Validates a label key: not empty, and without characters of the selector syntax.
fn name(text: &str) -> Result<String, String> {
    let text = text.trim();
    if text.is_empty() || text.contains(|c: char| c.is_whitespace() || "!=(),".contains(c)) {
        return Err(format!("unable to parse requirement: invalid key {text:?}"));
    }
    Ok(text.to_owned())
}

fn list(text: &str) -> Result<Vec<String>, String> {
    text.trim()
        .strip_prefix('(')
        .and_then(|text| text.strip_suffix(')'))
        .map(|text| {
            text.split(',')
                .map(|value| value.trim().to_owned())
                .collect()
        })
        .ok_or_else(|| format!("unable to parse requirement: no list of values in {text:?}"))
}

fn field(kind: Kind, term: &str) -> Result<FieldRequirement, String> {
    let (name, value, equal) = if let Some((name, value)) = term.split_once("!=") {
        (name, value, false)
    } else if let Some((name, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
        (name, value, true)
    } else {
        return Err(format!("invalid selector: {term:?}; can't understand it"));
    };
    let name = name.trim();
    let field = kind.fields().find(|field| *field == name);
    let field = field.ok_or_else(|| format!("field label not supported: {name}"))?;
    Ok(FieldRequirement {
        field,
        value: value.trim().to_owned(),
        equal,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn kind(name: &str) -> Kind {
        Kind::by_name(None, name).unwrap()
    }

    /// Returns whether a Service is selected.
    fn selects(labels: &str, fields: &str, service: Value) -> bool {
        let kind = kind("Service");
        let Value::Object(service) = service else {
            panic!("{service}")
        };
        let selector = Selector::parse(kind, labels, fields).unwrap();
        selector.matches(&Object::of_version(kind, 1, service))
    }

    #[test]
    fn every_operator_of_label_selectors_is_supported() {
        let named = |labels: Value| json!({"metadata": {"name": "web", "labels": labels}});
        let blue = named(json!({"color": "blue", "tier": "front"}));
        for (selector, with, without) in [
            ("", true, true),
            ("color", true, false),
            ("!color", false, true),
            ("color=blue", true, false),
            ("color==blue", true, false),
            ("color=red", false, false),
            ("color!=blue", false, true),
            ("color!=red", true, true),
            ("color in (red, blue)", true, false),
            ("color in (red)", false, false),
            ("color notin (red,blue)", false, true),
            ("color notin (red)", true, true),
            ("color in (red,blue),tier=front", true, false),
            ("color in (red,blue),tier=back", false, false),
            ("!service.kubernetes.io/headless , !other", true, true),
            ("color=", false, false),
        ] {
            assert_eq!(selects(selector, "", blue.clone()), with, "{selector}");
            assert_eq!(
                selects(selector, "", named(json!({}))),
                without,
                "{selector}"
            );
        }
    }

    #[test]
    fn field_selectors_support_the_fields_of_the_kind() {
        let service = json!({
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"clusterIP": "None", "type": "ClusterIP"},
        });
        for (fields, expected) in [
            ("metadata.name=web", true),
            ("metadata.name==web,metadata.namespace=shop", true),
            ("metadata.name!=web", false),
            ("metadata.namespace=other", false),
            ("spec.clusterIP=None", true),
            ("spec.clusterIP!=None", false),
            ("spec.type!=ExternalName,spec.clusterIP!=10.96.0.1", true),
        ] {
            assert_eq!(selects("", fields, service.clone()), expected, "{fields}");
        }
    }

    #[test]
    fn invalid_selectors_are_rejected() {
        for labels in ["!", "=x", "a b", "a in b", "a in (b", "a b c=d"] {
            assert!(
                Selector::parse(kind("Service"), labels, "").is_err(),
                "{labels}"
            );
        }
        for fields in ["metadata.name", "spec.nodeName=a"] {
            assert!(
                Selector::parse(kind("Service"), "", fields).is_err(),
                "{fields}"
            );
        }
        let of_a_service = Selector::parse(kind("Node"), "", "spec.clusterIP!=None");
        assert!(of_a_service.is_err());
    }
}
