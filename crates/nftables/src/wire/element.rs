//! Codec of elements.

use std::time::Duration;

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attrs, nest, put, put_be32, put_be64, put_str};

use super::{missing, split_header, userdata};
use crate::expr::{Expr, NFTA_LIST_ELEM};
use crate::object::element::Extras;
use crate::value::verdict::{decode_value, encode_value};
use crate::{Bytes, Data, Element, ElementData, Name, Set};

// enum nft_set_elem_list_attributes
pub(crate) const NFTA_SET_ELEM_LIST_TABLE: u16 = 1;
pub(crate) const NFTA_SET_ELEM_LIST_SET: u16 = 2;
pub(crate) const NFTA_SET_ELEM_LIST_ELEMENTS: u16 = 3;
pub(crate) const NFTA_SET_ELEM_LIST_SET_ID: u16 = 4;
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
pub(crate) const NFT_SET_ELEM_INTERVAL_END: u32 = 1;
pub(crate) const NFT_SET_ELEM_CATCHALL: u32 = 2;

/// Appends stateful expressions: one as an attribute of type `single`, more as a list.
pub(super) fn put_exprs(out: &mut Vec<u8>, exprs: &[Expr], single: u16, list: u16) {
    match exprs {
        [] => {}
        [expr] => nest(out, single, |out| expr.encode(out)),
        exprs => nest(out, list, |out| {
            for expr in exprs {
                nest(out, NFTA_LIST_ELEM, |out| expr.encode(out));
            }
        }),
    }
}

/// Returns a duration in milliseconds, the kernel's unit.
pub(crate) fn milliseconds(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Appends an element as a list entry; an interval as two entries, start and end.
///
/// `scratch` is a reusable buffer for user data.
///
/// `next` is the next element of the list.
pub(crate) fn encode(
    out: &mut Vec<u8>,
    element: &Element,
    next: Option<&Element>,
    scratch: &mut Vec<u8>,
) {
    if let Some(end) = leading_end(element) {
        put_end(out, end);
    }
    let has_intervals = element.set().has_intervals();
    let simple = has_intervals && !element.set().is_concatenated();
    let last = element.key_end().unwrap_or_else(|| element.key_bytes());
    let end = simple.then(|| successor(last)).flatten();
    let is_open = simple && end.is_none() && !element.is_catch_all();
    nest(out, NFTA_LIST_ELEM, |out| {
        if element.is_catch_all() {
            put_be32(out, NFTA_SET_ELEM_FLAGS, NFT_SET_ELEM_CATCHALL);
        }
        if let Some(timeout) = element.timeout() {
            put_be64(out, NFTA_SET_ELEM_TIMEOUT, milliseconds(timeout));
        }
        if let Some(expires_in) = element.expires_in() {
            put_be64(out, NFTA_SET_ELEM_EXPIRATION, milliseconds(expires_in));
        }
        if !element.is_catch_all() {
            encode_value(out, NFTA_SET_ELEM_KEY, element.key_bytes());
        }
        // The kernel does not need the end of a single key. nft, however, lists a
        // key without an end joined with its neighbors.
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
    let end = end.filter(|_| !element.is_catch_all());
    if let Some(end) = end.filter(|_| !is_end_omitted(element, next)) {
        put_end(out, &end);
    }
}

/// Appends the attributes that name the set of an element, and the element.
pub(crate) fn put_key(out: &mut Vec<u8>, element: &Element) {
    let set = element.set();
    put_str(out, NFTA_SET_ELEM_LIST_TABLE, set.table.name.as_str());
    put_str(out, NFTA_SET_ELEM_LIST_SET, set.name.as_str());
    nest(out, NFTA_SET_ELEM_LIST_ELEMENTS, |out| {
        encode(out, element, None, &mut Vec::new());
    });
}

/// Appends the entry of the end of an interval.
fn put_end(out: &mut Vec<u8>, key: &[u8]) {
    nest(out, NFTA_LIST_ELEM, |out| {
        put_be32(out, NFTA_SET_ELEM_FLAGS, NFT_SET_ELEM_INTERVAL_END);
        encode_value(out, NFTA_SET_ELEM_KEY, key);
    });
}

/// Returns the key of an end entry before the element that ends no interval.
fn leading_end(element: &Element) -> Option<&Bytes> {
    let is_kept = is_joined(element.set());
    element.extras()?.leading_end.as_ref().filter(|_| is_kept)
}

/// Returns whether the start of the next interval takes the place of the end entry, as
/// in the dump of the element.
fn is_end_omitted(element: &Element, next: Option<&Element>) -> bool {
    let is_omitted = element.extras().is_some_and(|extras| extras.is_end_omitted);
    let last = element.key_end().unwrap_or_else(|| element.key_bytes());
    let after = successor(last);
    is_omitted
        && next
            .zip(after)
            .is_some_and(|(next, after)| next.key_bytes() == &*after)
}

/// Appends the optional attributes.
fn encode_rest(out: &mut Vec<u8>, element: &Element, is_open: bool, scratch: &mut Vec<u8>) {
    scratch.clear();
    put_userdata(scratch, element, is_open);
    if !scratch.is_empty() {
        put(out, NFTA_SET_ELEM_USERDATA, scratch);
    }
    let Some(extras) = element.extras() else {
        return;
    };
    if let Some(object) = &extras.object {
        put_str(out, NFTA_SET_ELEM_OBJREF, object.as_str());
    }
    let (single, list) = (NFTA_SET_ELEM_EXPR, NFTA_SET_ELEM_EXPRESSIONS);
    put_exprs(out, &extras.exprs, single, list);
}

/// Appends the user data of an element: that of a dump, unless the comment changed since.
pub(crate) fn put_userdata(out: &mut Vec<u8>, element: &Element, is_open: bool) {
    let raw = element.extras().and_then(|extras| extras.userdata.as_ref());
    let is_current = |raw: &&Bytes| userdata::comment(raw).as_ref() == element.comment();
    if let Some(raw) = raw.filter(is_current) {
        out.extend_from_slice(raw);
        return;
    }
    if let Some(comment) = element.comment() {
        userdata::put_comment(out, comment);
    }
    if is_open {
        userdata::put_open(out);
    }
}

/// Returns the big-endian number plus one, or `None` on overflow.
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

/// Decrements a big-endian number; zero wraps around.
fn decrement(number: &mut [u8]) {
    for byte in number.iter_mut().rev() {
        *byte = byte.wrapping_sub(1);
        if *byte != u8::MAX {
            return;
        }
    }
}

/// A decoded element of a dump, not yet assigned to a set.
#[derive(Debug)]
pub(crate) struct Raw {
    key: Bytes,
    data: Option<Data>,
    extras: Extras,
    is_end: bool,
}

/// Returns the number of entries in an element list.
pub(crate) fn count(payload: &[u8]) -> Result<usize, DecodeError> {
    let (_, attrs) = split_header(payload)?;
    let mut count = 0;
    for attr in attrs {
        let attr = attr?;
        if attr.kind == NFTA_SET_ELEM_LIST_ELEMENTS {
            count += attr.attrs().filter(Result::is_ok).count();
        }
    }
    Ok(count)
}

/// Returns the names of the table and the set of an element list.
pub(crate) fn list_names(payload: &[u8]) -> Result<(&str, &str), DecodeError> {
    let (_, attrs) = split_header(payload)?;
    let (mut table, mut set) = (None, None);
    for attr in attrs {
        let attr = attr?;
        match attr.kind {
            NFTA_SET_ELEM_LIST_TABLE => table = Some(attr.str()?),
            NFTA_SET_ELEM_LIST_SET => set = Some(attr.str()?),
            _ => {}
        }
    }
    let missing = || missing(NFTA_SET_ELEM_LIST_SET, "set of elements");
    Ok((table.ok_or_else(missing)?, set.ok_or_else(missing)?))
}

/// Decodes the entries of an element list.
pub(crate) fn decode_list(payload: &[u8], mut each: impl FnMut(Raw)) -> Result<(), DecodeError> {
    let (_, attrs) = split_header(payload)?;
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
            NFTA_SET_ELEM_USERDATA => {
                extras.comment = userdata::comment(attr.value);
                extras.userdata = Some(attr.value.into());
            }
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
    extras.catch_all = flags & NFT_SET_ELEM_CATCHALL != 0;
    extras.key_end = extras.key_end.filter(|end| *end != key);
    let is_end = flags & NFT_SET_ELEM_INTERVAL_END != 0;
    Ok(Raw {
        key,
        data,
        extras,
        is_end,
    })
}

/// The dumped entries of a set so far.
#[derive(Debug)]
pub(crate) enum Received {
    /// Elements, one for each entry. A decoded entry takes four times the memory.
    Elements(Vec<Element>),
    /// Entries that are joined to intervals when all are received.
    Intervals(Vec<Raw>),
}

impl Received {
    /// Creates an empty list of entries of a set.
    pub(crate) fn new(set: &Set) -> Self {
        match is_joined(set) {
            true => Self::Intervals(Vec::new()),
            false => Self::Elements(Vec::new()),
        }
    }

    /// Adds an entry of the set.
    pub(crate) fn push(&mut self, set: &Set, raw: Raw) {
        match self {
            Self::Elements(elements) => elements.push(raw.into_element(set)),
            Self::Intervals(entries) => entries.push(raw),
        }
    }

    /// Returns the elements of the set.
    pub(crate) fn into_elements(self, set: &Set) -> Vec<Element> {
        match self {
            Self::Elements(elements) => elements,
            Self::Intervals(entries) => join_intervals(set, entries),
        }
    }
}

impl Raw {
    fn into_element(mut self, set: &Set) -> Element {
        let userdata = self.extras.userdata.take();
        let element = Element::raw(set, self.key, self.data, self.extras);
        let Some(userdata) = userdata else {
            return element;
        };
        let mut usual = Vec::new();
        put_userdata(&mut usual, &element, is_open(&element));
        match *usual == *userdata {
            true => element,
            false => element.with_userdata(userdata),
        }
    }
}

/// Returns whether a dump has two entries for each interval: its first key, and the key
/// after the last. An interval up to the highest key has no end entry.
fn is_joined(set: &Set) -> bool {
    set.has_intervals() && !set.is_concatenated()
}

/// Returns whether the interval of an element has no end.
fn is_open(element: &Element) -> bool {
    let last = element.key_end().unwrap_or_else(|| element.key_bytes());
    is_joined(element.set()) && !element.is_catch_all() && successor(last).is_none()
}

/// Joins the entries of a set to intervals.
///
/// An interval ends before its end entry, otherwise before the next interval.
fn join_intervals(set: &Set, mut raw: Vec<Raw>) -> Vec<Element> {
    raw.sort_by(|a, b| (&a.key, !a.is_end).cmp(&(&b.key, !b.is_end)));
    let (mut after, mut is_start_after) = (None, false);
    for element in raw.iter_mut().rev() {
        if element.extras.catch_all {
            continue;
        }
        if !element.is_end {
            let after: Option<Bytes> = after.take();
            element.extras.is_end_omitted = is_start_after && after.is_some();
            let mut last = after.unwrap_or_else(|| Bytes::repeat(0, element.key.len()));
            decrement(last.as_mut_slice());
            element.extras.key_end = Some(last).filter(|last| *last != element.key);
        }
        after = Some(element.key.clone());
        is_start_after = !element.is_end;
    }
    let (mut in_interval, mut stray) = (false, None);
    for element in &mut raw {
        if element.is_end {
            stray = Some(element.key.clone()).filter(|_| !in_interval);
            in_interval = false;
        } else if !element.extras.catch_all {
            element.extras.leading_end = stray.take();
            in_interval = true;
        }
    }
    let starts = raw.into_iter().filter(|element| !element.is_end);
    starts.map(|element| element.into_element(set)).collect()
}

/// Returns the number of list entries that encode an element before the element `next`.
pub(crate) fn list_entries(element: &Element, next: Option<&Element>) -> usize {
    let last = element.key_end().unwrap_or_else(|| element.key_bytes());
    let has_end = is_joined(element.set()) && !element.is_catch_all();
    let has_end = has_end && successor(last).is_some() && !is_end_omitted(element, next);
    1 + usize::from(has_end) + usize::from(leading_end(element).is_some())
}
