//! The words that crates of Linux networking share.
//!
//! Dumps of connections, sets of addresses and rules of iptables all speak of IPv4. If each
//! crate had a type for it, a program that uses three of them would spend its time with
//! conversions. So these types stand here, below all other crates of Vipline, which
//! re-export those that their signatures have.
//!
//! ```
//! use vipline_inet::Family;
//!
//! let family = Family::of("10.96.0.10".parse()?);
//! assert_eq!((family, family.number()), (Family::V4, 2));
//! # Ok::<(), std::net::AddrParseError>(())
//! ```
//!
//! - [`Family`]: IPv4 or IPv6.
//! - [`Protocol`]: an IP protocol by its number, with the names of `/etc/protocols`.
//! - [`Transport`]: TCP, UDP or SCTP, the protocols of services.
//! - [`Scheduler`]: a scheduler of IPVS, which a Service selects by an annotation.
//! - [`kernel_name!`]: types for names of kernel objects, which all have the same functions and
//!   the error [`InvalidName`].
//! - [`parse_address`] and [`parse_network`]: parse addresses and networks in every form that
//!   the API of Kubernetes has stored.
//!
//! A type belongs here if two crates that do not depend on each other need it. Types with
//! more values stay with the kernel interface that has them, and convert: the families of
//! nf_tables (`inet`, `bridge`, `arp`) and those of sets (sets of ports have none).
//!
//! The crate does no IO, and is independent of an operating system: the numbers are those of
//! Linux everywhere.
#![forbid(unsafe_code)]

mod address;

mod family;

mod name;

mod protocol;

mod scheduler;

mod transport;

pub use address::{parse_address, parse_network};
pub use family::Family;
pub use name::{Inline, InvalidName, NameStorage};
pub use protocol::Protocol;
pub use scheduler::{IpvsName, Scheduler};
pub use transport::Transport;

/// Compiles and runs the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
