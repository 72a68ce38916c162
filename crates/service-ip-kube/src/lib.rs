//! Service addresses as objects of the Kubernetes API.
//!
//! Every Service has addresses of its own; who has which is said by IPAddress
//! objects, and what they are taken from by ServiceCIDR objects.
//! This crate is the store of vipline-service-ip that keeps them there, in
//! upstream's form, so that API servers of Kubernetes and programs with this
//! crate can allocate side by side.
//!
//! ```no_run
//! use std::path::Path;
//!
//! use vipline_service_ip::{Family, ServiceRef, Registry};
//! use vipline_service_ip_kube::Kube;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let kubeconfig = Path::new("/etc/kubernetes/admin.conf");
//! let mut registry = Registry::new(Kube::open(Some(kubeconfig), Family::V4)?);
//! let web = ServiceRef::new("default", "web");
//! let address = registry.allocate(&web, &mut || 4)?;
//! registry.release(address, &web)?;
//! # Ok(())
//! # }
//! ```
//!
//! It does not watch: the store knows what it read last and what it did since.
//! An address that somebody else has taken meanwhile is found out by the API
//! server, and another one chosen; a ServiceCIDR that is not ready any more is
//! only seen by [`Registry::refresh`], which is to be called every few seconds.
//!
//! It logs nothing, posts no Events and reads no clock: the caller is told
//! [findings](Finding), and when to call again.
//!
//! Map, in reading order: `metadata`, `address`, `service_cidr`,
//! `service` (the objects), `lifecycle`, `default_cidr`, `finding`, `repair`
//! (plans, which are pure), `error`, `client` (requests), `store`, `controller`
//! (plans carried out).
//!
//! [`Registry::refresh`]: vipline_service_ip::Registry::refresh
#![forbid(unsafe_code)]

mod metadata;

pub mod ip_address;

pub mod service_cidr;

mod service;

pub mod lifecycle;

pub mod default_cidr;

mod finding;

pub mod repair;

mod error;

mod client;

mod store;

mod controller;

pub use client::Client;
pub use error::{Cause, Error};
pub use finding::{Finding, Reason};
pub use ip_address::{IpAddress, ParentRef};
pub use service::Service;
pub use service_cidr::{Condition, Edit, ServiceCidr};
pub use store::Kube;
