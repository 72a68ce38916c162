//! Allocates cluster IPs and node ports of Kubernetes Services.
//!
//! The allocation state is in the memory of one process, or in a store that several
//! processes share.
//!
//! ```
//! use vipline_service_ip::{AddressRange, Allocator, Memory, OwnerRef, Registry};
//!
//! let range: AddressRange = "10.96.0.0/16".parse()?;
//! let mut registry = Registry::new(Memory::new(Allocator::new(range)));
//! let web = OwnerRef::service("default", "web");
//! // A specific address, then any address. The caller provides random numbers.
//! registry.reserve("10.96.0.10".parse()?, &web)?;
//! let address = registry.allocate(&web, &mut || 4)?;
//! assert_eq!(registry.usage()[0].used, 2);
//! registry.release(address, &web)?;
//! // A second owner gets a typed error.
//! let error = registry.reserve("10.96.0.10".parse()?, &OwnerRef::service("default", "api"));
//! assert_eq!(error.unwrap_err().to_string(), "10.96.0.10 is already allocated");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - [`parse_address`]: parses addresses in every form that the API has stored.
//! - [`Range`], [`AddressRange`], [`PortRange`]: ranges with a static and a dynamic
//!   band.
//! - [`Allocator`]: allocation from one range.
//! - [`Cidrs`]: allocation from several ServiceCIDRs, which may overlap.
//! - [`Pool`]: the trait of both.
//! - [`Store`], [`AsyncStore`], [`Registry`]: allocation by concurrent processes, with
//!   optimistic locking.
//! - [`AddressSpec`]: plans the families and cluster IPs of a Service.
//! - [`ServiceAddresses`]: allocates the cluster IPs of a Service atomically.
//! - [`NodePorts`], [`ServiceNodePorts`]: the node ports of a Service, allocated
//!   atomically.
//! - [`Counters`], [`MetricNames`]: metrics.
//! - [`Memory`]: a store in memory. `Etcd` (feature `etcd`): a store in etcd, with the
//!   objects of Kubernetes.
//! - [`RangeAllocation`]: the bitmap of Kubernetes.
//! - [`Repair`]: compares allocated items with Services and corrects differences.
//! - [`Error`]: a change of a registry failed. [`StoreError`]: its store failed.
//!   [`AllocationError`]: the ranges do not allow a request, or the Service is invalid.
//!   [`InvalidValue`]: a range, a reservation, a setting or a stored value cannot be used.
#![forbid(unsafe_code)]

mod bitmap;

mod invalid_value;

mod range;

mod ports;

mod owner;

mod pool;

mod allocation_error;

mod allocator;

mod cidrs;

mod counters;

mod families;

mod snapshot;

mod store;

mod draft;

mod registry;

mod reservations;

mod repair;

mod service;

mod service_port;

mod node_ports;

mod stores;

pub use allocation_error::AllocationError;
pub use allocator::Allocator;
pub use bitmap::Bitmap;
pub use cidrs::Cidrs;
pub use counters::{Counters, DurationHistogram, MetricNames, RepairCounters, Scope, Usage};
pub use draft::Draft;
pub use families::{AddressPlan, AddressRequest, AddressSpec, FamilyPolicy};
pub use invalid_value::InvalidValue;
pub use ipnet;
pub use node_ports::{AssignedPorts, NodePorts, ServiceNodePorts};
pub use owner::OwnerRef;
pub use pool::{Pool, Random};
pub use ports::PortRange;
pub use range::{AddressRange, Range};
pub use registry::{Error, Registry};
pub use repair::{Finding, Repair, ServiceItems};
pub use reservations::Reservations;
pub use service::{AssignedAddresses, ServiceAddresses};
pub use service_port::{ServicePort, ServiceType};
pub use snapshot::RangeAllocation;
pub use store::{
    AsyncStore, Change, CommitError, RepairReason, Snapshot, Store, StoreError, Version,
};
pub use stores::Memory;
#[cfg(feature = "etcd")]
pub use stores::{Envelope, Etcd, EtcdCluster, EtcdTls};
pub use vipline_inet::{Family, Transport, parse_address};

/// Compiles and runs the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
