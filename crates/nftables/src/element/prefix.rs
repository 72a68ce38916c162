//! Key prefixes that many elements share.

use super::storage::Storage;
use super::{Element, Extras, InvalidElement, invalid};
use crate::field::{Joined, append, join, width};
use crate::set::DataKind;
use crate::value::End;
use crate::{Bytes, Field, Set, Value};

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
    pub(crate) fn new(set: &'a Set, values: &[Value]) -> Result<Self, InvalidElement> {
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
    /// [`InvalidElement`] if the values do not match the remaining fields, or if the
    /// key is an interval and the set has no intervals.
    pub fn element(&self, rest: &[Value]) -> Result<Element, InvalidElement> {
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
    pub fn map_element(&self, rest: &[Value], data: &[Value]) -> Result<Element, InvalidElement> {
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
    ) -> Result<Joined, InvalidElement> {
        let order = |field: &Field| set.order(field);
        let joined = join(start, (fields, set.is_concatenated()), values, order);
        joined.ok_or_else(|| invalid("key", set))
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
        let set = Set::set(table, name("s"), fields.map(Into::into));
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
            let fields: Vec<_> = key.iter().copied().map(Into::into).collect();
            let data = [Datatype::InetService.into()];
            let map = Set::map(table.clone(), name("m"), fields, data);
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
        let set = Set::set(table, name("s"), [Datatype::InetService.into()]);
        assert!(prefix(&set).is_err(), "a set has no data");
    }
}
