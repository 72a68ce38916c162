//! Rejected requests.

use std::error::Error;
use std::fmt;

use crate::error::RareAttrs;
use crate::{Condition, Errno, Feature, KernelError, Policy};

/// A request that the kernel rejected.
///
/// Displays the request and the reason, in the form of
/// [`RejectedRequest::fmt_rejected`].
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Rejected<T> {
    /// The request, such as a command.
    pub request: T,
    /// Error number.
    pub errno: Errno,
    /// Error message of the extended ACK (`NLMSGERR_ATTR_MSG`).
    pub message: Option<Box<str>>,
    /// Offset of the invalid attribute from the message header, in bytes
    /// (`NLMSGERR_ATTR_OFFS`).
    pub offset: Option<u32>,
    /// Further attributes of the extended ACK.
    rare: Option<Box<RareAttrs>>,
}

impl<T> Rejected<T> {
    /// Creates a rejected request without an extended ACK.
    pub fn new(request: T, errno: Errno) -> Self {
        Self {
            request,
            errno,
            message: None,
            offset: None,
            rare: None,
        }
    }

    /// Creates a rejected request from the error of its message.
    pub fn from_kernel(request: T, error: KernelError) -> Self {
        Self {
            request,
            errno: error.errno,
            message: error.message,
            offset: error.offset,
            rare: error.rare,
        }
    }

    /// Returns the type of a missing attribute (`NLMSGERR_ATTR_MISS_TYPE`).
    pub fn missing_type(&self) -> Option<u32> {
        self.rare.as_ref()?.missing_type
    }

    /// Returns the offset of the nest that lacks an attribute from the message header, in
    /// bytes (`NLMSGERR_ATTR_MISS_NEST`).
    pub fn missing_nest(&self) -> Option<u32> {
        self.rare.as_ref()?.missing_nest
    }

    /// Returns the policy that the invalid attribute violates (`NLMSGERR_ATTR_POLICY`).
    pub fn policy(&self) -> Option<&Policy> {
        self.rare.as_ref()?.policy.as_ref()
    }

    /// Sets the message of the extended ACK.
    #[must_use]
    pub fn with_message(self, message: impl Into<Box<str>>) -> Self {
        Self {
            message: Some(message.into()),
            ..self
        }
    }

    /// Converts the request.
    pub fn map<U>(self, convert: impl FnOnce(T) -> U) -> Rejected<U> {
        Rejected {
            request: convert(self.request),
            errno: self.errno,
            message: self.message,
            offset: self.offset,
            rare: self.rare,
        }
    }

    /// Returns the reason: the text of the error number and the message, such as
    /// `invalid argument (chain type mismatch)`.
    pub fn reason(&self) -> impl fmt::Display + '_ {
        Reason {
            errno: self.errno,
            message: self.message.as_deref(),
        }
    }
}

/// The text of an error number and the message of the extended ACK.
pub(crate) struct Reason<'a> {
    pub(crate) errno: Errno,
    pub(crate) message: Option<&'a str>,
}

impl fmt::Display for Reason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.message {
            Some(message) => write!(f, "{} ({message})", self.errno),
            None => write!(f, "{}", self.errno),
        }
    }
}

/// A request of a client, with its text in errors and the meaning of error numbers.
///
/// ```
/// use std::fmt;
/// use vipline_netlink::{ClientError, Condition, Errno, Rejected, RejectedRequest};
///
/// #[derive(Clone, Debug)]
/// struct DeleteLink(&'static str);
///
/// impl fmt::Display for DeleteLink {
///     fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
///         write!(f, "delete {}", self.0)
///     }
/// }
///
/// impl RejectedRequest for DeleteLink {
///     fn condition(_: Option<&Self>, errno: Errno) -> Option<Condition> {
///         match errno {
///             Errno::NODEV => Some(Condition::NotFound),
///             _ => Condition::of(errno),
///         }
///     }
/// }
///
/// let rejected = Rejected::new(DeleteLink("eth7"), Errno::NODEV);
/// assert_eq!(rejected.to_string(), "delete eth7: no such device");
/// let error = ClientError::from_rejected(vec![rejected; 5]);
/// assert!(error.is_not_found());
/// assert!(error.to_string().ends_with("; and 2 more"));
/// ```
pub trait RejectedRequest: fmt::Debug + fmt::Display + Sized {
    /// What the kernel must have, for the error of a kernel without it.
    const FEATURE: Feature = Feature::new("netlink").with_option("CONFIG_NET");

    /// Returns what an error number means for a rejected request, or for a query of the
    /// client if there is no request.
    fn condition(request: Option<&Self>, errno: Errno) -> Option<Condition> {
        let _ = request;
        Condition::of(errno)
    }

    /// Returns what the reason of a request without encoding means, such as an object that
    /// its encoding contains and that does not exist.
    fn condition_of(reason: &(dyn Error + 'static)) -> Option<Condition> {
        let _ = reason;
        None
    }

    /// Writes the request and the [reason](Rejected::reason) for its rejection, without a
    /// line break.
    ///
    /// # Errors
    ///
    /// The errors of the formatter.
    fn fmt_rejected(rejected: &Rejected<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", rejected.request, rejected.reason())
    }

    /// Writes the reason for the rejection of a query, without a line break.
    ///
    /// # Errors
    ///
    /// The errors of the formatter.
    fn fmt_reason(error: &KernelError, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{error}")
    }
}

impl<T: RejectedRequest> fmt::Display for Rejected<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        T::fmt_rejected(self, f)
    }
}

/// Displays the first three of several rejected requests and the number of the others.
#[derive(Clone, Copy, Debug)]
pub struct RejectedList<'a, T> {
    rejected: &'a [Rejected<T>],
    more: Option<usize>,
}

impl<'a, T> RejectedList<'a, T> {
    /// Maximum number of requests to display; further ones are counted.
    const SHOWN: usize = 3;

    /// Creates a list of all rejected requests.
    pub fn new(rejected: &'a [Rejected<T>]) -> Self {
        Self {
            rejected,
            more: Some(0),
        }
    }

    /// Sets the number of rejected requests that are not in the list. `None`: unknown.
    #[must_use]
    pub fn with_more(self, more: Option<usize>) -> Self {
        Self { more, ..self }
    }
}

impl<T: RejectedRequest> fmt::Display for RejectedList<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.rejected.iter().take(Self::SHOWN);
        for (index, one) in shown.clone().enumerate() {
            if index > 0 {
                f.write_str("; ")?;
            }
            write!(f, "{one}")?;
        }
        let hidden = self.rejected.len() - shown.len();
        match self.more.map(|more| hidden + more) {
            Some(0) => Ok(()),
            Some(more) => write!(f, "; and {more} more"),
            None => f.write_str("; and more, whose acknowledgments were lost"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Ack;

    #[derive(Clone, Debug, Eq, PartialEq)]
    struct Number(u8);

    impl fmt::Display for Number {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "number {}", self.0)
        }
    }

    impl RejectedRequest for Number {}

    #[test]
    fn a_rejected_request_has_the_extended_ack() {
        let ack = Ack {
            message: Some("in use by a rule"),
            offset: Some(20),
            missing_type: Some(3),
            ..Ack::default()
        };
        let error = KernelError::new(7, Errno::BUSY, ack);
        let rejected = Rejected::from_kernel(7, error).map(Number);
        assert_eq!(rejected.offset, Some(20));
        assert_eq!(rejected.missing_type(), Some(3));
        assert_eq!((rejected.missing_nest(), rejected.policy()), (None, None));
        let text = "number 7: device or resource busy (in use by a rule)";
        assert_eq!(rejected.to_string(), text);
        let same = Rejected::new(Number(7), Errno::BUSY).with_message("in use by a rule");
        assert_eq!(same.to_string(), text);
    }

    #[test]
    fn the_first_three_are_shown_and_the_others_counted() {
        let all: Vec<_> = (1..=4)
            .map(|number| Rejected::new(Number(number), Errno::EXIST))
            .collect();
        let text = |shown: usize| RejectedList::new(&all[..shown]).to_string();
        assert_eq!(text(0), "");
        assert_eq!(text(1), "number 1: file exists");
        assert_eq!(text(2), "number 1: file exists; number 2: file exists");
        let three = text(3);
        assert!(three.ends_with("; number 3: file exists"), "{three}");
        assert_eq!(text(4), format!("{three}; and 1 more"));
        let counted = RejectedList::new(&all).with_more(Some(6));
        assert_eq!(counted.to_string(), format!("{three}; and 7 more"));
        let lost = RejectedList::new(&all).with_more(None).to_string();
        assert_eq!(
            lost,
            format!("{three}; and more, whose acknowledgments were lost")
        );
    }
}
