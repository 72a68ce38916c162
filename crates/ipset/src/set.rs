//! Sets: their properties, and how the kernel is told of them.

use std::net::{IpAddr, Ipv4Addr};

use bitflags::bitflags;
use vipline_netlink::DecodeError;
use vipline_netlink::attr::{put, put_u8};

use crate::wire::{NET, address, put_address, put_number, put_port, put_whole, whole_attributes};
use crate::{Entry, Family, Name, SetType};

// `linux/netfilter/ipset/ip_set.h`, attributes of a set.
const IP: u16 = 1;
const IP_TO: u16 = 2;
const PORT: u16 = 4;
const PORT_TO: u16 = 5;
const TIMEOUT: u16 = 6;
const CADT_FLAGS: u16 = 8;
const INITVAL: u16 = 17;
const HASHSIZE: u16 = 18;
const MAXELEM: u16 = 19;
const NETMASK: u16 = 20;
const BUCKETSIZE: u16 = 21;
const SIZE: u16 = 23;
const ELEMENTS: u16 = 24;
const REFERENCES: u16 = 25;
const MEMSIZE: u16 = 26;

/// How many entries a hash holds unless told otherwise.
const DEFAULT_MAXELEM: u32 = 65536;
/// How many sets a list is meant for unless told otherwise.
const DEFAULT_SIZE: u32 = 8;

bitflags! {
    /// What a set keeps of its entries, and how: `enum ipset_cadt_flags` of
    /// `linux/netfilter/ipset/ip_set.h`.
    #[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
    pub struct SetFlags: u32 {
        /// Packets and bytes are counted for each entry.
        #[doc(alias = "IPSET_FLAG_WITH_COUNTERS")]
        const COUNTERS = 1 << 3;
        /// Entries may have comments.
        #[doc(alias = "IPSET_FLAG_WITH_COMMENT")]
        const COMMENT = 1 << 4;
        /// A full set makes room by losing entries by chance.
        #[doc(alias = "IPSET_FLAG_WITH_FORCEADD")]
        const FORCEADD = 1 << 5;
        /// Entries may have marks, priorities and queues for packets.
        #[doc(alias = "IPSET_FLAG_WITH_SKBINFO")]
        const SKBINFO = 1 << 6;
        /// Other flags are kept as they are.
        const _ = !0;
    }
}

/// What the entries of a bitmap can be, both ends included.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Range {
    /// Addresses.
    Addrs(Ipv4Addr, Ipv4Addr),
    /// Ports.
    Ports(u16, u16),
}

/// A set, without its entries.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Set {
    /// Its name.
    pub name: Name,
    /// Its type.
    pub set_type: SetType,
    /// The family of the addresses in it.
    pub family: Family,
    /// The revision of the type; without it, one that has the options used.
    ///
    /// The size of buckets and what a hash begins with need the newest that the
    /// kernel has: the [client](crate::Client) asks for it, others have to.
    pub revision: Option<u8>,
    /// The range of a bitmap.
    pub range: Option<Range>,
    /// How many buckets a hash has; the kernel grows it.
    pub hashsize: Option<u32>,
    /// How many entries a hash holds at most; 65536 unless told.
    pub maxelem: Option<u32>,
    /// How many entries a list is meant for, 8 unless told; the kernel lets it
    /// grow beyond.
    pub size: Option<u32>,
    /// The prefix length of the networks that addresses are kept as.
    pub netmask: Option<u8>,
    /// How long entries stay unless they say otherwise, in seconds; without
    /// it, no entry has a time of its own.
    pub timeout: Option<u32>,
    /// What is kept of entries.
    pub flags: SetFlags,
    /// How many entries a bucket of a hash holds.
    pub bucketsize: Option<u8>,
    /// What a hash begins with.
    pub initval: Option<u32>,
    /// Attributes that are not known here, as the kernel has them.
    pub unknown_attributes: Box<[u8]>,
}

impl Set {
    /// Returns a set with the properties that the kernel gives by itself.
    ///
    /// Types that know but one family have that one.
    /// A bitmap needs a [`range`](Self::range) besides.
    ///
    /// ```
    /// use vipline_ipset::{Family, SetType, Name, Set};
    ///
    /// let set = Set::new(Name::new("blocked")?, SetType::HashNet, Family::V6);
    /// assert_eq!(set.to_string(), "create blocked hash:net family inet6");
    /// # Ok::<(), vipline_ipset::InvalidName>(())
    /// ```
    pub fn new(name: Name, set_type: SetType, family: Family) -> Self {
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
            timeout: None,
            flags: SetFlags::empty(),
            bucketsize: None,
            initval: None,
            unknown_attributes: Box::default(),
        }
    }

    /// Tells whether both do the same, whatever their size, revision and
    /// beginning are at present.
    pub fn is_equivalent(&self, other: &Self) -> bool {
        let essence = |set: &Self| {
            (
                set.family,
                set.range,
                set.set_type
                    .is_hash()
                    .then(|| set.maxelem.unwrap_or(DEFAULT_MAXELEM)),
                (set.set_type == SetType::ListSet).then(|| set.size.unwrap_or(DEFAULT_SIZE)),
                set.netmask,
                set.timeout,
                set.flags,
            )
        };
        self.set_type == other.set_type
            && essence(self) == essence(other)
            && self.unknown_attributes == other.unknown_attributes
    }

    /// Returns an entry of another set as this one can have it, if it can.
    ///
    /// What this set does not keep of entries is left out.
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
            entry.unknown_attributes = Box::default();
        }
        Some(entry)
    }

    /// Returns the revision that the set is made with.
    pub(crate) fn revision(&self) -> u8 {
        self.revision.unwrap_or_else(|| self.set_type.revision())
    }

    /// Tells whether only the newest revision of the type has all the options.
    pub(crate) fn needs_newest_revision(&self) -> bool {
        self.revision.is_none() && (self.bucketsize.is_some() || self.initval.is_some())
    }

    /// Appends the attributes inside of `IPSET_ATTR_DATA`.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self.range {
            Some(Range::Addrs(from, to)) => {
                put_address(out, IP, from.into());
                put_address(out, IP_TO, to.into());
            }
            Some(Range::Ports(from, to)) => {
                put_port(out, PORT, from);
                put_port(out, PORT_TO, to);
            }
            None => {}
        }
        let numbers = [
            (HASHSIZE, self.hashsize),
            (MAXELEM, self.maxelem),
            (SIZE, self.size),
            (TIMEOUT, self.timeout),
            (INITVAL, self.initval),
        ];
        for (kind, number) in numbers {
            if let Some(number) = number {
                put_number(out, kind, number);
            }
        }
        for (kind, byte) in [(NETMASK, self.netmask), (BUCKETSIZE, self.bucketsize)] {
            if let Some(byte) = byte {
                put_u8(out, kind, byte);
            }
        }
        if !self.flags.is_empty() {
            put(out, CADT_FLAGS | NET, &self.flags.bits().to_be_bytes());
        }
        out.extend_from_slice(&self.unknown_attributes);
    }

    /// Reads the attributes inside of `IPSET_ATTR_DATA` into a new set.
    pub(crate) fn decode(&mut self, data: &[u8], usage: &mut Usage) -> Result<(), DecodeError> {
        let (mut others, mut addresses, mut ports) = (Vec::new(), [None; 2], [None; 2]);
        for item in whole_attributes(data) {
            let (bytes, attr) = item?;
            match attr.kind {
                IP if self.set_type == SetType::BitmapIp => addresses[0] = Some(address(&attr)?),
                IP_TO if self.set_type == SetType::BitmapIp => addresses[1] = Some(address(&attr)?),
                PORT if self.set_type == SetType::BitmapPort => ports[0] = Some(attr.be16()?),
                PORT_TO if self.set_type == SetType::BitmapPort => ports[1] = Some(attr.be16()?),
                TIMEOUT => self.timeout = Some(attr.be32()?),
                CADT_FLAGS => self.flags = SetFlags::from_bits_retain(attr.be32()?),
                INITVAL => self.initval = Some(attr.be32()?),
                HASHSIZE => self.hashsize = Some(attr.be32()?),
                MAXELEM => self.maxelem = Some(attr.be32()?),
                SIZE => self.size = Some(attr.be32()?),
                NETMASK => self.netmask = Some(attr.u8()?),
                BUCKETSIZE => self.bucketsize = Some(attr.u8()?),
                ELEMENTS => usage.entries = attr.be32()?,
                REFERENCES => usage.references = attr.be32()?,
                MEMSIZE => usage.memory = attr.be32()?,
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

/// What a set takes at present.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Usage {
    /// How many rules and lists use it.
    pub references: u32,
    /// How many bytes of memory it takes.
    pub memory: u32,
    /// How many entries it has; old kernels do not tell.
    pub entries: u32,
}
