//! Shared parts of the benchmarks: clusters, proxies, floors and figures.
//!
//! - [`cluster`]: generated clusters and changes of one Service, as events.
//! - [`proxy`]: an engine with instrumented kernels.
//! - [`save`]: output of `iptables-save` for a cluster.
//! - [`floor`]: replay of encoded messages.
//! - [`ipvs_floor`]: replay of a load in mode ipvs.
//! - [`conntrack_table`]: size of the conntrack table, and flows.
//! - [`time`]: elapsed time and processor time.
//! - [`figure`]: figures and their limits.
//! - [`dns`]: DNS messages, and an upstream name server.
//! - [`datapath`]: cost of forwarded packets.
#![forbid(unsafe_code)]

pub mod cluster;

pub mod proxy;

pub mod save;

pub mod floor;

pub mod ipvs_floor;

pub mod conntrack_table;

pub mod time;

pub mod figure;

pub mod dns;

pub mod datapath;
