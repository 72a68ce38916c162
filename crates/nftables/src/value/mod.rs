//! What registers, keys and packets hold: values, their types, and their bytes.

pub(crate) mod bytes;

mod datatype;

pub(crate) mod verdict;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::Name;

pub use bytes::Bytes;
pub(crate) use datatype::ByteOrder;
pub use datatype::Datatype;
pub use verdict::{Data, Verdict};

/// A value of one field.
///
/// [`Value::Prefix`] and [`Value::Range`] stand for an interval of values. As a key,
/// they require a set with the flag [`INTERVAL`](crate::SetFlags::INTERVAL).
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// An address.
    Addr(IpAddr),
    /// Bytes in register layout, without padding.
    Bytes(Bytes),
    /// A number; encoded with the size and byte order of the field.
    Integer(u64),
    /// All addresses of a network.
    Prefix(IpNet),
    /// All values from the first to the last, inclusive.
    Range(Box<(Self, Self)>),
    /// An interface name; padded with NUL bytes.
    ///
    /// In comparisons, a trailing `*` matches any suffix.
    Text(Bytes),
}

/// One end of an interval.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum End {
    First,
    Last,
}

impl Value {
    /// Returns the range of addresses from `first` to `last`, inclusive.
    pub fn addr_range(first: IpAddr, last: IpAddr) -> Self {
        Self::Range(Box::new((Self::Addr(first), Self::Addr(last))))
    }

    /// Returns the range of integers, such as ports, from `first` to `last`, inclusive.
    pub fn integer_range(first: u64, last: u64) -> Self {
        Self::Range(Box::new((Self::Integer(first), Self::Integer(last))))
    }

    /// Returns whether the value is an interval, possibly of a single value.
    pub(crate) fn is_interval(&self) -> bool {
        matches!(self, Self::Prefix(_) | Self::Range(_))
    }

    /// Appends the encoding of one end of the value. Both ends are equal unless the
    /// value is an interval.
    ///
    /// Returns false if the value does not fit into `bytes` bytes.
    #[inline]
    pub(crate) fn write(&self, bytes: u16, order: ByteOrder, end: End, out: &mut Bytes) -> bool {
        match (self, end) {
            (Self::Prefix(net), End::First) => {
                Self::Addr(net.network()).write_one(bytes, order, out)
            }
            (Self::Prefix(net), End::Last) => {
                Self::Addr(net.broadcast()).write_one(bytes, order, out)
            }
            (Self::Range(ends), End::First) => ends.0.write_one(bytes, order, out),
            (Self::Range(ends), End::Last) => ends.1.write_one(bytes, order, out),
            (single, _) => single.write_one(bytes, order, out),
        }
    }

    #[inline]
    fn write_one(&self, bytes: u16, order: ByteOrder, out: &mut Bytes) -> bool {
        let bytes = usize::from(bytes);
        match self {
            Self::Addr(IpAddr::V4(addr)) if bytes == 4 => out.push(addr.octets()),
            Self::Addr(IpAddr::V6(addr)) if bytes == 16 => out.push(addr.octets()),
            Self::Bytes(value) if value.len() == bytes => out.extend(value),
            Self::Text(text) if text.len() <= bytes => {
                out.extend(text);
                out.extend(&Bytes::repeat(0, bytes - text.len()));
            }
            Self::Integer(number) => return write_integer(*number, bytes, order, out),
            _ => return false,
        }
        true
    }
}

/// Appends a number of `bytes` bytes. Returns false if the number does not fit.
#[inline]
fn write_integer(number: u64, bytes: usize, order: ByteOrder, out: &mut Bytes) -> bool {
    let is_big = order == ByteOrder::Big;
    // Fast path for common sizes: most values of a ruleset are such integers.
    match bytes {
        1 => u8::try_from(number).map(|number| out.push([number])),
        2 if is_big => u16::try_from(number).map(|number| out.push(number.to_be_bytes())),
        2 => u16::try_from(number).map(|number| out.push(number.to_ne_bytes())),
        4 if is_big => u32::try_from(number).map(|number| out.push(number.to_be_bytes())),
        4 => u32::try_from(number).map(|number| out.push(number.to_ne_bytes())),
        _ => return write_any_size(number, bytes, is_big, out),
    }
    .is_ok()
}

/// Appends a number of any other size. Returns false if the number does not fit.
fn write_any_size(number: u64, bytes: usize, is_big: bool, out: &mut Bytes) -> bool {
    let mut ordered = number.to_le_bytes();
    let Some((low, high)) = ordered.split_at_mut_checked(bytes) else {
        return false;
    };
    if is_big || cfg!(target_endian = "big") {
        low.reverse();
    }
    out.extend(low);
    high.iter().all(|byte| *byte == 0)
}

macro_rules! from {
    ($($type:ty => $value:ident, $convert:expr;)*) => {
        $(impl From<$type> for Value {
            fn from($value: $type) -> Self {
                $convert
            }
        })*
    };
}

from! {
    IpAddr => addr, Self::Addr(addr);
    Ipv4Addr => addr, Self::Addr(addr.into());
    Ipv6Addr => addr, Self::Addr(addr.into());
    IpNet => net, Self::Prefix(net);
    Ipv4Net => net, Self::Prefix(net.into());
    Ipv6Net => net, Self::Prefix(net.into());
    [u8; 6] => addr, Self::Bytes(addr.into());
    bool => flag, Self::Integer(flag.into());
    u8 => number, Self::Integer(number.into());
    u16 => number, Self::Integer(number.into());
    u32 => number, Self::Integer(number.into());
    u64 => number, Self::Integer(number);
    &str => text, Self::Text(text.as_bytes().into());
}

impl From<&Name> for Value {
    fn from(name: &Name) -> Self {
        Self::Text(name.as_str().as_bytes().into())
    }
}

impl<T: Clone + Into<Self>> From<RangeInclusive<T>> for Value {
    fn from(range: RangeInclusive<T>) -> Self {
        let (first, last) = range.into_inner();
        Self::Range(Box::new((first.into(), last.into())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Datatype;

    fn written(value: impl Into<Value>, field: Datatype, order: ByteOrder) -> Option<[Bytes; 2]> {
        let value = value.into();
        let end = |end| {
            let mut out = Bytes::new();
            value
                .write(field.bytes(), order, end, &mut out)
                .then_some(out)
        };
        Some([end(End::First)?, end(End::Last)?])
    }

    #[test]
    fn integers_take_the_size_and_byte_order_of_their_field() {
        let port = written(80_u16, Datatype::InetService, ByteOrder::Big);
        assert_eq!(port, Some([Bytes::from([0, 80]), Bytes::from([0, 80])]));
        let mark = Bytes::from(7_u32.to_ne_bytes());
        let host = written(7_u32, Datatype::Mark, ByteOrder::Host);
        assert_eq!(host, Some([mark.clone(), mark]));
        assert_eq!(
            written(65_536_u32, Datatype::InetService, ByteOrder::Big),
            None
        );
    }

    #[test]
    fn a_prefix_spans_its_first_to_last_address() {
        let net: IpNet = "10.1.0.0/16".parse().unwrap();
        let ends = [Bytes::from([10, 1, 0, 0]), Bytes::from([10, 1, 255, 255])];
        assert_eq!(written(net, Datatype::Ipv4Addr, ByteOrder::Big), Some(ends));
        assert_eq!(written(net, Datatype::Ipv6Addr, ByteOrder::Big), None);
    }

    #[test]
    fn a_value_of_another_size_does_not_fit() {
        assert_eq!(
            written(Ipv4Addr::LOCALHOST, Datatype::Ipv6Addr, ByteOrder::Big),
            None
        );
        assert_eq!(
            written(Ipv6Addr::LOCALHOST, Datatype::Ipv4Addr, ByteOrder::Big),
            None
        );
        assert_eq!(
            written("a-name-of-17-byte", Datatype::Ifname, ByteOrder::Host),
            None
        );
    }
}
