//! The objects of a ruleset and their keys: tables, chains with their rules, sets with
//! their elements, stateful objects and flowtables.

mod table;

pub(crate) mod stateful;

mod flowtable;

pub(crate) mod set;

pub(crate) mod element;

pub(crate) mod rule;

mod chain;

pub(crate) mod ruleset;

use std::hash::{Hash, Hasher};

use vipline_reconcile::Keyed;

use crate::Name;

pub use chain::{BaseChain, Chain, ChainFlags, ChainType, Hook, Policy};
pub use element::{Element, ElementData, KeyPrefix};
pub use flowtable::{Flowtable, FlowtableFlags};
pub use rule::{Compat, Rule, RuleHandle, RulePosition};
pub use ruleset::{Generation, Objects, Ruleset};
pub use set::{DataKind, Set, SetFlags, SetPolicy, SetSpec};
pub use stateful::{CtExpectation, CtHelper, CtTimeout, State, StatefulObject, Synproxy};
pub use table::{Table, TableFlags, TableId};

/// An object of a ruleset.
///
/// A rule has no name in the kernel, so a chain with its rules is one object.
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
    /// A stateful object, such as a named counter.
    Stateful(Box<StatefulObject>),
    /// A flowtable.
    Flowtable(Box<Flowtable>),
}

// Almost all objects are elements, and a change edit holds two objects.
const _: () = assert!(size_of::<Object>() <= 16);

impl Object {
    /// Returns the table that the object is, or belongs to.
    pub fn table(&self) -> &TableId {
        match self {
            Self::Table(table) => &table.id,
            Self::Set(set) => &set.table,
            Self::Chain(chain) => &chain.table,
            Self::Element(element) => &element.set().table,
            Self::Stateful(object) => &object.table,
            Self::Flowtable(flowtable) => &flowtable.table,
        }
    }
}

/// The key of an object.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Key<'a> {
    /// A table.
    Table(&'a TableId),
    /// A set or map, by table and name.
    Set(&'a TableId, &'a Name),
    /// A chain, by table and name.
    Chain(&'a TableId, &'a Name),
    /// An element, by its set and its key. An interval has its first key.
    Element(SetKey<'a>, &'a [u8]),
    /// A stateful object, by table, type (`NFT_OBJECT_*`) and name.
    Stateful(&'a TableId, u32, &'a Name),
    /// A flowtable, by table and name.
    Flowtable(&'a TableId, &'a Name),
}

impl Hash for Key<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Self::Table(id) => id.hash(state),
            Self::Set(table, name)
            | Self::Chain(table, name)
            | Self::Stateful(table, _, name)
            | Self::Flowtable(table, name) => {
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

/// The set of an element. Equal if table and name are equal.
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
        state.write_u64(self.0.id_hash());
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
            Self::Stateful(object) => {
                Key::Stateful(&object.table, object.state.kind(), &object.name)
            }
            Self::Flowtable(flowtable) => Key::Flowtable(&flowtable.table, &flowtable.name),
        }
    }

    /// Returns whether the kernel treats both objects alike.
    ///
    /// Ignores user data (comments, `typeof` expressions, `auto-merge`), counts and
    /// remaining lifetimes. An element without stateful expressions has those of its set.
    fn is_equivalent(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Table(one), Self::Table(other)) => one.flags == other.flags,
            (Self::Set(one), Self::Set(other)) => one.is_equivalent(other),
            (Self::Chain(one), Self::Chain(other)) => one.is_equivalent(other),
            (Self::Element(one), Self::Element(other)) => one.is_equivalent(other),
            (Self::Stateful(one), Self::Stateful(other)) => one.is_equivalent(other),
            (Self::Flowtable(one), Self::Flowtable(other)) => one.is_equivalent(other),
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

from! { Table Set Chain Element Flowtable }

impl From<StatefulObject> for Object {
    fn from(object: StatefulObject) -> Self {
        Self::Stateful(object.into())
    }
}
