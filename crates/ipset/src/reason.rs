//! Why the kernel refuses: error numbers of ip_set, in words.

use std::fmt;

use vipline_netlink::Errno;

use crate::{Entry, Family, Set, SetType};

/// Why the kernel refused something.
///
/// Numbers are those of `enum ipset_errno` and its siblings in
/// `linux/netfilter/ipset/`; some mean another thing for each type of set.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Reason {
    /// The set or the entry is there already.
    Exists,
    /// There is no such set or no such entry.
    Missing,
    /// The kernel does not have the type, its revision or its family.
    UnknownType,
    /// There are as many sets as there can be.
    TooManySets,
    /// A rule or a list uses the set.
    InUse,
    /// The name to give is taken, or the set to swap with is missing.
    OtherName,
    /// Sets of different types cannot be swapped, or the entry is for sets of
    /// another type.
    TypeMismatch,
    /// The prefix length is none.
    InvalidCidr,
    /// The netmask is none.
    InvalidNetmask,
    /// The type does not have the family.
    InvalidFamily,
    /// The set has no timeouts.
    NoTimeouts,
    /// The set has no counters.
    NoCounters,
    /// The set has no comments.
    NoComments,
    /// The set has no marks.
    NoSkbinfo,
    /// An IPv4 address was expected.
    ExpectedIpv4,
    /// An IPv6 address was expected.
    ExpectedIpv6,
    /// The mask of marks is none.
    InvalidMarkmask,
    /// The set is full.
    Full,
    /// The address is all zeros.
    NullEntry,
    /// The protocol is none that the type has.
    InvalidProtocol,
    /// The protocol is missing.
    MissingProtocol,
    /// The type has no ranges of the family.
    RangeUnsupported,
    /// The range is too large.
    RangeTooLarge,
    /// What was to be added is not in the range of the set.
    OutOfRange,
    /// A set to be listed does not exist.
    NoSuchSet,
    /// A list cannot be in a list.
    Loop,
    /// The message makes no sense to the kernel.
    Protocol,
    /// Another error number of the system.
    Errno(Errno),
}

/// `IPSET_ERR_PRIVATE`: numbers from here on are of ip_set.
const PRIVATE: i32 = 4096;
/// `IPSET_ERR_TYPE_SPECIFIC`: numbers from here on are of the type.
const TYPE_SPECIFIC: i32 = 4352;

impl Reason {
    /// Returns the meaning of an error number for sets of this type.
    ///
    /// `removes` says whether something was to be removed or looked for.
    pub(crate) fn from_errno(errno: Errno, set_type: Option<&SetType>, removes: bool) -> Self {
        let Errno(number) = errno;
        if number >= TYPE_SPECIFIC {
            return Self::of_type(number - TYPE_SPECIFIC, set_type).unwrap_or(Self::Errno(errno));
        }
        match number - PRIVATE {
            1 => Self::Protocol,
            2 => Self::UnknownType,
            3 => Self::TooManySets,
            4 | 12 => Self::InUse,
            5 => Self::OtherName,
            6 => Self::TypeMismatch,
            7 if removes => Self::Missing,
            7 => Self::Exists,
            8 => Self::InvalidCidr,
            9 => Self::InvalidNetmask,
            10 => Self::InvalidFamily,
            11 => Self::NoTimeouts,
            13 => Self::ExpectedIpv4,
            14 => Self::ExpectedIpv6,
            15 => Self::NoCounters,
            16 => Self::NoComments,
            17 => Self::InvalidMarkmask,
            18 => Self::NoSkbinfo,
            _ => match errno {
                Errno::EXIST => Self::Exists,
                Errno::NOENT => Self::Missing,
                Errno::BUSY => Self::InUse,
                other => Self::Errno(other),
            },
        }
    }

    /// Tells whether a number means another thing for each set.
    pub(crate) fn depends_on_set(errno: Errno) -> bool {
        errno.0 >= TYPE_SPECIFIC || Self::from_errno(errno, None, false) == Self::Protocol
    }

    /// Says why an entry makes no sense to the kernel in this set.
    pub(crate) fn in_set(self, entry: Option<&Entry>, set: &Set) -> Self {
        let (Self::Protocol, Some(Entry { member, .. })) = (self, entry) else {
            return self;
        };
        match member.family().filter(|family| *family != set.family) {
            _ if !member.fits(&set.set_type) => Self::TypeMismatch,
            Some(_) if set.family == Family::V6 => Self::ExpectedIpv6,
            Some(_) => Self::ExpectedIpv4,
            None => self,
        }
    }

    fn of_type(number: i32, set_type: Option<&SetType>) -> Option<Self> {
        let set_type = set_type?;
        let meaning: &[Self] = match set_type {
            SetType::ListSet => &[
                Self::NoSuchSet,
                Self::Loop,
                Self::Missing,
                Self::Missing,
                Self::Full,
                Self::Missing,
            ],
            SetType::BitmapIp | SetType::BitmapPort => &[Self::OutOfRange, Self::RangeTooLarge],
            set_type if set_type.is_hash() => &[
                Self::Full,
                Self::NullEntry,
                Self::InvalidProtocol,
                Self::MissingProtocol,
                Self::RangeUnsupported,
                Self::RangeTooLarge,
            ],
            _ => &[],
        };
        usize::try_from(number)
            .ok()
            .and_then(|index| meaning.get(index))
            .copied()
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exists => "it is there already",
            Self::Missing => "it is not there",
            Self::UnknownType => "the kernel does not have the type, its revision or its family",
            Self::TooManySets => "there are as many sets as there can be",
            Self::InUse => "a rule or a list uses it",
            Self::OtherName => "the other name is taken, or there is no such set to swap with",
            Self::TypeMismatch => "it is for a set of another type",
            Self::InvalidCidr => "the prefix length is invalid",
            Self::InvalidNetmask => "the netmask is invalid",
            Self::InvalidFamily => "the type does not have the family",
            Self::NoTimeouts => "the set has no timeouts",
            Self::NoCounters => "the set has no counters",
            Self::NoComments => "the set has no comments",
            Self::NoSkbinfo => "the set has no marks for packets",
            Self::ExpectedIpv4 => "an IPv4 address was expected",
            Self::ExpectedIpv6 => "an IPv6 address was expected",
            Self::InvalidMarkmask => "the mask of marks is invalid",
            Self::Full => "the set is full",
            Self::NullEntry => "the address is all zeros",
            Self::InvalidProtocol => "the protocol is invalid",
            Self::MissingProtocol => "the protocol is missing",
            Self::RangeUnsupported => "the type has no ranges of the family",
            Self::RangeTooLarge => "the range is too large",
            Self::OutOfRange => "it is out of the range of the set",
            Self::NoSuchSet => "there is no such set to list",
            Self::Loop => "a list cannot be in a list",
            Self::Protocol => "the message makes no sense to the kernel",
            Self::Errno(errno) => return write!(f, "{errno}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_a_type_means_what_the_type_says() {
        let full = Errno(TYPE_SPECIFIC);
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
    fn what_exists_for_an_addition_is_missing_for_a_removal() {
        let exist = Errno(PRIVATE + 7);
        assert_eq!(Reason::from_errno(exist, None, false), Reason::Exists);
        assert_eq!(Reason::from_errno(exist, None, true), Reason::Missing);
        assert_eq!(
            Reason::from_errno(Errno::NOENT, None, true),
            Reason::Missing
        );
    }
}
