//! What the keys of many elements have in common.

use super::held::Held;
use super::{Element, Extras, InvalidElement, wrong};
use crate::set::{Joined, join};
use crate::{Bytes, Field, Set, Value};

/// The first fields of keys, for many elements that have these in common.
///
/// Made by [`Set::prefix`].
#[derive(Clone, Debug)]
pub struct KeyPrefix<'a> {
    set: &'a Set,
    /// Those that follow.
    fields: &'a [Field],
    joined: Joined,
}

impl<'a> KeyPrefix<'a> {
    pub(crate) fn new(set: &'a Set, values: &[Value]) -> Result<Self, InvalidElement> {
        let fields = set.key.split_at_checked(values.len());
        let (those, fields) = fields.ok_or_else(|| wrong("key", set))?;
        let joined = (Bytes::new(), None);
        let joined = match those {
            [] => joined,
            those => Self::join(set, &joined, those, values)?,
        };
        Ok(Self {
            set,
            fields,
            joined,
        })
    }

    /// Returns the element with this key: the prefix, and one value for each
    /// field that follows it.
    pub fn element(&self, rest: &[Value]) -> Result<Element, InvalidElement> {
        let (key, key_end) = Self::join(self.set, &self.joined, self.fields, rest)?;
        if key_end.is_some() && !self.set.has_intervals() {
            return Err(wrong("key", self.set));
        }
        if let (None, Some(short)) = (&key_end, Held::short(&key, &[])) {
            return Ok(Element::of(self.set, short));
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
        joined.ok_or_else(|| wrong("key", set))
    }
}

#[cfg(test)]
mod tests {
    use crate::{Datatype, Family, Name, Set, TableId, Value};

    #[test]
    fn a_prefix_and_the_rest_are_the_key() {
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
