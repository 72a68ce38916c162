//! Error numbers.

use std::{fmt, io};

use rustix::io::Errno as SystemErrno;

/// An error number of Linux.
///
/// Displays as the message of `strerror` with a lower-case first letter.
/// The constants have the numbers of the target's architecture, which `rustix`
/// defines. The type is not that of `rustix`: netlink families use private error
/// numbers above 4,095, such as those of ipset, which `rustix::io::Errno` cannot contain.
///
/// ```
/// use vipline_netlink::Errno;
///
/// let missing = Errno::NOENT;
/// assert_eq!((missing.0, missing.name()), (2, Some("ENOENT")));
/// assert_eq!(missing.to_string(), "no such file or directory");
/// assert_eq!(Errno(4097).name(), None);
/// ```
///
/// Exhaustive: an error number is one number.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Errno(pub i32);

/// Defines constants and their names.
macro_rules! errnos {
    ($($(#[$doc:meta])+ $name:ident = $system:ident $text:literal;)* others: $($other:ident,)*) => {
        impl Errno {
            $($(#[$doc])+ pub const $name: Self = Self(SystemErrno::$system.raw_os_error());)*
            $(
                #[doc = concat!("`E", stringify!($other), "`.")]
                pub const $other: Self = Self(SystemErrno::$other.raw_os_error());
            )*
        }

        /// All constants with their names in `asm/errno.h`.
        const NAMES: &[(Errno, &str)] = &[
            $((Errno::$name, $text),)*
            $((Errno::$other, concat!("E", stringify!($other))),)*
        ];
    };
}

errnos! {
    /// `EPERM`: operation not permitted.
    PERM = PERM "EPERM";
    /// `ENOENT`: no such object.
    NOENT = NOENT "ENOENT";
    /// `ESRCH`: no such object. IPVS returns it for a missing service.
    SRCH = SRCH "ESRCH";
    /// `EINTR`: interrupted by a signal.
    INTR = INTR "EINTR";
    /// `E2BIG`: argument list too long.
    TOOBIG = TOOBIG "E2BIG";
    /// `EAGAIN`: try again.
    AGAIN = AGAIN "EAGAIN";
    /// `EACCES`: permission denied.
    ACCES = ACCESS "EACCES";
    /// `EBUSY`: the object is in use.
    BUSY = BUSY "EBUSY";
    /// `EEXIST`: the object exists.
    EXIST = EXIST "EEXIST";
    /// `ENODEV`: no such device.
    NODEV = NODEV "ENODEV";
    /// `EINVAL`: invalid argument.
    INVAL = INVAL "EINVAL";
    /// `ERANGE`: number out of range.
    RANGE = RANGE "ERANGE";
    /// `ERESTART`: the generation ID of the batch is out of date.
    RESTART = RESTART "ERESTART";
    /// `EPROTONOSUPPORT`: protocol not supported.
    PROTONOSUPPORT = PROTONOSUPPORT "EPROTONOSUPPORT";
    /// `EOPNOTSUPP`: operation not supported.
    OPNOTSUPP = OPNOTSUPP "EOPNOTSUPP";
    /// `EAFNOSUPPORT`: address family not supported.
    AFNOSUPPORT = AFNOSUPPORT "EAFNOSUPPORT";
    /// `EADDRNOTAVAIL`: no such address.
    ADDRNOTAVAIL = ADDRNOTAVAIL "EADDRNOTAVAIL";
    /// `ENOBUFS`: buffer full, messages were lost.
    NOBUFS = NOBUFS "ENOBUFS";

    others:
    ADDRINUSE, ADV, ALREADY, BADE, BADF, BADFD, BADMSG, BADR, BADRQC, BADSLT, BFONT,
    CANCELED, CHILD, CHRNG, COMM, CONNABORTED, CONNREFUSED, CONNRESET, DEADLK, DESTADDRREQ,
    DOM, DOTDOT, DQUOT, FAULT, FBIG, HOSTDOWN, HOSTUNREACH, HWPOISON, IDRM, ILSEQ,
    INPROGRESS, IO, ISCONN, ISDIR, ISNAM, KEYEXPIRED, KEYREJECTED, KEYREVOKED, L2HLT,
    L2NSYNC, L3HLT, L3RST, LIBACC, LIBBAD, LIBEXEC, LIBMAX, LIBSCN, LNRNG, LOOP, MEDIUMTYPE,
    MFILE, MLINK, MSGSIZE, MULTIHOP, NAMETOOLONG, NAVAIL, NETDOWN, NETRESET, NETUNREACH,
    NFILE, NOANO, NOCSI, NODATA, NOEXEC, NOKEY, NOLCK, NOLINK, NOMEDIUM, NOMEM, NOMSG,
    NONET, NOPKG, NOPROTOOPT, NOSPC, NOSR, NOSTR, NOSYS, NOTBLK, NOTCONN, NOTDIR, NOTEMPTY,
    NOTNAM, NOTRECOVERABLE, NOTSOCK, NOTTY, NOTUNIQ, NXIO, OVERFLOW, OWNERDEAD, PFNOSUPPORT,
    PIPE, PROTO, PROTOTYPE, REMCHG, REMOTE, REMOTEIO, RFKILL, ROFS, SHUTDOWN,
    SOCKTNOSUPPORT, SPIPE, SRMNT, STALE, STRPIPE, TIME, TIMEDOUT, TOOMANYREFS, TXTBSY,
    UCLEAN, UNATCH, USERS, XDEV, XFULL,
}

impl Errno {
    /// Returns the name in `asm/errno.h`, such as `ENOENT`, or `None` for a number
    /// without a name.
    pub fn name(self) -> Option<&'static str> {
        let mut names = NAMES.iter();
        names
            .find(|(errno, _)| *errno == self)
            .map(|(_, name)| *name)
    }

    /// Returns the number of an error of the operating system, or `None` for an error of
    /// another origin.
    pub fn from_io_error(error: &io::Error) -> Option<Self> {
        error.raw_os_error().map(Self)
    }
}

impl From<Errno> for io::Error {
    fn from(errno: Errno) -> Self {
        Self::from_raw_os_error(errno.0)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = io::Error::from_raw_os_error(self.0).to_string();
        let words = text
            .rsplit_once(" (os error")
            .map_or(text.as_str(), |(words, _)| words);
        let mut letters = words.chars();
        match letters.next() {
            Some(first) => write!(f, "{}{}", first.to_lowercase(), letters.as_str()),
            None => write!(f, "error {}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_number_displays_as_a_lower_case_message() {
        assert_eq!(Errno::NOENT.to_string(), "no such file or directory");
        assert_eq!(Errno::EXIST.to_string(), "file exists");
        assert_eq!(Errno(4097).to_string(), "unknown error 4097");
    }

    #[test]
    fn every_error_number_has_one_name() {
        let mut numbers: Vec<i32> = NAMES.iter().map(|(errno, _)| errno.0).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), NAMES.len());
        // Linux has 133 error numbers; 41 and 58 are aliases or unused.
        let unnamed: Vec<i32> = (1..=133).filter(|it| Errno(*it).name().is_none()).collect();
        assert_eq!(unnamed, [41, 58]);
        assert_eq!(Errno::TOOBIG.name(), Some("E2BIG"));
        assert_eq!(Errno::from_io_error(&Errno::BUSY.into()), Some(Errno::BUSY));
    }
}
