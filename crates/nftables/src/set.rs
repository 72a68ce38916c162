//! Sets, maps and verdict maps.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use bitflags::bitflags;

use crate::datatype::ByteOrder;
use crate::element::{Element, KeyPrefix};
use crate::expression::Expression;
use crate::value::End;
use crate::{Bytes, Comment, Datatype, InvalidElement, Name, TableId, Value};

bitflags! {
    /// Properties of a set: `enum nft_set_flags` of `linux/netfilter/nf_tables.h`.
    ///
    /// Those that follow from the set's fields (map, concatenation) are not
    /// among them: the encoder adds them.
    #[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
    pub struct SetFlags: u32 {
        /// Exists for one rule and vanishes with it.
        #[doc(alias = "NFT_SET_ANONYMOUS")]
        const ANONYMOUS = 0x1;
        /// Does not change while a rule uses it.
        #[doc(alias = "NFT_SET_CONSTANT")]
        const CONSTANT = 0x2;
        /// Holds intervals.
        #[doc(alias = "NFT_SET_INTERVAL")]
        const INTERVAL = 0x4;
        /// Elements can expire.
        #[doc(alias = "NFT_SET_TIMEOUT")]
        const TIMEOUT = 0x10;
        /// Rules add elements, `dynamic` in nft.
        #[doc(alias = "NFT_SET_EVAL")]
        const DYNAMIC = 0x20;
        /// Other flags are kept as they are.
        const _ = !0;
    }
}

/// One field of a key or of data.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Field {
    /// The type of its values.
    pub datatype: Datatype,
    /// How many bytes a value has, without padding.
    pub bytes: u16,
    /// The expression whose value it holds; `nft` lists it after `typeof`.
    pub expression: Option<Expression>,
}

impl From<Datatype> for Field {
    fn from(datatype: Datatype) -> Self {
        Self {
            datatype,
            bytes: datatype.bytes(),
            expression: None,
        }
    }
}

impl From<Expression> for Field {
    fn from(expression: Expression) -> Self {
        Self {
            datatype: expression.datatype(),
            bytes: expression.bytes(),
            expression: Some(expression),
        }
    }
}

/// What the elements of a set map to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum DataKind {
    /// Nothing: a set.
    None,
    /// Values: a map.
    Fields(Vec<Field>),
    /// Verdicts: a verdict map.
    Verdict,
    /// Named counters, quotas and the like; the number is the kind of object.
    Object(u32),
}

/// What a set is: everything but its elements.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SetSpec {
    /// The table it is in.
    pub table: TableId,
    /// Its name, unique within the table.
    pub name: Name,
    /// The fields of its keys; more than one make a concatenation.
    pub key: Vec<Field>,
    /// What its elements map to.
    pub data: DataKind,
    /// Its properties.
    pub flags: SetFlags,
    /// After which time an element without a timeout of its own expires.
    pub timeout: Option<Duration>,
    /// How often expired elements are looked for.
    pub gc_interval: Option<Duration>,
    /// How many elements it holds at most.
    pub size: Option<u32>,
    /// What `nft` lists as its comment.
    pub comment: Option<Comment>,
}

/// A set, map or verdict map, without its elements.
///
/// Shared: a clone costs nothing, and each element refers to its set.
/// All properties are fields of [`SetSpec`], which a set dereferences to.
///
/// ```
/// use vipline_nftables::{Datatype, Family, Name, Set, TableId, Value, Verdict};
///
/// let table = TableId::new(Family::Ip, Name::new("filter")?);
/// let ports = Set::verdict_map(table, Name::new("ports")?, [
///     Datatype::InetProto.into(),
///     Datatype::InetService.into(),
/// ]);
/// let ssh = ports.element(&[Value::from(6_u8), Value::from(22_u16)])?;
/// let ssh = ssh.with_verdict(Verdict::Accept)?;
/// assert_eq!(ssh.to_string(), "tcp . 22 : accept");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Set(Arc<Shared>);

#[derive(Clone, Debug)]
struct Shared {
    spec: SetSpec,
    /// Invariant: a function of `spec.table` and `spec.name`.
    place_hash: u64,
}

impl Set {
    /// Returns a set.
    #[allow(
        clippy::self_named_constructors,
        reason = "beside a map and a verdict map"
    )]
    pub fn set(table: TableId, name: Name, key: impl Into<Vec<Field>>) -> Self {
        Self::plain(table, name, key.into(), DataKind::None)
    }

    /// Returns a map to values.
    pub fn map(
        table: TableId,
        name: Name,
        key: impl Into<Vec<Field>>,
        data: impl Into<Vec<Field>>,
    ) -> Self {
        Self::plain(table, name, key.into(), DataKind::Fields(data.into()))
    }

    /// Returns a map to verdicts.
    pub fn verdict_map(table: TableId, name: Name, key: impl Into<Vec<Field>>) -> Self {
        Self::plain(table, name, key.into(), DataKind::Verdict)
    }

    fn plain(table: TableId, name: Name, key: Vec<Field>, data: DataKind) -> Self {
        Self::from(SetSpec {
            table,
            name,
            key,
            data,
            flags: SetFlags::empty(),
            timeout: None,
            gc_interval: None,
            size: None,
            comment: None,
        })
    }

    /// Returns the set with these properties in addition.
    #[must_use]
    pub fn with_flags(self, flags: SetFlags) -> Self {
        self.with(|spec| spec.flags |= flags)
    }

    /// Returns the set with a time after which elements expire.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        self.with(|spec| {
            spec.flags |= SetFlags::TIMEOUT;
            spec.timeout = Some(timeout);
        })
    }

    /// Returns the set with a greatest number of elements.
    #[must_use]
    pub fn with_size(self, size: u32) -> Self {
        self.with(|spec| spec.size = Some(size))
    }

    /// Returns the set with a comment.
    #[must_use]
    pub fn with_comment(self, comment: Comment) -> Self {
        self.with(|spec| spec.comment = Some(comment))
    }

    fn with(mut self, change: impl FnOnce(&mut SetSpec)) -> Self {
        change(&mut Arc::make_mut(&mut self.0).spec);
        self
    }

    /// Returns an element with this key, one value a field.
    ///
    /// An element of a map needs its data, too: [`Element::with_data`] or
    /// [`Element::with_verdict`].
    pub fn element(&self, key: &[Value]) -> Result<Element, InvalidElement> {
        self.key_prefix(&[])?.element(key)
    }

    /// Returns the first fields of keys, for many elements that have these in
    /// common.
    pub fn key_prefix(&self, values: &[Value]) -> Result<KeyPrefix<'_>, InvalidElement> {
        KeyPrefix::new(self, values)
    }

    /// Tells whether keys or data are of more than one field.
    pub fn is_concatenated(&self) -> bool {
        self.key.len() > 1
    }

    /// Tells whether elements map to something.
    pub fn is_map(&self) -> bool {
        self.data != DataKind::None
    }

    /// Tells whether elements can stand for more than one key.
    pub fn has_intervals(&self) -> bool {
        self.flags.contains(SetFlags::INTERVAL)
    }

    /// Tells whether packets add and time removes elements.
    pub fn is_dynamic(&self) -> bool {
        self.flags.contains(SetFlags::DYNAMIC)
    }

    /// Returns the order of the bytes of a field in keys.
    ///
    /// Intervals compare bytes, so all numbers are in network order in them.
    pub(crate) fn order(&self, field: &Field) -> ByteOrder {
        if self.has_intervals() {
            ByteOrder::Big
        } else {
            field.datatype.order()
        }
    }

    /// Returns the length of keys in bytes.
    pub(crate) fn key_bytes(&self) -> usize {
        width(&self.key)
    }

    /// Tells whether the other is the same set, whatever its properties.
    pub(crate) fn is_same_set(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
            || self.0.place_hash == other.0.place_hash
                && self.name == other.name
                && self.table == other.table
    }

    /// Returns a hash of table and name.
    pub(crate) fn place_hash(&self) -> u64 {
        self.0.place_hash
    }

    /// Tells whether the kernel sees no difference to another set of the name.
    pub(crate) fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
            || same_fields(&self.key, &other.key)
                && self.data.same(&other.data)
                && self.flags == other.flags
                && self.timeout == other.timeout
                && self.gc_interval == other.gc_interval
                && self.effective_size() == other.effective_size()
    }

    /// Returns the size the kernel takes: a dynamic set has one even if none is given.
    fn effective_size(&self) -> Option<u32> {
        match self.size {
            None if self.is_dynamic() => Some(u16::MAX.into()),
            size => size,
        }
    }
}

/// Returns the length in bytes of fields one after the other in registers.
pub(crate) fn width(fields: &[Field]) -> usize {
    match fields {
        [field] => usize::from(field.bytes),
        fields => fields
            .iter()
            .map(|field| usize::from(field.bytes).next_multiple_of(4))
            .sum(),
    }
}

impl DataKind {
    fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Fields(one), Self::Fields(other)) => same_fields(one, other),
            (one, other) => one == other,
        }
    }
}

fn same_fields(one: &[Field], other: &[Field]) -> bool {
    let plain = |field: &Field| (field.datatype, field.bytes);
    one.iter().map(plain).eq(other.iter().map(plain))
}

impl Deref for Set {
    type Target = SetSpec;

    fn deref(&self) -> &SetSpec {
        &self.0.spec
    }
}

impl From<SetSpec> for Set {
    fn from(spec: SetSpec) -> Self {
        let place = [
            spec.table.family.as_str(),
            spec.table.name.as_str(),
            spec.name.as_str(),
        ];
        let place_hash = place
            .into_iter()
            .flat_map(|part| part.bytes().chain([0]))
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            });
        Self(Arc::new(Shared { spec, place_hash }))
    }
}

impl Eq for Set {}

impl PartialEq for Set {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.spec == other.0.spec
    }
}

/// Cuts the byte string of fields into the strings of each.
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

/// Appends values to the first byte string they stand for, and to the last if
/// that is another one.
///
/// `padded` tells whether they are some of several fields.
pub(crate) fn join(
    start: &Joined,
    (fields, padded): (&[Field], bool),
    values: &[Value],
    order: impl Fn(&Field) -> ByteOrder,
) -> Option<Joined> {
    if fields.len() != values.len() {
        return None;
    }
    let joined = |start: &Bytes, end| {
        let mut out = start.clone();
        for (field, value) in fields.iter().zip(values) {
            if !value.write(field, order(field), end, &mut out) {
                return None;
            }
            if padded {
                out.pad();
            }
        }
        Some(out)
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

/// The first byte string that values stand for, and the last one if it is another.
pub(crate) type Joined = (Bytes, Option<Bytes>);

/// Returns the fields of a key type of so many bytes.
///
/// `lens` are the lengths of the fields, if the kernel tells them.
pub(crate) fn fields(ty: u32, len: u32, lens: &[u32]) -> Vec<Field> {
    let types = Datatype::fields(ty);
    let of = |bytes: u32| u16::try_from(bytes).unwrap_or(u16::MAX);
    if let [] | [_] = &*types {
        let datatype = types.first().copied().unwrap_or(Datatype::Other(0));
        return vec![Field {
            datatype,
            bytes: of(len),
            expression: None,
        }];
    }
    let fields = types.into_iter().enumerate().map(|(at, datatype)| Field {
        datatype,
        bytes: match lens.get(at) {
            Some(bytes) => of(*bytes),
            None => datatype.bytes(),
        },
        expression: None,
    });
    fields.collect()
}
