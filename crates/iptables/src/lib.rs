//! What `iptables-save` prints and `iptables-restore` reads, of both variants.
#![forbid(unsafe_code)]

mod name;

mod parse;

mod tables;

pub use name::{ChainName, InvalidName, TableName};
pub use parse::{Expected, LineError, ParseError};
pub use tables::{
    ChainLine, CommandLine, Counters, Line, Policy, RuleLine, Table, TableLine, Tables,
};
