//! `RangeAllocation` objects in JSON.

use std::borrow::Cow;
use std::ops::Range;
use std::str;

use data_encoding::BASE64;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::corrupt;
use crate::InvalidValue;

/// The JSON text with placeholders for `range` and `data`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Text(Vec<Piece>);

/// A piece of the text.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Piece {
    Kept(Box<str>),
    Range,
    Data,
}

/// The decoded fields.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Object<'a> {
    #[serde(borrow)]
    api_version: Option<Cow<'a, str>>,
    #[serde(borrow)]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "present")]
    range: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    data: Option<&'a RawValue>,
}

impl Text {
    /// Decodes an object. Returns the text, the range and the data.
    pub(super) fn decode(bytes: &[u8]) -> Result<(Self, Box<str>, Vec<u8>), InvalidValue> {
        let text = str::from_utf8(bytes)
            .map_err(|error| corrupt("neither protobuf nor text", error.valid_up_to()))?;
        // serde would also accept an array of field values.
        if !text.trim_start().starts_with('{') {
            return Err(corrupt("not a RangeAllocation in JSON", 0));
        }
        let object: Object<'_> = serde_json::from_str(text)
            .map_err(|error| corrupt("not a RangeAllocation in JSON", place(text, &error)))?;
        if object.api_version.as_deref() != Some("v1")
            || object.kind.as_deref() != Some("RangeAllocation")
        {
            return Err(corrupt("not a v1 RangeAllocation", 0));
        }
        let at = |raw: Option<&RawValue>| raw.map_or(0, |raw| span(text, raw).start);
        let range = string(object.range)
            .ok_or_else(|| corrupt("range is not a string", at(object.range)))?;
        let data = string(object.data)
            .and_then(|data| BASE64.decode(data.as_bytes()).ok())
            .ok_or_else(|| corrupt("data is not base64", at(object.data)))?;
        let spans = [(Piece::Range, object.range), (Piece::Data, object.data)]
            .map(|(piece, raw)| (piece, raw.map(|raw| span(text, raw))));
        Ok((Self::new(text, spans), range.into(), data))
    }

    /// Splits the text into pieces, and appends missing fields.
    fn new(text: &str, mut spans: [(Piece, Option<Range<usize>>); 2]) -> Self {
        let end = text.rfind('}').unwrap_or(text.len());
        let keep = |from: usize, to: usize| Piece::Kept(text.get(from..to).unwrap_or("").into());
        spans.sort_by_key(|(_, span)| span.as_ref().map_or(end, |span| span.start));
        let mut pieces = Vec::new();
        let mut done = 0;
        for (piece, span) in spans {
            let span = span.unwrap_or_else(|| {
                pieces.push(keep(done, end));
                done = end;
                let key = match piece {
                    Piece::Data => ",\"data\":",
                    _ => ",\"range\":",
                };
                pieces.push(Piece::Kept(key.into()));
                end..end
            });
            pieces.push(keep(done, span.start));
            pieces.push(piece);
            done = span.end;
        }
        pieces.push(keep(done, text.len()));
        pieces.retain(|piece| !matches!(piece, Piece::Kept(text) if text.is_empty()));
        Self(pieces)
    }

    /// Encodes an object with the given range and data.
    pub(super) fn encode(&self, range: &str, data: &[u8]) -> Vec<u8> {
        let mut text = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Kept(kept) => text += kept,
                Piece::Range => text += &serde_json::Value::from(range).to_string(),
                Piece::Data => text += &format!("\"{}\"", BASE64.encode(data)),
            }
        }
        text.into_bytes()
    }
}

/// Deserializes a value that may be null. Null is distinguished from a missing field.
fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(from).map(Some)
}

/// Parses a string. A missing value and null are an empty string.
fn string(raw: Option<&RawValue>) -> Option<String> {
    let Some(raw) = raw else {
        return Some(String::new());
    };
    let text: Option<String> = serde_json::from_str(raw.get()).ok()?;
    Some(text.unwrap_or_default())
}

/// Returns the byte range of a value within the text.
fn span(text: &str, raw: &RawValue) -> Range<usize> {
    let start = raw.get().as_ptr().addr() - text.as_ptr().addr();
    start..start + raw.get().len()
}

/// Returns the offset of an error in bytes.
fn place(text: &str, error: &serde_json::Error) -> usize {
    let lines = text.split_inclusive('\n');
    let before: usize = lines
        .take(error.line().saturating_sub(1))
        .map(str::len)
        .sum();
    (before + error.column()).saturating_sub(1).min(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Envelope, RangeAllocation};

    const STORED: &str = r#"{"kind":"RangeAllocation","apiVersion":"v1","metadata":{"name":"a\"}","creationTimestamp":null},"range":"10.0.0.0/24","data":"gAM="}"#;

    fn allocation(range: &str, data: &[u8]) -> RangeAllocation {
        RangeAllocation {
            range: range.into(),
            data: data.into(),
        }
    }

    #[test]
    fn stored_objects_are_encoded_unchanged() {
        let (envelope, found) = Envelope::decode(STORED.as_bytes()).unwrap();
        assert_eq!(found, allocation("10.0.0.0/24", &[0x80, 3]));
        let written = envelope.encode(&found);
        assert_eq!(str::from_utf8(&written), Ok(STORED));
        let other = envelope.encode(&allocation("30000-32767", &[1]));
        let other = String::from_utf8(other).unwrap();
        let expected = STORED.replace("10.0.0.0/24", "30000-32767");
        assert_eq!(other, expected.replace("gAM=", "AQ=="));
    }

    #[test]
    fn unknown_fields_are_kept_and_missing_fields_are_added() {
        for (stored, expected) in [
            (
                r#" { "data" : "AQ==" , "kind":"RangeAllocation", "more":[{"range":1}], "apiVersion":"v1" } "#,
                r#" { "data" : "Bw==" , "kind":"RangeAllocation", "more":[{"range":1}], "apiVersion":"v1" ,"range":"30-39"} "#,
            ),
            (
                r#"{"kind":"RangeAllocation","apiVersion":"v1"}"#,
                r#"{"kind":"RangeAllocation","apiVersion":"v1","range":"30-39","data":"Bw=="}"#,
            ),
            (
                r#"{"range":null,"kind":"RangeAllocation","data":null,"apiVersion":"v1"}"#,
                r#"{"range":"30-39","kind":"RangeAllocation","data":"Bw==","apiVersion":"v1"}"#,
            ),
        ] {
            let (envelope, found) = Envelope::decode(stored.as_bytes()).unwrap();
            assert_eq!(&*found.range, "");
            let changed = allocation("30-39", &[7]);
            let written = envelope.encode(&changed);
            assert_eq!(str::from_utf8(&written), Ok(expected));
            let (_, found) = Envelope::decode(&written).unwrap();
            assert_eq!(found, changed);
        }
    }

    #[test]
    fn errors_name_the_offset() {
        for (text, what, at) in [
            ("", "not a RangeAllocation in JSON", 0),
            ("k8s", "not a RangeAllocation in JSON", 0),
            (
                r#"["v1","RangeAllocation","",""]"#,
                "not a RangeAllocation in JSON",
                0,
            ),
            ("{\n\"kind\":x}", "not a RangeAllocation in JSON", 9),
            ("{}", "not a v1 RangeAllocation", 0),
            (
                r#"{"kind":"Service","apiVersion":"v1"}"#,
                "not a v1 RangeAllocation",
                0,
            ),
            (
                r#"{"kind":"RangeAllocation","apiVersion":"v1","range":7}"#,
                "range is not a string",
                52,
            ),
            (
                r#"{"kind":"RangeAllocation","apiVersion":"v1","data":"A"}"#,
                "data is not base64",
                51,
            ),
            (
                r#"{"kind":"RangeAllocation","range":"","range":""}"#,
                "not a RangeAllocation in JSON",
                43,
            ),
        ] {
            let error = Envelope::decode(text.as_bytes()).unwrap_err();
            assert_eq!(error, InvalidValue::Corrupt { what, at }, "{text}");
        }
        let error = Envelope::decode(b"\"\xff\"").unwrap_err();
        let what = "neither protobuf nor text";
        assert_eq!(error, InvalidValue::Corrupt { what, at: 1 });
        for length in 0..STORED.len() {
            assert!(Envelope::decode(&STORED.as_bytes()[..length]).is_err());
        }
    }
}
