//! Counters with a name: nfacct, which rules count packets in (`-m nfacct`).
//!
//! A rule that names a counter which does not exist is refused by the kernel,
//! so whoever writes such rules makes their counters first.
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
pub use name::{InvalidName, Name};
pub use wire::Counter;
