//! Compact storage of an element's key, data and optional attributes.
//!
//! A large ruleset consists of elements: a service port of mode nftables has some for each of its
//! addresses, and one for each endpoint at each of them. Most are a short key and perhaps short
//! data, with no timeout, comment or interval. So there are two forms: such elements are stored
//! in place, and a box holds everything that the others have.
//!
//! For example, the element `10.96.0.10 . tcp . 80 . 0 : 10.1.0.1 . 8080` of map `backends-2`:
//!
//! ```text
//! Inline(16, 8, 0a60000a 06000000 00500000 00000000  0a010001 1f900000  00 00 00 00 00)
//!       key data 10.96.0.10  tcp      80       0     10.1.0.1   8080    unused
//! ```
//!
//! The same element for IPv6 has 28 bytes of key and 20 of data, and is boxed. So is every
//! element with a verdict.
//!
//! What must stay true: one element has one form. Equality is derived, so the same element in
//! two forms, or with other unused bytes, would differ from itself. Therefore every constructor
//! stores in place what fits, and leaves zeros behind it.

use std::time::Duration;

use crate::expr::Expr;
use crate::{Bytes, Comment, Data, Name};

/// Maximum total length of key and data in inline storage, in bytes.
///
/// With both lengths and the tag of the enum these are 32 bytes. One more would add 8 to each
/// element, because of the alignment of the box, and exceed the assertion on `Content`. It is one
/// less than that of [`Bytes`], which has only one length.
const INLINE_LEN: usize = 29;

/// Key, data and optional attributes of an element.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Storage {
    /// Lengths of key and data, then the bytes of both. Empty data means no data.
    ///
    /// Invariant: used for every element that fits; unused bytes are zero.
    Inline(u8, u8, [u8; INLINE_LEN]),
    /// Everything else: long keys, verdicts, and elements with [`Extras`]. A box, because the
    /// enum has the size of its largest variant.
    Boxed(Box<Full>),
}

/// Key, data and optional attributes, unpacked.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Full {
    pub(super) key: Bytes,
    pub(super) data: Option<Data>,
    pub(super) extras: Extras,
}

/// Optional attributes of an element. Most elements have none of them, and no [`Extras`].
///
/// `userdata`, `leading_end` and `is_end_omitted` are no properties that a user can set. They
/// keep how another program wrote the element, so that a dump that is sent again has the same
/// entries; `wire/element.rs` reads and writes them.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Extras {
    /// Last key of an interval of more than one key.
    pub(crate) key_end: Option<Bytes>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) expires_in: Option<Duration>,
    pub(crate) comment: Option<Comment>,
    /// User data of a dump that this crate would write otherwise. `None` if it would write the
    /// same: then the element needs no box for it.
    pub(crate) userdata: Option<Bytes>,
    /// Key of an end entry before the element that ends no interval.
    pub(crate) leading_end: Option<Bytes>,
    /// The interval has no end entry in the dump: the next interval follows immediately.
    pub(crate) is_end_omitted: bool,
    /// Name of the stateful object to which a map of such objects leads.
    pub(crate) object: Option<Name>,
    pub(crate) exprs: Vec<Expr>,
    /// The element `*`, for keys of which the set has no element.
    pub(crate) catch_all: bool,
}

impl Storage {
    /// Stores key and data inline. Returns `None` if they do not fit.
    #[inline]
    pub(super) fn inline(key: &[u8], data: &[u8]) -> Option<Self> {
        let mut bytes = [0; INLINE_LEN];
        let (start, rest) = bytes.split_at_mut_checked(key.len())?;
        start.copy_from_slice(key);
        rest.get_mut(..data.len())?.copy_from_slice(data);
        // Both lengths were checked above against a length below 256.
        Some(Self::Inline(key.len() as u8, data.len() as u8, bytes))
    }

    /// Returns whether inline storage holds a key and data of this total length.
    #[inline]
    pub(super) fn fits_inline(len: usize) -> bool {
        len <= INLINE_LEN
    }

    /// Stores a key of `key_len` bytes and the data after it inline. Returns `None` if
    /// they do not fit. `key_len` is at most the length of `bytes`.
    ///
    /// Like [`inline`](Self::inline), for values that were encoded one after the other: their
    /// buffer becomes the storage. When elements were first created without copies in between, a
    /// full load of 50,000 endpoints executed a tenth fewer instructions outside of the kernel.
    #[inline]
    pub(super) fn packed(bytes: &Bytes, key_len: usize) -> Option<Self> {
        let (len, bytes) = bytes.inline()?;
        // `Bytes` has room for one more. If that is in use, the length below does not fit, and
        // otherwise it is zero, as is all that follows the length.
        let (bytes, _) = bytes.split_first_chunk()?;
        let key = u8::try_from(key_len).ok()?;
        Self::fits_inline(len.into()).then_some(Self::Inline(key, len - key, *bytes))
    }

    /// Returns a copy in the form that has every attribute, to change one of them. The result
    /// goes back through `From<Full>`, which selects the form anew.
    pub(super) fn full(&self) -> Full {
        match self {
            Self::Inline(..) => Full {
                key: self.key().into(),
                data: Some(self.inline_data())
                    .filter(|data| !data.is_empty())
                    .map(|data| Data::Value(data.into())),
                extras: Extras::default(),
            },
            Self::Boxed(full) => Full::clone(full),
        }
    }

    #[inline]
    pub(super) fn key(&self) -> &[u8] {
        match self {
            // The constructors checked the lengths, so the default is never returned. It keeps
            // a panic out of a function that every comparison of elements calls.
            Self::Inline(key, _, bytes) => bytes.get(..usize::from(*key)).unwrap_or_default(),
            Self::Boxed(full) => &full.key,
        }
    }

    /// Returns the data of inline storage; empty if it has none.
    ///
    /// Not the data of a boxed element, which may be a verdict and so has no bytes: callers
    /// match the variant first.
    #[inline]
    pub(super) fn inline_data(&self) -> &[u8] {
        match self {
            Self::Inline(key, data, bytes) => bytes
                .get(usize::from(*key)..usize::from(*key) + usize::from(*data))
                .unwrap_or_default(),
            Self::Boxed(_) => &[],
        }
    }
}

impl From<Full> for Storage {
    #[inline]
    fn from(full: Full) -> Self {
        let data = match &full.data {
            None => Some(&[][..]),
            // Inline storage cannot distinguish empty data from no data.
            Some(Data::Value(value)) => Some(&**value).filter(|value| !value.is_empty()),
            // A verdict may name a chain, whose name is longer than the storage.
            Some(Data::Verdict(_)) => None,
        };
        // Also a short element is boxed if it has any of them: inline storage would lose it.
        let data = data.filter(|_| full.extras == Extras::default());
        data.and_then(|data| Self::inline(&full.key, data))
            .unwrap_or_else(|| Self::Boxed(Box::new(full)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_and_data_round_trip_inline_and_boxed() {
        for (key, data) in [(0, 0), (4, 0), (16, 8), (28, 1), (29, 0), (28, 2), (30, 0)] {
            let full = Full {
                key: Bytes::repeat(1, key),
                data: (data > 0).then(|| Data::Value(Bytes::repeat(2, data))),
                extras: Extras::default(),
            };
            let storage = Storage::from(full.clone());
            assert_eq!((storage.key(), storage.full()), (&*full.key, full.clone()));
            let fits = matches!(storage, Storage::Inline(..));
            assert_eq!(fits, key + data <= INLINE_LEN, "{key} and {data} bytes");
        }
    }

    #[test]
    fn optional_attributes_are_never_lost() {
        let full = Full {
            key: Bytes::repeat(1, 4),
            data: Some(Data::Value(Bytes::new())),
            extras: Extras::default(),
        };
        assert_eq!(
            Storage::from(full.clone()).full(),
            full,
            "empty data is not none"
        );
        let catch_all = Extras {
            catch_all: true,
            ..Extras::default()
        };
        let full = Full {
            extras: catch_all,
            ..full
        };
        assert_eq!(Storage::from(full.clone()).full(), full);
    }
}
