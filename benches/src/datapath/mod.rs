//! Cost of packets that a node forwards: namespaces, packets, and the compared rulesets.
//!
//! ```text
//! client 192.0.2.2 ──── 192.0.2.1 router 198.51.100.1 ──── 198.51.100.2 sink
//! pods of 10.200.0.0/16                                    everything else
//! ```
//!
//! Packets are sent in the client by a raw socket. The kernel forwards a packet through
//! both pairs of links within the system call that sends the packet, so the processor
//! time of the sending thread is the cost of the whole path.
//! The sink drops all packets before routing.
//!
//! - [`services`]: the Services of the cluster.
//! - [`path`]: the namespaces.
//! - [`packet`]: TCP packets of flows.
//! - [`generator`]: transmission of many packets.
//! - [`upstream`]: the ruleset of upstream kube-proxy in mode nftables.
//! - [`upstream_iptables`]: the same in mode iptables.
//! - [`ruleset`]: the compared rulesets.
//! - [`lane`]: a path with a ruleset, and flows through it.

pub mod services;

pub mod path;

pub mod packet;

pub mod generator;

pub mod upstream;

pub mod upstream_iptables;

pub mod ruleset;

pub mod lane;
