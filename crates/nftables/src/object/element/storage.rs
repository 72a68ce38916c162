//! Compact storage of an element's key, data and optional attributes.

use std::time::Duration;

use crate::expr::Expr;
use crate::{Bytes, Comment, Data, Name};

/// Maximum total length of key and data in inline storage.
const INLINE_LEN: usize = 29;

/// Key, data and optional attributes of an element.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Storage {
    /// Lengths of key and data, then the bytes of both. Empty data means no data.
    ///
    /// Invariant: used for every element that fits; unused bytes are zero.
    Inline(u8, u8, [u8; INLINE_LEN]),
    Boxed(Box<Full>),
}

/// Key, data and optional attributes, unpacked.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Full {
    pub(super) key: Bytes,
    pub(super) data: Option<Data>,
    pub(super) extras: Extras,
}

/// Optional attributes of an element.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Extras {
    /// Last key of an interval of more than one key.
    pub(crate) key_end: Option<Bytes>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) expires_in: Option<Duration>,
    pub(crate) comment: Option<Comment>,
    /// User data of a dump that this crate would write otherwise.
    pub(crate) userdata: Option<Bytes>,
    /// Key of an end entry before the element that ends no interval.
    pub(crate) leading_end: Option<Bytes>,
    /// The interval has no end entry in the dump: the next interval follows immediately.
    pub(crate) is_end_omitted: bool,
    pub(crate) object: Option<Name>,
    pub(crate) exprs: Vec<Expr>,
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
        Some(Self::Inline(key.len() as u8, data.len() as u8, bytes))
    }

    /// Returns whether inline storage holds a key and data of this total length.
    #[inline]
    pub(super) fn fits_inline(len: usize) -> bool {
        len <= INLINE_LEN
    }

    /// Stores a key of `key_len` bytes and the data after it inline. Returns `None` if
    /// they do not fit.
    #[inline]
    pub(super) fn packed(bytes: &Bytes, key_len: usize) -> Option<Self> {
        let (len, bytes) = bytes.inline()?;
        let (bytes, _) = bytes.split_first_chunk()?;
        let key = u8::try_from(key_len).ok()?;
        Self::fits_inline(len.into()).then_some(Self::Inline(key, len - key, *bytes))
    }

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
            Self::Inline(key, _, bytes) => bytes.get(..usize::from(*key)).unwrap_or_default(),
            Self::Boxed(full) => &full.key,
        }
    }

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
            Some(Data::Verdict(_)) => None,
        };
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
