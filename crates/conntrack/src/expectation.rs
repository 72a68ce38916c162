//! Expectations: related flows that conntrack helpers expect.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attrs, put, put_be16, put_be32, put_str};

use crate::uapi::*;
use crate::{Layer4, Other, Tuple, wire};

/// An expectation: a related flow that a conntrack helper expects.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct Expectation {
    /// Original tuple of the master flow.
    pub master: Tuple,
    /// Original tuple of the expected flow.
    pub tuple: Tuple,
    /// Bits of `tuple` that the expected flow must match.
    pub mask: Tuple,
    /// Remaining lifetime, in seconds.
    pub timeout: Option<u32>,
    /// ID of the expectation.
    pub id: Option<u32>,
    /// Name of the helper.
    pub helper: Option<Box<str>>,
    /// Conntrack zone, if not 0.
    pub zone: Option<u16>,
    /// Flags (`NF_CT_EXPECT_*`).
    pub flags: Option<u32>,
    /// Class, defined by the helper.
    pub class: Option<u32>,
    /// Name of the `expectfn`, which the kernel calls for the expected flow.
    pub function: Option<Box<str>>,
    /// Unknown attributes.
    pub other: Vec<Other>,
}

impl Expectation {
    /// Decodes the payload of a message.
    ///
    /// # Errors
    ///
    /// The payload is malformed or lacks a tuple.
    pub fn decode(payload: &[u8]) -> Result<Self, DecodeError> {
        let (mut master, mut tuple, mut mask) = (None, None, None);
        let (mut timeout, mut id, mut helper, mut zone) = (None, None, None, None);
        let (mut flags, mut class, mut function, mut other) = (None, None, None, Vec::new());
        for attr in Attrs::new(wire::attributes(payload)?) {
            let attr = attr?;
            match attr.kind {
                CTA_EXPECT_MASTER => master = Some(Tuple::decode(attr)?),
                CTA_EXPECT_TUPLE => tuple = Some(Tuple::decode(attr)?),
                CTA_EXPECT_MASK => mask = Some(Tuple::decode(attr)?),
                CTA_EXPECT_TIMEOUT => timeout = Some(attr.be32()?),
                CTA_EXPECT_ID => id = Some(attr.be32()?),
                CTA_EXPECT_HELP_NAME => helper = Some(attr.str()?.into()),
                CTA_EXPECT_ZONE => zone = Some(attr.be16()?),
                CTA_EXPECT_FLAGS => flags = Some(attr.be32()?),
                CTA_EXPECT_CLASS => class = Some(attr.be32()?),
                CTA_EXPECT_FN => function = Some(attr.str()?.into()),
                kind => other.push(Other {
                    kind,
                    value: attr.value.to_vec(),
                }),
            }
        }
        let missing = |kind| move || DecodeError::new("expectation with all tuples", kind, 0);
        Ok(Self {
            master: master.ok_or_else(missing(CTA_EXPECT_MASTER))?,
            tuple: tuple.ok_or_else(missing(CTA_EXPECT_TUPLE))?,
            mask: mask.ok_or_else(missing(CTA_EXPECT_MASK))?,
            timeout,
            id,
            helper,
            zone,
            flags,
            class,
            function,
            other,
        })
    }

    /// Creates an expectation of flows with this tuple, of which all fields must match.
    ///
    /// The kernel requires a timeout, and a helper of the master flow.
    pub fn new(master: Tuple, tuple: Tuple) -> Self {
        Self {
            master,
            tuple,
            mask: exact(&tuple),
            timeout: None,
            id: None,
            helper: None,
            zone: None,
            flags: None,
            class: None,
            function: None,
            other: Vec::new(),
        }
    }

    /// Sets the bits of the tuple that the expected flow must match.
    #[must_use]
    pub fn with_mask(mut self, mask: Tuple) -> Self {
        self.mask = mask;
        self
    }

    /// Sets the lifetime, in seconds.
    #[must_use]
    pub fn with_timeout(mut self, seconds: u32) -> Self {
        self.timeout = Some(seconds);
        self
    }

    /// Sets the name of the helper.
    #[must_use]
    pub fn with_helper(mut self, name: impl Into<Box<str>>) -> Self {
        self.helper = Some(name.into());
        self
    }

    /// Sets the zone; 0 is the default zone.
    #[must_use]
    pub fn with_zone(mut self, zone: u16) -> Self {
        self.zone = Some(zone).filter(|zone| *zone != 0);
        self
    }

    /// Adds flags (`NF_CT_EXPECT_*`).
    #[must_use]
    pub fn with_flags(mut self, flags: u32) -> Self {
        self.flags = Some(self.flags.unwrap_or(0) | flags);
        self
    }

    /// Sets the class, which the helper defines.
    #[must_use]
    pub fn with_class(mut self, class: u32) -> Self {
        self.class = Some(class);
        self
    }

    /// Sets the name of the `expectfn`.
    #[must_use]
    pub fn with_function(mut self, name: impl Into<Box<str>>) -> Self {
        self.function = Some(name.into());
        self
    }

    /// Appends the payload of a message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        wire::put_header(out, self.tuple.family().number(), 0);
        self.master.encode(out, CTA_EXPECT_MASTER);
        self.tuple.encode(out, CTA_EXPECT_TUPLE);
        self.mask.encode(out, CTA_EXPECT_MASK);
        for (kind, number) in [
            (CTA_EXPECT_TIMEOUT, self.timeout),
            (CTA_EXPECT_ID, self.id),
            (CTA_EXPECT_FLAGS, self.flags),
            (CTA_EXPECT_CLASS, self.class),
        ] {
            if let Some(number) = number {
                put_be32(out, kind, number);
            }
        }
        for (kind, text) in [
            (CTA_EXPECT_HELP_NAME, &self.helper),
            (CTA_EXPECT_FN, &self.function),
        ] {
            if let Some(text) = text {
                put_str(out, kind, text);
            }
        }
        if let Some(zone) = self.zone {
            put_be16(out, CTA_EXPECT_ZONE, zone);
        }
        for Other { kind, value } in &self.other {
            put(out, *kind, value);
        }
    }

    /// Appends the payload of a deletion: the tuple, the zone and the ID.
    pub(crate) fn encode_key(&self, out: &mut Vec<u8>) {
        wire::put_header(out, self.tuple.family().number(), 0);
        self.tuple.encode(out, CTA_EXPECT_TUPLE);
        if let Some(zone) = self.zone {
            put_be16(out, CTA_EXPECT_ZONE, zone);
        }
        if let Some(id) = self.id {
            put_be32(out, CTA_EXPECT_ID, id);
        }
    }
}

/// Returns a mask of all bits of a tuple.
fn exact(tuple: &Tuple) -> Tuple {
    let address = match tuple.source {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::BROADCAST),
        IpAddr::V6(_) => IpAddr::V6(u128::MAX.into()),
    };
    let layer4 = match tuple.layer4 {
        Layer4::Ports { .. } => Layer4::Ports {
            source: u16::MAX,
            destination: u16::MAX,
        },
        other => other,
    };
    Tuple {
        source: address,
        destination: address,
        layer4,
        ..*tuple
    }
}

impl fmt::Display for Expectation {
    /// Formats the expectation like `conntrack -L expect`, without the flags.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(timeout) = self.timeout {
            write!(f, "{timeout} ")?;
        }
        write!(f, "proto={} {} ", self.tuple.protocol.0, self.tuple)?;
        for (name, tuple) in [("mask", &self.mask), ("master", &self.master)] {
            let text = tuple.to_string();
            let words = text.split(' ').map(|word| format!("{name}-{word} "));
            f.write_str(&words.collect::<String>())?;
        }
        let class = self.class.unwrap_or(0);
        write!(f, "class={class}")?;
        match &self.helper {
            Some(helper) => write!(f, " helper={helper}"),
            None => Ok(()),
        }
    }
}
