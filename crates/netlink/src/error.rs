//! Netlink errors.

use std::{fmt, io};

use thiserror::Error;

use crate::rejected::Reason;

/// An error of a netlink socket.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The send buffer of the socket cannot grow to the length of the batch; nothing was
    /// sent.
    #[error("batch of {bytes} bytes exceeds the send buffer limit of {limit} bytes")]
    BatchTooLarge {
        /// Length of the batch, in bytes.
        bytes: usize,
        /// Maximum length, in bytes.
        limit: usize,
    },
    /// A message from the kernel, or a batch to send, is malformed.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// A system call failed.
    #[error("{operation}")]
    Io {
        /// Failed operation.
        operation: &'static str,
        /// Error of the system call.
        source: io::Error,
    },
    /// The kernel rejected the request.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// Replies were lost because the receive buffer was full (`ENOBUFS`); the request may
    /// have been executed.
    #[error("receive buffer overrun: replies were lost")]
    Overrun,
    /// The kernel did not reply in time; the request may have been executed.
    #[error("the kernel did not reply in time")]
    Timeout,
    /// A datagram is larger than the buffer that receives it; the request may have been
    /// executed.
    #[error("datagram of {bytes} bytes exceeds the receive buffer of {limit} bytes")]
    Truncated {
        /// Length of the datagram, in bytes.
        bytes: usize,
        /// Length of the buffer, in bytes.
        limit: usize,
    },
}

impl Error {
    /// Returns the error number, if the error has one.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Io { source, .. } => source.raw_os_error().map(Errno),
            Self::Kernel(error) => Some(error.errno),
            _ => None,
        }
    }

    /// Returns the error number of a failed system call if the kernel lacks the netlink
    /// protocol (`EPROTONOSUPPORT`, `EAFNOSUPPORT`).
    ///
    /// [`Socket::open`](crate::Socket::open) fails in this way on a kernel without
    /// nfnetlink.
    pub fn missing_protocol(&self) -> Option<Errno> {
        match self {
            Self::Io { .. } => self
                .errno()
                .filter(|errno| matches!(*errno, Errno::PROTONOSUPPORT | Errno::AFNOSUPPORT)),
            _ => None,
        }
    }
}

/// The error that the kernel returned for one message (`NLMSG_ERROR`).
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub struct KernelError {
    /// Sequence number of the message.
    pub seq: u32,
    /// Error number.
    pub errno: Errno,
    /// Error message of the extended ACK (`NLMSGERR_ATTR_MSG`).
    pub message: Option<Box<str>>,
    /// Offset of the invalid attribute from the message header, in bytes
    /// (`NLMSGERR_ATTR_OFFS`).
    pub offset: Option<u32>,
    /// Type of a missing attribute (`NLMSGERR_ATTR_MISS_TYPE`).
    pub missing_type: Option<u32>,
    /// Payload of the rejected message, if the kernel returned it.
    pub request: Box<[u8]>,
}

impl fmt::Display for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (errno, message) = (self.errno, self.message.as_deref());
        Reason { errno, message }.fmt(f)
    }
}

/// An error number of Linux.
///
/// Displays as the message of `strerror` with a lower-case first letter.
///
/// Exhaustive: an error number is one number.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Errno(pub i32);

impl Errno {
    /// `EPERM`: operation not permitted.
    pub const PERM: Self = Self(1);
    /// `ENOENT`: no such object.
    pub const NOENT: Self = Self(2);
    /// `ESRCH`: no such object. IPVS returns it for a missing service.
    pub const SRCH: Self = Self(3);
    /// `EINTR`: interrupted by a signal.
    pub const INTR: Self = Self(4);
    /// `EAGAIN`: try again.
    pub const AGAIN: Self = Self(11);
    /// `EACCES`: permission denied.
    pub const ACCES: Self = Self(13);
    /// `EBUSY`: the object is in use.
    pub const BUSY: Self = Self(16);
    /// `EEXIST`: the object exists.
    pub const EXIST: Self = Self(17);
    /// `ENODEV`: no such device.
    pub const NODEV: Self = Self(19);
    /// `EINVAL`: invalid argument.
    pub const INVAL: Self = Self(22);
    /// `ERANGE`: number out of range.
    pub const RANGE: Self = Self(34);
    /// `ERESTART`: the generation ID of the batch is out of date.
    pub const RESTART: Self = Self(85);
    /// `EPROTONOSUPPORT`: protocol not supported.
    pub const PROTONOSUPPORT: Self = Self(93);
    /// `EOPNOTSUPP`: operation not supported.
    pub const OPNOTSUPP: Self = Self(95);
    /// `EAFNOSUPPORT`: address family not supported.
    pub const AFNOSUPPORT: Self = Self(97);
    /// `EADDRNOTAVAIL`: no such address.
    pub const ADDRNOTAVAIL: Self = Self(99);
    /// `ENOBUFS`: buffer full, messages were lost.
    pub const NOBUFS: Self = Self(105);
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

/// Malformed bytes of a message or an attribute.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("expected {expected}, found type {kind} with {len} bytes")]
#[non_exhaustive]
pub struct DecodeError {
    /// Expected content.
    pub expected: &'static str,
    /// Type of the attribute or message; 0 if unknown.
    pub kind: u16,
    /// Length of the malformed bytes.
    pub len: usize,
}

impl DecodeError {
    /// Creates an error.
    pub fn new(expected: &'static str, kind: u16, len: usize) -> Self {
        Self {
            expected,
            kind,
            len,
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
    fn only_a_failed_system_call_reports_a_missing_protocol() {
        let failed = |errno: Errno| Error::Io {
            operation: "open a netlink socket",
            source: io::Error::from_raw_os_error(errno.0),
        };
        for errno in [Errno::PROTONOSUPPORT, Errno::AFNOSUPPORT] {
            assert_eq!(failed(errno).missing_protocol(), Some(errno));
            let rejected = KernelError::new(1, errno, crate::message::Ack::default());
            assert_eq!(Error::from(rejected).missing_protocol(), None);
        }
        assert_eq!(failed(Errno::PERM).missing_protocol(), None);
        assert_eq!(Error::Timeout.missing_protocol(), None);
    }

    #[test]
    fn a_kernel_error_displays_the_message_of_the_extended_ack() {
        let error = KernelError {
            seq: 1,
            errno: Errno::INVAL,
            message: Some("chain type mismatch".into()),
            offset: None,
            missing_type: None,
            request: Box::default(),
        };
        assert_eq!(error.to_string(), "invalid argument (chain type mismatch)");
    }
}
