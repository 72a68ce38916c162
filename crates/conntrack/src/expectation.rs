//! Expectations: related flows that conntrack helpers expect.

use vipline_netlink::DecodeError;
use vipline_netlink::attr::Attrs;

use crate::{Other, Tuple, wire};

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
}
