//! What a ruleset consists of, and the keys of it.

use std::fmt;
use std::hash::{Hash, Hasher};

use bitflags::bitflags;
use vipline_reconcile::Keyed;

use crate::{Chain, Comment, Element, Family, Name, Set};

/// The family and the name of a table.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct TableId {
    /// The family of the table.
    pub family: Family,
    /// Its name, unique within the family.
    pub name: Name,
}

impl TableId {
    /// Returns the id of a table.
    pub fn new(family: Family, name: Name) -> Self {
        Self { family, name }
    }
}

impl fmt::Display for TableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.family, self.name)
    }
}

bitflags! {
    /// Properties of a table: `enum nft_table_flags` of
    /// `linux/netfilter/nf_tables.h`.
    #[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
    pub struct TableFlags: u32 {
        /// Packets pass by its chains.
        #[doc(alias = "NFT_TABLE_F_DORMANT")]
        const DORMANT = 0x1;
        /// Only the socket that made it may change it.
        #[doc(alias = "NFT_TABLE_F_OWNER")]
        const OWNER = 0x2;
        /// It stays when the socket of its owner is closed.
        #[doc(alias = "NFT_TABLE_F_PERSIST")]
        const PERSIST = 0x4;
        /// Other flags are kept as they are.
        const _ = !0;
    }
}

/// A table: what chains and sets live in.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Table {
    /// Which table it is.
    pub id: TableId,
    /// Its properties.
    pub flags: TableFlags,
    /// What `nft` lists as its comment.
    pub comment: Option<Comment>,
}

impl Table {
    /// Returns a table without properties or a comment.
    pub fn new(id: TableId) -> Self {
        Self {
            id,
            flags: TableFlags::empty(),
            comment: None,
        }
    }
}

/// An entry of a ruleset.
///
/// Rules are part of their chain: the kernel gives them no name, so the chain
/// is what changes.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Object {
    /// A table.
    Table(Box<Table>),
    /// A set, map or verdict map, without its elements.
    Set(Set),
    /// A chain with its rules.
    Chain(Box<Chain>),
    /// An element of a set or map.
    Element(Element),
}

// Almost all objects are elements, and edits hold two objects.
const _: () = assert!(size_of::<Object>() <= 16);

impl Object {
    /// Returns the table the object is or lives in.
    pub fn table(&self) -> &TableId {
        match self {
            Self::Table(table) => &table.id,
            Self::Set(set) => &set.table,
            Self::Chain(chain) => &chain.table,
            Self::Element(element) => &element.set().table,
        }
    }
}

/// What identifies an object.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Key<'a> {
    /// A table.
    Table(&'a TableId),
    /// A set or map, by table and name.
    Set(&'a TableId, &'a Name),
    /// A chain, by table and name.
    Chain(&'a TableId, &'a Name),
    /// An element, by the set it is in and the first byte string it stands for.
    Element(SetKey<'a>, &'a [u8]),
}

impl Hash for Key<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Self::Table(id) => id.hash(state),
            Self::Set(table, name) | Self::Chain(table, name) => {
                table.hash(state);
                name.hash(state);
            }
            Self::Element(set, key) => {
                set.hash(state);
                state.write(key);
            }
        }
    }
}

/// The set an element is in: equal if table and name are.
#[derive(Clone, Copy, Debug)]
pub struct SetKey<'a>(&'a Set);

impl<'a> SetKey<'a> {
    /// Returns the set.
    pub fn set(self) -> &'a Set {
        self.0
    }
}

impl Eq for SetKey<'_> {}

impl PartialEq for SetKey<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.0.is_same_set(other.0)
    }
}

impl Hash for SetKey<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.place_hash());
    }
}

impl Keyed for Object {
    type Key<'a> = Key<'a>;

    fn key(&self) -> Key<'_> {
        match self {
            Self::Table(table) => Key::Table(&table.id),
            Self::Set(set) => Key::Set(&set.table, &set.name),
            Self::Chain(chain) => Key::Chain(&chain.table, &chain.name),
            Self::Element(element) => Key::Element(SetKey(element.set()), element.key_bytes()),
        }
    }

    /// Tells whether the kernel sees no difference: user data (comments, the
    /// expressions `nft` lists as types), counts and remaining time aside.
    fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Table(one), Self::Table(other)) => one.flags == other.flags,
            (Self::Set(one), Self::Set(other)) => one.same(other),
            (Self::Chain(one), Self::Chain(other)) => one.same(other),
            (Self::Element(one), Self::Element(other)) => one.same(other),
            _ => false,
        }
    }
}

macro_rules! from {
    ($($variant:ident)*) => {
        $(impl From<$variant> for Object {
            fn from(object: $variant) -> Self {
                Self::$variant(object.into())
            }
        })*
    };
}

from! { Table Set Chain Element }
