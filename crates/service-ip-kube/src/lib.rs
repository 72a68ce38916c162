//! Allocates cluster IPs of Services as objects of the Kubernetes API.
//!
//! IPAddress objects record the allocated addresses, ServiceCIDR objects the ranges.
//! This crate is a store of vipline-service-ip for these objects in upstream's form.
//! API servers of Kubernetes and programs with this crate can allocate concurrently.
//!
//! ```no_run
//! use std::path::Path;
//!
//! use vipline_service_ip_kube::Kube;
//! use vipline_service_ip_kube::service_ip::{Family, Registry, OwnerRef};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let kubeconfig = Path::new("/etc/kubernetes/admin.conf");
//! let mut registry = Registry::new(Kube::open(Some(kubeconfig), Family::V4)?);
//! let web = OwnerRef::service("default", "web");
//! let address = registry.allocate(&web, &mut || 4)?;
//! registry.release(address, &web)?;
//! # Ok(())
//! # }
//! ```
//!
//! The store does not watch objects. It keeps the last list and its own changes.
//! If another process has allocated an address meanwhile, the API server rejects the
//! creation and another address is chosen. Changes of ServiceCIDRs are detected by
//! [`Registry::refresh`] only, which must be called every few seconds.
//!
//! The crate does not log, create Events or read a clock. It returns
//! [findings](Finding) and the time of the next call to the caller.
//!
//! # Source files, in reading order
//!
//! - Objects: `metadata`, [`ip_address`], [`service_cidr`], `service`, [`spec`].
//! - Pure plans: [`lifecycle`], [`default_cidr`], `finding`, [`mod@repair`].
//! - Requests: `error`, `client`, `store`, `controller`.
//!
//! [`Registry::refresh`]: vipline_service_ip::Registry::refresh
#![forbid(unsafe_code)]

mod metadata;

pub mod ip_address;

pub mod service_cidr;

mod service;

pub mod spec;

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
pub use ip_address::IpAddress;
pub use service::Service;
pub use service_cidr::{Condition, Edit, ServiceCidr};
pub use store::Kube;
pub use vipline_service_ip as service_ip;

/// Compiles and runs the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
