//! Elements of sets and maps.

use std::time::Duration;

use thiserror::Error;

use crate::expr::Expr;
use crate::set::{DataKind, Set, join};
use crate::{Bytes, Comment, Data, Name, Value, Verdict};

/// An element of a set or map.
///
/// Made by [`Set::element`], which checks that the values fit.
#[derive(Clone, Debug, PartialEq)]
pub struct Element {
    set: Set,
    key: Bytes,
    /// The last key, if it is not the first one.
    key_end: Option<Box<[u8]>>,
    data: Option<Data>,
    extras: Option<Box<Extras>>,
}

/// What few elements have.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Extras {
    pub(crate) timeout: Option<Duration>,
    pub(crate) expires_in: Option<Duration>,
    pub(crate) comment: Option<Comment>,
    pub(crate) object: Option<Name>,
    pub(crate) exprs: Vec<Expr>,
    pub(crate) catch_all: bool,
}

/// Why values do not make an element.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("the {part} does not fit the fields of {set}")]
pub struct InvalidElement {
    /// `key` or `data`.
    pub part: &'static str,
    /// The name of the set.
    pub set: Name,
}

impl Element {
    pub(crate) fn new(set: &Set, key: &[Value]) -> Result<Self, InvalidElement> {
        let wrong = || InvalidElement {
            part: "key",
            set: set.name.clone(),
        };
        let (first, last) = join(&set.key, key, |field| set.order(field)).ok_or_else(wrong)?;
        let key_end = (first != last).then(|| (*last).into());
        if key_end.is_some() && !set.has_intervals() {
            return Err(wrong());
        }
        Ok(Self {
            set: set.clone(),
            key: first,
            key_end,
            data: None,
            extras: None,
        })
    }

    /// Makes an element of the bytes the kernel keeps.
    pub(crate) fn raw(
        set: &Set,
        key: Bytes,
        key_end: Option<Box<[u8]>>,
        data: Option<Data>,
        extras: Extras,
    ) -> Self {
        let extras = (extras != Extras::default()).then(|| Box::new(extras));
        Self {
            set: set.clone(),
            key,
            key_end,
            data,
            extras,
        }
    }

    /// Returns the element mapped to these values, one a field.
    pub fn with_data(mut self, data: &[Value]) -> Result<Self, InvalidElement> {
        let joined = match &self.set.data {
            DataKind::Fields(fields) => join(fields, data, |field| field.datatype.order()),
            _ => None,
        };
        match joined {
            Some((first, last)) if first == last => {
                self.data = Some(Data::Value(first));
                Ok(self)
            }
            _ => Err(self.wrong_data()),
        }
    }

    /// Returns the element mapped to a verdict.
    pub fn with_verdict(mut self, verdict: Verdict) -> Result<Self, InvalidElement> {
        if self.set.data != DataKind::Verdict {
            return Err(self.wrong_data());
        }
        self.data = Some(Data::Verdict(verdict));
        Ok(self)
    }

    fn wrong_data(&self) -> InvalidElement {
        InvalidElement {
            part: "data",
            set: self.set.name.clone(),
        }
    }

    /// Returns the element with a time after which it expires.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.extras.get_or_insert_default().timeout = Some(timeout);
        self
    }

    /// Returns the element with a comment.
    #[must_use]
    pub fn with_comment(mut self, comment: Comment) -> Self {
        self.extras.get_or_insert_default().comment = Some(comment);
        self
    }

    /// Returns the set it is in.
    pub fn set(&self) -> &Set {
        &self.set
    }

    /// Returns its key, or the first one of an interval, as registers hold it.
    pub fn key_bytes(&self) -> &Bytes {
        &self.key
    }

    /// Returns the last key of an interval.
    pub fn key_end(&self) -> Option<&[u8]> {
        self.key_end.as_deref()
    }

    /// Returns what it maps to.
    pub fn data(&self) -> Option<&Data> {
        self.data.as_ref()
    }

    /// Returns the verdict it maps to.
    pub fn verdict(&self) -> Option<&Verdict> {
        match &self.data {
            Some(Data::Verdict(verdict)) => Some(verdict),
            _ => None,
        }
    }

    /// Returns the time after which it expires, counted from its last update.
    pub fn timeout(&self) -> Option<Duration> {
        self.extras.as_ref()?.timeout
    }

    /// Returns the time that was left when the element was dumped.
    pub fn expires_in(&self) -> Option<Duration> {
        self.extras.as_ref()?.expires_in
    }

    /// Returns what `nft` lists as its comment.
    pub fn comment(&self) -> Option<&Comment> {
        self.extras.as_ref()?.comment.as_ref()
    }

    pub(crate) fn extras(&self) -> Option<&Extras> {
        self.extras.as_deref()
    }

    /// Tells whether the kernel sees no difference to another element of the key.
    pub(crate) fn same(&self, other: &Self) -> bool {
        self.key_end == other.key_end
            && self.data == other.data
            && self.timeout() == other.timeout()
            && self.is_catch_all() == other.is_catch_all()
    }

    /// Tells whether it stands for all keys that no other element has.
    pub fn is_catch_all(&self) -> bool {
        self.extras.as_ref().is_some_and(|extras| extras.catch_all)
    }
}

const _: () = assert!(size_of::<Element>() <= 128);
