//! Notifications of a watch.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::objects::Object;
use super::parsed::{Identity, Parsed, Unreadable};
use super::request::Error;
use super::status::Status;

/// The annotation of the bookmark that ends the list at the beginning of a watch.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// The start of a line with a created or changed object, in the format of kube-apiserver.
const APPLIED: [&str; 2] = [
    r#"{"type":"ADDED","object":"#,
    r#"{"type":"MODIFIED","object":"#,
];

/// A notification of a watch.
///
/// Exhaustive: a caller that skips a notification misses a change.
#[derive(Debug)]
pub enum Change<O> {
    /// An object was created or changed.
    Applied(Parsed<O>),
    /// An object was created or changed, and no part of the object can be read.
    Unreadable(Unreadable),
    /// An object was deleted. Only its metadata is decoded.
    Deleted(Identity),
    /// The watch has reported every change up to a version.
    Bookmark {
        /// The version.
        version: String,
        /// Whether the list at the beginning of the watch ends here.
        is_list_complete: bool,
    },
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type")]
    kind: String,
    #[serde(borrow)]
    object: &'a RawValue,
}

impl<O: Object> Change<O> {
    /// Parses a line of a watch.
    ///
    /// # Errors
    ///
    /// - [`Error::Rejected`]: the server ends the watch.
    /// - [`Error::InvalidResponse`]: the line is not a notification.
    pub fn parse(text: &str) -> Result<Self, Error> {
        if let Some(parsed) = applied(text) {
            return Ok(Self::Applied(parsed));
        }
        let line: Line<'_> = match serde_json::from_str(text) {
            Ok(line) => line,
            Err(error) => return Err(rejection(text).unwrap_or_else(|| error.into())),
        };
        let object = line.object.get();
        match &*line.kind {
            "ADDED" | "MODIFIED" => Ok(match Parsed::parse(object) {
                Ok(parsed) => Self::Applied(parsed),
                Err(unreadable) => Self::Unreadable(unreadable),
            }),
            "DELETED" => Ok(Self::Deleted(Identity::parse(object)?)),
            "BOOKMARK" => Ok(bookmark(object)?),
            "ERROR" => Err(rejection(object).unwrap_or_else(|| {
                Error::InvalidResponse(format!("an error without a Status: {object}"))
            })),
            other => Err(Error::InvalidResponse(format!(
                "unknown notification type {other:?}"
            ))),
        }
    }
}

/// Parses a line with a created or changed object in one pass.
///
/// Returns `None` for any other line, and for an object that is not fully readable.
fn applied<O: Object>(text: &str) -> Option<Parsed<O>> {
    let mut starts = APPLIED.iter();
    let object = starts.find_map(|start| text.strip_prefix(start))?;
    Parsed::parse_whole(object.trim_ascii_end().strip_suffix('}')?)
}

fn bookmark<O>(text: &str) -> serde_json::Result<Change<O>> {
    #[derive(Deserialize)]
    struct Bookmark {
        metadata: Metadata,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        resource_version: String,
        annotations: Option<BTreeMap<String, String>>,
    }

    let Bookmark { metadata } = serde_json::from_str(text)?;
    let annotations = metadata.annotations.unwrap_or_default();
    let end = annotations.get(INITIAL_EVENTS_END);
    Ok(Change::Bookmark {
        version: metadata.resource_version,
        is_list_complete: end.is_some_and(|value| value == "true"),
    })
}

/// Parses the Status with which the server ends a watch.
fn rejection(text: &str) -> Option<Error> {
    Status::parse(text).map(|status| Error::Rejected(Box::new(status)))
}

#[cfg(test)]
mod tests {
    use vipline_service_model::ObjectName;

    use super::*;
    use crate::api::objects::Slice;

    fn parse(text: &str) -> Result<Change<Slice>, Error> {
        Change::parse(text)
    }

    #[test]
    fn only_the_metadata_of_a_deleted_object_is_decoded() {
        let text = r#"{"type": "DELETED", "object": {"metadata": {"name": "web-1", "namespace":
            "shop", "resourceVersion": "9", "labels": 7}, "ports": "none", "addressType": {}}}"#;
        let Change::Deleted(identity) = parse(text).unwrap() else {
            panic!("it is deleted");
        };
        assert_eq!(identity.name(), ObjectName::new("shop", "web-1"));
        assert_eq!(identity.version(), "9");
    }

    #[test]
    fn unreadable_parts_of_a_changed_object_are_left_out() {
        let text = r#"{"type": "MODIFIED", "object": {"metadata": {"name": "web-1"},
            "addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": "none"}}"#;
        let Change::Applied(parsed) = parse(text).unwrap() else {
            panic!("it is applied");
        };
        let dropped = parsed.dropped.unwrap().to_string();
        assert!(dropped.starts_with("ports: "), "{dropped}");
        let nameless = r#"{"type": "ADDED", "object": {"ports": []}}"#;
        assert!(matches!(parse(nameless), Ok(Change::Unreadable(_))));
    }

    #[test]
    fn compact_lines_are_read_like_lines_with_whitespace() {
        let object = r#"{"metadata":{"name":"web-1","namespace":"shop"},"addressType":"IPv4"}"#;
        let compact =
            |object: &str, end: &str| format!(r#"{{"type":"ADDED","object":{object}{end}"#);
        let unreadable = object.replace("\"IPv4\"", "7");
        for (object, end) in [
            (object, "}"),
            (object, "}\n"),
            (object, r#","more":[1]}"#),
            (&*unreadable, "}"),
            (r#"{"metadata":{}}"#, "}"),
            ("[]", "}"),
            (object, ""),
            (object, "}}"),
            (object, r#","type":"DELETED"}"#),
        ] {
            let text = compact(object, end);
            let spaced = text.replacen("{\"type", "{ \"type", 1);
            let shown = |text: &str| parse(text).map(|change| format!("{change:?}")).ok();
            assert_eq!(shown(&text), shown(&spaced), "{text}");
        }
    }

    #[test]
    fn a_bookmark_may_end_the_list() {
        for (annotations, expected) in [
            (r#"{"k8s.io/initial-events-end": "true"}"#, true),
            ("{}", false),
            ("null", false),
        ] {
            let text = format!(
                r#"{{"type": "BOOKMARK", "object": {{"kind": "EndpointSlice", "metadata":
                {{"resourceVersion": "7", "annotations": {annotations}}}}}}}"#
            );
            let Change::Bookmark {
                version,
                is_list_complete,
            } = parse(&text).unwrap()
            else {
                panic!("it is a bookmark");
            };
            assert_eq!((&*version, is_list_complete), ("7", expected));
        }
    }

    #[test]
    fn errors_and_invalid_lines_end_the_watch() {
        let gone = r#"{"type": "ERROR", "object": {"kind": "Status", "code": 410,
            "reason": "Expired", "message": "too old"}}"#;
        assert!(parse(gone).unwrap_err().is_history_lost());
        let bare = r#"{"kind": "Status", "code": 500, "message": "no"}"#;
        assert!(matches!(parse(bare), Err(Error::Rejected(_))));
        for text in ["", "{", "{}", r#"{"type": "X", "object": {}}"#] {
            assert!(
                matches!(parse(text), Err(Error::InvalidResponse(_))),
                "{text}"
            );
        }
    }
}
