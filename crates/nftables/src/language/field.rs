//! Fields of the key of a set, and of map data.

use crate::expression::Expression;
use crate::value::ByteOrder;
use crate::value::End;
use crate::{Bytes, Datatype, Value};

/// One field of a key or of map data.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Field {
    /// Type of the values.
    pub datatype: Datatype,
    /// Size of a value in bytes, without padding.
    pub bytes: u16,
    /// Expression that the field is declared with (`typeof`).
    pub expression: Option<Expression>,
    /// Other expression that the field is declared with, for text.
    pub(crate) declared: Option<Declared>,
}

/// An expression without a type of this crate that a field is declared with, as text.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Declared {
    /// Text in nft syntax.
    pub(crate) text: Box<str>,
    /// Byte order of the values.
    pub(crate) order: ByteOrder,
    /// Size of a value in bytes, if it follows from the expression.
    pub(crate) bytes: Option<u16>,
}

impl Declared {
    pub(crate) fn new(text: impl Into<Box<str>>, order: ByteOrder, bytes: Option<u16>) -> Self {
        let text = text.into();
        Self { text, order, bytes }
    }

    pub(crate) fn big(text: impl Into<Box<str>>) -> Self {
        Self::new(text, ByteOrder::Big, None)
    }
}

impl From<Expression> for Declared {
    fn from(expression: Expression) -> Self {
        let (order, bytes) = (expression.order(), expression.bytes());
        Self::new(expression.to_string(), order, Some(bytes))
    }
}

impl From<Datatype> for Field {
    fn from(datatype: Datatype) -> Self {
        Self {
            datatype,
            bytes: datatype.bytes(),
            expression: None,
            declared: None,
        }
    }
}

impl<T> From<Expression<T>> for Field {
    fn from(expression: Expression<T>) -> Self {
        Self {
            datatype: expression.datatype(),
            bytes: expression.bytes(),
            expression: Some(expression.untyped()),
            declared: None,
        }
    }
}

/// What the fields of a key or of map data are built from: data types, expressions
/// (`typeof`), or [`Field`]s; one of them, an array or a vector.
///
/// ```
/// use vipline_nftables::expression::tcp_dport;
/// use vipline_nftables::{Datatype, Family, Name, Set, TableId};
///
/// let table = TableId::new(Family::Ip, Name::new("lb")?);
/// let key = [Datatype::Ipv4Addr, Datatype::InetService];
/// let map = Set::map(table.clone(), Name::new("servers")?, key, Datatype::Mark);
/// let typed = Set::new(table, Name::new("ports")?, tcp_dport());
/// assert_eq!((map.key.len(), typed.key.len()), (2, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait IntoFields {
    /// Returns the fields in their order.
    fn into_fields(self) -> Vec<Field>;
}

impl IntoFields for Field {
    fn into_fields(self) -> Vec<Field> {
        vec![self]
    }
}

impl IntoFields for Datatype {
    fn into_fields(self) -> Vec<Field> {
        vec![self.into()]
    }
}

/// The fields of a concatenation, or the expression itself.
impl<T> IntoFields for Expression<T> {
    fn into_fields(self) -> Vec<Field> {
        Self::into_fields(self)
    }
}

impl<T: Into<Field>, const N: usize> IntoFields for [T; N] {
    fn into_fields(self) -> Vec<Field> {
        self.into_iter().map(Into::into).collect()
    }
}

impl<T: Clone + Into<Field>, const N: usize> IntoFields for &[T; N] {
    fn into_fields(self) -> Vec<Field> {
        self.as_slice().into_fields()
    }
}

impl<T: Into<Field>> IntoFields for Vec<T> {
    fn into_fields(self) -> Vec<Field> {
        self.into_iter().map(Into::into).collect()
    }
}

impl<T: Clone + Into<Field>> IntoFields for &[T] {
    fn into_fields(self) -> Vec<Field> {
        self.iter().cloned().map(Into::into).collect()
    }
}

impl Field {
    /// Returns the byte order of the values, except in interval sets.
    pub(crate) fn order(&self) -> ByteOrder {
        match (&self.expression, &self.declared) {
            (Some(expression), _) => expression.order(),
            (None, Some(declared)) => declared.order,
            (None, None) => self.datatype.order(),
        }
    }
}

/// Returns the length of concatenated fields in registers, in bytes.
pub(crate) fn width(fields: &[Field]) -> usize {
    match fields {
        [field] => usize::from(field.bytes),
        fields => fields
            .iter()
            .map(|field| usize::from(field.bytes).next_multiple_of(4))
            .sum(),
    }
}

/// Splits concatenated bytes into fields.
pub(crate) fn split<'a>(
    fields: &'a [Field],
    mut bytes: &'a [u8],
) -> impl Iterator<Item = (&'a Field, &'a [u8])> {
    let padded = fields.len() > 1;
    fields.iter().map(move |field| {
        let len = usize::from(field.bytes);
        let step = if padded { len.next_multiple_of(4) } else { len };
        let value = bytes.get(..len).unwrap_or(bytes);
        bytes = bytes.get(step..).unwrap_or(&[]);
        (field, value)
    })
}

/// Appends encoded values to the start of a key or of data.
///
/// `padded`: pads each value to four bytes, as in a concatenation. Returns `None`
/// if the values do not match the fields.
pub(crate) fn join(
    start: &Joined,
    (fields, padded): (&[Field], bool),
    values: &[Value],
    order: impl Fn(&Field) -> ByteOrder,
) -> Option<Joined> {
    let joined = |start: &Bytes, end| {
        let mut out = start.clone();
        append(&mut out, (fields, padded), values, &order, end).then_some(out)
    };
    let (first_start, last_start) = start;
    let first = joined(first_start, End::First)?;
    let last = match last_start {
        Some(last_start) => Some(joined(last_start, End::Last)?),
        None if values.iter().any(Value::is_interval) => Some(joined(first_start, End::Last)?),
        None => None,
    };
    let last = last.filter(|last| *last != first);
    Some((first, last))
}

/// Appends one end of encoded values. Returns false if the values do not match the
/// fields.
#[inline]
pub(crate) fn append(
    out: &mut Bytes,
    (fields, padded): (&[Field], bool),
    values: &[Value],
    order: impl Fn(&Field) -> ByteOrder,
    end: End,
) -> bool {
    let is_written = |(field, value): (&Field, &Value)| {
        let fits = value.write(field.bytes, order(field), end, out);
        if padded {
            out.pad();
        }
        fits
    };
    fields.len() == values.len() && fields.iter().zip(values).all(is_written)
}

/// First key of an interval and, if different, the last key.
pub(crate) type Joined = (Bytes, Option<Bytes>);

/// Returns the fields of a key of type `ty` and length `len`.
///
/// `lens` are the lengths of the fields, if the kernel reports them. Otherwise the one
/// field of a type without a fixed length has the remaining length.
pub(crate) fn fields(ty: u32, len: u32, lens: &[u32]) -> Vec<Field> {
    let types = Datatype::fields(ty);
    let of = |bytes: u32| u16::try_from(bytes).unwrap_or(u16::MAX);
    if let [] | [_] = &*types {
        let datatype = types.first().copied().unwrap_or(Datatype::Other(0));
        return vec![Field {
            datatype,
            bytes: of(len),
            expression: None,
            declared: None,
        }];
    }
    let fields = types.into_iter().enumerate().map(|(at, datatype)| Field {
        datatype,
        bytes: match lens.get(at) {
            Some(bytes) => of(*bytes),
            None => datatype.bytes(),
        },
        expression: None,
        declared: None,
    });
    let mut fields: Vec<Field> = fields.collect();
    let known = width(&fields);
    if let Some(field) = fields.iter_mut().find(|field| field.bytes == 0) {
        let rest = usize::try_from(len).unwrap_or(0).saturating_sub(known);
        field.bytes = u16::try_from(rest).unwrap_or(u16::MAX);
    }
    fields
}
