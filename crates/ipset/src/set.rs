//! Sets: properties and their encoding.

use std::net::{IpAddr, Ipv4Addr};

use bitflags::bitflags;
use vipline_netlink::DecodeError;
use vipline_netlink::attr::{NLA_F_NET_BYTEORDER, put, put_u8};

use crate::uapi::*;
use crate::wire::{address, put_address, put_number, put_port, put_whole, whole_attributes};
use crate::{Entry, Name, SetFamily, SetType, SkbInfo};

/// Default `maxelem` of hash types.
const DEFAULT_MAXELEM: u32 = 65536;
/// Default `size` of list sets.
const DEFAULT_SIZE: u32 = 8;

bitflags! {
    /// Set flags: `enum ipset_cadt_flags` of `linux/netfilter/ipset/ip_set.h`.
    #[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
    pub struct SetFlags: u32 {
        /// Entries have packet and byte counters.
        #[doc(alias = "IPSET_FLAG_WITH_COUNTERS")]
        const COUNTERS = IPSET_FLAG_WITH_COUNTERS;
        /// Entries can have comments.
        #[doc(alias = "IPSET_FLAG_WITH_COMMENT")]
        const COMMENT = IPSET_FLAG_WITH_COMMENT;
        /// A full set evicts a random entry when one is added.
        #[doc(alias = "IPSET_FLAG_WITH_FORCEADD")]
        const FORCEADD = IPSET_FLAG_WITH_FORCEADD;
        /// Entries can have skbinfo: mark, priority and queue.
        #[doc(alias = "IPSET_FLAG_WITH_SKBINFO")]
        const SKBINFO = IPSET_FLAG_WITH_SKBINFO;
        /// Unknown flags are preserved.
        const _ = !0;
    }
}

/// The range of a bitmap set, both ends included.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Range {
    /// An address range.
    Addrs(Ipv4Addr, Ipv4Addr),
    /// A port range.
    Ports(u16, u16),
}

/// A set without its entries.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Set {
    /// Name.
    pub name: Name,
    /// Set type.
    pub set_type: SetType,
    /// Address family.
    pub family: SetFamily,
    /// Revision of the set type. Default: that of Linux 5.5, which supports all options
    /// except `bitmask`, `bucketsize`, `initval`, and `netmask` of types other than
    /// `hash:ip` and `bitmap:ip`.
    ///
    /// These options need the newest revision that the kernel supports.
    /// The [client](crate::Client) queries that revision. Callers with their own
    /// socket must set the revision.
    pub revision: Option<u8>,
    /// Range of a bitmap type.
    pub range: Option<Range>,
    /// Initial number of hash buckets; the kernel grows the hash table. `None` for the
    /// kernel's default.
    pub hashsize: Option<u32>,
    /// Maximum number of entries of a hash type. Default: 65536.
    pub maxelem: Option<u32>,
    /// Size of a list set. Default: 8. The kernel does not enforce the size.
    pub size: Option<u32>,
    /// Prefix length to which addresses are truncated. Types other than `hash:ip` and
    /// `bitmap:ip` require Linux 6.2.
    pub netmask: Option<u8>,
    /// Mask of the addresses; `None` stores whole addresses. Requires Linux 6.2.
    ///
    /// Exclusive with `netmask`.
    pub bitmask: Option<IpAddr>,
    /// Mask of the packet marks of `hash:ip,mark`; `None` for all bits.
    pub markmask: Option<u32>,
    /// Default timeout of entries, in seconds; 0 means no timeout.
    /// `None` if the set does not support timeouts.
    pub timeout: Option<u32>,
    /// Extensions that entries can have, and `forceadd`.
    pub flags: SetFlags,
    /// Maximum number of entries per hash bucket; `None` for the kernel's default.
    pub bucketsize: Option<u8>,
    /// Initial value of the hash function; `None` for a random value.
    pub initval: Option<u32>,
    /// Unknown attributes, as dumped by the kernel.
    pub unknown_attributes: Box<[u8]>,
}

impl Set {
    /// Creates a set with default properties.
    ///
    /// Types with only one family ignore `family`.
    /// A bitmap type also needs a [`range`](Self::range).
    ///
    /// ```
    /// use vipline_ipset::{SetFamily, SetType, Name, Set};
    ///
    /// let set = Set::new(Name::new("blocked")?, SetType::HashNet, SetFamily::V6)
    ///     .with_timeout(600)
    ///     .with_maxelem(1000);
    /// assert_eq!(
    ///     set.to_string(),
    ///     "create blocked hash:net family inet6 maxelem 1000 timeout 600"
    /// );
    /// # Ok::<(), vipline_ipset::InvalidName>(())
    /// ```
    pub fn new(name: Name, set_type: SetType, family: SetFamily) -> Self {
        Self {
            family: set_type.family().unwrap_or(family),
            name,
            set_type,
            revision: None,
            range: None,
            hashsize: None,
            maxelem: None,
            size: None,
            netmask: None,
            bitmask: None,
            markmask: None,
            timeout: None,
            flags: SetFlags::empty(),
            bucketsize: None,
            initval: None,
            unknown_attributes: Box::default(),
        }
    }

    /// Sets the revision of the set type, for callers with their own socket.
    #[must_use]
    pub fn with_revision(mut self, revision: u8) -> Self {
        self.revision = Some(revision);
        self
    }

    /// Sets the range of a bitmap type.
    #[must_use]
    pub fn with_range(mut self, range: Range) -> Self {
        self.range = Some(range);
        self
    }

    /// Sets the initial number of hash buckets.
    #[must_use]
    pub fn with_hashsize(mut self, buckets: u32) -> Self {
        self.hashsize = Some(buckets);
        self
    }

    /// Sets the maximum number of entries of a hash type.
    #[must_use]
    pub fn with_maxelem(mut self, entries: u32) -> Self {
        self.maxelem = Some(entries);
        self
    }

    /// Sets the size of a list set.
    #[must_use]
    pub fn with_size(mut self, size: u32) -> Self {
        self.size = Some(size);
        self
    }

    /// Truncates addresses to this prefix length.
    #[must_use]
    pub fn with_netmask(mut self, prefix_len: u8) -> Self {
        self.netmask = Some(prefix_len);
        self
    }

    /// Sets the mask of the addresses. Exclusive with [`netmask`](Self::netmask).
    ///
    /// Requires Linux 6.2.
    #[must_use]
    pub fn with_bitmask(mut self, mask: IpAddr) -> Self {
        self.bitmask = Some(mask);
        self
    }

    /// Sets the mask of the packet marks of `hash:ip,mark`.
    #[must_use]
    pub fn with_markmask(mut self, mask: u32) -> Self {
        self.markmask = Some(mask);
        self
    }

    /// Sets the default timeout of entries, in seconds; 0 means no timeout by default.
    #[must_use]
    pub fn with_timeout(mut self, seconds: u32) -> Self {
        self.timeout = Some(seconds);
        self
    }

    /// Adds flags: extensions that entries can have, and `forceadd`.
    #[must_use]
    pub fn with_flags(mut self, flags: SetFlags) -> Self {
        self.flags |= flags;
        self
    }

    /// Sets the maximum number of entries per hash bucket.
    #[must_use]
    pub fn with_bucketsize(mut self, entries: u8) -> Self {
        self.bucketsize = Some(entries);
        self
    }

    /// Sets the initial value of the hash function.
    #[must_use]
    pub fn with_initval(mut self, value: u32) -> Self {
        self.initval = Some(value);
        self
    }

    /// Returns whether both sets have the same properties, except name, revision,
    /// `hashsize`, `bucketsize` and `initval`.
    pub fn is_equivalent(&self, other: &Self) -> bool {
        let essence = |set: &Self| {
            (
                set.family,
                set.range,
                set.set_type
                    .is_hash()
                    .then(|| set.maxelem.unwrap_or(DEFAULT_MAXELEM)),
                (set.set_type == SetType::ListSet).then(|| set.size.unwrap_or(DEFAULT_SIZE)),
                (set.netmask, set.bitmask),
                set.markmask.filter(|mask| *mask != u32::MAX),
                set.timeout,
                set.flags,
            )
        };
        self.set_type == other.set_type
            && essence(self) == essence(other)
            && self.unknown_attributes == other.unknown_attributes
    }

    /// Converts an entry of another set to an entry of this set, if its element
    /// fits.
    ///
    /// Extensions that this set does not support are dropped.
    pub fn admit(&self, mut entry: Entry) -> Option<Entry> {
        if !entry.member.fits(&self.set_type) {
            return None;
        }
        if entry
            .member
            .family()
            .is_some_and(|family| family != self.family)
        {
            return None;
        }
        entry.set = self.name.clone();
        entry.timeout = entry.timeout.filter(|_| self.timeout.is_some());
        let keeps = |flag| self.flags.contains(flag);
        entry.counters = entry.counters.filter(|_| keeps(SetFlags::COUNTERS));
        entry.comment = entry.comment.filter(|_| keeps(SetFlags::COMMENT));
        if !keeps(SetFlags::SKBINFO) {
            entry.skbinfo = SkbInfo::default();
        }
        Some(entry)
    }

    /// Returns the revision with which the set is created.
    pub(crate) fn revision(&self) -> u8 {
        self.revision.unwrap_or_else(|| self.set_type.revision())
    }

    /// Returns whether the options need the newest revision of the type.
    pub(crate) fn needs_newest_revision(&self) -> bool {
        let newest = [
            self.bucketsize.is_some(),
            self.initval.is_some(),
            self.bitmask.is_some(),
        ];
        let has_netmask =
            self.netmask.is_some() && !matches!(self.set_type, SetType::HashIp | SetType::BitmapIp);
        self.revision.is_none() && (newest.contains(&true) || has_netmask)
    }

    /// Returns the first revision with the masks of the set.
    pub(crate) fn required_revision(&self) -> u8 {
        let has_mask = self.bitmask.is_some() || self.netmask.is_some();
        match self.set_type {
            SetType::HashIp if self.bitmask.is_some() => 6,
            SetType::HashIpPort if has_mask => 7,
            SetType::HashNetNet if has_mask => 4,
            _ => 0,
        }
    }

    /// Appends the attributes nested in `IPSET_ATTR_DATA`.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self.range {
            Some(Range::Addrs(from, to)) => {
                put_address(out, IPSET_ATTR_IP, from.into());
                put_address(out, IPSET_ATTR_IP_TO, to.into());
            }
            Some(Range::Ports(from, to)) => {
                put_port(out, IPSET_ATTR_PORT, from);
                put_port(out, IPSET_ATTR_PORT_TO, to);
            }
            None => {}
        }
        let numbers = [
            (IPSET_ATTR_HASHSIZE, self.hashsize),
            (IPSET_ATTR_MAXELEM, self.maxelem),
            (IPSET_ATTR_SIZE, self.size),
            (IPSET_ATTR_TIMEOUT, self.timeout),
            (IPSET_ATTR_MARKMASK, self.markmask),
            (IPSET_ATTR_INITVAL, self.initval),
        ];
        for (kind, number) in numbers {
            if let Some(number) = number {
                put_number(out, kind, number);
            }
        }
        for (kind, byte) in [
            (IPSET_ATTR_NETMASK, self.netmask),
            (IPSET_ATTR_BUCKETSIZE, self.bucketsize),
        ] {
            if let Some(byte) = byte {
                put_u8(out, kind, byte);
            }
        }
        if let Some(bitmask) = self.bitmask {
            put_address(out, IPSET_ATTR_BITMASK, bitmask);
        }
        if !self.flags.is_empty() {
            put(
                out,
                IPSET_ATTR_CADT_FLAGS | NLA_F_NET_BYTEORDER,
                &self.flags.bits().to_be_bytes(),
            );
        }
        out.extend_from_slice(&self.unknown_attributes);
    }

    /// Decodes the attributes nested in `IPSET_ATTR_DATA` into a new set.
    pub(crate) fn decode(&mut self, data: &[u8], usage: &mut Usage) -> Result<(), DecodeError> {
        let (mut others, mut addresses, mut ports) = (Vec::new(), [None; 2], [None; 2]);
        for item in whole_attributes(data) {
            let (bytes, attr) = item?;
            match attr.kind {
                IPSET_ATTR_IP if self.set_type.has_address_range() => {
                    addresses[0] = Some(address(&attr)?)
                }
                IPSET_ATTR_IP_TO if self.set_type.has_address_range() => {
                    addresses[1] = Some(address(&attr)?)
                }
                IPSET_ATTR_PORT if self.set_type == SetType::BitmapPort => {
                    ports[0] = Some(attr.be16()?)
                }
                IPSET_ATTR_PORT_TO if self.set_type == SetType::BitmapPort => {
                    ports[1] = Some(attr.be16()?)
                }
                IPSET_ATTR_TIMEOUT => self.timeout = Some(attr.be32()?),
                IPSET_ATTR_CADT_FLAGS => self.flags = SetFlags::from_bits_retain(attr.be32()?),
                IPSET_ATTR_INITVAL => self.initval = Some(attr.be32()?),
                IPSET_ATTR_HASHSIZE => self.hashsize = Some(attr.be32()?),
                IPSET_ATTR_MAXELEM => self.maxelem = Some(attr.be32()?),
                IPSET_ATTR_SIZE => self.size = Some(attr.be32()?),
                IPSET_ATTR_NETMASK => self.netmask = Some(attr.u8()?),
                IPSET_ATTR_BITMASK => self.bitmask = Some(address(&attr)?),
                // The kernel dumps this number in host byte order, without the flag.
                IPSET_ATTR_MARKMASK if is_net(bytes) => self.markmask = Some(attr.be32()?),
                IPSET_ATTR_MARKMASK => self.markmask = Some(attr.u32()?),
                IPSET_ATTR_BUCKETSIZE => self.bucketsize = Some(attr.u8()?),
                IPSET_ATTR_ELEMENTS => usage.entries = attr.be32()?,
                IPSET_ATTR_REFERENCES => usage.references = attr.be32()?,
                IPSET_ATTR_MEMSIZE => usage.memory = attr.be32()?,
                _ => put_whole(&mut others, bytes),
            }
        }
        self.range = match (addresses, ports) {
            ([Some(IpAddr::V4(from)), Some(IpAddr::V4(to))], _) => Some(Range::Addrs(from, to)),
            (_, [Some(from), Some(to)]) => Some(Range::Ports(from, to)),
            _ => None,
        };
        self.unknown_attributes = others.into();
        Ok(())
    }
}

/// Returns whether an attribute, header included, has `NLA_F_NET_BYTEORDER`.
fn is_net(bytes: &[u8]) -> bool {
    let kind = bytes.get(2..4).and_then(|kind| kind.try_into().ok());
    kind.is_some_and(|kind| u16::from_ne_bytes(kind) & NLA_F_NET_BYTEORDER != 0)
}

/// Resource usage of a set.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Usage {
    /// Number of rules and lists that use the set.
    pub references: u32,
    /// Memory, in bytes.
    pub memory: u32,
    /// Number of entries. 0 on old kernels, which do not report it.
    pub entries: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_markmask_is_in_host_byte_order_unless_flagged() {
        for (kind, value) in [
            (
                IPSET_ATTR_MARKMASK | NLA_F_NET_BYTEORDER,
                0xff_u32.to_be_bytes(),
            ),
            (IPSET_ATTR_MARKMASK, 0xff_u32.to_ne_bytes()),
        ] {
            let mut data = Vec::new();
            put(&mut data, kind, &value);
            let name = Name::new("a").unwrap();
            let mut set = Set::new(name, SetType::HashIpMark, SetFamily::V4);
            set.decode(&data, &mut Usage::default()).unwrap();
            assert_eq!(set.markmask, Some(0xff));
        }
    }
}
