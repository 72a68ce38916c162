//! Errors.

use thiserror::Error;

use crate::{HResult, Id};

/// An error of HNS.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// HNS rejected a call.
    #[error("{operation} {object}: {code}{}", detail(message))]
    Rejected {
        /// The call, such as `create load balancer`.
        operation: &'static str,
        /// Identifier, name or frontend of the object.
        object: Box<str>,
        /// Error code.
        code: HResult,
        /// Error record of HNS, which is JSON; empty if HNS returned none.
        message: Box<str>,
    },
    /// HNS has no object with a name.
    #[error("{kind} {name}: not found")]
    NotFound {
        /// Kind of the object, such as `network`.
        kind: &'static str,
        /// Name of the object.
        name: Box<str>,
    },
    /// An identifier is not a GUID, so that HNS cannot have the object.
    #[error("{operation} {id}: the identifier is not a GUID")]
    InvalidId {
        /// The call.
        operation: &'static str,
        /// The identifier.
        id: Id,
    },
    /// A document is not valid JSON, or a reply has an unexpected form.
    #[error("{operation}: {source}")]
    Json {
        /// The call.
        operation: &'static str,
        /// The error of the parser.
        source: serde_json::Error,
    },
}

/// Returns the error record after a colon.
fn detail(message: &str) -> String {
    match message {
        "" => String::new(),
        message => format!(": {message}"),
    }
}

impl Error {
    /// Returns the error code, if HNS rejected a call.
    pub fn code(&self) -> Option<HResult> {
        match self {
            Self::Rejected { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Returns whether an object does not exist.
    pub fn is_not_found(&self) -> bool {
        match self {
            Self::Rejected { code, .. } => code.is_not_found(),
            Self::NotFound { .. } | Self::InvalidId { .. } => true,
            Self::Json { .. } => false,
        }
    }

    /// Returns whether HNS already has an object with this name, address or port.
    pub fn is_already_exists(&self) -> bool {
        let codes = [
            HResult::HCN_E_NETWORK_ALREADY_EXISTS,
            HResult::HCN_E_POLICY_ALREADY_EXISTS,
            HResult::HCN_E_PORT_ALREADY_EXISTS,
        ];
        self.code().is_some_and(|code| codes.contains(&code))
    }

    /// Returns whether this version of HNS does not implement a call.
    pub fn is_not_implemented(&self) -> bool {
        self.code() == Some(HResult::E_NOTIMPL)
    }
}
