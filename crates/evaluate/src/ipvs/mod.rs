//! Evaluation of packets against the IPVS table, without a kernel.
//!
//! A [`Balancer`] has virtual servers and real servers. For a packet it returns a
//! [`Decision`]: whether IPVS handles the packet, and which real servers can receive it.
//!
//! ```
//! use vipline_evaluate::ipvs::{Balancer, Decision, Packet, Servers, Unknown};
//! use vipline_ipvs::{RealServer, Scheduler, ServiceKey, Transport, VirtualServer};
//!
//! let service = ServiceKey::new(Transport::Tcp, "10.96.0.1".parse()?, 443);
//! let reals = ["10.0.0.1", "10.0.0.2", "10.0.0.3"];
//! let reals = reals.map(|addr| RealServer::new(addr.parse().unwrap(), 6443));
//! let mut balancer = Balancer::new();
//! balancer.add(VirtualServer::new(service, Scheduler::RoundRobin), reals.map(Into::into));
//!
//! let packet = Packet::new(Transport::Tcp, "10.1.0.9:40000".parse()?, "10.96.0.1:443".parse()?);
//! let Decision::Forwarded { servers, .. } = balancer.decide(&packet, &Unknown)? else {
//!     panic!("the virtual server forwards the packet");
//! };
//! let Servers::Shares(shares) = servers else {
//!     panic!("round robin has shares");
//! };
//! // Each real server receives one of three connections.
//! assert!(shares.len() == 3 && shares.iter().all(|(_, weight)| *weight == 1));
//! assert_eq!(shares[0].0.address.to_string(), "10.0.0.1:6443");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Schedulers
//!
//! | Scheduler | Result |
//! |---|---|
//! | `rr`, `wrr` | the share of each available real server: equal, or its weight |
//! | `lc`, `wlc`, `sed`, `nq`, `fo`, `ovf` | the real server, if connection counts are known; otherwise all that are possible |
//! | `sh`, `dh`, `mh` | the real server, computed like the kernel; `sh` and `dh` need the order of the dump |
//! | `twos` | exact shares, if connection counts are known |
//! | `lblc`, `lblcr`, others | all available real servers |
//!
//! Results of `mh` are those of 64-bit kernels with the default table size
//! (`CONFIG_IP_VS_MH_TAB_INDEX=12`). A real server of weight 0 keeps its former weight in the
//! table of `mh`, which no dump contains: then all available real servers are possible.
//!
//! # Place in the path of a packet
//!
//! IPVS schedules received packets at the hook `input` with priority 99, and packets of this
//! host at `output` with priority -98. It translates replies of masqueraded connections at
//! `input` (98), `output` (-99) and `forward` (100). A forwarded packet passes the hooks
//! `output` and `postrouting` with its new destination. [`Ipvs`] does this in an evaluation of
//! rules.

mod balancer;

mod event;

mod function;

mod hash;

mod history;

mod scheduling;

#[cfg(test)]
mod tests;

pub use balancer::{Balancer, Decision, Packet, Real, Servers, Settings, Target};
pub use event::{IpvsEvent, Template};
pub use function::Ipvs;
pub use history::{History, TemplateKey, Unknown};
