//! Configuration: file, flags, defaults and validation.
//!
//! - [`Configuration`]: the fields of the file and of `/configz`;
//! - [`defaults`]: default values;
//! - [`Gates`]: feature gates;
//! - [`Effective`]: the complete, valid configuration;
//! - [`check_families`]: checks against the IP families of the node;
//! - `watch`, [`modified`]: detection of changes of the file, on Linux and elsewhere.

mod configuration;

mod quantity;

pub mod defaults;

mod flags;

mod file;

mod gates;

mod validate;

mod check_families;

mod effective;

mod write;

#[cfg(target_os = "linux")]
pub mod watch;

pub mod modified;

pub use check_families::{Problems, check_families};
pub use configuration::{
    API_VERSION, ClientConnection, Configuration, Conntrack, DetectLocal, FormatOptions, Iptables,
    Ipvs, KIND, Logging, Nftables, OutputRouting, Vmodule, Winkernel,
};
pub use defaults::KERNELSPACE;
pub use effective::Effective;
pub use file::{ParsedFile, read};
pub use gates::{Gate, Gates};
pub use quantity::Quantity;
pub use validate::check;
#[cfg(target_os = "linux")]
pub use watch::ConfigWatch;

/// Reason for the end of the process after a change of the file.
pub const CHANGED: &str = "content of the proxy server's configuration file was updated";
