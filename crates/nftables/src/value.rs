//! Values that fields of keys and data hold.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::datatype::ByteOrder;
use crate::{Bytes, Field};

/// A value of one field.
///
/// [`Value::Prefix`] and [`Value::Range`] stand for all values in them and fit
/// only where intervals do.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// An address.
    Addr(IpAddr),
    /// Bytes as a register holds them, without padding.
    Bytes(Bytes),
    /// A number, written in the order and size of the field.
    Integer(u64),
    /// All addresses of a network.
    Prefix(IpNet),
    /// All values from the first to the last, both within.
    Range(Box<(Self, Self)>),
    /// The name of an interface, filled up with NUL bytes.
    Text(Bytes),
}

impl Value {
    /// Makes the value of all addresses from one to another.
    pub fn addrs(first: IpAddr, last: IpAddr) -> Self {
        Self::Range(Box::new((Self::Addr(first), Self::Addr(last))))
    }

    /// Makes the value of all numbers from one to another: ports, marks.
    pub fn numbers(first: u64, last: u64) -> Self {
        Self::Range(Box::new((Self::Integer(first), Self::Integer(last))))
    }

    /// Appends the first and the last byte string the value stands for.
    ///
    /// Both are equal but for prefixes and ranges.
    /// Gives back false if the value does not fit the field.
    pub(crate) fn write(
        &self,
        field: &Field,
        order: ByteOrder,
        first: &mut Bytes,
        last: &mut Bytes,
    ) -> bool {
        match self {
            Self::Prefix(IpNet::V4(net)) if field.bytes == 4 => {
                first.extend(&net.network().octets());
                last.extend(&net.broadcast().octets());
                true
            }
            Self::Prefix(IpNet::V6(net)) if field.bytes == 16 => {
                first.extend(&net.network().octets());
                last.extend(&net.broadcast().octets());
                true
            }
            Self::Range(ends) => {
                ends.0.write_one(field, order, first) && ends.1.write_one(field, order, last)
            }
            single => {
                let start = first.len();
                let fits = single.write_one(field, order, first);
                last.extend(first.get(start..).unwrap_or(&[]));
                fits
            }
        }
    }

    fn write_one(&self, field: &Field, order: ByteOrder, out: &mut Bytes) -> bool {
        let bytes = usize::from(field.bytes);
        match self {
            Self::Addr(IpAddr::V4(addr)) if bytes == 4 => out.extend(&addr.octets()),
            Self::Addr(IpAddr::V6(addr)) if bytes == 16 => out.extend(&addr.octets()),
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

/// Appends a number of so many bytes, unless it needs more.
fn write_integer(number: u64, bytes: usize, order: ByteOrder, out: &mut Bytes) -> bool {
    let big = number.to_be_bytes();
    let Some((high, low)) = 8_usize
        .checked_sub(bytes)
        .and_then(|at| big.split_at_checked(at))
    else {
        return false;
    };
    let start = out.len();
    out.extend(low);
    if order == ByteOrder::Host && cfg!(target_endian = "little") {
        if let Some(written) = out.as_mut_slice().get_mut(start..) {
            written.reverse();
        }
    }
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
    u8 => number, Self::Integer(number.into());
    u16 => number, Self::Integer(number.into());
    u32 => number, Self::Integer(number.into());
    u64 => number, Self::Integer(number);
    &str => text, Self::Text(text.as_bytes().into());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Datatype;

    fn written(value: impl Into<Value>, field: Datatype, order: ByteOrder) -> Option<[Bytes; 2]> {
        let (mut first, mut last) = (Bytes::new(), Bytes::new());
        value
            .into()
            .write(&field.into(), order, &mut first, &mut last)
            .then_some([first, last])
    }

    #[test]
    fn numbers_take_the_size_and_order_of_their_field() {
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
    fn a_prefix_is_its_first_and_its_last_address() {
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
