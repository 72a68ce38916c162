//! What is kept of an element: little for most of them.

use super::Extras;
use crate::{Bytes, Data};

/// How many bytes of key and data together are kept in place.
const SHORT: usize = 29;

/// All of an element but its set.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Held {
    /// The lengths of key and data, and both; no data is none.
    ///
    /// Invariant: all that fits is kept like this, and what follows is zero.
    Short(u8, u8, [u8; SHORT]),
    Long(Box<Full>),
}

/// All of an element but its set, whatever it is.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Full {
    pub(super) key: Bytes,
    pub(super) data: Option<Data>,
    pub(super) extras: Extras,
}

impl Held {
    /// Keeps key and data in place, if they fit.
    #[inline]
    pub(super) fn short(key: &[u8], data: &[u8]) -> Option<Self> {
        let mut bytes = [0; SHORT];
        let (start, rest) = bytes.split_at_mut_checked(key.len())?;
        start.copy_from_slice(key);
        rest.get_mut(..data.len())?.copy_from_slice(data);
        Some(Self::Short(key.len() as u8, data.len() as u8, bytes))
    }

    pub(super) fn full(&self) -> Full {
        match self {
            Self::Short(..) => Full {
                key: self.key().into(),
                data: Some(self.short_data())
                    .filter(|data| !data.is_empty())
                    .map(|data| Data::Value(data.into())),
                extras: Extras::default(),
            },
            Self::Long(full) => Full::clone(full),
        }
    }

    #[inline]
    pub(super) fn key(&self) -> &[u8] {
        match self {
            Self::Short(key, _, bytes) => bytes.get(..usize::from(*key)).unwrap_or_default(),
            Self::Long(full) => &full.key,
        }
    }

    #[inline]
    pub(super) fn short_data(&self) -> &[u8] {
        match self {
            Self::Short(key, data, bytes) => bytes
                .get(usize::from(*key)..usize::from(*key) + usize::from(*data))
                .unwrap_or_default(),
            Self::Long(_) => &[],
        }
    }
}

impl From<Full> for Held {
    #[inline]
    fn from(full: Full) -> Self {
        let data = match &full.data {
            None => Some(&[][..]),
            // Nothing would be taken for none.
            Some(Data::Value(value)) => Some(&**value).filter(|value| !value.is_empty()),
            Some(Data::Verdict(_)) => None,
        };
        let data = data.filter(|_| full.extras == Extras::default());
        data.and_then(|data| Self::short(&full.key, data))
            .unwrap_or_else(|| Self::Long(Box::new(full)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_and_data_come_back_whether_they_fit_or_not() {
        for (key, data) in [(0, 0), (4, 0), (16, 8), (28, 1), (29, 0), (28, 2), (30, 0)] {
            let full = Full {
                key: Bytes::repeat(1, key),
                data: (data > 0).then(|| Data::Value(Bytes::repeat(2, data))),
                extras: Extras::default(),
            };
            let held = Held::from(full.clone());
            assert_eq!((held.key(), held.full()), (&*full.key, full.clone()));
            let fits = matches!(held, Held::Short(..));
            assert_eq!(fits, key + data <= SHORT, "{key} and {data} bytes");
        }
    }

    #[test]
    fn what_few_elements_have_is_never_lost() {
        let full = Full {
            key: Bytes::repeat(1, 4),
            data: Some(Data::Value(Bytes::new())),
            extras: Extras::default(),
        };
        assert_eq!(
            Held::from(full.clone()).full(),
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
        assert_eq!(Held::from(full.clone()).full(), full);
    }
}
