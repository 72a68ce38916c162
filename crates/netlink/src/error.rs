//! Netlink errors.

use std::{fmt, io};

use thiserror::Error;

use crate::message::Ack;
use crate::readable::readable_debug;
use crate::rejected::Reason;
use crate::{Errno, Policy};

/// An error of a netlink socket.
///
/// `Debug` writes a sentence with the sources, and the fields in the alternate form.
#[derive(Error)]
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
    #[error("{0}")]
    Kernel(KernelError),
    /// Notifications were lost: the receive buffer was full, or a datagram was malformed or
    /// too large. A dump shows what the lost ones would have reported.
    ///
    /// An [`EventSource`](crate::EventSource) returns this error after all notifications that
    /// it received before, so a dump after the error misses no change.
    #[error("notifications were lost: dump the objects again")]
    NotificationsLost,
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

readable_debug!([] Error {
    BatchTooLarge { bytes, limit },
    Decode(error),
    Io { operation, source },
    Kernel(error),
    NotificationsLost,
    Overrun,
    Timeout,
    Truncated { bytes, limit },
});

impl Error {
    /// Returns the error number, if the error has one.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Io { source, .. } => Errno::from_io_error(source),
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

impl From<KernelError> for Error {
    fn from(error: KernelError) -> Self {
        Self::Kernel(error)
    }
}

/// What the kernel replied to one message that it rejected (`NLMSG_ERROR`): the reason of
/// [`Error::Kernel`], and of each rejected message of a batch.
///
/// `Debug` writes a sentence, and the fields in the alternate form.
#[derive(Clone, Eq, PartialEq)]
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
    /// Payload of the rejected message, if the kernel returned it.
    pub request: Box<[u8]>,
    /// Further attributes of the extended ACK; boxed because few errors have them.
    pub(crate) rare: Option<Box<RareAttrs>>,
}

/// Attributes of an extended ACK that few errors have.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct RareAttrs {
    pub(crate) missing_type: Option<u32>,
    pub(crate) missing_nest: Option<u32>,
    pub(crate) policy: Option<Policy>,
    pub(crate) cookie: Option<Box<[u8]>>,
}

impl RareAttrs {
    /// Returns the attributes of an acknowledgment, or `None` if it has none.
    fn of(ack: &Ack<'_>) -> Option<Box<Self>> {
        let attrs = Self {
            missing_type: ack.missing_type,
            missing_nest: ack.missing_nest,
            policy: ack.policy,
            cookie: ack.cookie.map(Box::from),
        };
        (attrs != Self::default()).then(|| Box::new(attrs))
    }
}

impl KernelError {
    /// Creates an error from the acknowledgment of message `seq`.
    pub fn new(seq: u32, errno: Errno, ack: Ack<'_>) -> Self {
        Self {
            seq,
            errno,
            message: ack.message.map(Box::from),
            offset: ack.offset,
            request: ack.request.into(),
            rare: RareAttrs::of(&ack),
        }
    }

    /// Returns the type of a missing attribute (`NLMSGERR_ATTR_MISS_TYPE`).
    pub fn missing_type(&self) -> Option<u32> {
        self.rare.as_ref()?.missing_type
    }

    /// Returns the offset of the nest that lacks an attribute from the message header, in
    /// bytes (`NLMSGERR_ATTR_MISS_NEST`). Returns `None` if the message itself lacks the
    /// attribute.
    pub fn missing_nest(&self) -> Option<u32> {
        self.rare.as_ref()?.missing_nest
    }

    /// Returns the policy that the invalid attribute violates (`NLMSGERR_ATTR_POLICY`).
    pub fn policy(&self) -> Option<&Policy> {
        self.rare.as_ref()?.policy.as_ref()
    }

    /// Returns the cookie that identifies the object (`NLMSGERR_ATTR_COOKIE`). Its
    /// content depends on the family.
    pub fn cookie(&self) -> Option<&[u8]> {
        self.rare.as_ref()?.cookie.as_deref()
    }
}

impl fmt::Debug for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !f.alternate() {
            return fmt::Display::fmt(self, f);
        }
        let Self {
            seq,
            errno,
            message,
            offset,
            request,
            rare,
        } = self;
        f.debug_struct("KernelError")
            .field("seq", seq)
            .field("errno", errno)
            .field("message", message)
            .field("offset", offset)
            .field("request", request)
            .field("rare", rare)
            .finish()
    }
}

impl fmt::Display for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (errno, message) = (self.errno, self.message.as_deref());
        Reason { errno, message }.fmt(f)
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
    fn only_a_failed_system_call_reports_a_missing_protocol() {
        let failed = |errno: Errno| Error::Io {
            operation: "open a netlink socket",
            source: io::Error::from_raw_os_error(errno.0),
        };
        for errno in [Errno::PROTONOSUPPORT, Errno::AFNOSUPPORT] {
            assert_eq!(failed(errno).missing_protocol(), Some(errno));
            let rejected = KernelError::new(1, errno, Ack::default());
            assert_eq!(Error::from(rejected).missing_protocol(), None);
        }
        let denied = failed(Errno::PERM);
        let text = "open a netlink socket: Operation not permitted (os error 1)";
        assert_eq!(format!("{denied:?}"), text);
        assert_eq!(denied.missing_protocol(), None);
        assert_eq!(Error::Timeout.missing_protocol(), None);
    }

    #[test]
    fn a_kernel_error_displays_the_message_of_the_extended_ack() {
        let error = KernelError {
            seq: 1,
            errno: Errno::INVAL,
            message: Some("chain type mismatch".into()),
            offset: None,
            request: Box::default(),
            rare: None,
        };
        assert_eq!(error.to_string(), "invalid argument (chain type mismatch)");
        assert_eq!(format!("{error:?}"), error.to_string());
        assert!(format!("{error:#?}").contains("seq: 1"), "{error:#?}");
    }
}
