//! Encoding of `RangeAllocation` objects.
//!
//! ```text
//! k8s\0 Unknown { typeMeta { "v1", "RangeAllocation" }, raw { metadata, range, data }, … }
//! {"kind":"RangeAllocation","apiVersion":"v1","metadata":{…},"range":"…","data":"…"}
//! ```
//!
//! All fields except `range` and `data` are preserved byte for byte.

use crate::{InvalidValue, RangeAllocation};

mod json;

mod protobuf;

use json::Text;
use protobuf::Message;

/// The encoded object around a [`RangeAllocation`], in JSON or protobuf.
///
/// ```
/// use vipline_service_ip::Envelope;
///
/// let stored = br#"{"kind":"RangeAllocation","apiVersion":"v1","range":"10.0.0.0/24","data":"Bg=="}"#;
/// let (envelope, allocation) = Envelope::decode(stored)?;
/// assert_eq!(&*allocation.range, "10.0.0.0/24");
/// assert_eq!(allocation.data, [6]);
/// assert_eq!(envelope.encode(&allocation), stored);
/// # Ok::<(), vipline_service_ip::InvalidValue>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Envelope {
    form: Form,
}

/// The encoding.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Form {
    Json(Text),
    Protobuf(Message),
}

impl Envelope {
    /// Returns a protobuf object with empty metadata.
    #[must_use]
    pub fn new() -> Self {
        Self {
            form: Form::Protobuf(Message::new()),
        }
    }

    /// Decodes an object and its `RangeAllocation`.
    ///
    /// # Errors
    ///
    /// [`InvalidValue::Corrupt`]: the bytes are not a `RangeAllocation` in JSON or
    /// protobuf.
    pub fn decode(bytes: &[u8]) -> Result<(Self, RangeAllocation), InvalidValue> {
        let (form, range, data) = if bytes.starts_with(protobuf::MAGIC) {
            let (message, range, data) = Message::decode(bytes)?;
            (Form::Protobuf(message), range, data)
        } else {
            let (text, range, data) = Text::decode(bytes)?;
            (Form::Json(text), range, data)
        };
        Ok((Self { form }, RangeAllocation { range, data }))
    }

    /// Encodes an object in its original encoding.
    #[must_use]
    pub fn encode(&self, allocation: &RangeAllocation) -> Vec<u8> {
        let RangeAllocation { range, data } = allocation;
        match &self.form {
            Form::Json(text) => text.encode(range, data),
            Form::Protobuf(message) => message.encode(range, data),
        }
    }
}

impl Default for Envelope {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns an error at an offset in bytes.
const fn corrupt(what: &'static str, at: usize) -> InvalidValue {
    InvalidValue::Corrupt { what, at }
}
