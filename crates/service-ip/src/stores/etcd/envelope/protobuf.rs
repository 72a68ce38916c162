//! `RangeAllocation` objects in protobuf.
//!
//! API servers share the stored object with this crate, and newer ones may know fields that
//! this code does not. Decoding into a struct and encoding it again would erase them, and even
//! a field in another place makes the bytes differ. So only two fields are decoded, and the
//! bytes around them are kept as they are:
//!
//! ```text
//! k8s\0                              MAGIC
//! 0a 15 …                            outer.before: typeMeta, checked and kept
//! 12 23                              raw, with its length
//!   0a 10 …                          inner.before: metadata
//!   12 0b 10.0.0.0/24                range
//!   1a 02 80 03                      data: items 0, 1 and 15, as 10.0.0.1, .2 and .16
//!                                    inner.after: nothing here
//! 1a 00 22 00                        outer.after: contentEncoding, contentType
//! ```
//!
//! What must stay true: an object that is decoded and encoded without a change is the same,
//! byte for byte, if its fields come in the order in which Kubernetes writes them; and an
//! object that is not understood is an error, never a guess, because the next write would
//! replace it and free what it had allocated.
//!
//! A protobuf library is not used. It would need the descriptions of three messages for four
//! fields.

use std::str;

use super::corrupt;
use crate::InvalidValue;

/// Prefix of every protobuf object that Kubernetes stores. It tells protobuf from JSON.
pub(super) const MAGIC: &[u8] = b"k8s\0";

/// Fields of `runtime.Unknown`, the outer message of every stored object of Kubernetes.
const TYPE_META: u64 = 1;
const RAW: u64 = 2;

/// Fields of `runtime.TypeMeta`.
const API_VERSION: u64 = 1;
const KIND: u64 = 2;

/// Fields of `RangeAllocation`.
const RANGE: u64 = 2;
const DATA: u64 = 3;

/// Wire types of the protobuf encoding. 3 and 4, groups, are left out: Kubernetes has none, and a
/// group has no length by which it could be skipped.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;
const FIXED32: u64 = 5;

/// All fields except `range` and `data`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Message {
    /// Fields around the `RangeAllocation`.
    outer: Around,
    /// Fields around `range` and `data`.
    inner: Around,
}

/// Encoded fields before and after the omitted ones.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct Around {
    before: Vec<u8>,
    after: Vec<u8>,
}

/// A field of a message.
#[derive(Clone, Copy, Debug)]
struct Field<'a> {
    number: u64,
    /// Offset of the field.
    at: usize,
    /// Tag and value as they stand in the message, for [`Around::keep`].
    whole: &'a [u8],
    /// Value of a length-delimited field, with its offset. `None` for the other wire types: none of
    /// the fields that are decoded here has one of them.
    value: Option<(&'a [u8], usize)>,
}

/// Remaining input.
#[derive(Clone, Copy, Debug)]
struct Cursor<'a> {
    rest: &'a [u8],
    at: usize,
}

impl Message {
    /// Returns an empty object, as encoded by Kubernetes.
    pub(super) fn new() -> Self {
        let mut meta = Vec::new();
        put(&mut meta, API_VERSION, b"v1");
        put(&mut meta, KIND, b"RangeAllocation");
        let mut before = Vec::new();
        put(&mut before, TYPE_META, &meta);
        // contentEncoding (3) and contentType (4). Kubernetes writes them although they are empty.
        let mut after = Vec::new();
        put(&mut after, 3, &[]);
        put(&mut after, 4, &[]);
        // metadata (1), empty. That of an API server has empty fields, see `STORED` of the tests.
        let mut metadata = Vec::new();
        put(&mut metadata, 1, &[]);
        Self {
            outer: Around { before, after },
            inner: Around {
                before: metadata,
                after: Vec::new(),
            },
        }
    }

    /// Decodes an object. Returns the message, the range and the data.
    pub(super) fn decode(bytes: &[u8]) -> Result<(Self, Box<str>, Vec<u8>), InvalidValue> {
        let mut outer = Around::default();
        let (mut meta, mut raw) = (None, None);
        let mut cursor = Cursor {
            // `Envelope::decode` has seen the prefix. Without it nothing would be read, and
            // `typeMeta is missing` be the error.
            rest: bytes.strip_prefix(MAGIC).unwrap_or_default(),
            at: MAGIC.len(),
        };
        while let Some(field) = cursor.field()? {
            match field.number {
                RAW => field.once(&mut raw)?,
                // typeMeta is read, but kept like any unknown field.
                number => {
                    if number == TYPE_META {
                        field.once(&mut meta)?;
                    }
                    outer.keep(field, raw.is_some());
                }
            }
        }
        let (meta, at) = meta.ok_or(corrupt("typeMeta is missing", MAGIC.len()))?;
        check_type(Cursor { rest: meta, at })?;
        let (raw, at) = raw.ok_or_else(|| corrupt("raw is missing", bytes.len()))?;
        let mut inner = Around::default();
        let (mut range, mut data) = (None, None);
        let mut cursor = Cursor { rest: raw, at };
        while let Some(field) = cursor.field()? {
            match field.number {
                RANGE => field.once(&mut range)?,
                DATA => field.once(&mut data)?,
                _ => inner.keep(field, range.is_some() || data.is_some()),
            }
        }
        // A missing field is an empty one in protobuf. What an empty range means is decided by
        // the store: `RepairReason::Uninitialized`.
        let (range, at) = range.unwrap_or_default();
        let range = str::from_utf8(range).map_err(|_| corrupt("range is not a string", at))?;
        let (data, _) = data.unwrap_or_default();
        Ok((Self { outer, inner }, range.into(), data.into()))
    }

    /// Encodes an object with the given range and data.
    pub(super) fn encode(&self, range: &str, data: &[u8]) -> Vec<u8> {
        // From the inside out, because the length of `raw` is written before it.
        let mut raw = self.inner.before.clone();
        put(&mut raw, RANGE, range.as_bytes());
        put(&mut raw, DATA, data);
        raw.extend(&self.inner.after);
        let mut bytes = MAGIC.to_vec();
        bytes.extend(&self.outer.before);
        put(&mut bytes, RAW, &raw);
        bytes.extend(&self.outer.after);
        bytes
    }
}

impl Around {
    /// Keeps a field on its side of the decoded ones. One that stands between `range` and `data`
    /// moves behind them, where protobuf reads it all the same.
    fn keep(&mut self, field: Field<'_>, is_after: bool) {
        if is_after {
            self.after.extend(field.whole);
        } else {
            self.before.extend(field.whole);
        }
    }
}

impl<'a> Field<'a> {
    /// Sets `place` to the value of the field.
    ///
    /// Protobuf says that the last of several fields counts. Here a second one is an error:
    /// no API server writes it, and of a damaged object nothing may be overwritten.
    fn once(&self, place: &mut Option<(&'a [u8], usize)>) -> Result<(), InvalidValue> {
        if place.is_some() {
            return Err(corrupt("duplicate field", self.at));
        }
        *place = Some(
            self.value
                .ok_or_else(|| corrupt("field is not length-delimited", self.at))?,
        );
        Ok(())
    }
}

impl<'a> Cursor<'a> {
    /// Reads the next field. `None` at the end.
    fn field(&mut self) -> Result<Option<Field<'a>>, InvalidValue> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let Cursor { rest, at } = *self;
        // A tag is the field number and, in its lowest three bits, the wire type.
        let tag = self.varint()?;
        let mut value = None;
        match tag & 7 {
            VARINT => _ = self.varint()?,
            FIXED64 => _ = self.take(8)?,
            FIXED32 => _ = self.take(4)?,
            BYTES => {
                let start = self.at;
                let length = usize::try_from(self.varint()?)
                    .map_err(|_| corrupt("field is too long", start))?;
                let at = self.at;
                value = Some((self.take(length)?, at));
            }
            _ => return Err(corrupt("unknown wire type", at)),
        }
        // What the steps above have consumed. It is kept with its tag, so that `keep` copies the
        // original bytes, also a number in a longer form than necessary.
        let length = rest.len() - self.rest.len();
        Ok(Some(Field {
            number: tag >> 3,
            at,
            whole: rest.get(..length).unwrap_or_default(),
            value,
        }))
    }

    fn varint(&mut self) -> Result<u64, InvalidValue> {
        let start = self.at;
        let mut number: u64 = 0;
        // Seven bits a byte, the lowest ones first; the eighth says that more follow.
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?.first().copied().unwrap_or_default();
            let bits = u64::from(byte & 0x7f);
            // Only the lowest bit of the tenth byte fits in 64 bits.
            if (bits << shift) >> shift != bits {
                break;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(corrupt("number is too large", start))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], InvalidValue> {
        let (taken, rest) = self
            .rest
            .split_at_checked(length)
            .ok_or_else(|| corrupt("unexpected end", self.at + self.rest.len()))?;
        self.rest = rest;
        self.at += length;
        Ok(taken)
    }
}

/// Checks API version and kind.
fn check_type(mut cursor: Cursor<'_>) -> Result<(), InvalidValue> {
    let at = cursor.at;
    let (mut version, mut kind) = (None, None);
    while let Some(field) = cursor.field()? {
        match field.number {
            API_VERSION => field.once(&mut version)?,
            KIND => field.once(&mut kind)?,
            // Nothing is lost: the whole of typeMeta is kept by the caller.
            _ => {}
        }
    }
    let found = [version, kind].map(|field| field.map(|(bytes, _)| bytes));
    if found != [Some(b"v1".as_slice()), Some(b"RangeAllocation")] {
        return Err(corrupt("not a v1 RangeAllocation", at));
    }
    Ok(())
}

/// Writes a length-delimited field.
fn put(bytes: &mut Vec<u8>, number: u64, value: &[u8]) {
    put_varint(bytes, number << 3 | BYTES);
    // A length fits in 64 bits.
    put_varint(bytes, value.len() as u64);
    bytes.extend(value);
}

fn put_varint(bytes: &mut Vec<u8>, number: u64) {
    let mut rest = number;
    while rest >= 0x80 {
        // The cast keeps the lowest eight bits, and the highest of them is set anyway.
        bytes.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Envelope, RangeAllocation};

    /// Object of an API server for 10.0.0.0/24 with the first, second and sixteenth
    /// address allocated.
    const STORED: &[u8] = b"k8s\0\
        \x0a\x15\x0a\x02v1\x12\x0fRangeAllocation\
        \x12\x23\
        \x0a\x10\x0a\x00\x12\x00\x1a\x00\x22\x00\x2a\x00\x32\x00\x38\x00\x42\x00\
        \x12\x0b10.0.0.0/24\
        \x1a\x02\x80\x03\
        \x1a\x00\x22\x00";

    fn allocation(range: &str, data: &[u8]) -> RangeAllocation {
        RangeAllocation {
            range: range.into(),
            data: data.into(),
        }
    }

    #[test]
    fn stored_objects_are_encoded_unchanged() {
        let (envelope, found) = Envelope::decode(STORED).unwrap();
        assert_eq!(found, allocation("10.0.0.0/24", &[0x80, 3]));
        assert_eq!(envelope.encode(&found), STORED);
    }

    #[test]
    fn unknown_fields_are_kept_in_place() {
        let stored = b"k8s\0\
            \x48\x96\x01\
            \x0a\x15\x0a\x02v1\x12\x0fRangeAllocation\
            \x12\x25\
            \x0a\x06\x0a\x04name\
            \x12\x0530-39\
            \x21\x01\x02\x03\x04\x05\x06\x07\x08\
            \x1a\x01\x07\
            \x2d\x01\x02\x03\x04\
            \x32\x03new\
            \x22\x09text/none";
        let (envelope, found) = Envelope::decode(stored).unwrap();
        assert_eq!(found, allocation("30-39", &[7]));
        let written = envelope.encode(&allocation("30-39", &[0xff; 200]));
        let (head, rest) = stored.split_at(30);
        assert!(written.starts_with(head));
        assert!(written.ends_with(b"\x22\x09text/none"));
        let (again, found) = Envelope::decode(&written).unwrap();
        assert_eq!(found, allocation("30-39", &[0xff; 200]));
        for kept in [
            rest.get(2..10).unwrap(),
            b"\x21\x01\x02\x03\x04\x05\x06\x07\x08",
            b"\x2d\x01\x02\x03\x04\x32\x03new",
        ] {
            assert!(
                written.windows(kept.len()).any(|part| part == kept),
                "{kept:x?}"
            );
        }
        assert_eq!(again, envelope);
    }

    #[test]
    fn a_new_object_is_decoded() {
        let first = allocation("30000-32767", &[1, 0]);
        let written = Envelope::new().encode(&first);
        assert!(written.starts_with(&STORED[..27]));
        assert_eq!(
            Envelope::decode(&written).unwrap(),
            (Envelope::new(), first)
        );
    }

    #[test]
    fn errors_name_the_offset() {
        let other = |from: &[u8], to: &[u8]| {
            let at = STORED.windows(from.len()).position(|part| part == from);
            let mut bytes = STORED.to_vec();
            bytes.splice(at.unwrap()..at.unwrap() + from.len(), to.iter().copied());
            bytes
        };
        for (bytes, what, at) in [
            (b"k8s\0".to_vec(), "typeMeta is missing", 4),
            (STORED[..27].to_vec(), "raw is missing", 27),
            (other(b"v1", b"v2"), "not a v1 RangeAllocation", 6),
            (other(b"Range", b"range"), "not a v1 RangeAllocation", 6),
            (other(b"\x12\x0b1", b"\x12\x7f1"), "unexpected end", 64),
            (other(b"\x12\x0b1", b"\x13\x0b1"), "unknown wire type", 47),
            (other(b"10.0", b"\xff0.0"), "range is not a string", 49),
            (
                other(b"\x1a\x02\x80\x03", b"\x12\x02\x80\x03"),
                "duplicate field",
                60,
            ),
            (
                other(b"\x1a\x02\x80\x03", b"\x18\x02\x22\x00"),
                "field is not length-delimited",
                60,
            ),
        ] {
            let error = Envelope::decode(&bytes).unwrap_err();
            assert_eq!(error, InvalidValue::Corrupt { what, at }, "{bytes:x?}");
        }
        let mut long = STORED.to_vec();
        long.extend([0xff; 9].iter().chain(&[2, 0]));
        let error = Envelope::decode(&long).unwrap_err();
        let (what, at) = ("number is too large", STORED.len());
        assert_eq!(error, InvalidValue::Corrupt { what, at });
    }

    #[test]
    fn truncated_objects_are_rejected() {
        for length in 0..STORED.len() {
            let outcome = Envelope::decode(&STORED[..length]);
            // An object is complete at the ends of the last fields.
            let is_whole = [STORED.len() - 4, STORED.len() - 2].contains(&length);
            assert_eq!(outcome.is_ok(), is_whole, "{length}");
        }
    }
}
