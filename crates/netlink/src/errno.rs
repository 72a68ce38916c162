//! Error numbers.

use std::{fmt, io};

use linux_raw_sys::errno;

/// Whether the numbers are those of the operating system.
const IS_LINUX: bool = cfg!(target_os = "linux");

/// An error number of Linux.
///
/// Displays as the message of `strerror` with a lower-case first letter; on other systems
/// than Linux as its name.
/// The constants have the numbers of the target's architecture, also on other systems than
/// Linux. The type is not that of `rustix`: netlink families use private error numbers above
/// 4,095, such as those of ipset, which `rustix::io::Errno` cannot contain.
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
    ($($(#[$doc:meta])+ $name:ident = $system:ident;)* others: $($other:ident = $number:ident,)*) => {
        impl Errno {
            $($(#[$doc])+ pub const $name: Self = Self(errno::$system.cast_signed());)*
            $(
                #[doc = concat!("`", stringify!($number), "`.")]
                pub const $other: Self = Self(errno::$number.cast_signed());
            )*
        }

        /// All constants with their names in `asm/errno.h`.
        const NAMES: &[(Errno, &str)] = &[
            $((Errno::$name, stringify!($system)),)*
            $((Errno::$other, stringify!($number)),)*
        ];
    };
}

errnos! {
    /// `EPERM`: operation not permitted.
    PERM = EPERM;
    /// `ENOENT`: no such object.
    NOENT = ENOENT;
    /// `ESRCH`: no such object. IPVS returns it for a missing service.
    SRCH = ESRCH;
    /// `EINTR`: interrupted by a signal.
    INTR = EINTR;
    /// `E2BIG`: argument list too long.
    TOOBIG = E2BIG;
    /// `EAGAIN`: try again.
    AGAIN = EAGAIN;
    /// `EACCES`: permission denied.
    ACCES = EACCES;
    /// `EBUSY`: the object is in use.
    BUSY = EBUSY;
    /// `EEXIST`: the object exists.
    EXIST = EEXIST;
    /// `ENODEV`: no such device.
    NODEV = ENODEV;
    /// `EINVAL`: invalid argument.
    INVAL = EINVAL;
    /// `ERANGE`: number out of range.
    RANGE = ERANGE;
    /// `ERESTART`: the generation ID of the batch is out of date.
    RESTART = ERESTART;
    /// `EPROTONOSUPPORT`: protocol not supported.
    PROTONOSUPPORT = EPROTONOSUPPORT;
    /// `EOPNOTSUPP`: operation not supported.
    OPNOTSUPP = EOPNOTSUPP;
    /// `EAFNOSUPPORT`: address family not supported.
    AFNOSUPPORT = EAFNOSUPPORT;
    /// `EADDRNOTAVAIL`: no such address.
    ADDRNOTAVAIL = EADDRNOTAVAIL;
    /// `ENOBUFS`: buffer full, messages were lost.
    NOBUFS = ENOBUFS;

    others:
    ADDRINUSE = EADDRINUSE, ADV = EADV, ALREADY = EALREADY, BADE = EBADE, BADF = EBADF,
    BADFD = EBADFD, BADMSG = EBADMSG, BADR = EBADR, BADRQC = EBADRQC, BADSLT = EBADSLT,
    BFONT = EBFONT, CANCELED = ECANCELED, CHILD = ECHILD, CHRNG = ECHRNG, COMM = ECOMM,
    CONNABORTED = ECONNABORTED, CONNREFUSED = ECONNREFUSED, CONNRESET = ECONNRESET,
    DEADLK = EDEADLK, DESTADDRREQ = EDESTADDRREQ, DOM = EDOM, DOTDOT = EDOTDOT, DQUOT = EDQUOT,
    FAULT = EFAULT, FBIG = EFBIG, HOSTDOWN = EHOSTDOWN, HOSTUNREACH = EHOSTUNREACH,
    HWPOISON = EHWPOISON, IDRM = EIDRM, ILSEQ = EILSEQ, INPROGRESS = EINPROGRESS, IO = EIO,
    ISCONN = EISCONN, ISDIR = EISDIR, ISNAM = EISNAM, KEYEXPIRED = EKEYEXPIRED,
    KEYREJECTED = EKEYREJECTED, KEYREVOKED = EKEYREVOKED, L2HLT = EL2HLT, L2NSYNC = EL2NSYNC,
    L3HLT = EL3HLT, L3RST = EL3RST, LIBACC = ELIBACC, LIBBAD = ELIBBAD, LIBEXEC = ELIBEXEC,
    LIBMAX = ELIBMAX, LIBSCN = ELIBSCN, LNRNG = ELNRNG, LOOP = ELOOP, MEDIUMTYPE = EMEDIUMTYPE,
    MFILE = EMFILE, MLINK = EMLINK, MSGSIZE = EMSGSIZE, MULTIHOP = EMULTIHOP,
    NAMETOOLONG = ENAMETOOLONG, NAVAIL = ENAVAIL, NETDOWN = ENETDOWN, NETRESET = ENETRESET,
    NETUNREACH = ENETUNREACH, NFILE = ENFILE, NOANO = ENOANO, NOCSI = ENOCSI, NODATA = ENODATA,
    NOEXEC = ENOEXEC, NOKEY = ENOKEY, NOLCK = ENOLCK, NOLINK = ENOLINK, NOMEDIUM = ENOMEDIUM,
    NOMEM = ENOMEM, NOMSG = ENOMSG, NONET = ENONET, NOPKG = ENOPKG, NOPROTOOPT = ENOPROTOOPT,
    NOSPC = ENOSPC, NOSR = ENOSR, NOSTR = ENOSTR, NOSYS = ENOSYS, NOTBLK = ENOTBLK,
    NOTCONN = ENOTCONN, NOTDIR = ENOTDIR, NOTEMPTY = ENOTEMPTY, NOTNAM = ENOTNAM,
    NOTRECOVERABLE = ENOTRECOVERABLE, NOTSOCK = ENOTSOCK, NOTTY = ENOTTY, NOTUNIQ = ENOTUNIQ,
    NXIO = ENXIO, OVERFLOW = EOVERFLOW, OWNERDEAD = EOWNERDEAD, PFNOSUPPORT = EPFNOSUPPORT,
    PIPE = EPIPE, PROTO = EPROTO, PROTOTYPE = EPROTOTYPE, REMCHG = EREMCHG, REMOTE = EREMOTE,
    REMOTEIO = EREMOTEIO, RFKILL = ERFKILL, ROFS = EROFS, SHUTDOWN = ESHUTDOWN,
    SOCKTNOSUPPORT = ESOCKTNOSUPPORT, SPIPE = ESPIPE, SRMNT = ESRMNT, STALE = ESTALE,
    STRPIPE = ESTRPIPE, TIME = ETIME, TIMEDOUT = ETIMEDOUT, TOOMANYREFS = ETOOMANYREFS,
    TXTBSY = ETXTBSY, UCLEAN = EUCLEAN, UNATCH = EUNATCH, USERS = EUSERS, XDEV = EXDEV,
    XFULL = EXFULL,
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
    /// another origin or another system than Linux.
    pub fn from_io_error(error: &io::Error) -> Option<Self> {
        let number = error.raw_os_error().filter(|_| IS_LINUX);
        number.map(Self)
    }
}

impl From<Errno> for io::Error {
    fn from(errno: Errno) -> Self {
        match IS_LINUX {
            true => Self::from_raw_os_error(errno.0),
            false => Self::other(errno.to_string()),
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = self.name().filter(|_| !IS_LINUX) {
            return f.write_str(name);
        }
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
