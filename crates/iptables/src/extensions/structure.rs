//! The kernel's structures of matches and targets, which `iptables-nft` writes for every
//! extension that has no expression of nf_tables.
//!
//! The file of an extension has both of its forms: `impl Extension` parses and prints the
//! options, and `impl Structure` writes and reads the structure. Fields stand in the order
//! of the uapi headers (`linux/netfilter/xt_*.h`, `linux/netfilter_ipv4/ipt_*.h` and
//! `linux/netfilter_ipv6/ip6t_*.h`), in host byte order unless stated, and constants have
//! the names of these headers.

use std::net::IpAddr;
use std::ops::{BitAnd, BitOr};

use ipnet::IpNet;

use crate::Family;
use crate::extensions::set_indexes::{IPSET_INVALID_ID, SetIndexes};
use crate::options::direction::{Direction, SetDirections};
use crate::options::negatable::Negatable;

/// Alignment of structures: `XT_ALIGN`.
const ALIGN: usize = 8;

/// Bit of `flags` in `struct xt_set_info`: a set that does not contain the packet.
///
/// Bit `n` is set if dimension `n`, from 1, is a source: `enum ip_set_kopt`.
pub(crate) const IPSET_INV_MATCH: u8 = 1;

/// Length of an interface name with its NUL byte.
pub(crate) const IFNAMSIZ: usize = 16;

/// An extension that the kernel knows as a structure.
///
/// The defaults are those of an extension without an encoding.
pub(crate) trait Structure: Sized {
    /// Name of the extension in the kernel.
    const NAME: &'static str;

    /// Revision of the structure: the one of iptables 1.8.9, which newer versions print, too.
    const REVISION: u32 = 0;

    /// Returns the revision for a family, if it differs.
    fn revision(_: Family) -> u32 {
        Self::REVISION
    }

    /// Appends the fields. Returns `None` for values that the structure cannot contain, such
    /// as an address of another family.
    fn write(&self, _: &mut Writer<'_>) -> Option<()> {
        None
    }

    /// Reads the fields. Returns `None` for values that iptables cannot print.
    ///
    /// Bytes that are not read, such as pointers of the kernel, are compared with those that
    /// [`write`](Self::write) appends.
    fn read(_: &mut Reader<'_>) -> Option<Self> {
        None
    }
}

/// What an encoding depends on besides the extension.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'s> {
    pub(crate) family: Family,
    /// Structures contain the index of an IP set instead of its name.
    pub(crate) sets: &'s SetIndexes,
}

/// An encoded extension.
#[derive(Debug)]
pub(crate) struct Encoded {
    pub(crate) name: &'static str,
    pub(crate) revision: u32,
    pub(crate) bytes: Vec<u8>,
}

/// Encodes an extension. Returns `None` if it has no encoding, or one of its values.
pub(crate) fn encode<T: Structure>(it: &T, context: Context<'_>) -> Option<Encoded> {
    let mut out = Writer::new(context);
    it.write(&mut out)?;
    Some(Encoded {
        name: T::NAME,
        revision: T::revision(context.family),
        bytes: out.finish(),
    })
}

/// Decodes an extension. Returns `None` if another revision wrote the structure, or for
/// values that iptables cannot print.
pub(crate) fn decode<T: Structure>(revision: u32, bytes: &[u8], context: Context<'_>) -> Option<T> {
    if revision != T::revision(context.family) {
        return None;
    }
    T::read(&mut Reader::new(bytes, context))
}

/// Why a structure is not decoded.
///
/// Exhaustive: either the name is unknown, or the structure.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Undecoded {
    /// No extension of this crate has the name.
    Unknown,
    /// The extension has no such revision, or a value that iptables cannot print.
    Unsupported,
}

/// Writer of a structure.
#[derive(Debug)]
pub(crate) struct Writer<'s> {
    bytes: Vec<u8>,
    context: Context<'s>,
}

impl<'s> Writer<'s> {
    pub(crate) fn new(context: Context<'s>) -> Self {
        let bytes = Vec::new();
        Self { bytes, context }
    }

    /// Returns the family of the rule.
    pub(crate) fn family(&self) -> Family {
        self.context.family
    }

    /// Appends bytes.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// Appends zero bytes.
    pub(crate) fn zeros(&mut self, count: usize) -> &mut Self {
        self.bytes.resize(self.bytes.len() + count, 0);
        self
    }

    /// Appends bytes and zeros up to a length. Returns `None` if the bytes are longer.
    pub(crate) fn padded(&mut self, bytes: &[u8], len: usize) -> Option<&mut Self> {
        let rest = len.checked_sub(bytes.len())?;
        self.bytes.reserve(len);
        Some(self.bytes(bytes).zeros(rest))
    }

    /// Appends a string with at least one NUL byte in `len` bytes. Returns `None` if
    /// the string is longer or contains a NUL byte.
    pub(crate) fn text(&mut self, text: &str, len: usize) -> Option<&mut Self> {
        if text.len() >= len || text.contains('\0') {
            return None;
        }
        self.padded(text.as_bytes(), len)
    }

    /// Appends one byte.
    pub(crate) fn u8(&mut self, value: u8) -> &mut Self {
        self.bytes(&[value])
    }

    /// Appends two bytes in host byte order.
    pub(crate) fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes(&value.to_ne_bytes())
    }

    /// Appends two bytes in network byte order.
    pub(crate) fn be16(&mut self, value: u16) -> &mut Self {
        self.bytes(&value.to_be_bytes())
    }

    /// Appends four bytes in host byte order.
    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_ne_bytes())
    }

    /// Appends eight bytes in host byte order.
    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_ne_bytes())
    }

    /// Appends `union nf_inet_addr`. Returns `None` for an address of another family.
    pub(crate) fn address(&mut self, address: IpAddr) -> Option<&mut Self> {
        match (address, self.family()) {
            (IpAddr::V4(address), Family::V4) => Some(self.bytes(&address.octets()).zeros(12)),
            (IpAddr::V6(address), Family::V6) => Some(self.bytes(&address.octets())),
            _ => None,
        }
    }

    /// Appends address and mask, as two `union nf_inet_addr`; zeros for `None`.
    ///
    /// iptables sets all bits of the union if a rule has no mask.
    pub(crate) fn network(&mut self, network: Option<IpNet>) -> Option<&mut Self> {
        let Some(network) = network else {
            return Some(self.zeros(32));
        };
        self.address(network.addr())?;
        match network.prefix_len() == network.max_prefix_len() {
            true => Some(self.bytes(&[u8::MAX; 16])),
            false => self.address(network.netmask()),
        }
    }

    /// Appends `struct xt_set_info`. Returns `None` if the set does not exist.
    pub(crate) fn set(
        &mut self,
        name: &str,
        directions: SetDirections,
        mut flags: u8,
    ) -> Option<&mut Self> {
        let index = self.context.sets.index(name)?;
        let mut dimension = 0;
        for direction in directions.iter() {
            dimension += 1;
            flags |= u8::from(direction == Direction::Source) << dimension;
        }
        Some(self.u16(index).u8(dimension).u8(flags))
    }

    /// Appends `struct xt_set_info` of no set.
    pub(crate) fn no_set(&mut self) -> &mut Self {
        self.u16(IPSET_INVALID_ID).zeros(2)
    }

    /// Appends a pointer of the kernel, which is aligned to eight bytes.
    pub(crate) fn pointer(&mut self) -> &mut Self {
        self.align().zeros(8)
    }

    fn align(&mut self) -> &mut Self {
        self.bytes
            .resize(self.bytes.len().next_multiple_of(ALIGN), 0);
        self
    }

    /// Returns the structure, padded to the alignment.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.align();
        self.bytes
    }
}

/// Reader of a structure. Methods return `None` beyond its end.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    context: Context<'a>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8], context: Context<'a>) -> Self {
        Self { bytes, context }
    }

    /// Returns the family of the rule.
    pub(crate) fn family(&self) -> Family {
        self.context.family
    }

    /// Reads `len` bytes.
    pub(crate) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.bytes.split_at_checked(len)?;
        self.bytes = rest;
        Some(head)
    }

    /// Reads `N` bytes.
    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    /// Reads a string of `len` bytes, which ends at the first NUL byte.
    pub(crate) fn text(&mut self, len: usize) -> Option<String> {
        let bytes = self.bytes(len)?;
        let end = bytes.iter().position(|byte| *byte == 0)?;
        Some(str::from_utf8(bytes.get(..end)?).ok()?.to_owned())
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_ne_bytes)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_ne_bytes)
    }

    pub(crate) fn be16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_ne_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_ne_bytes)
    }

    /// Reads `union nf_inet_addr`.
    pub(crate) fn address(&mut self) -> Option<IpAddr> {
        Some(address_of(self.array()?, self.family()))
    }

    /// Reads address and mask. The inner value is `None` for a mask that is no prefix.
    pub(crate) fn network(&mut self) -> Option<Option<IpNet>> {
        let (address, mask) = (self.address()?, self.address()?);
        Some(IpNet::with_netmask(address, mask).ok())
    }

    /// Reads `struct xt_set_info`: name, directions and flags. The inner value is `None` for
    /// no set, and the outer one for an unknown set.
    pub(crate) fn set(&mut self) -> Option<Option<(String, SetDirections, u8)>> {
        let (index, dimension, flags) = (self.u16()?, self.u8()?, self.u8()?);
        if index == IPSET_INVALID_ID {
            return Some(None);
        }
        let directions = (1..=dimension.min(7)).map(|dimension| match flags >> dimension & 1 {
            0 => Direction::Destination,
            _ => Direction::Source,
        });
        let directions = SetDirections::new(directions)?;
        let name = self.context.sets.name(index)?.to_owned();
        Some(Some((name, directions, flags)))
    }
}

/// Returns the address in `union nf_inet_addr`.
pub(crate) fn address_of(bytes: [u8; 16], family: Family) -> IpAddr {
    match family {
        Family::V4 => {
            let [a, b, c, d, ..] = bytes;
            [a, b, c, d].into()
        }
        Family::V6 => bytes.into(),
    }
}

/// Returns the sum of the flags that are set.
pub(crate) fn flags<T: Default + BitOr<Output = T>>(all: impl IntoIterator<Item = (bool, T)>) -> T {
    let set = all.into_iter().filter(|(is_set, _)| *is_set);
    set.fold(T::default(), |sum, (_, flag)| sum | flag)
}

/// Returns whether a condition is negated.
pub(crate) fn is_not<T>(condition: &Option<Negatable<T>>) -> bool {
    condition.as_ref().is_some_and(Negatable::is_negated)
}

/// The flags of the conditions that a structure has, and of the negated ones.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Conditions<T> {
    pub(crate) used: T,
    pub(crate) negated: T,
}

impl<T> Conditions<T>
where
    T: Copy + Default + PartialEq + BitOr<Output = T> + BitAnd<Output = T>,
{
    /// Sets the flag of a condition, and returns its value.
    pub(crate) fn put<V: Clone>(&mut self, flag: T, condition: &Option<Negatable<V>>) -> Option<V> {
        let condition = condition.as_ref()?;
        self.used = self.used | flag;
        if condition.is_negated() {
            self.negated = self.negated | flag;
        }
        Some(condition.value().clone())
    }

    /// Sets the flag of a condition without a negation.
    pub(crate) fn put_flag(&mut self, flag: T, is_set: bool) {
        self.put(flag, &is_set.then_some(Negatable::Is(())));
    }

    /// Returns whether a condition has the flag.
    pub(crate) fn has(&self, flag: T) -> bool {
        self.used & flag != T::default()
    }

    /// Returns the condition on a value, if its flag is set.
    pub(crate) fn get<V>(&self, flag: T, value: V) -> Option<Negatable<V>> {
        let is_negated = self.negated & flag != T::default();
        self.has(flag).then(|| Negatable::new(is_negated, value))
    }
}

/// Returns the position of a value in a list of the kernel's numbers.
pub(crate) fn position<T: PartialEq, N: TryFrom<usize>>(all: &[T], wanted: &T) -> Option<N> {
    let position = all.iter().position(|one| one == wanted)?;
    N::try_from(position).ok()
}

/// Returns the value of a number in such a list.
pub(crate) fn at<T: Copy>(all: &[T], number: impl TryInto<usize>) -> Option<T> {
    all.get(number.try_into().ok()?).copied()
}

/// Encodes an extension for a family, without IP sets.
#[cfg(test)]
pub(crate) fn encoded<T: Structure>(it: &T, family: Family) -> Option<Vec<u8>> {
    let sets = &SetIndexes::default();
    Some(encode(it, Context { family, sets })?.bytes)
}

/// Decodes an extension for a family, without IP sets.
#[cfg(test)]
pub(crate) fn decoded<T: Structure>(bytes: &[u8], family: Family) -> Option<T> {
    let sets = &SetIndexes::default();
    decode(T::revision(family), bytes, Context { family, sets })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_structure_is_padded_to_eight_bytes() {
        let sets = &SetIndexes::default();
        let family = Family::V4;
        let context = Context { family, sets };
        let mut writer = Writer::new(context);
        writer.u8(1).u16(2).be16(3).u32(4);
        let bytes = writer.finish();
        assert_eq!(bytes.len(), 16);
        let mut reader = Reader::new(&bytes, context);
        assert_eq!((reader.u8(), reader.u16()), (Some(1), Some(2)));
        assert_eq!((reader.be16(), reader.u32()), (Some(3), Some(4)));
        assert_eq!(
            (reader.bytes(7).map(<[u8]>::len), reader.u8()),
            (Some(7), None)
        );
        let mut writer = Writer::new(context);
        writer.u8(1).pointer().u8(2);
        assert_eq!(writer.finish().len(), 24);
    }

    #[test]
    fn a_string_has_a_final_nul_byte() {
        let sets = &SetIndexes::default();
        let family = Family::V4;
        let context = Context { family, sets };
        let written = |text: &str| {
            let mut writer = Writer::new(context);
            writer.text(text, 4)?;
            Some(writer.finish())
        };
        assert_eq!(written("abcd"), None);
        assert_eq!(written("a\0b"), None);
        let bytes = written("abc").unwrap();
        assert_eq!(bytes, b"abc\0\0\0\0\0");
        let read = |bytes| Reader::new(bytes, context).text(4);
        assert_eq!(read(&bytes).as_deref(), Some("abc"));
        assert_eq!(read(b"abcd"), None);
    }

    #[test]
    fn conditions_have_flags() {
        let mut conditions = Conditions::default();
        assert_eq!(conditions.put(1_u8, &Some(Negatable::Not(5))), Some(5));
        assert_eq!(conditions.put(2, &None::<Negatable<u8>>), None);
        conditions.put_flag(4, true);
        assert_eq!((conditions.used, conditions.negated), (5, 1));
        assert_eq!(conditions.get(1, 7), Some(Negatable::Not(7)));
        assert_eq!(conditions.get(2, 7), None);
    }
}
