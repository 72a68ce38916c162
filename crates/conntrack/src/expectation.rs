//! Expectations: related flows that conntrack helpers expect.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attrs, put, put_be16, put_be32, put_str};

use crate::{Layer4, Other, Tuple, wire};

/// `CTA_EXPECT_*` attributes.
const MASTER: u16 = 1;
const TUPLE: u16 = 2;
const MASK: u16 = 3;
const TIMEOUT: u16 = 4;
const ID: u16 = 5;
const HELPER: u16 = 6;
const ZONE: u16 = 7;
const FLAGS: u16 = 8;
const CLASS: u16 = 9;
const FUNCTION: u16 = 11;

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
                MASTER => master = Some(Tuple::decode(attr)?),
                TUPLE => tuple = Some(Tuple::decode(attr)?),
                MASK => mask = Some(Tuple::decode(attr)?),
                TIMEOUT => timeout = Some(attr.be32()?),
                ID => id = Some(attr.be32()?),
                HELPER => helper = Some(attr.str()?.into()),
                ZONE => zone = Some(attr.be16()?),
                FLAGS => flags = Some(attr.be32()?),
                CLASS => class = Some(attr.be32()?),
                FUNCTION => function = Some(attr.str()?.into()),
                kind => other.push(Other {
                    kind,
                    value: attr.value.to_vec(),
                }),
            }
        }
        let missing = |kind| move || DecodeError::new("expectation with all tuples", kind, 0);
        Ok(Self {
            master: master.ok_or_else(missing(MASTER))?,
            tuple: tuple.ok_or_else(missing(TUPLE))?,
            mask: mask.ok_or_else(missing(MASK))?,
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

    /// Appends the payload of a message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        wire::put_header(out, self.tuple.family().number(), 0);
        self.master.encode(out, MASTER);
        self.tuple.encode(out, TUPLE);
        self.mask.encode(out, MASK);
        for (kind, number) in [
            (TIMEOUT, self.timeout),
            (ID, self.id),
            (FLAGS, self.flags),
            (CLASS, self.class),
        ] {
            if let Some(number) = number {
                put_be32(out, kind, number);
            }
        }
        for (kind, text) in [(HELPER, &self.helper), (FUNCTION, &self.function)] {
            if let Some(text) = text {
                put_str(out, kind, text);
            }
        }
        if let Some(zone) = self.zone {
            put_be16(out, ZONE, zone);
        }
        for Other { kind, value } in &self.other {
            put(out, *kind, value);
        }
    }

    /// Appends the payload of a deletion: the tuple, the zone and the ID.
    pub(crate) fn encode_key(&self, out: &mut Vec<u8>) {
        wire::put_header(out, self.tuple.family().number(), 0);
        self.tuple.encode(out, TUPLE);
        if let Some(zone) = self.zone {
            put_be16(out, ZONE, zone);
        }
        if let Some(id) = self.id {
            put_be32(out, ID, id);
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
