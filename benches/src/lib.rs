//! What the benches share: clusters, proxies, floors and figures.
//!
//! - [`cluster`]: how many Services there are, as events, and changes of one.
//! - [`proxy`]: an engine over kernels that can be looked at.
//! - [`save`]: what `iptables-save` prints of a cluster.
//! - [`floor`]: batches replayed with nothing around them.
//! - [`time`]: how long something takes.
//! - [`figure`]: what was measured, and what it must not exceed.
#![forbid(unsafe_code)]

pub mod cluster;

pub mod proxy;

pub mod save;

pub mod floor;

pub mod time;

pub mod figure;
