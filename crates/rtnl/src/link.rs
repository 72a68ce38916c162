//! Links: network interfaces.

use std::fmt;

use bitflags::bitflags;
use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attr, Attrs, nest, put};

use crate::Name;
use crate::uapi::*;

/// Length of `struct ifinfomsg` of `linux/rtnetlink.h`, in bytes.
const HEADER: usize = 16;

/// A link: a network interface.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct Link {
    /// Name.
    pub name: Name,
    /// Link type.
    pub kind: Kind,
    /// Interface index; 0 if unknown.
    pub index: u32,
    /// Flags of the kernel; no command sets them.
    pub flags: LinkFlags,
}

impl Link {
    /// Creates a link with an unknown index.
    pub fn new(name: Name, kind: Kind) -> Self {
        Self {
            name,
            kind,
            index: 0,
            flags: LinkFlags::empty(),
        }
    }

    /// Creates a dummy link with an unknown index.
    pub fn dummy(name: Name) -> Self {
        Self::new(name, Kind::Dummy)
    }

    /// Sets the interface index, as in a dump.
    #[must_use]
    pub fn with_index(mut self, index: u32) -> Self {
        self.index = index;
        self
    }

    /// Adds flags, as in a dump.
    #[must_use]
    pub fn with_flags(mut self, flags: LinkFlags) -> Self {
        self.flags |= flags;
        self
    }

    /// Returns whether the link is up.
    pub fn is_up(&self) -> bool {
        self.flags.contains(LinkFlags::UP)
    }

    /// Appends the payload of the message that creates the link.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        Self::encode_name(&self.name, out);
        if let Some(kind) = self.kind.name() {
            nest(out, IFLA_LINKINFO, |out| {
                put(out, IFLA_INFO_KIND, kind.as_bytes())
            });
        }
    }

    /// Appends the payload of a message that identifies a link by its name.
    pub(crate) fn encode_name(name: &Name, out: &mut Vec<u8>) {
        Self::encode_index(0, out);
        let bytes = [name.as_bytes(), &[0]].concat();
        put(out, IFLA_IFNAME, &bytes);
    }

    /// Appends the header of a message that identifies a link by its index.
    pub(crate) fn encode_index(index: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&index.to_ne_bytes());
        out.extend_from_slice(&[0; 8]);
    }

    /// Decodes the payload of a message about a link.
    pub(crate) fn decode(payload: &[u8]) -> Result<Self, DecodeError> {
        let no_link = || DecodeError::new("link", 0, payload.len());
        let (header, attrs) = payload.split_first_chunk::<HEADER>().ok_or_else(no_link)?;
        // Family, type and padding; index; flags; mask of flags.
        let [_, _, _, _, i0, i1, i2, i3, f0, f1, f2, f3, ..] = *header;
        let (mut name, mut kind) = (None, Kind::Device);
        for attr in Attrs::new(attrs) {
            let attr = attr?;
            match attr.kind {
                IFLA_IFNAME => {
                    let decoded = Name::from_kernel(attr.value);
                    name = Some(decoded.ok_or_else(|| attr.error("interface name"))?);
                }
                IFLA_LINKINFO => kind = Kind::decode(&attr)?,
                _ => {}
            }
        }
        Ok(Self {
            name: name.ok_or_else(no_link)?,
            kind,
            index: u32::from_ne_bytes([i0, i1, i2, i3]),
            flags: LinkFlags::from_bits_retain(u32::from_ne_bytes([f0, f1, f2, f3])),
        })
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)?;
        match self.kind.name() {
            Some(kind) => write!(f, " type {kind}"),
            None => Ok(()),
        }
    }
}

/// Type of a link.
///
/// Exhaustive: `Other` holds all other values.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Kind {
    /// `dummy`: drops all packets sent through the link.
    Dummy,
    /// Another link type, such as `bridge` or `veth`.
    Other(Box<str>),
    /// A device without a link type: the loopback device, or hardware.
    Device,
}

impl Kind {
    /// Returns the name of the link type.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Dummy => Some("dummy"),
            Self::Other(name) => Some(name),
            Self::Device => None,
        }
    }

    /// Decodes `IFLA_LINKINFO`.
    fn decode(info: &Attr<'_>) -> Result<Self, DecodeError> {
        for attr in info.attrs() {
            let attr = attr?;
            if attr.kind == IFLA_INFO_KIND {
                return Ok(attr.str()?.into());
            }
        }
        Ok(Self::Device)
    }
}

impl From<&str> for Kind {
    fn from(name: &str) -> Self {
        match name {
            "dummy" => Self::Dummy,
            other => Self::Other(other.into()),
        }
    }
}

bitflags! {
    /// Flags of a link (`IFF_*` of `linux/if.h`).
    #[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
    pub struct LinkFlags: u32 {
        /// The link is administratively up.
        #[doc(alias = "IFF_UP")]
        const UP = IFF_UP;
        /// The link is a loopback device.
        #[doc(alias = "IFF_LOOPBACK")]
        const LOOPBACK = IFF_LOOPBACK;
        /// The link is operational.
        #[doc(alias = "IFF_RUNNING")]
        const RUNNING = IFF_RUNNING;
        /// The link uses no ARP.
        #[doc(alias = "IFF_NOARP")]
        const NO_ARP = IFF_NOARP;
        /// The link has a carrier. [`RUNNING`](Self::RUNNING) follows it with a delay.
        #[doc(alias = "IFF_LOWER_UP")]
        const LOWER_UP = IFF_LOWER_UP;
        /// Unknown flags are preserved.
        const _ = !0;
    }
}
