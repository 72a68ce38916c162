//! Elements of sets.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::{Name, Protocol, SetFamily, SetType};

/// A protocol and a port number.
///
/// For ICMP, the number is the type in the upper byte and the code in the lower
/// byte.
/// For protocols without ports, the number is 0.
///
/// Exhaustive: protocol and number identify a port.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Port {
    /// Protocol.
    pub protocol: Protocol,
    /// Port number.
    pub number: u16,
}

impl Port {
    /// Creates a TCP port.
    pub fn tcp(number: u16) -> Self {
        Self::new(Protocol::TCP, number)
    }

    /// Creates a UDP port.
    pub fn udp(number: u16) -> Self {
        Self::new(Protocol::UDP, number)
    }

    /// Creates an SCTP port.
    pub fn sctp(number: u16) -> Self {
        Self::new(Protocol::SCTP, number)
    }

    /// Creates a port of a protocol.
    pub fn new(protocol: impl Into<Protocol>, number: u16) -> Self {
        let protocol = protocol.into();
        Self { protocol, number }
    }
}

/// An Ethernet address.
///
/// Exhaustive: an Ethernet address has six bytes.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct MacAddr(pub [u8; 6]);

/// The interface of a `hash:net,iface` element.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct Interface {
    /// Name of the interface, or its start if the entry has
    /// [`EntryFlags::WILDCARD`](crate::EntryFlags::WILDCARD).
    pub name: Box<str>,
    /// Whether the interface is a port of a bridge (`physdev:`).
    pub is_bridge_port: bool,
}

impl Interface {
    /// Creates an interface that is not a port of a bridge.
    ///
    /// The kernel rejects names longer than 15 bytes.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            is_bridge_port: false,
        }
    }

    /// Creates a port of a bridge (`physdev:`).
    pub fn bridge_port(name: &str) -> Self {
        Self {
            is_bridge_port: true,
            ..Self::new(name)
        }
    }
}

/// The element of an entry. The set type determines the variant.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Member {
    /// `hash:ip` and `bitmap:ip`: an address.
    Ip(IpAddr),
    /// `bitmap:ip,mac` and `hash:ip,mac`: an address and an Ethernet address.
    ///
    /// In a `bitmap:ip,mac` set the Ethernet address is optional. The kernel then
    /// stores that of the first packet that matches.
    IpMac(IpAddr, Option<MacAddr>),
    /// `hash:ip,mark`: an address and a packet mark.
    IpMark(IpAddr, u32),
    /// `hash:ip,port`: an address and a port.
    IpPort(IpAddr, Port),
    /// `hash:ip,port,ip`: an address, a port and an address.
    IpPortIp(IpAddr, Port, IpAddr),
    /// `hash:ip,port,net`: an address, a port and a network.
    IpPortNet(IpAddr, Port, IpNet),
    /// `hash:mac`: an Ethernet address.
    Mac(MacAddr),
    /// `hash:net`: a network.
    Net(IpNet),
    /// `hash:net,iface`: a network and an interface.
    NetIface(IpNet, Interface),
    /// `hash:net,net`: two networks.
    NetNet(IpNet, IpNet),
    /// `hash:net,port`: a network and a port.
    NetPort(IpNet, Port),
    /// `hash:net,port,net`: a network, a port and a network.
    NetPortNet(IpNet, Port, IpNet),
    /// `bitmap:port`: a port number.
    Port(u16),
    /// `list:set`: a set name.
    Set(Name),
    /// Element of an unknown set type: attributes as dumped.
    /// The kernel may reject them in a command.
    Other(Box<[u8]>),
}

impl Member {
    /// Returns whether sets of this type can contain the element.
    pub fn fits(&self, set_type: &SetType) -> bool {
        matches!(
            (self, set_type),
            (Self::Ip(_), SetType::HashIp | SetType::BitmapIp)
                | (Self::IpMac(..), SetType::BitmapIpMac)
                | (Self::IpMac(_, Some(_)), SetType::HashIpMac)
                | (Self::IpMark(..), SetType::HashIpMark)
                | (Self::IpPort(..), SetType::HashIpPort)
                | (Self::IpPortIp(..), SetType::HashIpPortIp)
                | (Self::IpPortNet(..), SetType::HashIpPortNet)
                | (Self::Mac(_), SetType::HashMac)
                | (Self::Net(_), SetType::HashNet)
                | (Self::NetIface(..), SetType::HashNetIface)
                | (Self::NetNet(..), SetType::HashNetNet)
                | (Self::NetPort(..), SetType::HashNetPort)
                | (Self::NetPortNet(..), SetType::HashNetPortNet)
                | (Self::Port(_), SetType::BitmapPort)
                | (Self::Set(_), SetType::ListSet)
                | (Self::Other(_), SetType::Other(_))
        )
    }

    /// Returns the address family, if the element has addresses.
    pub fn family(&self) -> Option<SetFamily> {
        self.parts().ip.map(|ip| match ip {
            IpAddr::V4(_) => SetFamily::V4,
            IpAddr::V6(_) => SetFamily::V6,
        })
    }

    /// Sets the host bits of networks to zero.
    pub(crate) fn truncated(self) -> Self {
        match self {
            Self::IpPortNet(ip, port, net) => Self::IpPortNet(ip, port, net.trunc()),
            Self::Net(net) => Self::Net(net.trunc()),
            Self::NetIface(net, interface) => Self::NetIface(net.trunc(), interface),
            Self::NetNet(net, second) => Self::NetNet(net.trunc(), second.trunc()),
            Self::NetPort(net, port) => Self::NetPort(net.trunc(), port),
            Self::NetPortNet(net, port, second) => {
                Self::NetPortNet(net.trunc(), port, second.trunc())
            }
            other => other,
        }
    }

    /// Returns the parts of the element.
    pub(crate) fn parts(&self) -> Parts {
        let parts = Parts::default();
        match self {
            Self::Ip(ip) => parts.ip(*ip),
            Self::IpMac(ip, mac) => Parts {
                mac: *mac,
                ..parts.ip(*ip)
            },
            Self::IpMark(ip, mark) => Parts {
                mark: Some(*mark),
                ..parts.ip(*ip)
            },
            Self::IpPort(ip, port) => parts.ip(*ip).port(*port),
            Self::IpPortIp(ip, port, second) => Parts {
                second: Some(*second),
                ..parts.ip(*ip).port(*port)
            },
            Self::IpPortNet(ip, port, net) => parts.ip(*ip).port(*port).second_net(*net),
            Self::Mac(mac) => Parts {
                mac: Some(*mac),
                ..parts
            },
            Self::Net(net) => parts.net(*net),
            Self::NetIface(net, interface) => Parts {
                interface: Some(interface.clone()),
                ..parts.net(*net)
            },
            Self::NetNet(net, second) => parts.net(*net).second_net(*second),
            Self::NetPort(net, port) => parts.net(*net).port(*port),
            Self::NetPortNet(net, port, second) => parts.net(*net).port(*port).second_net(*second),
            Self::Port(port) => Parts {
                port: Some(*port),
                ..parts
            },
            Self::Set(name) => Parts {
                name: Some(name.clone()),
                ..parts
            },
            Self::Other(_) => parts,
        }
    }
}

/// The parts of an element: one attribute each.
#[derive(Clone, Default)]
pub(crate) struct Parts {
    pub(crate) ip: Option<IpAddr>,
    pub(crate) prefix: Option<u8>,
    pub(crate) port: Option<u16>,
    pub(crate) protocol: Option<Protocol>,
    pub(crate) mark: Option<u32>,
    pub(crate) mac: Option<MacAddr>,
    pub(crate) second: Option<IpAddr>,
    pub(crate) second_prefix: Option<u8>,
    pub(crate) interface: Option<Interface>,
    pub(crate) name: Option<Name>,
}

impl Parts {
    fn ip(self, ip: IpAddr) -> Self {
        Self {
            ip: Some(ip),
            ..self
        }
    }

    fn net(self, net: IpNet) -> Self {
        Self {
            prefix: Some(net.prefix_len()),
            ..self.ip(net.addr())
        }
    }

    fn port(self, port: Port) -> Self {
        Self {
            port: Some(port.number),
            protocol: Some(port.protocol),
            ..self
        }
    }

    fn second_net(self, net: IpNet) -> Self {
        Self {
            second: Some(net.addr()),
            second_prefix: Some(net.prefix_len()),
            ..self
        }
    }

    /// Returns these parts, completed from those of the first element of a range.
    ///
    /// The ends of a range of networks are addresses.
    pub(crate) fn or(self, first: &Self) -> Self {
        Self {
            ip: self.ip.or(first.ip),
            prefix: first.prefix.filter(|_| self.ip.is_none()),
            port: self.port.or(first.port),
            second: self.second.or(first.second),
            second_prefix: first.second_prefix.filter(|_| self.second.is_none()),
            ..first.clone()
        }
    }

    /// Builds the element for a set of this type.
    pub(crate) fn member(self, set_type: &SetType) -> Option<Member> {
        let port = || Some(Port::new(self.protocol?, self.port?));
        let net = || network(self.ip?, self.prefix);
        let second_net = || network(self.second?, self.second_prefix);
        Some(match set_type {
            SetType::BitmapIp | SetType::HashIp => Member::Ip(self.ip?),
            SetType::BitmapIpMac => Member::IpMac(self.ip?, self.mac),
            SetType::BitmapPort => Member::Port(self.port?),
            SetType::HashIpMac => Member::IpMac(self.ip?, Some(self.mac?)),
            SetType::HashIpMark => Member::IpMark(self.ip?, self.mark?),
            SetType::HashIpPort => Member::IpPort(self.ip?, port()?),
            SetType::HashIpPortIp => Member::IpPortIp(self.ip?, port()?, self.second?),
            SetType::HashIpPortNet => Member::IpPortNet(self.ip?, port()?, second_net()?),
            SetType::HashMac => Member::Mac(self.mac?),
            SetType::HashNet => Member::Net(net()?),
            SetType::HashNetIface => Member::NetIface(net()?, self.interface.clone()?),
            SetType::HashNetNet => Member::NetNet(net()?, second_net()?),
            SetType::HashNetPort => Member::NetPort(net()?, port()?),
            SetType::HashNetPortNet => Member::NetPortNet(net()?, port()?, second_net()?),
            SetType::ListSet => Member::Set(self.name.clone()?),
            SetType::Other(_) => return None,
        })
    }
}

/// Returns the network of an address; the default prefix is the full length.
fn network(ip: IpAddr, prefix: Option<u8>) -> Option<IpNet> {
    match prefix {
        Some(prefix) => IpNet::new(ip, prefix).ok().map(|net| net.trunc()),
        None => Some(IpNet::from(ip)),
    }
}
