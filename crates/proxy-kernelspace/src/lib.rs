//! Mode kernelspace: load balancers of the Host Networking Service (HNS) on Windows nodes.
//!
//! After a sync HNS has the same load balancers and remote endpoints as after a sync of
//! upstream, except for what [the differences](#differences-to-upstream) state.
//!
//! ```text
//! remote endpoint            an endpoint of another node                 endpoint
//! VIP endpoint               a cluster IP, in overlay networks only      port
//! source VIP                 the source of translated packets            base
//! load balancer
//!   ├ cluster IP             endpoints by internalTrafficPolicy          cluster_ip
//!   ├ node port              endpoints by externalTrafficPolicy          node_port
//!   ├ external IP            the same                                    external_ip
//!   └ load balancer IP       the same, and its health check              load_balancer_ip
//! ```
//!
//! Use it with [`Engine::with_kernels`](proxy_engine::Engine::with_kernels): [`Planner`] plans,
//! and [`Hns`] applies the plan to a [`Service`](vipline_hcn::Service) of vipline-hcn. The
//! mode is none of those that `proxy_core::Mode` names, because these open kernels of Linux.
//!
//! # Differences to upstream
//!
//! - A start deletes nothing that the plan contains: load balancers are adopted. Upstream
//!   deletes all load balancers of HNS.
//! - A load balancer without any existing endpoint is deleted when a planned one needs its
//!   frontend. Otherwise it stays.
//! - A load balancer has the port of its endpoints. Upstream prefers a `targetPort` that is
//!   a number.
//! - Health checks of a load balancer IP need a root endpoint with an address of its family.
//! - An endpoint is local if its EndpointSlice names this node. Upstream also counts
//!   endpoints as local if HNS has their address on this node.
//! - Remote endpoints that another program made are used, and never deleted.
//! - A ready endpoint that terminates, with `publishNotReadyAddresses`, counts as not ready.
//! - If Services claim one address, [`AddressKind`](proxy_engine::AddressKind) and age decide.

#![forbid(unsafe_code)]

mod plan;

mod apply;

mod settings;

pub use self::apply::kernel::Hns;
pub use self::plan::Planner;
pub use self::plan::object::{Endpoint, EndpointKind, Key, LoadBalancer, Object};
pub use self::settings::{RemoteSubnet, Settings};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
