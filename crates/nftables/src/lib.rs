//! nf_tables objects, expressions and atomic transactions over netlink.
#![forbid(unsafe_code)]

mod name;

mod family;

mod bytes;

mod datatype;

mod value;

mod verdict;

mod set;

mod element;

mod header;

pub mod selector;

pub mod statement;

mod comparison;

mod lower;

pub mod expr;

mod rule;

mod chain;

mod object;

mod literal;

mod text;

mod display;

mod userdata;

pub mod wire;

mod transaction;

mod batch;

mod operation;

mod ruleset;

mod script;

mod client;

mod error;

pub use batch::Batch;
pub use bytes::Bytes;
pub use chain::{BaseChain, Chain, ChainKind, Hook, Policy};
pub use client::{Client, Generation};
pub use datatype::Datatype;
pub use element::{Element, InvalidElement};
pub use error::{Committed, Error, Refused};
pub use family::Family;
pub use name::{Comment, InvalidName, Name};
pub use object::{Key, Object, SetKey, Table, TableId};
pub use operation::{Action, Operation, Subject};
pub use rule::Rule;
pub use ruleset::{Assembler, Objects, Ruleset};
pub use selector::Selector;
pub use set::{DataKind, Field, Schema, Set, SetFlags};
pub use statement::Statement;
pub use transaction::Transaction;
pub use value::Value;
pub use verdict::{Data, Verdict};
