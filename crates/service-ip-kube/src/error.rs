//! What goes wrong between us and the API server.

use std::error::Error as StdError;
use std::fmt;

use hyper_util::client::legacy::Error as Transport;
use kube::core::Status;
use thiserror::Error;
use vipline_service_ip::StoreError;

/// What was not done, and why.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("{operation} {object}: {cause}")]
#[non_exhaustive]
pub struct Error {
    /// What was being done: `create`, `list`, ….
    pub operation: &'static str,
    /// What was read or written: `IPAddress 10.0.0.1`.
    pub object: Box<str>,
    /// Why.
    pub cause: Cause,
}

/// Why something was not done.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum Cause {
    /// The credentials cannot be read or used.
    #[error("{0}")]
    Configuration(Box<str>),
    /// Others were faster in each attempt.
    #[error("conflict with other processes in each of {attempts} attempts")]
    Contended {
        /// How often it was tried.
        attempts: usize,
    },
    /// An IPAddress is not one that allocators of Services manage, and is left
    /// as it is.
    #[error("it is not managed by ipallocator.k8s.io")]
    NotManaged,
    /// Nothing was heard of it after it was asked: it may have been done.
    #[error("no answer: {0}")]
    NoResponse(Box<str>),
    /// Nothing was sent.
    #[error("{0}")]
    NotSent(Box<str>),
    /// The server refused.
    #[error("{message} (code {code})")]
    Rejected {
        /// The HTTP status code.
        code: u16,
        /// The reason, as `AlreadyExists`.
        reason: Box<str>,
        /// What the server says.
        message: Box<str>,
    },
    /// A part of a change was made, and cannot be undone.
    #[error("a part of the change was made, and somebody else was there before it was undone")]
    RollbackFailed,
    /// What the server sent is not what it should be.
    #[error("{0}")]
    Unreadable(Box<str>),
}

impl Error {
    pub(crate) fn new(operation: &'static str, object: impl fmt::Display, cause: Cause) -> Self {
        Self {
            operation,
            object: object.to_string().into(),
            cause,
        }
    }

    /// Tells whether there is no such object.
    #[must_use]
    pub const fn is_not_found(&self) -> bool {
        matches!(self.cause, Cause::Rejected { code: 404, .. })
    }

    /// Tells whether there is an object of that name already.
    #[must_use]
    pub fn is_already_exists(&self) -> bool {
        matches!(&self.cause, Cause::Rejected { code: 409, reason, .. } if **reason == *"AlreadyExists")
    }

    /// Tells whether the object is not any more what it was when it was read.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        matches!(self.cause, Cause::Rejected { code: 409, .. }) && !self.is_already_exists()
    }

    /// Tells whether somebody else was faster, so that a new plan is needed.
    pub(crate) fn is_race(&self) -> bool {
        self.is_conflict() || self.is_already_exists() || self.is_not_found()
    }

    /// Tells whether what was to be changed may have been changed.
    ///
    /// A server that fails may fail after it has stored something.
    #[must_use]
    pub const fn is_unknown(&self) -> bool {
        matches!(
            self.cause,
            Cause::NoResponse(_)
                | Cause::RollbackFailed
                | Cause::Unreadable(_)
                | Cause::Rejected { code: 500.., .. }
        )
    }

    /// Returns whether the server refuses this object, but may accept others.
    pub(crate) const fn is_refused(&self) -> bool {
        matches!(
            self.cause,
            Cause::Rejected {
                code: 400 | 403 | 422,
                ..
            }
        )
    }

    /// Tells whether the server has forgotten the time that a list is of.
    pub(crate) const fn is_expired(&self) -> bool {
        matches!(self.cause, Cause::Rejected { code: 410, .. })
    }
}

impl From<Error> for StoreError {
    fn from(error: Error) -> Self {
        Self::Unavailable {
            operation: error.operation,
            object: error.object,
            source: Box::new(error.cause),
        }
    }
}

impl From<kube::Error> for Cause {
    fn from(error: kube::Error) -> Self {
        match error {
            // The client takes whatever it cannot read for a refusal without words.
            kube::Error::Api(status) if status.code == 0 && status.status.is_none() => {
                Self::Unreadable("an object of another shape".into())
            }
            kube::Error::Api(status) => Self::from(*status),
            kube::Error::SerdeError(error) => Self::Unreadable(words(&error)),
            kube::Error::FromUtf8(error) => Self::Unreadable(words(&error)),
            error @ (kube::Error::Service(_) | kube::Error::HyperError(_)) => {
                if has_no_connection(&error) {
                    Self::NotSent(words(&error))
                } else {
                    Self::NoResponse(words(&error))
                }
            }
            error @ (kube::Error::Auth(_)
            | kube::Error::BuildRequest(_)
            | kube::Error::InferConfig(_)
            | kube::Error::InferKubeconfig(_)
            | kube::Error::RustlsTls(_)
            | kube::Error::TlsRequired) => Self::NotSent(words(&error)),
            error => Self::NoResponse(words(&error)),
        }
    }
}

impl From<Status> for Cause {
    fn from(status: Status) -> Self {
        Self::Rejected {
            code: status.code,
            message: match &*status.message {
                "" => "refused without a word".into(),
                message => message.trim_end().into(),
            },
            reason: status.reason.into(),
        }
    }
}

/// Tells whether a request failed because there was no connection to send it on.
fn has_no_connection(error: &(dyn StdError + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(transport) = error.downcast_ref::<Transport>() {
            return transport.is_connect();
        }
        cause = error.source();
    }
    false
}

/// Returns an error with those of its causes that it does not tell itself.
pub(crate) fn words(error: &dyn StdError) -> Box<str> {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let words = error.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        cause = error.source();
    }
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: u16, reason: &str) -> Error {
        let cause = Cause::Rejected {
            code,
            reason: reason.into(),
            message: "words".into(),
        };
        Error::new("create", "IPAddress 10.0.0.1", cause)
    }

    #[test]
    fn a_refusal_is_told_with_the_object_and_the_servers_words() {
        let error = refused(409, "AlreadyExists");
        assert_eq!(
            error.to_string(),
            "create IPAddress 10.0.0.1: words (code 409)"
        );
        assert!(error.is_already_exists() && !error.is_conflict() && error.is_race());
        let error = refused(409, "Conflict");
        assert!(!error.is_already_exists() && error.is_conflict() && error.is_race());
        assert!(refused(404, "NotFound").is_not_found());
    }

    #[test]
    fn only_what_the_server_may_have_done_is_unknown() {
        for code in [400, 403, 404, 409, 422, 429] {
            assert!(!refused(code, "").is_unknown(), "{code}");
        }
        for code in [500, 503, 504] {
            assert!(refused(code, "").is_unknown(), "{code}");
        }
        for (cause, is_unknown) in [
            (Cause::NoResponse("x".into()), true),
            (Cause::Unreadable("x".into()), true),
            (Cause::NotSent("x".into()), false),
            (Cause::NotManaged, false),
        ] {
            let error = Error::new("create", "x", cause);
            assert_eq!(error.is_unknown(), is_unknown, "{error}");
        }
    }
}
