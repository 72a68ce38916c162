//! nfacct: named counters for rules with `-m nfacct`.
//!
//! The kernel rejects a rule with a missing counter, so create counters first.
//!
//! ```no_run
//! use vipline_iptables::nfacct::{Client, Name};
//!
//! let mut client = Client::open()?;
//! let name = Name::new("dropped")?;
//! client.ensure(&name)?;
//! println!("{} packets", client.get(&name)?.packets);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod name;

mod wire;

mod client;

mod error;

pub use client::Client;
pub use error::Error;
pub use name::Name;
pub use wire::Counter;
