//! Requests and responses of etcd's JSON gateway.
//!
//! Keys and values are base64, and 64-bit numbers are strings.

use data_encoding::BASE64;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::Version;

/// A value with its version.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Stored {
    pub(super) version: Version,
    pub(super) bytes: Vec<u8>,
}

/// Result of a conditional write.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Written {
    /// The value was written. Holds the new version of the key.
    Now(Version),
    /// The key had another version. Holds the current value.
    Instead(Option<Stored>),
}

#[derive(Deserialize)]
struct Range {
    #[serde(default)]
    kvs: Vec<KeyValue>,
}

#[derive(Deserialize)]
struct KeyValue {
    mod_revision: String,
    #[serde(default)]
    value: String,
}

#[derive(Deserialize)]
struct Txn {
    header: Header,
    #[serde(default)]
    succeeded: bool,
    #[serde(default)]
    responses: Vec<Response>,
}

#[derive(Deserialize)]
struct Header {
    revision: String,
}

#[derive(Deserialize)]
struct Response {
    response_range: Option<Range>,
}

/// An error response.
#[derive(Deserialize)]
struct Failure {
    #[serde(default)]
    error: String,
    code: Option<u32>,
}

/// Returns the body of a request to `/v3/kv/range` that reads a key.
pub(super) fn range(key: &str) -> String {
    json!({ "key": base64(key) }).to_string()
}

/// Returns the body of a request to `/v3/kv/txn` that writes a key if it has the
/// version `base`, and otherwise reads the key.
///
/// The version of a missing key is 0.
pub(super) fn txn(key: &str, base: Version, value: &[u8]) -> String {
    let key = base64(key);
    json!({
        "compare": [{
            "key": key,
            "target": "MOD",
            "result": "EQUAL",
            "mod_revision": base.0.to_string(),
        }],
        "success": [{ "request_put": { "key": key, "value": BASE64.encode(value) } }],
        "failure": [{ "request_range": { "key": key } }],
    })
    .to_string()
}

/// Parses a response of `/v3/kv/range`.
pub(super) fn stored(answer: &[u8]) -> Option<Option<Stored>> {
    serde_json::from_slice::<Range>(answer).ok()?.stored()
}

/// Parses a response of `/v3/kv/txn`.
pub(super) fn written(answer: &[u8]) -> Option<Written> {
    let txn: Txn = serde_json::from_slice(answer).ok()?;
    if txn.succeeded {
        return Some(Written::Now(version(&txn.header.revision)?));
    }
    let response = txn.responses.into_iter().next()?;
    Some(Written::Instead(response.response_range?.stored()?))
}

/// Returns the message and the gRPC status code of an error response.
pub(super) fn error(answer: &[u8]) -> (String, Option<u32>) {
    match serde_json::from_slice::<Failure>(answer) {
        Ok(failure) if !failure.error.is_empty() => (failure.error, failure.code),
        _ => (String::from_utf8_lossy(answer).trim().to_owned(), None),
    }
}

impl Range {
    fn stored(self) -> Option<Option<Stored>> {
        let Some(found) = self.kvs.into_iter().next() else {
            return Some(None);
        };
        Some(Some(Stored {
            version: version(&found.mod_revision)?,
            bytes: BASE64.decode(found.value.as_bytes()).ok()?,
        }))
    }
}

fn version(text: &str) -> Option<Version> {
    text.parse().ok().map(Version)
}

fn base64(key: &str) -> Value {
    BASE64.encode(key.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_compares_the_version_and_reads_the_value_otherwise() {
        assert_eq!(
            txn("/a", Version(7), b"v"),
            r#"{"compare":[{"key":"L2E=","mod_revision":"7","result":"EQUAL","target":"MOD"}],"#
                .to_owned()
                + r#""failure":[{"request_range":{"key":"L2E="}}],"#
                + r#""success":[{"request_put":{"key":"L2E=","value":"dg=="}}]}"#
        );
        assert_eq!(range("/a"), r#"{"key":"L2E="}"#);
    }

    #[test]
    fn responses_are_parsed() {
        let header = r#""header":{"cluster_id":"1","revision":"9","raft_term":"2"}"#;
        let kvs = r#""kvs":[{"key":"L2E=","create_revision":"3","mod_revision":"8","version":"4","value":"dg=="}],"count":"1""#;
        let found = Stored {
            version: Version(8),
            bytes: b"v".into(),
        };
        let text = format!("{{{header},{kvs}}}");
        assert_eq!(stored(text.as_bytes()), Some(Some(found.clone())));
        assert_eq!(stored(format!("{{{header}}}").as_bytes()), Some(None));
        let text = format!(
            r#"{{{header},"succeeded":true,"responses":[{{"response_put":{{{header}}}}}]}}"#
        );
        assert_eq!(written(text.as_bytes()), Some(Written::Now(Version(9))));
        for (kvs, expected) in [(kvs, Some(found)), ("\"more\":false", None)] {
            let text = format!(r#"{{{header},"responses":[{{"response_range":{{{kvs}}}}}]}}"#);
            assert_eq!(written(text.as_bytes()), Some(Written::Instead(expected)));
        }
    }

    #[test]
    fn invalid_responses_are_rejected() {
        for answer in [
            &b""[..],
            b"{",
            b"{}",
            b"[]",
            br#"{"header":{"revision":"x"},"succeeded":true}"#,
            br#"{"header":{"revision":"1"},"responses":[]}"#,
            br#"{"header":{"revision":"1"},"responses":[{"response_put":{}}]}"#,
        ] {
            assert_eq!(written(answer), None, "{}", String::from_utf8_lossy(answer));
        }
        for answer in [
            &br#"{"kvs":[{"mod_revision":"-1","value":""}]}"#[..],
            br#"{"kvs":[{"mod_revision":"1","value":"?"}]}"#,
            b"<html>",
        ] {
            assert_eq!(stored(answer), None, "{}", String::from_utf8_lossy(answer));
        }
    }

    #[test]
    fn error_messages_of_etcd_are_kept() {
        let answer = br#"{"error":"etcdserver: mvcc: database space exceeded","message":"etcdserver: mvcc: database space exceeded","code":8}"#;
        let words = "etcdserver: mvcc: database space exceeded".to_owned();
        assert_eq!(error(answer), (words, Some(8)));
        assert_eq!(
            error(b"404 page not found\n"),
            ("404 page not found".into(), None)
        );
    }
}
