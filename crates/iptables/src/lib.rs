//! What `iptables-save` prints and `iptables-restore` reads, of both variants.
//!
//! - [`Tables`]: a document, parsed without loss; it borrows from its text and
//!   prints as the same bytes. [`Line`] is one line of it.
//! - [`Rule`]: what a rule wants of packets ([`matches`](mod@matches)) and does with them
//!   ([`targets`](mod@targets)), typed; what is not known is kept as it was written.
//! - [`Object`]: chains, and rules of chains with several owners, as a keyed
//!   state; [`Restore`] writes edits of it as a document for
//!   `iptables-restore --noflush` that names nothing else.
//! - [`Client`] runs the programs, and [`Error`] says why that failed;
//!   [`nfacct`] makes the counters that rules count in.
//!
//! Programs are run and sockets opened by [`Client`] and [`nfacct::Client`]
//! alone; everything else is pure.
//!
//! ```
//! use vipline_iptables::{ChainName, Restore, Rule, Tables, TableName, Transport, targets::Target};
//! use vipline_reconcile::diff;
//!
//! let saved = "*filter\n:INPUT ACCEPT [0:0]\n:MINE - [0:0]\n-A INPUT -j MINE\nCOMMIT\n";
//! let tables = Tables::parse(saved)?;
//! assert_eq!(tables.to_string(), saved);
//!
//! let ssh = Rule::new()
//!     .protocol(Transport::Tcp)
//!     .matching(Transport::Tcp.dport(22))
//!     .target(Target::Accept);
//! let mine = vipline_iptables::Chain::new(
//!     TableName::new("filter")?,
//!     ChainName::new("MINE")?,
//!     [ssh].into_iter().collect(),
//! );
//! let installed = tables.objects()?;
//! let mut wanted = installed.clone();
//! wanted[1] = mine.into();
//! assert_eq!(
//!     Restore::from_edits(&diff(installed, &wanted)).to_string(),
//!     "*filter\n:MINE - [0:0]\n-A MINE -p tcp -m tcp --dport 22 -j ACCEPT\nCOMMIT\n"
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod name;

mod family;

mod lexer;

mod quote;

mod number;

mod list;

mod negatable;

mod address;

mod protocol;

mod direction;

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

mod tool_error;

mod process;

mod client;

pub mod nfacct;

mod error;

pub use address::Network;
pub use client::Client;
pub use direction::{Direction, SetDirections};
pub use error::{Committed, DocumentLine, Error};
pub use family::Family;
pub use name::{ChainName, InvalidName, TableName};
pub use negatable::Negatable;
pub use number::{Masked, Ports, Range};
pub use object::{Chain, Contents, Key, Object, Position, Rules, SharedRule};
pub use parse::{Expected, LineError, ParseError};
pub use protocol::{Protocol, Transport};
pub use restore::{Restore, jump_target};
pub use rule::{Rule, RuleError};
pub use state::ObjectsError;
pub use tables::{
    ChainLine, CommandLine, Counters, Line, Policy, RuleLine, Table, TableLine, Tables,
};
pub use version::{Variant, Version};
