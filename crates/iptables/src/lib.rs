//! What `iptables-save` prints and `iptables-restore` reads, of both variants.
#![forbid(unsafe_code)]

mod name;

mod family;

mod words;

mod quote;

mod number;

mod list;

mod maybe;

mod address;

mod protocol;

mod side;

mod options;

pub mod matches;

pub mod targets;

mod rule;

mod object;

mod restore;

mod state;

mod parse;

mod tables;

mod version;

mod lines;

mod complaint;

mod process;

mod client;

pub mod nfacct;

mod error;

pub use address::Network;
pub use client::Client;
pub use error::{Committed, DocumentLine, Error};
pub use family::Family;
pub use maybe::Maybe;
pub use name::{ChainName, InvalidName, TableName};
pub use number::{Masked, Ports, Span};
pub use object::{Chain, Contents, End, Entry, Key, Object, Rules};
pub use parse::{Expected, LineError, ParseError};
pub use protocol::{Protocol, Transport};
pub use restore::Restore;
pub use rule::{Rule, RuleError};
pub use side::{Side, Sides};
pub use state::NoState;
pub use tables::{
    ChainLine, CommandLine, Counters, Line, Policy, RuleLine, Table, TableLine, Tables,
};
pub use version::{Variant, Version};
