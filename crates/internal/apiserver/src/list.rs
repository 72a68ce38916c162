//! Lists: of which version, in which chunks.

use std::ops::Bound;
use std::sync::Arc;

use crate::kind::Kind;
use crate::query::Query;
use crate::selector::Selector;
use crate::status::Refusal;
use crate::store::{Key, Object, Store};

/// Which objects a list or watch is about.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    pub(crate) kind: Kind,
    pub(crate) namespace: Option<String>,
    pub(crate) selector: Selector,
}

/// How new a list has to be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Version {
    /// The newest.
    Newest,
    /// Any: the server chooses.
    Any,
    /// This one or a later one.
    NotOlderThan(u64),
    /// This one.
    Exact(u64),
}

/// Where a list goes on: after a key, at a version, which 0 leaves open.
#[derive(Clone, Debug)]
struct Continue {
    version: u64,
    after: Key,
}

/// A part of a list.
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
    ) -> Result<Self, Refusal> {
        let [labels, fields] = ["labelSelector", "fieldSelector"].map(|name| query.text(name));
        let selector = Selector::parse(kind, labels, fields).map_err(Refusal::bad_request)?;
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
    /// Reads it from the parameters of a request; a limit changes what they mean.
    pub(crate) fn parse(kind: Kind, query: &Query) -> Result<Self, Refusal> {
        let invalid = |why: &str| Refusal::invalid(kind, "", "resourceVersionMatch", why);
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

/// The versions that lists show instead of the newest one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shown {
    /// That of a list that any version is good enough for.
    pub(crate) any: Option<u64>,
    /// That of a list of the newest version.
    pub(crate) newest: Option<u64>,
}

/// Lists what a request asks for.
pub(crate) fn list(
    store: &Store,
    scope: &Scope,
    query: &Query,
    shown: Shown,
) -> Result<Listing, Refusal> {
    let kind = scope.kind;
    let wanted = Version::parse(kind, query)?;
    let limit = query.number("limit")?.filter(|limit| *limit > 0);
    let newest = store.version();
    let token = Continue::parse(query.text("continue"))?;
    if token.is_some() && !matches!(wanted, Version::Newest | Version::Any) {
        let message = "specifying resource version is not allowed when using continue";
        return Err(Refusal::bad_request(message));
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
            return Err(Refusal::too_new(version, newest));
        }
    };
    let objects = store.table(kind).at(exact).map_err(|_| {
        let mut refusal = Refusal::gone(exact, newest);
        refusal.resume = token.as_ref().map(|token| token.inconsistent());
        refusal
    })?;
    // What comes from the cache is never cut into chunks.
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
    // A server knows how many there are only where nothing is selected.
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
    /// Reads a token; an empty text is none.
    fn parse(text: &str) -> Result<Option<Self>, Refusal> {
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
        let invalid = || Refusal::bad_request(format!("continue key is not valid: {text:?}"));
        token().map(Some).ok_or_else(invalid)
    }

    /// Names have no underscore in them.
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
    /// Returns the list object.
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

    fn asked(store: &Store, query: &str, stale: Option<u64>) -> Result<Value, Refusal> {
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
    fn chunks_are_of_one_version_whatever_happens_in_between() {
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
    fn an_expired_token_comes_with_one_that_goes_on_in_the_present() {
        let mut store = five();
        let first = asked(&store, "limit=2", None).unwrap();
        put(&mut store, "default", "cc", 1);
        store.compact();
        let token = first["metadata"]["continue"].as_str().unwrap();
        let refusal = asked(&store, &format!("limit=2&continue={token}"), None).unwrap_err();
        assert_eq!((refusal.code, refusal.reason), (410, "Expired"));
        let token = refusal.status()["metadata"]["continue"].clone();
        let token = token.as_str().unwrap();
        let rest = asked(&store, &format!("continue={token}"), None).unwrap();
        assert_eq!(names(&rest), ["c", "cc", "d", "e"]);
        assert_eq!(
            rest["metadata"]["resourceVersion"],
            store.version().to_string()
        );
    }

    #[test]
    fn versions_are_as_new_as_asked() {
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
            let refusal = asked(&store, &query, None).unwrap_err();
            assert_eq!(refusal.code, code, "{query}");
        }
    }

    #[test]
    fn items_have_no_kind_of_their_own_and_the_count_is_only_of_all() {
        let store = five();
        let list = asked(&store, "limit=1&labelSelector=!x", None).unwrap();
        assert_eq!(list["metadata"].get("remainingItemCount"), None);
        assert!(list["metadata"]["continue"].is_string());
        assert_eq!(list["items"][0].get("kind"), None);
        assert_eq!(list["items"][0].get("apiVersion"), None);
    }
}
