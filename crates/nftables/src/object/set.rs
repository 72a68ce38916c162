//! Sets, maps and verdict maps.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use bitflags::bitflags;

use crate::expr::Expr;
use crate::language::field::{Field, IntoFields, width};
use crate::value::ByteOrder;
use crate::{Bytes, Comment, Name, TableId};

bitflags! {
    /// Set flags: `enum nft_set_flags` of `linux/netfilter/nf_tables.h`.
    ///
    /// The encoder adds the flags that follow from the set's fields: map, object and
    /// concatenation.
    #[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
    pub struct SetFlags: u32 {
        /// The set belongs to one rule and is deleted with it.
        #[doc(alias = "NFT_SET_ANONYMOUS")]
        const ANONYMOUS = 0x1;
        /// The elements do not change while a rule uses the set.
        #[doc(alias = "NFT_SET_CONSTANT")]
        const CONSTANT = 0x2;
        /// The set contains intervals.
        #[doc(alias = "NFT_SET_INTERVAL")]
        const INTERVAL = 0x4;
        /// Elements can have a timeout.
        #[doc(alias = "NFT_SET_TIMEOUT")]
        const TIMEOUT = 0x10;
        /// Rules can add elements: `dynamic` in nft.
        #[doc(alias = "NFT_SET_EVAL")]
        const DYNAMIC = 0x20;
        /// Unknown flags are preserved.
        const _ = !0;
    }
}

/// The kind of data that the elements of a set map to.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum DataKind {
    /// No data: a set.
    None,
    /// Values: a map.
    Fields(Vec<Field>),
    /// Verdicts: a verdict map.
    Verdict,
    /// Stateful objects of this type (`NFT_OBJECT_*`): an object map.
    Object(u32),
}

/// The policy by which the kernel chooses the data structure of a set: `enum
/// nft_set_policies`.
///
/// Exhaustive: the kernel has two policies.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum SetPolicy {
    /// Fast lookups.
    #[default]
    Performance,
    /// Little memory.
    Memory,
}

/// The specification of a set: all properties except its elements.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct SetSpec {
    /// Table of the set.
    pub table: TableId,
    /// Name, unique within the table.
    pub name: Name,
    /// Fields of the key. More than one field make a concatenation.
    pub key: Vec<Field>,
    /// Data that elements map to.
    pub data: DataKind,
    /// Flags.
    pub flags: SetFlags,
    /// Default timeout of elements. `None`: elements do not expire by default.
    pub timeout: Option<Duration>,
    /// Interval of the garbage collection of expired elements.
    pub gc_interval: Option<Duration>,
    /// Maximum number of elements.
    pub size: Option<u32>,
    /// Policy.
    pub policy: SetPolicy,
    /// Stateful expressions of each new element, such as a counter.
    pub exprs: Vec<Expr>,
    /// Whether `nft` merges adjacent intervals when it adds elements (`auto-merge`).
    pub auto_merge: bool,
    /// Whether elements map to intervals of data. The data is the first value followed
    /// by the last value.
    pub data_intervals: bool,
    /// Comment, listed by `nft`.
    pub comment: Option<Comment>,
    /// User data of a dump that this crate would write otherwise.
    pub(crate) userdata: Option<Bytes>,
}

/// A set, map or verdict map, without its elements.
///
/// Dereferences to its [`SetSpec`]. Each element refers to its set; clones share
/// the specification.
///
/// ```
/// use vipline_nftables::{Datatype, Family, Name, Set, TableId, Value, Verdict};
///
/// let table = TableId::new(Family::Ip, Name::new("filter")?);
/// let key = [Datatype::InetProto, Datatype::InetService];
/// let ports = Set::verdict_map(table, Name::new("ports")?, key);
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
    /// Hash of `spec.table` and `spec.name`.
    id_hash: u64,
}

impl Set {
    /// Creates a set.
    pub fn new(table: TableId, name: Name, key: impl IntoFields) -> Self {
        Self::plain(table, name, key.into_fields(), DataKind::None)
    }

    /// Creates a map to values.
    pub fn map(table: TableId, name: Name, key: impl IntoFields, data: impl IntoFields) -> Self {
        let data = DataKind::Fields(data.into_fields());
        Self::plain(table, name, key.into_fields(), data)
    }

    /// Creates a map to verdicts.
    pub fn verdict_map(table: TableId, name: Name, key: impl IntoFields) -> Self {
        Self::plain(table, name, key.into_fields(), DataKind::Verdict)
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
            policy: SetPolicy::default(),
            exprs: Vec::new(),
            auto_merge: false,
            data_intervals: false,
            comment: None,
            userdata: None,
        })
    }

    /// Adds flags.
    #[must_use]
    pub fn with_flags(self, flags: SetFlags) -> Self {
        self.with(|spec| spec.flags |= flags)
    }

    /// Sets the default timeout of elements and the flag [`TIMEOUT`](SetFlags::TIMEOUT).
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        self.with(|spec| {
            spec.flags |= SetFlags::TIMEOUT;
            spec.timeout = Some(timeout);
        })
    }

    /// Sets the interval of the garbage collection of expired elements.
    #[must_use]
    pub fn with_gc_interval(self, interval: Duration) -> Self {
        self.with(|spec| spec.gc_interval = Some(interval))
    }

    /// Sets the maximum number of elements.
    #[must_use]
    pub fn with_size(self, size: u32) -> Self {
        self.with(|spec| spec.size = Some(size))
    }

    /// Sets the policy.
    #[must_use]
    pub fn with_policy(self, policy: SetPolicy) -> Self {
        self.with(|spec| spec.policy = policy)
    }

    /// Sets the stateful expressions of each new element, such as a counter.
    #[must_use]
    pub fn with_exprs(self, exprs: impl Into<Vec<Expr>>) -> Self {
        self.with(|spec| spec.exprs = exprs.into())
    }

    /// Makes `nft` merge adjacent intervals when it adds elements (`auto-merge`).
    #[must_use]
    pub fn with_auto_merge(self) -> Self {
        self.with(|spec| spec.auto_merge = true)
    }

    /// Sets the comment.
    #[must_use]
    pub fn with_comment(self, comment: Comment) -> Self {
        self.with(|spec| spec.comment = Some(comment))
    }

    fn with(mut self, change: impl FnOnce(&mut SetSpec)) -> Self {
        change(&mut Arc::make_mut(&mut self.0).spec);
        self
    }

    /// Returns whether the key has more than one field.
    pub fn is_concatenated(&self) -> bool {
        self.key.len() > 1
    }

    /// Returns whether elements map to data.
    pub fn is_map(&self) -> bool {
        self.data != DataKind::None
    }

    /// Returns whether elements can be intervals of keys.
    pub fn has_intervals(&self) -> bool {
        self.flags.contains(SetFlags::INTERVAL)
    }

    /// Returns whether rules can add elements (flag `dynamic`).
    pub fn is_dynamic(&self) -> bool {
        self.flags.contains(SetFlags::DYNAMIC)
    }

    /// Returns the byte order of a key field.
    ///
    /// Interval sets compare keys bytewise, so their keys are in network byte order.
    pub(crate) fn order(&self, field: &Field) -> ByteOrder {
        if self.has_intervals() {
            ByteOrder::Big
        } else {
            field.order()
        }
    }

    /// Returns the length of a key in bytes, in register layout: each field but the last is
    /// padded to four bytes.
    pub fn key_bytes(&self) -> usize {
        width(&self.key)
    }

    /// Returns whether both have the same table and name, regardless of the rest.
    pub(crate) fn is_same_set(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
            || self.0.id_hash == other.0.id_hash
                && self.name == other.name
                && self.table == other.table
    }

    /// Returns the hash of table and name.
    pub(crate) fn id_hash(&self) -> u64 {
        self.0.id_hash
    }

    /// Returns whether the kernel treats both sets of the same name alike.
    pub(crate) fn is_equivalent(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
            || same_fields(&self.key, &other.key)
                && self.data.is_equivalent(&other.data)
                && self.flags == other.flags
                && self.timeout == other.timeout
                && self.gc_interval == other.gc_interval
                && self.policy == other.policy
                && self.data_intervals == other.data_intervals
                && are_equivalent(&self.exprs, &other.exprs)
                && self.effective_size() == other.effective_size()
    }

    /// Returns the length of the data of an element in bytes, in register layout. 0 for
    /// verdicts and objects, and for sets that are no maps.
    pub fn data_bytes(&self) -> usize {
        match &self.data {
            DataKind::Fields(fields) if self.data_intervals => 2 * width(fields),
            DataKind::Fields(fields) => width(fields),
            _ => 0,
        }
    }

    /// Returns the size that the kernel applies: it gives every dynamic set one.
    fn effective_size(&self) -> Option<u32> {
        match self.size {
            None if self.is_dynamic() => Some(u16::MAX.into()),
            size => size,
        }
    }
}

/// Returns whether stateful expressions are equal except for their counts.
pub(crate) fn are_equivalent(one: &[Expr], other: &[Expr]) -> bool {
    let plain = |exprs: &[Expr]| exprs.iter().map(Expr::without_counts).collect::<Vec<_>>();
    one.len() == other.len() && plain(one) == plain(other)
}

impl DataKind {
    fn is_equivalent(&self, other: &Self) -> bool {
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
        let id_hash = place
            .into_iter()
            .flat_map(|part| part.bytes().chain([0]))
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            });
        Self(Arc::new(Shared { spec, id_hash }))
    }
}

impl Eq for Set {}

impl PartialEq for Set {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.spec == other.0.spec
    }
}
