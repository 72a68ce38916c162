//! What etcd's JSON gateway is asked, and what it answers.
//!
//! Keys and values are in base64, and numbers of 64 bits in strings.

use data_encoding::BASE64;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::Version;

/// A value, and its version.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Stored {
    pub(super) version: Version,
    pub(super) bytes: Vec<u8>,
}

/// What became of a write.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Written {
    /// It was made, and this is the version of the key.
    Now(Version),
    /// The key was of another version, and has this.
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

/// What etcd says when it refuses.
#[derive(Deserialize)]
struct Failure {
    #[serde(default)]
    error: String,
    code: Option<u32>,
}

/// Returns what is sent to `/v3/kv/range` to read a key.
pub(super) fn range(key: &str) -> String {
    json!({ "key": base64(key) }).to_string()
}

/// Returns what is sent to `/v3/kv/txn` to write a key of a version, 0 if there
/// is none; and to read it if it is of another.
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

/// Reads the answer of `/v3/kv/range`.
pub(super) fn stored(answer: &[u8]) -> Option<Option<Stored>> {
    serde_json::from_slice::<Range>(answer).ok()?.stored()
}

/// Reads the answer of `/v3/kv/txn`.
pub(super) fn written(answer: &[u8]) -> Option<Written> {
    let txn: Txn = serde_json::from_slice(answer).ok()?;
    if txn.succeeded {
        return Some(Written::Now(version(&txn.header.revision)?));
    }
    let response = txn.responses.into_iter().next()?;
    Some(Written::Instead(response.response_range?.stored()?))
}

/// Returns what etcd says in a refusal, and its number.
pub(super) fn refusal(answer: &[u8]) -> (String, Option<u32>) {
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
    fn a_write_compares_and_reads_what_is_there_instead() {
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
    fn answers_are_read() {
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
    fn what_is_no_answer_is_none() {
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
    fn etcds_own_words_are_kept() {
        let answer = br#"{"error":"etcdserver: mvcc: database space exceeded","message":"etcdserver: mvcc: database space exceeded","code":8}"#;
        let words = "etcdserver: mvcc: database space exceeded".to_owned();
        assert_eq!(refusal(answer), (words, Some(8)));
        assert_eq!(
            refusal(b"404 page not found\n"),
            ("404 page not found".into(), None)
        );
    }
}
