//! Elements of sets and maps.

use std::sync::Arc;
use std::time::Duration;

use crate::expr::Expr;
use crate::language::field::{Joined, append, join, width};
use crate::object::set::{DataKind, Set, are_equivalent};
use crate::value::End;
use crate::{Bytes, Comment, Data, Field, InvalidValue, Name, Value, Verdict};

mod storage;

pub(crate) use storage::Extras;
use storage::{Full, Storage};

/// An element of a set or map.
///
/// Created with [`Set::element`], which checks that the values fit the key.
/// Clones share the content.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Element(Arc<Content>);

#[derive(Clone, Debug, Eq, PartialEq)]
struct Content {
    set: Set,
    storage: Storage,
}

// With the reference counts an element takes 64 bytes of the allocator.
const _: () = assert!(size_of::<Content>() <= 40);

/// Data of a map element.
///
/// Exhaustive: the data of an element is a value or a verdict.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum ElementData<'a> {
    /// Bytes in register layout.
    Value(&'a [u8]),
    /// A verdict.
    Verdict(&'a Verdict),
}

fn invalid(part: &'static str, set: &Set) -> InvalidValue {
    let set = set.name.clone();
    InvalidValue::Element { part, set }
}

impl Set {
    /// Creates an element with this key, one value per field.
    ///
    /// An element of a map also needs data: [`Element::with_data`] or
    /// [`Element::with_verdict`].
    ///
    /// # Errors
    ///
    /// [`InvalidValue`] if the number, type or size of the values does not match
    /// the key fields, or if the key is an interval and the set has no intervals.
    pub fn element(&self, key: &[Value]) -> Result<Element, InvalidValue> {
        self.key_prefix(&[])?.element(key)
    }

    /// Creates a key prefix: values of the first fields, shared by many elements.
    ///
    /// # Errors
    ///
    /// [`InvalidValue`] if the values do not match the first fields of the key.
    pub fn key_prefix(&self, values: &[Value]) -> Result<KeyPrefix<'_>, InvalidValue> {
        KeyPrefix::new(self, values)
    }
}

/// Values of the first fields of a key, shared by many elements.
///
/// Created with [`Set::key_prefix`].
#[derive(Clone, Debug)]
pub struct KeyPrefix<'a> {
    set: &'a Set,
    /// Remaining fields of the key.
    fields: &'a [Field],
    joined: Joined,
}

impl<'a> KeyPrefix<'a> {
    pub(crate) fn new(set: &'a Set, values: &[Value]) -> Result<Self, InvalidValue> {
        let fields = set.key.split_at_checked(values.len());
        let (first, fields) = fields.ok_or_else(|| invalid("key", set))?;
        let joined = (Bytes::new(), None);
        let joined = match first {
            [] => joined,
            first => Self::join(set, &joined, first, values)?,
        };
        Ok(Self {
            set,
            fields,
            joined,
        })
    }

    /// Creates the element with this prefix and one value for each remaining field.
    ///
    /// # Errors
    ///
    /// [`InvalidValue`] if the values do not match the remaining fields, or if the
    /// key is an interval and the set has no intervals.
    pub fn element(&self, rest: &[Value]) -> Result<Element, InvalidValue> {
        if let Some(element) = self.inline_element(rest, None) {
            return Ok(element);
        }
        let (key, key_end) = Self::join(self.set, &self.joined, self.fields, rest)?;
        if key_end.is_some() && !self.set.has_intervals() {
            return Err(invalid("key", self.set));
        }
        let extras = Extras {
            key_end,
            ..Extras::default()
        };
        Ok(Element::raw(self.set, key, None, extras))
    }

    /// Creates the element of a map with this prefix, one value for each remaining field,
    /// and one value for each data field.
    ///
    /// Faster than [`element`](Self::element) followed by [`Element::with_data`].
    ///
    /// # Errors
    ///
    /// The errors of both functions.
    pub fn map_element(&self, rest: &[Value], data: &[Value]) -> Result<Element, InvalidValue> {
        match self.inline_element(rest, Some(data)) {
            Some(element) => Ok(element),
            None => self.element(rest)?.with_data(data),
        }
    }

    /// Creates an element without other allocations, if its values match and are stored
    /// inline.
    fn inline_element(&self, rest: &[Value], data: Option<&[Value]>) -> Option<Element> {
        let (start, None) = &self.joined else {
            return None;
        };
        if [rest, data.unwrap_or_default()]
            .into_iter()
            .flatten()
            .any(Value::is_interval)
        {
            return None;
        }
        let mut bytes = start.clone();
        let key = (self.fields, self.set.is_concatenated());
        let order = |it: &Field| self.set.order(it);
        let mut fits = append(&mut bytes, key, rest, order, End::First);
        let key_len = bytes.len();
        if let Some(values) = data {
            let DataKind::Fields(fields) = &self.set.data else {
                return None;
            };
            let is_padded = fields.len() > 1;
            // Padding counts from the start of the data.
            fits &= !is_padded || key_len.is_multiple_of(4);
            fits &= Storage::fits_inline(key_len + width(fields));
            if !fits {
                return None;
            }
            let data = (&**fields, is_padded);
            fits &= append(
                &mut bytes,
                data,
                values,
                |it| it.datatype.order(),
                End::First,
            );
        }
        let storage = Storage::packed(&bytes, key_len).filter(|_| fits)?;
        Some(Element::from_storage(self.set, storage))
    }

    fn join(
        set: &Set,
        start: &Joined,
        fields: &[Field],
        values: &[Value],
    ) -> Result<Joined, InvalidValue> {
        let order = |field: &Field| set.order(field);
        let joined = join(start, (fields, set.is_concatenated()), values, order);
        joined.ok_or_else(|| invalid("key", set))
    }
}

impl Element {
    #[inline]
    fn from_storage(set: &Set, storage: Storage) -> Self {
        let set = set.clone();
        Self(Arc::new(Content { set, storage }))
    }

    /// Creates an element from key and data in register layout, as
    /// [`key_bytes`](Self::key_bytes) and [`data`](Self::data) return them.
    ///
    /// # Errors
    ///
    /// [`InvalidValue`] if the key is not as long as those of the set
    /// ([`Set::key_bytes`]), or if the data is of another kind or length.
    pub fn from_bytes(
        set: &Set,
        key: impl Into<Bytes>,
        data: Option<Data>,
    ) -> Result<Self, InvalidValue> {
        let key = key.into();
        if key.len() != set.key_bytes() {
            return Err(invalid("key", set));
        }
        let fits = match (&data, &set.data) {
            (None, _) | (Some(Data::Verdict(_)), DataKind::Verdict) => true,
            (Some(Data::Value(value)), DataKind::Fields(_)) => value.len() == set.data_bytes(),
            _ => false,
        };
        if !fits {
            return Err(invalid("data", set));
        }
        Ok(Self::raw(set, key, data, Extras::default()))
    }

    /// Creates an element from key and data in register layout.
    pub(crate) fn raw(set: &Set, key: Bytes, data: Option<Data>, extras: Extras) -> Self {
        Self::from_storage(set, Full { key, data, extras }.into())
    }

    /// Sets the data, one value per field.
    ///
    /// # Errors
    ///
    /// [`InvalidValue`] if the set is not a map to values, or if the values do not
    /// match the data fields.
    pub fn with_data(mut self, data: &[Value]) -> Result<Self, InvalidValue> {
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
            return Err(invalid("data", self.set()));
        };
        let inline = match &self.0.storage {
            Storage::Inline(..) => Storage::inline(self.0.storage.key(), &value),
            Storage::Boxed(_) => None,
        };
        match inline {
            Some(inline) => self.content_mut().storage = inline,
            None => self.change(|full| full.data = Some(Data::Value(value))),
        }
        Ok(self)
    }

    /// Sets the verdict that the key maps to.
    ///
    /// # Errors
    ///
    /// [`InvalidValue`] if the set is not a verdict map.
    pub fn with_verdict(mut self, verdict: Verdict) -> Result<Self, InvalidValue> {
        if self.0.set.data != DataKind::Verdict {
            return Err(invalid("data", self.set()));
        }
        self.change(|full| full.data = Some(Data::Verdict(verdict)));
        Ok(self)
    }

    /// Sets the user data of a dump.
    pub(crate) fn with_userdata(mut self, userdata: Bytes) -> Self {
        self.change(|full| full.extras.userdata = Some(userdata));
        self
    }

    fn content_mut(&mut self) -> &mut Content {
        Arc::make_mut(&mut self.0)
    }

    fn change(&mut self, change: impl FnOnce(&mut Full)) {
        let mut full = self.0.storage.full();
        change(&mut full);
        self.content_mut().storage = full.into();
    }

    /// Sets the time after which the element expires, with a resolution of 1 ms.
    ///
    /// The set must have the flag [`TIMEOUT`](crate::SetFlags::TIMEOUT).
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.change(|full| full.extras.timeout = Some(timeout));
        self
    }

    /// Sets the stateful object that the key maps to.
    ///
    /// # Errors
    ///
    /// [`InvalidValue`] if the set is not an object map.
    pub fn with_object(mut self, object: Name) -> Result<Self, InvalidValue> {
        if !matches!(self.0.set.data, DataKind::Object(_)) {
            return Err(invalid("data", self.set()));
        }
        self.change(|full| full.extras.object = Some(object));
        Ok(self)
    }

    /// Sets the stateful expressions, such as a counter, instead of those of the set.
    #[must_use]
    pub fn with_exprs(mut self, exprs: impl Into<Vec<Expr>>) -> Self {
        self.change(|full| full.extras.exprs = exprs.into());
        self
    }

    /// Sets the comment.
    #[must_use]
    pub fn with_comment(mut self, comment: Comment) -> Self {
        self.change(|full| full.extras.comment = Some(comment));
        self
    }

    /// Returns the set of the element.
    pub fn set(&self) -> &Set {
        &self.0.set
    }

    /// Returns the key in register layout; for an interval, its first key.
    pub fn key_bytes(&self) -> &[u8] {
        self.0.storage.key()
    }

    /// Returns the last key of an interval, or `None` for a single key.
    pub fn key_end(&self) -> Option<&[u8]> {
        self.extras()?.key_end.as_deref()
    }

    /// Returns the data of a map element.
    pub fn data(&self) -> Option<ElementData<'_>> {
        match &self.0.storage {
            storage @ Storage::Inline(..) => Some(storage.inline_data())
                .filter(|data| !data.is_empty())
                .map(ElementData::Value),
            Storage::Boxed(full) => full.data.as_ref().map(|data| match data {
                Data::Value(value) => ElementData::Value(value),
                Data::Verdict(verdict) => ElementData::Verdict(verdict),
            }),
        }
    }

    /// Returns the verdict of a verdict map element.
    pub fn verdict(&self) -> Option<&Verdict> {
        match self.data() {
            Some(ElementData::Verdict(verdict)) => Some(verdict),
            _ => None,
        }
    }

    /// Returns the timeout, counted from the last update of the element.
    pub fn timeout(&self) -> Option<Duration> {
        self.extras()?.timeout
    }

    /// Returns the remaining lifetime at the time of the dump.
    pub fn expires_in(&self) -> Option<Duration> {
        self.extras()?.expires_in
    }

    /// Returns the comment, listed by `nft`.
    pub fn comment(&self) -> Option<&Comment> {
        self.extras()?.comment.as_ref()
    }

    /// Returns the stateful object that the key maps to.
    pub fn object(&self) -> Option<&Name> {
        self.extras()?.object.as_ref()
    }

    /// Returns the stateful expressions of the element, such as a counter.
    pub fn exprs(&self) -> &[Expr] {
        self.extras().map_or(&[], |extras| &extras.exprs)
    }

    /// Returns the stateful expressions that the kernel gives the element: its own,
    /// otherwise those of the set.
    fn effective_exprs(&self) -> &[Expr] {
        match self.exprs() {
            [] => &self.0.set.exprs,
            exprs => exprs,
        }
    }

    /// Returns whether the kernel treats both elements of the same key alike.
    pub(crate) fn is_equivalent(&self, other: &Self) -> bool {
        self.0.set.is_equivalent(&other.0.set)
            && self.key_end() == other.key_end()
            && self.data() == other.data()
            && self.timeout() == other.timeout()
            && self.is_catch_all() == other.is_catch_all()
            && self.object() == other.object()
            && are_equivalent(self.effective_exprs(), other.effective_exprs())
    }

    /// Returns the optional attributes.
    pub(crate) fn extras(&self) -> Option<&Extras> {
        match &self.0.storage {
            Storage::Inline(..) => None,
            Storage::Boxed(full) => Some(&full.extras),
        }
    }

    /// Returns whether this is the catch-all element, which matches all other keys.
    pub fn is_catch_all(&self) -> bool {
        self.extras().is_some_and(|extras| extras.catch_all)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Datatype, Family, Name, Set, TableId, Value};

    #[test]
    fn a_prefix_and_the_remaining_values_make_the_key() {
        let name = |text| Name::new(text).unwrap();
        let table = TableId::new(Family::Ip, name("t"));
        let fields = [Datatype::InetProto, Datatype::InetService, Datatype::Mark];
        let set = Set::new(table, name("s"), fields);
        let key: [Value; 3] = [6_u8.into(), 80_u16.into(), 7_u32.into()];
        let whole = set.element(&key).unwrap();
        for cut in 0..=key.len() {
            let (first, rest) = key.split_at(cut);
            let prefix = set.key_prefix(first).unwrap();
            assert_eq!(prefix.element(rest), Ok(whole.clone()), "{cut} fields");
            assert!(prefix.element(&key).is_err() || cut == 0);
        }
        assert!(set.key_prefix(&[443_u16.into()]).is_err(), "no protocol");
        assert!(set.key_prefix(&[key.clone(), key].concat()).is_err());
    }

    #[test]
    fn a_map_element_equals_an_element_with_data() {
        let name = |text| Name::new(text).unwrap();
        let table = TableId::new(Family::Ip, name("t"));
        let long = [Datatype::Ipv6Addr, Datatype::Ipv6Addr];
        for (key, count) in [(&long[..1], 1), (&long[..], 2)] {
            let map = Set::map(table.clone(), name("m"), key, Datatype::InetService);
            let key = vec![Value::from(std::net::Ipv6Addr::LOCALHOST); count];
            let prefix = map.key_prefix(&key[..1]).unwrap();
            let port = [80_u16.into()];
            let expected = map.element(&key).unwrap().with_data(&port).unwrap();
            assert_eq!(prefix.map_element(&key[1..], &port), Ok(expected));
            assert!(prefix.map_element(&key[1..], &[]).is_err(), "no data");
        }
        let prefix = |set: &Set| {
            set.key_prefix(&[])
                .unwrap()
                .map_element(&[80_u16.into()], &[])
        };
        let set = Set::new(table, name("s"), [Datatype::InetService]);
        assert!(prefix(&set).is_err(), "a set has no data");
    }
}
