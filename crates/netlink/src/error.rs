//! What goes wrong with netlink.

use std::{fmt, io};

use thiserror::Error;

/// Why a request to the kernel failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The batch is longer than the kernel takes at once; nothing was sent.
    #[error(
        "a batch of {bytes} bytes is longer than the {limit} bytes the socket can send at once"
    )]
    BatchTooLarge {
        /// The length of the batch.
        bytes: usize,
        /// The greatest length that can be sent.
        limit: usize,
    },
    /// The kernel's bytes are not what they should be.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The machine failed.
    #[error("{operation}")]
    Io {
        /// What was being done.
        operation: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The kernel refused the request.
    #[error(transparent)]
    Kernel(#[from] Refusal),
    /// Answers were lost because the socket's buffer was full.
    ///
    /// What was asked may have been done or not.
    #[error("answers of the kernel were lost, so its state is unknown")]
    Overrun,
    /// The kernel did not answer in time; what was asked may have been done.
    #[error("the kernel did not answer in time")]
    Timeout,
    /// A datagram is longer than the buffer for it.
    #[error("a datagram of {bytes} bytes is longer than the buffer of {limit} bytes")]
    Truncated {
        /// The length of the datagram.
        bytes: usize,
        /// The length of the buffer.
        limit: usize,
    },
}

impl Error {
    /// Returns the error number behind the failure, if there is one.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Io { source, .. } => source.raw_os_error().map(Errno),
            Self::Kernel(refusal) => Some(refusal.errno),
            _ => None,
        }
    }
}

/// The kernel's no to one message.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub struct Refusal {
    /// The sequence number of the message.
    pub seq: u32,
    /// Why.
    pub errno: Errno,
    /// What the kernel has to say about it, in its own words.
    pub text: Option<Box<str>>,
    /// The byte of the message that it is about, counted from its header.
    pub offset: Option<u32>,
    /// The type of the attribute that is missing.
    pub missing: Option<u32>,
    /// The payload of the message, if the kernel sent it back.
    pub echo: Box<[u8]>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.errno)?;
        match &self.text {
            Some(text) => write!(f, " ({text})"),
            None => Ok(()),
        }
    }
}

/// An error number, shown in the words of the system.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Errno(pub i32);

impl Errno {
    /// `EPERM`: the capability is missing.
    pub const PERM: Self = Self(1);
    /// `ENOENT`: there is no such object.
    pub const NOENT: Self = Self(2);
    /// `ESRCH`: what the request is about is not there.
    pub const SRCH: Self = Self(3);
    /// `EINTR`: a signal came.
    pub const INTR: Self = Self(4);
    /// `EAGAIN`: there is nothing yet.
    pub const AGAIN: Self = Self(11);
    /// `EACCES`: access is denied.
    pub const ACCES: Self = Self(13);
    /// `EBUSY`: the object is in use.
    pub const BUSY: Self = Self(16);
    /// `EEXIST`: the object exists.
    pub const EXIST: Self = Self(17);
    /// `ENODEV`: there is no such link.
    pub const NODEV: Self = Self(19);
    /// `EINVAL`: the request makes no sense to the kernel.
    pub const INVAL: Self = Self(22);
    /// `ERANGE`: a number is out of its range.
    pub const RANGE: Self = Self(34);
    /// `ERESTART`: the state changed since the generation that was named.
    pub const RESTART: Self = Self(85);
    /// `EPROTONOSUPPORT`: the kernel does not speak this protocol.
    pub const PROTONOSUPPORT: Self = Self(93);
    /// `EOPNOTSUPP`: the kernel cannot do this.
    pub const OPNOTSUPP: Self = Self(95);
    /// `EAFNOSUPPORT`: the kernel does not know this address family.
    pub const AFNOSUPPORT: Self = Self(97);
    /// `EADDRNOTAVAIL`: there is no such address.
    pub const ADDRNOTAVAIL: Self = Self(99);
    /// `ENOBUFS`: a buffer was full, something was lost.
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

/// Bytes that are not what they should be.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("type {kind} with {len} bytes is no {what}")]
#[non_exhaustive]
pub struct DecodeError {
    /// What was expected.
    pub what: &'static str,
    /// The type of the attribute or message.
    pub kind: u16,
    /// The number of bytes it has.
    pub len: usize,
}

impl DecodeError {
    /// Returns the error that something of type `kind` with `len` bytes is no `what`.
    pub fn new(what: &'static str, kind: u16, len: usize) -> Self {
        Self { what, kind, len }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_number_is_shown_in_lower_case_words() {
        assert_eq!(Errno::NOENT.to_string(), "no such file or directory");
        assert_eq!(Errno::EXIST.to_string(), "file exists");
        assert_eq!(Errno(4097).to_string(), "unknown error 4097");
    }

    #[test]
    fn a_refusal_adds_the_words_of_the_kernel() {
        let refusal = Refusal {
            seq: 1,
            errno: Errno::INVAL,
            text: Some("chain type mismatch".into()),
            offset: None,
            missing: None,
            echo: Box::default(),
        };
        assert_eq!(
            refusal.to_string(),
            "invalid argument (chain type mismatch)"
        );
    }
}
