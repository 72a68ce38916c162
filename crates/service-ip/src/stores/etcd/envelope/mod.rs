//! The object that Kubernetes keeps a range's allocation in, as bytes.
//!
//! ```text
//! k8s\0 Unknown { typeMeta { "v1", "RangeAllocation" }, raw { metadata, range, data }, … }
//! {"kind":"RangeAllocation","apiVersion":"v1","metadata":{…},"range":"…","data":"…"}
//! ```
//!
//! What is not the range or its data stays as it was, byte for byte.

use crate::{RangeAllocation, SnapshotError};

mod json;

mod protobuf;

use json::Text;
use protobuf::Message;

/// What is around a [`RangeAllocation`], in one of the two forms that
/// Kubernetes stores it in.
///
/// ```
/// use vipline_service_ip::Envelope;
///
/// let stored = br#"{"kind":"RangeAllocation","apiVersion":"v1","range":"10.0.0.0/24","data":"Bg=="}"#;
/// let (envelope, allocation) = Envelope::decode(stored)?;
/// assert_eq!(&*allocation.range, "10.0.0.0/24");
/// assert_eq!(allocation.data, [6]);
/// assert_eq!(envelope.encode(&allocation), stored);
/// # Ok::<(), vipline_service_ip::SnapshotError>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Envelope {
    form: Form,
}

/// How it is written.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Form {
    Json(Text),
    Protobuf(Message),
}

impl Envelope {
    /// Returns one in protobuf, with no metadata.
    #[must_use]
    pub fn new() -> Self {
        Self {
            form: Form::Protobuf(Message::new()),
        }
    }

    /// Reads one, and what is in it.
    ///
    /// # Errors
    ///
    /// [`SnapshotError::Corrupt`] if it is none.
    pub fn decode(bytes: &[u8]) -> Result<(Self, RangeAllocation), SnapshotError> {
        let (form, range, data) = if bytes.starts_with(protobuf::MAGIC) {
            let (message, range, data) = Message::decode(bytes)?;
            (Form::Protobuf(message), range, data)
        } else {
            let (text, range, data) = Text::decode(bytes)?;
            (Form::Json(text), range, data)
        };
        Ok((Self { form }, RangeAllocation { range, data }))
    }

    /// Writes one, in the form that it was read in.
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

/// Tells what is wrong at a byte.
const fn corrupt(what: &'static str, at: usize) -> SnapshotError {
    SnapshotError::Corrupt { what, at }
}
