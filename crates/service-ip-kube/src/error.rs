//! Errors of requests to the API server.

use std::error::Error as StdError;
use std::fmt;

use hyper_util::client::legacy::Error as Transport;
use kube::core::Status;
use thiserror::Error;
use vipline_service_ip::StoreError;

/// A failed operation, or an object that cannot be converted.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum Error {
    /// An operation failed.
    #[error("{operation} {object}: {cause}")]
    Failed {
        /// Operation: `create`, `list`, ….
        operation: &'static str,
        /// Object: `IPAddress 10.0.0.1`.
        object: Box<str>,
        /// Cause.
        cause: Cause,
    },
    /// A field of a Service cannot be used.
    #[error("{field}: {problem}")]
    Field {
        /// Path of the field, such as `spec.ports[0].port`.
        field: Box<str>,
        /// The value and what is wrong with it.
        problem: Box<str>,
    },
    /// An object of the API lacks a required field.
    #[error("missing {field}")]
    MissingField {
        /// The field.
        field: &'static str,
    },
}

/// Cause of [`Error::Failed`].
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Cause {
    /// The credentials cannot be read or used.
    Configuration(Box<str>),
    /// Every attempt failed with a conflict with another process.
    Contended {
        /// Number of attempts.
        attempts: usize,
    },
    /// The IPAddress has another manager, and is not changed.
    NotManaged,
    /// The request was sent, but no response arrived. It may have been applied.
    NoResponse(Box<str>),
    /// The request was not sent.
    NotSent(Box<str>),
    /// The server rejected the request.
    Rejected {
        /// HTTP status code.
        code: u16,
        /// Reason, such as `AlreadyExists`.
        reason: Box<str>,
        /// Message of the server.
        message: Box<str>,
    },
    /// A part of a change was applied and cannot be rolled back.
    RollbackFailed,
    /// The server sent an invalid object.
    Unreadable(Box<str>),
}

impl Error {
    pub(crate) fn new(operation: &'static str, object: impl fmt::Display, cause: Cause) -> Self {
        Self::Failed {
            operation,
            object: object.to_string().into(),
            cause,
        }
    }

    /// Returns the cause of a failed operation.
    #[must_use]
    pub const fn cause(&self) -> Option<&Cause> {
        match self {
            Self::Failed { cause, .. } => Some(cause),
            Self::Field { .. } | Self::MissingField { .. } => None,
        }
    }

    /// Returns whether the object does not exist.
    #[must_use]
    pub const fn is_not_found(&self) -> bool {
        matches!(self.cause(), Some(Cause::Rejected { code: 404, .. }))
    }

    /// Returns whether the object already exists.
    #[must_use]
    pub fn is_already_exists(&self) -> bool {
        matches!(
            self.cause(),
            Some(Cause::Rejected { code: 409, reason, .. }) if **reason == *"AlreadyExists"
        )
    }

    /// Returns whether the object has changed since it was read.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        matches!(self.cause(), Some(Cause::Rejected { code: 409, .. })) && !self.is_already_exists()
    }

    /// Returns whether another process was faster, so that a new plan is required.
    pub(crate) fn is_race(&self) -> bool {
        self.is_conflict() || self.is_already_exists() || self.is_not_found()
    }

    /// Returns whether the change may have been applied.
    ///
    /// A server may fail after it has stored an object.
    #[must_use]
    pub const fn is_unknown(&self) -> bool {
        matches!(
            self.cause(),
            Some(
                Cause::NoResponse(_)
                    | Cause::RollbackFailed
                    | Cause::Unreadable(_)
                    | Cause::Rejected { code: 500.., .. }
            )
        )
    }

    /// Returns whether the server rejected this object, but may accept others.
    pub(crate) const fn is_rejected(&self) -> bool {
        matches!(
            self.cause(),
            Some(Cause::Rejected {
                code: 400 | 403 | 422,
                ..
            })
        )
    }

    /// Returns whether the continue token of a list has expired.
    pub(crate) const fn is_expired(&self) -> bool {
        matches!(self.cause(), Some(Cause::Rejected { code: 410, .. }))
    }
}

impl From<Error> for StoreError {
    fn from(error: Error) -> Self {
        Self::Other(Box::new(error))
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Configuration(text) | Self::NotSent(text) | Self::Unreadable(text) => {
                f.write_str(text)
            }
            Self::Contended { attempts } => write!(
                f,
                "conflict with other processes in each of {attempts} attempts"
            ),
            Self::NotManaged => f.write_str("not managed by ipallocator.k8s.io"),
            Self::NoResponse(text) => write!(f, "no response: {text}"),
            Self::Rejected { code, message, .. } => write!(f, "{message} (code {code})"),
            Self::RollbackFailed => f.write_str(
                "a part of the change was applied, and a conflict prevented its rollback",
            ),
        }
    }
}

impl Cause {
    /// Classifies an error of the HTTP client.
    pub(crate) fn of_request(error: kube::Error) -> Self {
        match error {
            // kube reports a response that it cannot parse as an empty status.
            kube::Error::Api(status) if status.code == 0 && status.status.is_none() => {
                Self::Unreadable("an object of another form".into())
            }
            kube::Error::Api(status) => Self::of_status(*status),
            kube::Error::SerdeError(error) => Self::Unreadable(chain(&error)),
            kube::Error::FromUtf8(error) => Self::Unreadable(chain(&error)),
            error @ (kube::Error::Service(_) | kube::Error::HyperError(_)) => {
                if has_no_connection(&error) {
                    Self::NotSent(chain(&error))
                } else {
                    Self::NoResponse(chain(&error))
                }
            }
            error @ (kube::Error::Auth(_)
            | kube::Error::BuildRequest(_)
            | kube::Error::InferConfig(_)
            | kube::Error::InferKubeconfig(_)
            | kube::Error::RustlsTls(_)
            | kube::Error::TlsRequired) => Self::NotSent(chain(&error)),
            error => Self::NoResponse(chain(&error)),
        }
    }

    fn of_status(status: Status) -> Self {
        Self::Rejected {
            code: status.code,
            message: match &*status.message {
                "" => "rejected without a message".into(),
                message => message.trim_end().into(),
            },
            reason: status.reason.into(),
        }
    }
}

/// Returns whether a request failed while connecting.
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

/// Returns the text of an error with its sources, without repetitions.
pub(crate) fn chain(error: &dyn StdError) -> Box<str> {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let chain = error.to_string();
        if !text.contains(&chain) {
            text = format!("{text}: {chain}");
        }
        cause = error.source();
    }
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rejected(code: u16, reason: &str) -> Error {
        let cause = Cause::Rejected {
            code,
            reason: reason.into(),
            message: "words".into(),
        };
        Error::new("create", "IPAddress 10.0.0.1", cause)
    }

    #[test]
    fn a_rejection_names_the_object_and_the_message_of_the_server() {
        let error = rejected(409, "AlreadyExists");
        assert_eq!(
            error.to_string(),
            "create IPAddress 10.0.0.1: words (code 409)"
        );
        assert!(error.is_already_exists() && !error.is_conflict() && error.is_race());
        let error = rejected(409, "Conflict");
        assert!(!error.is_already_exists() && error.is_conflict() && error.is_race());
        assert!(rejected(404, "NotFound").is_not_found());
    }

    #[test]
    fn only_requests_that_the_server_may_have_applied_are_unknown() {
        for code in [400, 403, 404, 409, 422, 429] {
            assert!(!rejected(code, "").is_unknown(), "{code}");
        }
        for code in [500, 503, 504] {
            assert!(rejected(code, "").is_unknown(), "{code}");
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
