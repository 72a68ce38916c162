//! Key prefixes that many elements share.

use super::storage::Storage;
use super::{Element, Extras, InvalidElement, invalid};
use crate::set::{Joined, join};
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
        let (key, key_end) = Self::join(self.set, &self.joined, self.fields, rest)?;
        if key_end.is_some() && !self.set.has_intervals() {
            return Err(invalid("key", self.set));
        }
        if let (None, Some(inline)) = (&key_end, Storage::inline(&key, &[])) {
            return Ok(Element::from_storage(self.set, inline));
        }
        let extras = Extras {
            key_end,
            ..Extras::default()
        };
        Ok(Element::raw(self.set, key, None, extras))
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
}
