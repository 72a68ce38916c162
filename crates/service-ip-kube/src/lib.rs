//! Allocates cluster IPs of Services as objects of the Kubernetes API.
//!
//! IPAddress objects record the allocated addresses, ServiceCIDR objects the ranges.
//! This crate is a store of vipline-service-ip for these objects in upstream's form.
//! API servers of Kubernetes and programs with this crate can allocate concurrently.
//!
//! ```no_run
//! use vipline_service_ip_kube::service_ip::{Family, OwnerRef, Registry};
//! use vipline_service_ip_kube::{Client, Kube};
//!
//! # async fn allocate(client: kube::Client) -> Result<(), Box<dyn std::error::Error>> {
//! // `client` is the kube::Client of the program.
//! let mut registry = Registry::new(Kube::new(Client::new(client), Family::V4));
//! let web = OwnerRef::service("default", "web");
//! // The caller provides random numbers.
//! let address = registry.allocate_async(&web, || 4).await?;
//! registry.release_async(address, &web).await?;
//! # Ok(())
//! # }
//! ```
//!
//! [`blocking`] has the same client and store for threads without an async runtime.
//!
//! The store keeps the last list and its own changes, or the objects of the caller's
//! watches ([`Kube::watch`]), which make lists unnecessary.
//! If another process has allocated an address meanwhile, the API server rejects the
//! creation and another address is chosen. Without watches, changes of ServiceCIDRs are
//! detected by [`Registry::refresh_async`] only, which must be called every few seconds.
//!
//! A controller with informers can also use the plans directly: [`repair::plan`],
//! [`lifecycle::plan`] and [`default_cidr::plan`] are pure functions, and
//! [`Client::execute`], [`Client::edit`] and [`Client::create_default_cidr`] apply them.
//!
//! The crate does not log, create Events or read a clock. It returns
//! [findings](Finding) and the time of the next call to the caller.
//!
//! # Source files, in reading order
//!
//! - Objects: `metadata`, [`ip_address`], [`service_cidr`], `service`, [`spec`].
//! - Pure plans: [`lifecycle`], [`default_cidr`], `finding`, [`mod@repair`].
//! - Requests: `error`, `client`, `watched`, `store`, `controller`, [`blocking`].
//!
//! [`Registry::refresh_async`]: vipline_service_ip::Registry::refresh_async
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

mod watched;

mod store;

mod controller;

pub mod blocking;

pub use client::Client;
pub use error::{Cause, Error};
pub use finding::{Finding, Reason};
pub use ip_address::IpAddress;
pub use k8s_openapi;
pub use kube;
pub use service::Service;
pub use service_cidr::{Condition, Edit, ServiceCidr};
pub use store::Kube;
pub use vipline_service_ip as service_ip;
pub use watched::Event;

/// Compiles and runs the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
