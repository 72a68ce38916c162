//! Functions of other kernel modules at hooks, such as those of IPVS.

use std::fmt;
use std::net::IpAddr;

use vipline_nftables::Hook;

use super::cause::Cause;
use super::context::Context;
use super::outcome::Disposition;

/// A function that another kernel module registers at hooks.
///
/// IPVS has functions at `input` (priority 98 for replies, 99 for requests), `forward` (99
/// and 100) and `output` (-99 and -98): `ip_vs_ops` of `net/netfilter/ipvs/ip_vs_core.c`.
/// [`Evaluator::with_function`](super::Evaluator::with_function) registers a function.
pub trait HookFunction: fmt::Debug + Send + Sync {
    /// Returns the hooks with the priorities at which the function is called.
    fn places(&self) -> &[(Hook, i32)];

    /// Handles a packet at one of the places.
    ///
    /// # Errors
    ///
    /// [`Cause::Unknown`] if neither packet nor environment determines the result.
    fn call(&self, priority: i32, context: &mut Context<'_, '_>) -> Result<HookVerdict, Cause>;
}

/// How a packet continues after a function.
///
/// Exhaustive: these are the verdicts of a function.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum HookVerdict {
    /// With the next function or chain of the hook.
    Accept,
    /// Not at all.
    End(Disposition),
    /// As a packet of this host on the route to an address: through the hooks `output`,
    /// from its first chain on, and `postrouting`. If the address is one of the host, the
    /// packet continues with the next function or chain of the current hook.
    Send(IpAddr),
}

/// The IPVS connection of a packet, for match `ipvs`.
///
/// Exhaustive: the match compares these values.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct IpvsConnection {
    /// Transport protocol.
    pub protocol: u8,
    /// Address of the virtual server.
    pub address: IpAddr,
    /// Port of the virtual server.
    pub port: u16,
    /// Forwarding method: `IP_VS_CONN_F_*` of `linux/ip_vs.h`, 0 for masquerading.
    pub method: u32,
    /// Port of the connection that controls this one, if any.
    pub control_port: Option<u16>,
}
