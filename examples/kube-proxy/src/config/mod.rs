//! The configuration: the file, what is not in it, and what is wrong with it.
//!
//! - [`Configuration`]: what can be configured, as the file and `/configz` have it;
//! - [`defaults`]: what is not configured;
//! - [`Gates`]: features that can be turned off;
//! - [`Effective`]: all of it brought together;
//! - [`check_families`]: checks of it against the IP families of the node;
//! - [`ConfigWatch`]: whether the file was changed.

mod configuration;

mod quantity;

pub mod defaults;

mod flags;

mod file;

mod gates;

mod others;

mod validate;

mod check_families;

mod effective;

mod write;

pub mod watch;

pub use check_families::{Problems, check_families};
pub use configuration::{
    API_VERSION, ClientConnection, Configuration, Conntrack, DetectLocal, FormatOptions, Iptables,
    Ipvs, KIND, Logging, Nftables, OutputRouting, Vmodule, Winkernel,
};
pub use effective::Effective;
pub use file::{Found, read};
pub use gates::{Gate, Gates};
pub use quantity::Quantity;
pub use validate::check;
pub use watch::ConfigWatch;
