//! What `iptables-save` prints and `iptables-restore` reads, of both variants.
#![forbid(unsafe_code)]

mod name;

mod object;

mod restore;

mod parse;

mod tables;

pub use name::{ChainName, InvalidName, TableName};
pub use object::{Chain, Contents, End, Entry, Key, Object, Rules};
pub use parse::{Expected, LineError, ParseError};
pub use restore::Restore;
pub use tables::{
    ChainLine, CommandLine, Counters, Line, Policy, RuleLine, Table, TableLine, Tables,
};
