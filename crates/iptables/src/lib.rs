//! Parser, typed rules and restore documents for `iptables-save` and
//! `iptables-restore`, legacy and nft variants.
//!
//! - [`Tables`]: a losslessly parsed document that borrows from its text and prints
//!   the same bytes. [`Line`]: a single line.
//! - [`Rule`]: a typed rule with [`matches`](mod@matches) and a
//!   [target](mod@targets). Unknown parts are preserved as text.
//! - [`Object`]: chains, and rules of chains that several programs share, as keyed
//!   objects. [`Restore`] formats edits as a document for `iptables-restore
//!   --noflush`.
//! - [`Client`]: runs the programs. [`Error`] has the cause of a failure. [`nfacct`]
//!   manages the counters for `-m nfacct`.
//!
//! Only the clients do IO.
//!
//! # Features
//!
//! - `nft`: rules in the form in which the nft variant stores them in nf_tables
//!   (module `nft`), with vipline-nftables.
//!
//! ```
//! use vipline_iptables::targets::Target;
//! use vipline_iptables::{ChainName, Restore, Rule, TableName, Tables, Transport, diff};
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

mod transport;

mod rule_error;

mod rule;

mod object;

mod restore;

mod state;

mod document_error;

mod tables;

mod version;

mod lines;

mod tool_error;

mod process;

mod client;

pub mod nfacct;

#[cfg(feature = "nft")]
pub mod nft;

mod error;

pub use address::Network;
pub use client::Client;
pub use direction::{Direction, SetDirections};
pub use document_error::{Expected, LineError, ParseError};
pub use error::{Committed, DocumentLine, Error};
pub use ipnet;
pub use name::{ChainName, InvalidName, TableName};
pub use negatable::Negatable;
pub use number::{Masked, Ports, Range};
pub use object::{Chain, Contents, Key, Object, Position, Rules, SharedRule};
pub use protocol::Protocol;
pub use restore::{Restore, jump_target};
pub use rule::Rule;
pub use rule_error::RuleError;
pub use state::ObjectsError;
pub use tables::{
    ChainLine, CommandLine, Counters, Line, Policy, RuleLine, Table, TableLine, Tables,
};
pub use transport::Transport;
pub use version::{Family, Variant, Version};
pub use vipline_netlink as netlink;
pub use vipline_reconcile::{Edit, Keyed, diff};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
