//! Lists: versions and pagination.

use std::ops::Bound;
use std::sync::Arc;

use crate::key::Key;
use crate::kind::Kind;
use crate::query::Query;
use crate::selector::Selector;
use crate::status::StatusError;
use crate::store::{Object, Store};

/// Objects selected by a list or watch.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    pub(crate) kind: Kind,
    pub(crate) namespace: Option<String>,
    pub(crate) selector: Selector,
}

/// Requested version of a list (`resourceVersion`, `resourceVersionMatch`).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Version {
    /// Newest version.
    Newest,
    /// Any version.
    Any,
    /// This version or a later one.
    NotOlderThan(u64),
    /// Exactly this version.
    Exact(u64),
}

/// Continue token: last key and version. Version 0 continues with the newest version.
#[derive(Clone, Debug)]
struct Continue {
    version: u64,
    after: Key,
}

/// A page of a list.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) kind: Kind,
    pub(crate) items: Vec<Arc<Object>>,
    pub(crate) version: u64,
    next: Option<String>,
    remaining: Option<usize>,
}

impl Scope {
    pub(crate) fn parse(
        kind: Kind,
        namespace: Option<String>,
        query: &Query,
    ) -> Result<Self, StatusError> {
        let [labels, fields] = ["labelSelector", "fieldSelector"].map(|name| query.text(name));
        let selector = Selector::parse(kind, labels, fields).map_err(StatusError::bad_request)?;
        Ok(Self {
            kind,
            namespace,
            selector,
        })
    }

    pub(crate) fn matches(&self, object: &Object) -> bool {
        let namespace = self.namespace.as_ref();
        namespace.is_none_or(|namespace| *namespace == object.key.namespace)
            && self.selector.matches(object)
    }
}

impl Version {
    /// Parses the parameters of a request. Their meaning depends on `limit`.
    pub(crate) fn parse(kind: Kind, query: &Query) -> Result<Self, StatusError> {
        let invalid = |why: &str| StatusError::invalid(kind, "", "resourceVersionMatch", why);
        let version = query.number("resourceVersion")?;
        match (version, query.text("resourceVersionMatch")) {
            (None, "") => Ok(Self::Newest),
            (None, _) => Err(invalid("forbidden unless resourceVersion is provided")),
            (Some(0), "" | "NotOlderThan") => Ok(Self::Any),
            (Some(0), "Exact") => Err(invalid("forbidden for resourceVersion \"0\"")),
            (Some(version), "Exact") => Ok(Self::Exact(version)),
            (Some(version), "NotOlderThan") => Ok(Self::NotOlderThan(version)),
            (Some(version), "") => Ok(match query.number("limit")? {
                None | Some(0) => Self::NotOlderThan(version),
                Some(_) => Self::Exact(version),
            }),
            (_, other) => Err(invalid(&format!("unsupported value {other:?}"))),
        }
    }
}

/// Versions that faults substitute for the newest version.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shown {
    /// Version of lists with [`Version::Any`].
    pub(crate) any: Option<u64>,
    /// Version of lists with [`Version::Newest`].
    pub(crate) newest: Option<u64>,
}

/// Returns the requested page of a list.
pub(crate) fn list(
    store: &Store,
    scope: &Scope,
    query: &Query,
    shown: Shown,
) -> Result<Listing, StatusError> {
    let kind = scope.kind;
    let wanted = Version::parse(kind, query)?;
    let limit = query.number("limit")?.filter(|limit| *limit > 0);
    let newest = store.version();
    let token = Continue::parse(query.text("continue"))?;
    if token.is_some() && !matches!(wanted, Version::Newest | Version::Any) {
        let message = "specifying resource version is not allowed when using continue";
        return Err(StatusError::bad_request(message));
    }
    let exact = match (&token, wanted) {
        (Some(token), _) if token.version == 0 => newest,
        (Some(token), _) => token.version,
        (None, Version::Newest) => shown.newest.unwrap_or(newest),
        (None, Version::Any) => shown.any.unwrap_or(newest),
        (None, Version::NotOlderThan(version)) if version <= newest => {
            shown.any.unwrap_or(newest).max(version)
        }
        (None, Version::Exact(version)) if version <= newest => version,
        (None, Version::NotOlderThan(version) | Version::Exact(version)) => {
            return Err(StatusError::too_new(version, newest));
        }
    };
    let objects = store.table(kind).at(exact).map_err(|_| {
        let mut error = StatusError::gone(exact, newest);
        error.resume = token.as_ref().map(|token| token.inconsistent());
        error
    })?;
    // The watch cache does not paginate.
    let limit = limit
        .filter(|_| wanted != Version::Any || token.is_some())
        .and_then(|limit| usize::try_from(limit).ok())
        .unwrap_or(usize::MAX);
    let start = token
        .as_ref()
        .map_or(Bound::Unbounded, |token| Bound::Excluded(&token.after));
    let mut rest = objects
        .range((start, Bound::Unbounded))
        .map(|(_, object)| object)
        .filter(|object| scope.matches(object));
    let items: Vec<_> = rest.by_ref().take(limit).cloned().collect();
    let more = rest.next().is_some();
    // The count is unknown if a selector is set.
    let remaining = (more && scope.selector.is_empty()).then(|| rest.count() + 1);
    let next = items.last().filter(|_| more).map(|last| {
        let token = Continue {
            version: exact,
            after: last.key.clone(),
        };
        token.text()
    });
    Ok(Listing {
        kind,
        items,
        version: exact,
        next,
        remaining,
    })
}

impl Continue {
    /// Parses a token. Empty text is no token.
    fn parse(text: &str) -> Result<Option<Self>, StatusError> {
        if text.is_empty() {
            return Ok(None);
        }
        let token = || {
            let mut parts = text.splitn(3, '_');
            Some(Self {
                version: parts.next()?.parse().ok()?,
                after: Key {
                    namespace: parts.next()?.to_owned(),
                    name: parts.next()?.to_owned(),
                },
            })
        };
        let invalid = || StatusError::bad_request(format!("continue key is not valid: {text:?}"));
        token().map(Some).ok_or_else(invalid)
    }

    /// Encodes the token. The separator `_` cannot occur in names.
    fn text(&self) -> String {
        format!(
            "{}_{}_{}",
            self.version, self.after.namespace, self.after.name
        )
    }

    fn inconsistent(&self) -> String {
        let token = Self {
            version: 0,
            after: self.after.clone(),
        };
        token.text()
    }
}

impl Listing {
    /// Returns the list object as JSON.
    pub(crate) fn text(&self) -> Vec<u8> {
        let (name, api_version, version) =
            (self.kind.name(), self.kind.api_version(), self.version);
        let mut head = format!(
            r#"{{"kind":"{name}List","apiVersion":"{api_version}","metadata":{{"resourceVersion":"{version}""#
        );
        if let Some(next) = &self.next {
            head.push_str(&format!(r#","continue":"{next}""#));
        }
        if let Some(remaining) = self.remaining {
            head.push_str(&format!(r#","remainingItemCount":{remaining}"#));
        }
        head.push_str(r#"},"items":["#);
        let mut text = head.into_bytes();
        for (index, item) in self.items.iter().enumerate() {
            if index > 0 {
                text.push(b',');
            }
            item.push_item(&mut text);
        }
        text.extend_from_slice(b"]}\n");
        text
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use serde_json::{Map, Value, json};

    use super::*;

    fn services() -> Kind {
        Kind::by_plural("v1", "services").unwrap()
    }

    fn put(store: &mut Store, namespace: &str, name: &str, weight: u32) -> u64 {
        let object: Map<String, Value> = serde_json::from_value(json!({
            "metadata": { "name": name, "namespace": namespace },
            "spec": { "weight": weight },
        }))
        .unwrap();
        let key = Key::of(services(), &object).unwrap();
        store
            .put(services(), key, object, SystemTime::UNIX_EPOCH)
            .version
    }

    fn asked(store: &Store, query: &str, stale: Option<u64>) -> Result<Value, StatusError> {
        let query = Query::parse(query);
        let scope = Scope::parse(services(), None, &query)?;
        let shown = Shown {
            any: stale,
            newest: None,
        };
        let listing = list(store, &scope, &query, shown)?;
        Ok(serde_json::from_slice(&listing.text()).unwrap())
    }

    fn names(list: &Value) -> Vec<&str> {
        let items = list["items"].as_array().unwrap().iter();
        items
            .map(|item| item["metadata"]["name"].as_str().unwrap())
            .collect()
    }

    fn five() -> Store {
        let mut store = Store::new();
        for name in ["a", "b", "c", "d", "e"] {
            put(&mut store, "default", name, 1);
        }
        store
    }

    #[test]
    fn pages_of_a_list_have_one_version_despite_changes_in_between() {
        let mut store = five();
        let first = asked(&store, "limit=2", None).unwrap();
        assert_eq!(names(&first), ["a", "b"]);
        assert_eq!(first["kind"], "ServiceList");
        assert_eq!(first["metadata"]["remainingItemCount"], 3);
        let version = first["metadata"]["resourceVersion"].clone();
        put(&mut store, "default", "bb", 1);
        put(&mut store, "default", "d", 2);
        let key = Key::new("default", "c");
        store.remove(services(), &key).unwrap();
        let token = first["metadata"]["continue"].as_str().unwrap();
        let second = asked(&store, &format!("limit=2&continue={token}"), None).unwrap();
        assert_eq!(names(&second), ["c", "d"]);
        assert_eq!(second["items"][1]["spec"]["weight"], 1);
        assert_eq!(second["metadata"]["resourceVersion"], version);
        let token = second["metadata"]["continue"].as_str().unwrap();
        let third = asked(&store, &format!("limit=2&continue={token}"), None).unwrap();
        assert_eq!(names(&third), ["e"]);
        assert_eq!(third["metadata"].get("continue"), None);
        assert_eq!(third["metadata"].get("remainingItemCount"), None);
    }

    #[test]
    fn the_error_for_an_expired_token_has_a_token_for_the_newest_version() {
        let mut store = five();
        let first = asked(&store, "limit=2", None).unwrap();
        put(&mut store, "default", "cc", 1);
        store.compact();
        let token = first["metadata"]["continue"].as_str().unwrap();
        let error = asked(&store, &format!("limit=2&continue={token}"), None).unwrap_err();
        assert_eq!((error.code, error.reason), (410, "Expired"));
        let token = error.status()["metadata"]["continue"].clone();
        let token = token.as_str().unwrap();
        let rest = asked(&store, &format!("continue={token}"), None).unwrap();
        assert_eq!(names(&rest), ["c", "cc", "d", "e"]);
        assert_eq!(
            rest["metadata"]["resourceVersion"],
            store.version().to_string()
        );
    }

    #[test]
    fn lists_have_the_requested_version() {
        let mut store = five();
        let old = store.version();
        let new = put(&mut store, "default", "f", 1);
        for (query, stale, count) in [
            (String::new(), None, 6),
            (format!("resourceVersion={old}"), None, 6),
            (
                format!("resourceVersion={old}&resourceVersionMatch=NotOlderThan"),
                None,
                6,
            ),
            (
                format!("resourceVersion={old}&resourceVersionMatch=Exact"),
                None,
                5,
            ),
            (format!("resourceVersion={old}&limit=100"), None, 5),
            ("resourceVersion=0".to_owned(), Some(old), 5),
            ("resourceVersion=0&limit=2".to_owned(), None, 6),
            (String::new(), Some(old), 6),
            (format!("resourceVersion={new}"), Some(old), 6),
        ] {
            let list = asked(&store, &query, stale).unwrap();
            assert_eq!(names(&list).len(), count, "{query}");
        }
        for (query, code) in [
            (format!("resourceVersion={}", new + 1), 504),
            ("resourceVersion=x".to_owned(), 400),
            ("resourceVersionMatch=Exact".to_owned(), 422),
            (
                "resourceVersion=0&resourceVersionMatch=Exact".to_owned(),
                422,
            ),
            ("continue=x".to_owned(), 400),
            (format!("continue={new}_a_b&resourceVersion={new}"), 400),
            ("labelSelector=!".to_owned(), 400),
        ] {
            let error = asked(&store, &query, None).unwrap_err();
            assert_eq!(error.code, code, "{query}");
        }
    }

    #[test]
    fn items_have_no_kind_and_selected_lists_have_no_remaining_count() {
        let store = five();
        let list = asked(&store, "limit=1&labelSelector=!x", None).unwrap();
        assert_eq!(list["metadata"].get("remainingItemCount"), None);
        assert!(list["metadata"]["continue"].is_string());
        assert_eq!(list["items"][0].get("kind"), None);
        assert_eq!(list["items"][0].get("apiVersion"), None);
    }
}
