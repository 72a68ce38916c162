//! Objects of the four kernel subsystems, and their keys.

use std::fmt;

use vipline_reconcile::Keyed;
use {
    vipline_ipset as ipset, vipline_iptables as iptables, vipline_ipvs as ipvs,
    vipline_rtnl as rtnl,
};

/// An object of one of the four kernel subsystems.
///
/// Exhaustive: these are the kinds of objects that mode ipvs programs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Object {
    /// A set or a set entry.
    Set(ipset::Object),
    /// A chain or a rule.
    Rule(iptables::Object),
    /// A virtual server or a real server.
    Server(ipvs::Object),
    /// The dummy link or an address on it.
    Address(rtnl::Object),
}

/// Key of an [`Object`], with the key of its subsystem.
///
/// Exhaustive: each kind of object has one key.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Key<'a> {
    /// A set or a set entry.
    Set(<ipset::Object as Keyed>::Key<'a>),
    /// A chain or a rule.
    Rule(<iptables::Object as Keyed>::Key<'a>),
    /// A virtual server or a real server.
    Server(<ipvs::Object as Keyed>::Key<'a>),
    /// The dummy link or an address on it.
    Address(<rtnl::Object as Keyed>::Key<'a>),
}

impl Object {
    pub(super) fn set(&self) -> Option<&ipset::Object> {
        match self {
            Self::Set(object) => Some(object),
            _ => None,
        }
    }

    pub(super) fn rule(&self) -> Option<&iptables::Object> {
        match self {
            Self::Rule(object) => Some(object),
            _ => None,
        }
    }

    pub(super) fn server(&self) -> Option<&ipvs::Object> {
        match self {
            Self::Server(object) => Some(object),
            _ => None,
        }
    }

    pub(super) fn address(&self) -> Option<&rtnl::Object> {
        match self {
            Self::Address(object) => Some(object),
            _ => None,
        }
    }
}

impl Keyed for Object {
    type Key<'a> = Key<'a>;

    fn key(&self) -> Key<'_> {
        match self {
            Self::Set(object) => Key::Set(object.key()),
            Self::Rule(object) => Key::Rule(object.key()),
            Self::Server(object) => Key::Server(object.key()),
            Self::Address(object) => Key::Address(object.key()),
        }
    }

    fn is_equivalent(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Set(one), Self::Set(other)) => one.is_equivalent(other),
            (Self::Rule(one), Self::Rule(other)) => one.is_equivalent(other),
            (Self::Server(one), Self::Server(other)) => one.is_equivalent(other),
            (Self::Address(one), Self::Address(other)) => one.is_equivalent(other),
            _ => false,
        }
    }
}

impl From<ipset::Object> for Object {
    fn from(object: ipset::Object) -> Self {
        Self::Set(object)
    }
}

impl From<iptables::Object> for Object {
    fn from(object: iptables::Object) -> Self {
        Self::Rule(object)
    }
}

impl From<ipvs::Object> for Object {
    fn from(object: ipvs::Object) -> Self {
        Self::Server(object)
    }
}

impl From<rtnl::Object> for Object {
    fn from(object: rtnl::Object) -> Self {
        Self::Address(object)
    }
}

/// Displays as input of the subsystem's tool.
impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Set(ipset::Object::Set(set)) => write!(f, "create {set}"),
            Self::Set(ipset::Object::Entry(entry)) => write!(f, "add {entry}"),
            Self::Rule(iptables::Object::Chain(chain)) => {
                write!(f, "-t {} -N {}", chain.table, chain.name)
            }
            Self::Rule(iptables::Object::SharedRule(entry)) => {
                write!(f, "-t {} -A {} {}", entry.table, entry.chain, entry.rule)
            }
            Self::Server(ipvs::Object::VirtualServer(server)) => write!(f, "-A {server}"),
            Self::Server(ipvs::Object::Destination(service, real)) => {
                write!(f, "-a {service} {real}")
            }
            Self::Address(rtnl::Object::Link(link)) => write!(f, "link add {link}"),
            Self::Address(rtnl::Object::Address(address)) => write!(f, "address add {address}"),
            Self::Set(_) => f.write_str("what is in no set"),
        }
    }
}
