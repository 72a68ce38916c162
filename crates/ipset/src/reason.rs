//! Reasons for rejections, decoded from the error numbers of ip_set.

use std::fmt;

use vipline_netlink::Errno;

use crate::uapi::*;
use crate::{Entry, Error, Set, SetFamily, SetType};

/// The reason for the rejection of a command or a query.
///
/// The numbers are those of `enum ipset_errno` and the type-specific enums in
/// `linux/netfilter/ipset/`.
/// The meaning of a type-specific number depends on the set type.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Reason {
    /// The set or entry already exists.
    Exists,
    /// The set or entry does not exist.
    Missing,
    /// The kernel does not support the type, its revision or its family.
    UnknownType,
    /// The maximum number of sets is reached.
    TooManySets,
    /// A rule or a list uses the set.
    InUse,
    /// The new name is already in use, or the set to swap with does not exist
    /// (`IPSET_ERR_EXIST_SETNAME2`).
    OtherName,
    /// The sets to swap have different types, or the entry does not fit the set
    /// type.
    TypeMismatch,
    /// The prefix length is invalid.
    InvalidCidr,
    /// The netmask is invalid.
    InvalidNetmask,
    /// The type does not support the family.
    InvalidFamily,
    /// The set does not support timeouts.
    NoTimeouts,
    /// The set does not support counters.
    NoCounters,
    /// The set does not support comments.
    NoComments,
    /// The set does not support skbinfo.
    NoSkbinfo,
    /// An IPv4 address was expected.
    ExpectedIpv4,
    /// An IPv6 address was expected.
    ExpectedIpv6,
    /// The markmask is invalid.
    InvalidMarkmask,
    /// The set is full.
    Full,
    /// The address is all zeros.
    NullEntry,
    /// The set type does not support the protocol.
    InvalidProtocol,
    /// The protocol is missing.
    MissingProtocol,
    /// The type does not support ranges of this family.
    RangeUnsupported,
    /// The range is too large.
    RangeTooLarge,
    /// The element is outside the range of the set.
    OutOfRange,
    /// The set to add to a list does not exist.
    NoSuchSet,
    /// A list set cannot contain a list set.
    Loop,
    /// A position in a list needs the name of a set.
    NoReference,
    /// The set of the position in a list does not exist.
    NoSuchReference,
    /// The set of the position in a list is not in the list.
    ReferenceNotListed,
    /// A bitmask and a netmask exclude each other.
    BitmaskAndNetmask,
    /// The kernel cannot parse the message (`IPSET_ERR_PROTOCOL`).
    Protocol,
    /// Another error number.
    Errno(Errno),
}

/// Returns pairs of an error number and its name.
macro_rules! named {
    ($($name:ident),* $(,)?) => { &[$(($name, stringify!($name))),*] };
}

/// `enum ipset_errno`.
const CORE_NAMES: &[(i32, &str)] = named![
    IPSET_ERR_PROTOCOL,
    IPSET_ERR_FIND_TYPE,
    IPSET_ERR_MAX_SETS,
    IPSET_ERR_BUSY,
    IPSET_ERR_EXIST_SETNAME2,
    IPSET_ERR_TYPE_MISMATCH,
    IPSET_ERR_EXIST,
    IPSET_ERR_INVALID_CIDR,
    IPSET_ERR_INVALID_NETMASK,
    IPSET_ERR_INVALID_FAMILY,
    IPSET_ERR_TIMEOUT,
    IPSET_ERR_REFERENCED,
    IPSET_ERR_IPADDR_IPV4,
    IPSET_ERR_IPADDR_IPV6,
    IPSET_ERR_COUNTER,
    IPSET_ERR_COMMENT,
    IPSET_ERR_INVALID_MARKMASK,
    IPSET_ERR_SKBINFO,
    IPSET_ERR_BITMASK_NETMASK_EXCL,
];

/// Errors of hash types.
const HASH_NAMES: &[(i32, &str)] = named![
    IPSET_ERR_HASH_FULL,
    IPSET_ERR_HASH_ELEM,
    IPSET_ERR_INVALID_PROTO,
    IPSET_ERR_MISSING_PROTO,
    IPSET_ERR_HASH_RANGE_UNSUPPORTED,
    IPSET_ERR_HASH_RANGE,
];

/// Errors of bitmap types.
const BITMAP_NAMES: &[(i32, &str)] = named![IPSET_ERR_BITMAP_RANGE, IPSET_ERR_BITMAP_RANGE_SIZE];

/// Errors of list sets.
const LIST_NAMES: &[(i32, &str)] = named![
    IPSET_ERR_NAME,
    IPSET_ERR_LOOP,
    IPSET_ERR_BEFORE,
    IPSET_ERR_NAMEREF,
    IPSET_ERR_LIST_FULL,
    IPSET_ERR_REF_EXIST,
];

impl Reason {
    /// Returns the reason, if the kernel rejected a command or a query.
    pub fn of(error: &Error) -> Option<Self> {
        match error {
            Error::Kernel { error, .. } => Some(Self::of_query(error.errno)),
            _ => error.rejected().first().map(|first| first.request.reason),
        }
    }

    /// Returns the error number of Linux: `EEXIST`, `ENOENT` and `EBUSY` for
    /// [`Exists`](Self::Exists), [`Missing`](Self::Missing) and [`InUse`](Self::InUse), and
    /// `None` for other reasons that have numbers of ip_set.
    pub fn errno(self) -> Option<Errno> {
        match self {
            Self::Errno(errno) => Some(errno),
            Self::Exists => Some(Errno::EXIST),
            Self::Missing => Some(Errno::NOENT),
            Self::InUse => Some(Errno::BUSY),
            _ => None,
        }
    }

    /// Converts the error number of a query.
    pub(crate) fn of_query(errno: Errno) -> Self {
        Self::from_errno(errno, None, true)
    }

    /// Converts an error number for sets of this type.
    ///
    /// `removes` is true if the command deletes or tests.
    pub(crate) fn from_errno(errno: Errno, set_type: Option<&SetType>, removes: bool) -> Self {
        let Errno(number) = errno;
        if number >= IPSET_ERR_TYPE_SPECIFIC {
            return Self::of_type(number, set_type).unwrap_or(Self::Errno(errno));
        }
        match number {
            IPSET_ERR_PROTOCOL => Self::Protocol,
            IPSET_ERR_FIND_TYPE => Self::UnknownType,
            IPSET_ERR_MAX_SETS => Self::TooManySets,
            IPSET_ERR_BUSY | IPSET_ERR_REFERENCED => Self::InUse,
            IPSET_ERR_EXIST_SETNAME2 => Self::OtherName,
            IPSET_ERR_TYPE_MISMATCH => Self::TypeMismatch,
            IPSET_ERR_EXIST if removes => Self::Missing,
            IPSET_ERR_EXIST => Self::Exists,
            IPSET_ERR_INVALID_CIDR => Self::InvalidCidr,
            IPSET_ERR_INVALID_NETMASK => Self::InvalidNetmask,
            IPSET_ERR_INVALID_FAMILY => Self::InvalidFamily,
            IPSET_ERR_TIMEOUT => Self::NoTimeouts,
            IPSET_ERR_IPADDR_IPV4 => Self::ExpectedIpv4,
            IPSET_ERR_IPADDR_IPV6 => Self::ExpectedIpv6,
            IPSET_ERR_COUNTER => Self::NoCounters,
            IPSET_ERR_COMMENT => Self::NoComments,
            IPSET_ERR_INVALID_MARKMASK => Self::InvalidMarkmask,
            IPSET_ERR_SKBINFO => Self::NoSkbinfo,
            IPSET_ERR_BITMASK_NETMASK_EXCL => Self::BitmaskAndNetmask,
            _ => match errno {
                Errno::EXIST => Self::Exists,
                Errno::NOENT => Self::Missing,
                Errno::BUSY => Self::InUse,
                other => Self::Errno(other),
            },
        }
    }

    /// Returns whether the meaning of a number depends on the set.
    pub(crate) fn depends_on_set(errno: Errno) -> bool {
        errno.0 >= IPSET_ERR_TYPE_SPECIFIC || Self::from_errno(errno, None, false) == Self::Protocol
    }

    /// Returns the name of the error number in `linux/netfilter/ipset/`, such as
    /// `IPSET_ERR_HASH_FULL`, for sets of this type.
    ///
    /// Returns `None` for error numbers of Linux, and for numbers that are unknown.
    ///
    /// ```
    /// use vipline_ipset::{Reason, SetType, netlink::Errno};
    ///
    /// let name = Reason::error_name(Errno(4352), Some(&SetType::HashIp));
    /// assert_eq!(name, Some("IPSET_ERR_HASH_FULL"));
    /// ```
    pub fn error_name(errno: Errno, set_type: Option<&SetType>) -> Option<&'static str> {
        let names = match (errno.0 >= IPSET_ERR_TYPE_SPECIFIC, set_type) {
            (false, _) => CORE_NAMES,
            (true, Some(SetType::ListSet)) => LIST_NAMES,
            (true, Some(SetType::BitmapIp | SetType::BitmapIpMac | SetType::BitmapPort)) => {
                BITMAP_NAMES
            }
            (true, Some(set_type)) if set_type.is_hash() => HASH_NAMES,
            (true, _) => return None,
        };
        let found = names.iter().find(|(number, _)| *number == errno.0);
        found.map(|(_, name)| *name)
    }

    /// Refines [`Self::Protocol`] for an entry of this set: the element or family
    /// does not fit.
    pub(crate) fn in_set(self, entry: Option<&Entry>, set: &Set) -> Self {
        let (Self::Protocol, Some(Entry { member, .. })) = (self, entry) else {
            return self;
        };
        match member.family().filter(|family| *family != set.family) {
            _ if !member.fits(&set.set_type) => Self::TypeMismatch,
            Some(_) if set.family == SetFamily::V6 => Self::ExpectedIpv6,
            Some(_) => Self::ExpectedIpv4,
            None => self,
        }
    }

    fn of_type(number: i32, set_type: Option<&SetType>) -> Option<Self> {
        match set_type? {
            SetType::ListSet => Self::of_list(number),
            SetType::BitmapIp | SetType::BitmapIpMac | SetType::BitmapPort => {
                Self::of_bitmap(number)
            }
            set_type if set_type.is_hash() => Self::of_hash(number),
            _ => None,
        }
    }

    fn of_list(number: i32) -> Option<Self> {
        Some(match number {
            IPSET_ERR_NAME => Self::NoSuchSet,
            IPSET_ERR_LOOP => Self::Loop,
            IPSET_ERR_BEFORE => Self::NoReference,
            IPSET_ERR_NAMEREF => Self::NoSuchReference,
            IPSET_ERR_LIST_FULL => Self::Full,
            IPSET_ERR_REF_EXIST => Self::ReferenceNotListed,
            _ => return None,
        })
    }

    fn of_bitmap(number: i32) -> Option<Self> {
        match number {
            IPSET_ERR_BITMAP_RANGE => Some(Self::OutOfRange),
            IPSET_ERR_BITMAP_RANGE_SIZE => Some(Self::RangeTooLarge),
            _ => None,
        }
    }

    fn of_hash(number: i32) -> Option<Self> {
        Some(match number {
            IPSET_ERR_HASH_FULL => Self::Full,
            IPSET_ERR_HASH_ELEM => Self::NullEntry,
            IPSET_ERR_INVALID_PROTO => Self::InvalidProtocol,
            IPSET_ERR_MISSING_PROTO => Self::MissingProtocol,
            IPSET_ERR_HASH_RANGE_UNSUPPORTED => Self::RangeUnsupported,
            IPSET_ERR_HASH_RANGE => Self::RangeTooLarge,
            _ => return None,
        })
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exists => "already exists",
            Self::Missing => "does not exist",
            Self::UnknownType => "the kernel does not support the type, its revision or its family",
            Self::TooManySets => "the maximum number of sets is reached",
            Self::InUse => "a rule or a list uses the set",
            Self::OtherName => "the new name is in use, or the set to swap with does not exist",
            Self::TypeMismatch => "the set has another type",
            Self::InvalidCidr => "the prefix length is invalid",
            Self::InvalidNetmask => "the netmask is invalid",
            Self::InvalidFamily => "the type does not support the family",
            Self::NoTimeouts => "the set does not support timeouts",
            Self::NoCounters => "the set does not support counters",
            Self::NoComments => "the set does not support comments",
            Self::NoSkbinfo => "the set does not support skbinfo",
            Self::ExpectedIpv4 => "an IPv4 address was expected",
            Self::ExpectedIpv6 => "an IPv6 address was expected",
            Self::InvalidMarkmask => "the markmask is invalid",
            Self::Full => "the set is full",
            Self::NullEntry => "the address is all zeros",
            Self::InvalidProtocol => "the protocol is invalid",
            Self::MissingProtocol => "the protocol is missing",
            Self::RangeUnsupported => "the type does not support ranges of the family",
            Self::RangeTooLarge => "the range is too large",
            Self::OutOfRange => "outside the range of the set",
            Self::NoSuchSet => "the set to add does not exist",
            Self::Loop => "a list set cannot contain a list set",
            Self::NoReference => "the position in the list has no set",
            Self::NoSuchReference => "the set of the position does not exist",
            Self::ReferenceNotListed => "the set of the position is not in the list",
            Self::BitmaskAndNetmask => "bitmask and netmask exclude each other",
            Self::Protocol => "the kernel cannot parse the message",
            Self::Errno(errno) => return write!(f, "{errno}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type_specific_numbers_depend_on_the_set_type() {
        let full = Errno(IPSET_ERR_TYPE_SPECIFIC);
        assert_eq!(
            Reason::from_errno(full, Some(&SetType::HashIp), false),
            Reason::Full
        );
        assert_eq!(
            Reason::from_errno(full, Some(&SetType::BitmapIp), false),
            Reason::OutOfRange
        );
        assert_eq!(
            Reason::from_errno(full, Some(&SetType::ListSet), false),
            Reason::NoSuchSet
        );
        assert_eq!(Reason::from_errno(full, None, false), Reason::Errno(full));
        let beyond = Errno(i32::MAX);
        assert_eq!(
            Reason::from_errno(beyond, Some(&SetType::HashIp), false),
            Reason::Errno(beyond)
        );
    }

    #[test]
    fn error_numbers_have_the_names_of_the_headers() {
        let name = |number, set_type| Reason::error_name(Errno(number), set_type);
        let list = SetType::ListSet;
        assert_eq!(name(4103, None), Some("IPSET_ERR_EXIST"));
        assert_eq!(name(4115, None), Some("IPSET_ERR_BITMASK_NETMASK_EXCL"));
        assert_eq!(name(4357, Some(&list)), Some("IPSET_ERR_REF_EXIST"));
        assert_eq!(
            name(4353, Some(&SetType::BitmapPort)),
            Some("IPSET_ERR_BITMAP_RANGE_SIZE")
        );
        for number in [i32::MIN, 0, 2, 4096, 4116, 4358, i32::MAX] {
            assert_eq!(name(number, Some(&list)), None, "{number}");
        }
        assert_eq!(name(4352, None), None);
    }

    #[test]
    fn the_exist_error_means_missing_for_removals() {
        let exist = Errno(IPSET_ERR_EXIST);
        assert_eq!(Reason::from_errno(exist, None, false), Reason::Exists);
        assert_eq!(Reason::from_errno(exist, None, true), Reason::Missing);
        assert_eq!(
            Reason::from_errno(Errno::NOENT, None, true),
            Reason::Missing
        );
    }
}
