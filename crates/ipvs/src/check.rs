//! Checks of values.

use crate::arguments::Result;
use crate::{
    Checksum, Command, Family, Flags, Forwarding, Netmask, Persistence, RealServer, ServiceKey,
    Transport, Tunnel, VirtualServer,
};

/// The longest timeout that `ipvsadm` accepts: 31 days, in seconds.
pub(crate) const MAX_TIMEOUT: u32 = 31 * 86_400;

impl Command {
    /// Checks the values that `ipvsadm` checks, most of which the kernel rejects.
    ///
    /// # Errors
    ///
    /// A description of the problem: a service without port that is not persistent,
    /// one-packet scheduling of another protocol than UDP, a timeout of 0 or of more than
    /// 31 days, a netmask of an invalid length, a real server of the other family
    /// without tunnel, or a number that is too large.
    pub fn check(&self) -> std::result::Result<(), &'static str> {
        match self {
            Self::Add(server) | Self::Edit(server) => server.check(),
            Self::AddDestination(service, real) | Self::EditDestination(service, real) => {
                real.check(service.family())
            }
            Self::Remove(_) | Self::RemoveDestination(..) => Ok(()),
        }
    }
}

impl VirtualServer {
    fn check(&self) -> Result<()> {
        if let ServiceKey::Address { protocol, port, .. } = self.service {
            if port == 0 && self.persistence.is_none() {
                return Err("a service without port requires persistence");
            }
            if self.flags.contains(Flags::ONE_PACKET) && protocol != Transport::Udp {
                return Err("one-packet scheduling requires UDP");
            }
        }
        match self.persistence {
            Some(it) if !(1..=MAX_TIMEOUT).contains(&it.timeout) => Err("invalid timeout"),
            Some(Persistence {
                netmask: Netmask::V6(bits),
                ..
            }) if !(1..=128).contains(&bits) => Err("invalid IPv6 prefix length"),
            _ => Ok(()),
        }
    }
}

impl RealServer {
    fn check(&self, family: Family) -> Result<()> {
        if family != Family::of(self.address) && !matches!(self.forwarding, Forwarding::Tunnel(_)) {
            return Err("a real server of the other family requires a tunnel");
        }
        let numbers = [self.weight, self.upper_threshold, self.lower_threshold];
        if numbers.iter().any(|number| i32::try_from(*number).is_err()) {
            return Err("invalid number");
        }
        match self.forwarding {
            Forwarding::Tunnel(Tunnel::Gue { port: 0, .. }) => Err("invalid tunnel port"),
            Forwarding::Tunnel(Tunnel::Gre {
                checksum: Checksum::Remote,
            }) => Err("the tunnel type has no such option"),
            _ => Ok(()),
        }
    }
}
