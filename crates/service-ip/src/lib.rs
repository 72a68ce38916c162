//! Allocation of Service addresses and node ports.
//!
//! Every Service of Kubernetes has an address of its own, and many have ports
//! of their own on every node.
//! This crate gives them out: from memory in one process, or from a store that
//! many change.
//!
//! - [`parse_address`]: addresses in every form that Services have them in.
//! - [`Range`], [`AddressRange`], [`PortRange`]: what is allocated from, and its
//!   two bands.
//! - [`Allocator`]: a range, and what of it is taken.
//! - [`Cidrs`]: several ranges, which may overlap.
//! - [`Pool`]: what has items to give.
//! - [`Store`], [`Registry`]: allocation by many, none of whom gets what another
//!   has.
//! - [`AddressSpec`]: which addresses of which families a Service gets.
//! - [`ServiceAddresses`]: how it gets them, all or none.
//! - [`NodePorts`]: its node ports, all or none.
//! - [`Counters`], [`MetricNames`]: what is counted.
//! - [`RangeAllocation`]: what is allocated, in the form of Kubernetes.
//! - [`Repair`]: what is allocated, compared with what Services have.
//! - [`Error`], [`AllocationError`]: what goes wrong.
#![forbid(unsafe_code)]

mod bitmap;

mod stored_address;

mod range;

mod ports;

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

mod repair;

mod service;

mod service_port;

mod node_ports;

mod stores;

pub use allocation_error::AllocationError;
pub use allocator::Allocator;
pub use bitmap::Bitmap;
pub use cidrs::{CidrError, Cidrs};
pub use counters::{Counters, DurationHistogram, MetricNames, RepairCounters, Scope, Usage};
pub use draft::Draft;
pub use families::{AddressError, AddressPlan, AddressRequest, AddressSpec, Family, FamilyPolicy};
pub use node_ports::{AssignedPorts, NodePorts};
pub use pool::{Pool, Random, ServiceRef};
pub use ports::PortRange;
pub use range::{AddressRange, Range, RangeError};
pub use registry::{Error, Registry};
pub use repair::{Finding, Repair, RepairError, ServiceItems};
pub use service::{AssignError, AssignedAddresses, ReleaseError, ServiceAddresses};
pub use service_port::{Protocol, ServicePort, ServiceType};
pub use snapshot::{RangeAllocation, SnapshotError};
pub use store::{Change, CommitError, RepairReason, Snapshot, Store, StoreError, Version};
pub use stored_address::parse_address;
pub use stores::Memory;
#[cfg(feature = "etcd")]
pub use stores::{Envelope, Etcd, EtcdCluster, EtcdSetupError, EtcdTls};
