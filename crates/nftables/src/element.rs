//! Elements of sets and maps.

use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attrs, nest, put, put_be32, put_be64, put_str};

use crate::expr::Expr;
use crate::set::{DataKind, Set, join};
use crate::verdict::{decode_value, encode_value};
use crate::{Bytes, Comment, Data, Name, Value, Verdict, userdata, wire};

mod held;

mod prefix;

pub use prefix::KeyPrefix;

use held::{Full, Held};

/// An element of a set or map.
///
/// Made by [`Set::element`], which checks that the values fit.
/// Shared: a clone costs nothing.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Element(Arc<Content>);

#[derive(Clone, Debug, Eq, PartialEq)]
struct Content {
    set: Set,
    held: Held,
}

// With its counts it takes the allocator 64 bytes: there are many elements.
const _: () = assert!(size_of::<Content>() <= 40);

/// What an element maps to.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum ElementData<'a> {
    /// Bytes as registers hold them.
    Value(&'a [u8]),
    /// A verdict.
    Verdict(&'a Verdict),
}

fn wrong(part: &'static str, set: &Set) -> InvalidElement {
    let set = set.name.clone();
    InvalidElement { part, set }
}

/// What few elements have.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Extras {
    /// The last key, if it is not the first one.
    pub(crate) key_end: Option<Bytes>,
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
    #[inline]
    fn of(set: &Set, held: Held) -> Self {
        let set = set.clone();
        Self(Arc::new(Content { set, held }))
    }

    /// Makes an element of the bytes the kernel keeps.
    pub(crate) fn raw(set: &Set, key: Bytes, data: Option<Data>, extras: Extras) -> Self {
        Self::of(set, Full { key, data, extras }.into())
    }

    /// Returns the element mapped to these values, one a field.
    pub fn with_data(mut self, data: &[Value]) -> Result<Self, InvalidElement> {
        let joined = match &self.0.set.data {
            DataKind::Fields(fields) => join(
                &(Bytes::new(), None),
                (fields, fields.len() > 1),
                data,
                |field| field.datatype.order(),
            ),
            _ => None,
        };
        let Some((value, None)) = joined else {
            return Err(wrong("data", self.set()));
        };
        let short = match &self.0.held {
            Held::Short(..) => Held::short(self.0.held.key(), &value),
            Held::Long(_) => None,
        };
        match short {
            Some(short) => self.content_mut().held = short,
            None => self.change(|full| full.data = Some(Data::Value(value))),
        }
        Ok(self)
    }

    /// Returns the element mapped to a verdict.
    pub fn with_verdict(mut self, verdict: Verdict) -> Result<Self, InvalidElement> {
        if self.0.set.data != DataKind::Verdict {
            return Err(wrong("data", self.set()));
        }
        self.change(|full| full.data = Some(Data::Verdict(verdict)));
        Ok(self)
    }

    fn content_mut(&mut self) -> &mut Content {
        Arc::make_mut(&mut self.0)
    }

    fn change(&mut self, change: impl FnOnce(&mut Full)) {
        let mut full = self.0.held.full();
        change(&mut full);
        self.content_mut().held = full.into();
    }

    /// Returns the element with a time after which it expires.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.change(|full| full.extras.timeout = Some(timeout));
        self
    }

    /// Returns the element with a comment.
    #[must_use]
    pub fn with_comment(mut self, comment: Comment) -> Self {
        self.change(|full| full.extras.comment = Some(comment));
        self
    }

    /// Returns the set it is in.
    pub fn set(&self) -> &Set {
        &self.0.set
    }

    /// Returns its key, or the first one of an interval, as registers hold it.
    pub fn key_bytes(&self) -> &[u8] {
        self.0.held.key()
    }

    /// Returns the last key of an interval.
    pub fn key_end(&self) -> Option<&[u8]> {
        self.extras()?.key_end.as_deref()
    }

    /// Returns what it maps to.
    pub fn data(&self) -> Option<ElementData<'_>> {
        match &self.0.held {
            held @ Held::Short(..) => Some(held.short_data())
                .filter(|data| !data.is_empty())
                .map(ElementData::Value),
            Held::Long(full) => full.data.as_ref().map(|data| match data {
                Data::Value(value) => ElementData::Value(value),
                Data::Verdict(verdict) => ElementData::Verdict(verdict),
            }),
        }
    }

    /// Returns the verdict it maps to.
    pub fn verdict(&self) -> Option<&Verdict> {
        match self.data() {
            Some(ElementData::Verdict(verdict)) => Some(verdict),
            _ => None,
        }
    }

    /// Returns the time after which it expires, counted from its last update.
    pub fn timeout(&self) -> Option<Duration> {
        self.extras()?.timeout
    }

    /// Returns the time that was left when the element was dumped.
    pub fn expires_in(&self) -> Option<Duration> {
        self.extras()?.expires_in
    }

    /// Returns what `nft` lists as its comment.
    pub fn comment(&self) -> Option<&Comment> {
        self.extras()?.comment.as_ref()
    }

    /// Tells whether the kernel sees no difference to another element of the key.
    pub(crate) fn same(&self, other: &Self) -> bool {
        self.0.set.same(&other.0.set)
            && self.key_end() == other.key_end()
            && self.data() == other.data()
            && self.timeout() == other.timeout()
            && self.is_catch_all() == other.is_catch_all()
    }

    /// Returns what few elements have.
    pub(crate) fn extras(&self) -> Option<&Extras> {
        match &self.0.held {
            Held::Short(..) => None,
            Held::Long(full) => Some(&full.extras),
        }
    }

    /// Tells whether it stands for all keys that no other element has.
    pub fn is_catch_all(&self) -> bool {
        self.extras().is_some_and(|extras| extras.catch_all)
    }
}

// enum nft_set_elem_list_attributes
pub(crate) const NFTA_SET_ELEM_LIST_TABLE: u16 = 1;
pub(crate) const NFTA_SET_ELEM_LIST_SET: u16 = 2;
pub(crate) const NFTA_SET_ELEM_LIST_ELEMENTS: u16 = 3;
pub(crate) const NFTA_SET_ELEM_LIST_SET_ID: u16 = 4;
// enum nft_list_attributes
const NFTA_LIST_ELEM: u16 = 1;
// enum nft_set_elem_attributes
const NFTA_SET_ELEM_KEY: u16 = 1;
const NFTA_SET_ELEM_DATA: u16 = 2;
const NFTA_SET_ELEM_FLAGS: u16 = 3;
const NFTA_SET_ELEM_TIMEOUT: u16 = 4;
const NFTA_SET_ELEM_EXPIRATION: u16 = 5;
const NFTA_SET_ELEM_USERDATA: u16 = 6;
const NFTA_SET_ELEM_EXPR: u16 = 7;
const NFTA_SET_ELEM_OBJREF: u16 = 9;
const NFTA_SET_ELEM_KEY_END: u16 = 10;
const NFTA_SET_ELEM_EXPRESSIONS: u16 = 11;
// enum nft_set_elem_flags
pub(crate) const INTERVAL_END: u32 = 1;
pub(crate) const CATCH_ALL: u32 = 2;

/// Returns a span of time in the kernel's unit.
pub(crate) fn milliseconds(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Appends an element as the member of a list, or both ends of its interval.
///
/// `scratch` is room for user data.
pub(crate) fn encode(out: &mut Vec<u8>, element: &Element, scratch: &mut Vec<u8>) {
    let has_intervals = element.set().has_intervals();
    let simple = has_intervals && !element.set().is_concatenated();
    let last = element.key_end().unwrap_or_else(|| element.key_bytes());
    let end = simple.then(|| successor(last)).flatten();
    let is_open = simple && end.is_none() && !element.is_catch_all();
    nest(out, NFTA_LIST_ELEM, |out| {
        if element.is_catch_all() {
            put_be32(out, NFTA_SET_ELEM_FLAGS, CATCH_ALL);
        }
        if let Some(timeout) = element.timeout() {
            put_be64(out, NFTA_SET_ELEM_TIMEOUT, milliseconds(timeout));
        }
        if !element.is_catch_all() {
            encode_value(out, NFTA_SET_ELEM_KEY, element.key_bytes());
        }
        // The kernel needs no end of a single key, but nft lists what it finds
        // without one together with its neighbours.
        if has_intervals && !simple && !element.is_catch_all() {
            encode_value(out, NFTA_SET_ELEM_KEY_END, last);
        }
        match element.data() {
            None => {}
            Some(ElementData::Value(value)) => encode_value(out, NFTA_SET_ELEM_DATA, value),
            Some(ElementData::Verdict(verdict)) => verdict.encode_as_data(out, NFTA_SET_ELEM_DATA),
        }
        encode_rest(out, element, is_open, scratch);
    });
    if let Some(end) = end.filter(|_| !element.is_catch_all()) {
        nest(out, NFTA_LIST_ELEM, |out| {
            put_be32(out, NFTA_SET_ELEM_FLAGS, INTERVAL_END);
            encode_value(out, NFTA_SET_ELEM_KEY, &end);
        });
    }
}

/// Appends what few elements have.
fn encode_rest(out: &mut Vec<u8>, element: &Element, is_open: bool, scratch: &mut Vec<u8>) {
    scratch.clear();
    if let Some(comment) = element.comment() {
        userdata::put_comment(scratch, comment);
    }
    if is_open {
        userdata::put_open(scratch);
    }
    if !scratch.is_empty() {
        put(out, NFTA_SET_ELEM_USERDATA, scratch);
    }
    let Some(extras) = element.extras() else {
        return;
    };
    if let Some(object) = &extras.object {
        put_str(out, NFTA_SET_ELEM_OBJREF, object.as_str());
    }
    match &*extras.exprs {
        [] => {}
        [expr] => nest(out, NFTA_SET_ELEM_EXPR, |out| expr.encode(out)),
        exprs => nest(out, NFTA_SET_ELEM_EXPRESSIONS, |out| {
            for expr in exprs {
                nest(out, NFTA_LIST_ELEM, |out| expr.encode(out));
            }
        }),
    }
}

/// Returns the number one higher, unless there is none.
pub(crate) fn successor(number: &[u8]) -> Option<Bytes> {
    let mut next = Bytes::from(number);
    for byte in next.as_mut_slice().iter_mut().rev() {
        *byte = byte.wrapping_add(1);
        if *byte != 0 {
            return Some(next);
        }
    }
    None
}

/// Makes a number one lower; zero becomes the highest.
fn precede(number: &mut [u8]) {
    for byte in number.iter_mut().rev() {
        *byte = byte.wrapping_sub(1);
        if *byte != u8::MAX {
            return;
        }
    }
}

/// An element as the kernel dumps it, before its set is known.
#[derive(Debug)]
pub(crate) struct Raw {
    key: Bytes,
    data: Option<Data>,
    extras: Extras,
    is_end: bool,
}

/// Returns how many elements a list has.
pub(crate) fn count(payload: &[u8]) -> Result<usize, DecodeError> {
    let (_, attrs) = wire::split_header(payload)?;
    let mut count = 0;
    for attr in attrs {
        let attr = attr?;
        if attr.kind == NFTA_SET_ELEM_LIST_ELEMENTS {
            count += attr.attrs().filter(Result::is_ok).count();
        }
    }
    Ok(count)
}

/// Returns the names of the table and the set that a list is about.
pub(crate) fn list_of(payload: &[u8]) -> Result<(&str, &str), DecodeError> {
    let (_, attrs) = wire::split_header(payload)?;
    let (mut table, mut set) = (None, None);
    for attr in attrs {
        let attr = attr?;
        match attr.kind {
            NFTA_SET_ELEM_LIST_TABLE => table = Some(attr.str()?),
            NFTA_SET_ELEM_LIST_SET => set = Some(attr.str()?),
            _ => {}
        }
    }
    let missing = || wire::missing(NFTA_SET_ELEM_LIST_SET, "set of elements");
    Ok((table.ok_or_else(missing)?, set.ok_or_else(missing)?))
}

/// Reads the elements of a list.
pub(crate) fn decode_list(payload: &[u8], mut each: impl FnMut(Raw)) -> Result<(), DecodeError> {
    let (_, attrs) = wire::split_header(payload)?;
    for attr in attrs {
        let attr = attr?;
        if attr.kind == NFTA_SET_ELEM_LIST_ELEMENTS {
            for element in attr.attrs() {
                each(decode(element?.attrs())?);
            }
        }
    }
    Ok(())
}

fn decode(attrs: Attrs<'_>) -> Result<Raw, DecodeError> {
    let (mut key, mut data, mut flags) = (Bytes::new(), None, 0);
    let mut extras = Extras::default();
    for attr in attrs {
        let attr = attr?;
        let span = || {
            attr.be64()
                .map(|ms| Some(ms).filter(|ms| *ms != 0).map(Duration::from_millis))
        };
        match attr.kind {
            NFTA_SET_ELEM_KEY => key = decode_value(&attr)?,
            NFTA_SET_ELEM_KEY_END => extras.key_end = Some(decode_value(&attr)?),
            NFTA_SET_ELEM_DATA => data = Some(Data::decode(&attr)?),
            NFTA_SET_ELEM_FLAGS => flags = attr.be32()?,
            NFTA_SET_ELEM_TIMEOUT => extras.timeout = span()?,
            NFTA_SET_ELEM_EXPIRATION => extras.expires_in = span()?,
            NFTA_SET_ELEM_USERDATA => extras.comment = userdata::comment(attr.value),
            NFTA_SET_ELEM_OBJREF => {
                let name = Name::new(attr.str()?);
                extras.object = Some(name.map_err(|_| attr.error("object name"))?);
            }
            NFTA_SET_ELEM_EXPR => extras.exprs.push(Expr::decode(attr.value)?),
            NFTA_SET_ELEM_EXPRESSIONS => {
                for expr in attr.attrs() {
                    extras.exprs.push(Expr::decode(expr?.value)?);
                }
            }
            _ => {}
        }
    }
    extras.catch_all = flags & CATCH_ALL != 0;
    extras.key_end = extras.key_end.filter(|end| *end != key);
    let is_end = flags & INTERVAL_END != 0;
    Ok(Raw {
        key,
        data,
        extras,
        is_end,
    })
}

/// Makes elements of what the kernel dumped of a set.
///
/// Sets of plain intervals have two elements each: the first key, and the key
/// after the last one; an interval up to the highest key has only the first.
pub(crate) fn join_intervals(set: &Set, mut raw: Vec<Raw>) -> Vec<Element> {
    if set.has_intervals() && !set.is_concatenated() {
        raw.sort_by(|a, b| (&a.key, !a.is_end).cmp(&(&b.key, !b.is_end)));
        let mut ends = None;
        for element in raw.iter_mut().rev() {
            if element.is_end {
                ends = Some(element.key.clone());
            } else if !element.extras.catch_all {
                let mut last = ends
                    .take()
                    .unwrap_or_else(|| Bytes::repeat(0, element.key.len()));
                precede(last.as_mut_slice());
                element.extras.key_end = Some(last).filter(|last| *last != element.key);
            }
        }
        raw.retain(|element| !element.is_end);
    }
    raw.into_iter()
        .map(|raw| Element::raw(set, raw.key, raw.data, raw.extras))
        .collect()
}

/// Returns how many members of a list an element takes.
pub(crate) fn members(element: &Element) -> usize {
    let simple = element.set().has_intervals() && !element.set().is_concatenated();
    let last = element.key_end().unwrap_or_else(|| element.key_bytes());
    if simple && !element.is_catch_all() && successor(last).is_some() {
        2
    } else {
        1
    }
}
