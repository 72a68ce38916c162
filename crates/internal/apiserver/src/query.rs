//! Parses paths and parameters of requests.

use std::collections::BTreeMap;

use crate::key::Key;
use crate::kind::Kind;
use crate::status::StatusError;

/// Target of a path.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// All objects of a kind, or those of one namespace.
    Collection(Kind, Option<String>),
    /// One object.
    Object(Kind, Key),
    /// Status of one object.
    Status(Kind, Key),
}

/// Parameters of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query(BTreeMap<String, String>);

impl Target {
    /// Parses a path. Returns [`None`] for unknown paths.
    pub(crate) fn parse(path: &str) -> Option<Self> {
        let path = decode(path.trim_matches('/'));
        let segments: Vec<_> = path.split('/').collect();
        let (api_version, rest) = match segments.as_slice() {
            ["api", version, rest @ ..] => ((*version).to_owned(), rest),
            ["apis", group, version, rest @ ..] => (format!("{group}/{version}"), rest),
            _ => return None,
        };
        let kind = |plural| Kind::by_plural(&api_version, plural);
        Some(match rest {
            [plural] => Self::Collection(kind(plural)?, None),
            ["namespaces", namespace, plural] => {
                let kind = kind(plural).filter(|kind| kind.namespaced())?;
                Self::Collection(kind, Some((*namespace).to_owned()))
            }
            ["namespaces", namespace, plural, name] => {
                let kind = kind(plural).filter(|kind| kind.namespaced())?;
                Self::Object(kind, key(namespace, name))
            }
            ["namespaces", namespace, plural, name, "status"] => {
                let kind = kind(plural).filter(|kind| kind.namespaced() && kind.has_status())?;
                Self::Status(kind, key(namespace, name))
            }
            [plural, name] => {
                let kind = kind(plural).filter(|kind| !kind.namespaced())?;
                Self::Object(kind, key("", name))
            }
            [plural, name, "status"] => {
                let kind = kind(plural).filter(|kind| !kind.namespaced() && kind.has_status())?;
                Self::Status(kind, key("", name))
            }
            _ => return None,
        })
    }

    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Collection(kind, _) | Self::Object(kind, _) | Self::Status(kind, _) => *kind,
        }
    }
}

impl Query {
    /// Parses the query component of a URL.
    pub(crate) fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        Self(
            pairs
                .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
                .map(|(name, value)| (decode(name), decode(&value.replace('+', " "))))
                .collect(),
        )
    }

    /// Returns a parameter, or an empty string if it is absent.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// Returns whether a parameter is true.
    pub(crate) fn is_true(&self, name: &str) -> bool {
        matches!(self.text(name), "true" | "1")
    }

    /// Returns a numeric parameter.
    ///
    /// # Errors
    ///
    /// 400 if the value is not a number.
    pub(crate) fn number(&self, name: &str) -> Result<Option<u64>, StatusError> {
        match self.text(name) {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| {
                StatusError::bad_request(format!("invalid {name}: {text:?} is not a number"))
            }),
        }
    }
}

fn key(namespace: &str, name: &str) -> Key {
    Key {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

/// Decodes percent-encoded bytes.
fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let escaped = (*first == b'%').then(|| tail.get(..2)).flatten();
        let byte = escaped
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_parsed_to_collections_objects_and_statuses() {
        let seen = |path| match Target::parse(path)? {
            Target::Collection(kind, namespace) => Some(format!("{} {namespace:?}", kind.plural())),
            Target::Object(kind, key) => {
                Some(format!("{} {}/{}", kind.plural(), key.namespace, key.name))
            }
            Target::Status(kind, key) => Some(format!("status of {} {}", kind.plural(), key.name)),
        };
        for (path, expected) in [
            ("/api/v1/services", "services None"),
            ("/api/v1/namespaces/a/services", "services Some(\"a\")"),
            ("/api/v1/namespaces/a/services/b", "services a/b"),
            (
                "/api/v1/namespaces/a/services/b/status",
                "status of services b",
            ),
            ("/api/v1/nodes/node-1", "nodes /node-1"),
            ("/api/v1/namespaces/a", "namespaces /a"),
            (
                "/apis/discovery.k8s.io/v1/endpointslices",
                "endpointslices None",
            ),
            (
                "/apis/networking.k8s.io/v1/servicecidrs/x",
                "servicecidrs /x",
            ),
            (
                "/apis/networking.k8s.io/v1/servicecidrs/x/status",
                "status of servicecidrs x",
            ),
            (
                "/apis/networking.k8s.io/v1/ipaddresses/fd00::1",
                "ipaddresses /fd00::1",
            ),
        ] {
            assert_eq!(seen(path).as_deref(), Some(expected), "{path}");
        }
        for path in [
            "/",
            "/api/v1",
            "/api/v2/services",
            "/api/v1/services/web",
            "/api/v1/namespaces/a/nodes",
            "/apis/discovery.k8s.io/v1/namespaces/a/endpointslices/b/status",
            "/apis/networking.k8s.io/v1/ipaddresses/fd00::1/status",
        ] {
            assert_eq!(seen(path), None, "{path}");
        }
    }

    #[test]
    fn parameters_are_decoded() {
        let query = Query::parse("labelSelector=%21a%2Cb+in+%28c%29&watch=true&limit=5&odd=%zz%4");
        assert_eq!(query.text("labelSelector"), "!a,b in (c)");
        assert!(query.is_true("watch"));
        assert_eq!(query.number("limit").unwrap(), Some(5));
        assert_eq!(query.number("absent").unwrap(), None);
        assert!(query.number("odd").is_err());
        assert_eq!(query.text("odd"), "%zz%4");
    }
}
