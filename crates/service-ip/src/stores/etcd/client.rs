//! Requests to the JSON gateway of an etcd cluster.

use std::io::{self, ErrorKind};

use thiserror::Error;
use ureq::{Agent, Timeout};

use super::message;
use super::setup::EtcdCluster;
use crate::InvalidValue;

/// Maximum size of a response in bytes: twice the maximum size of an etcd request.
const MAX_RESPONSE_SIZE: u64 = 4 << 20;

/// gRPC status codes after which etcd has not applied the request: `INVALID_ARGUMENT`,
/// `NOT_FOUND`, `PERMISSION_DENIED`, `RESOURCE_EXHAUSTED`, `FAILED_PRECONDITION`,
/// `UNIMPLEMENTED` and `UNAUTHENTICATED`.
const REJECTIONS: [u32; 7] = [3, 5, 7, 8, 9, 12, 16];

/// A client for the members of a cluster.
#[derive(Debug)]
pub(super) struct Client {
    agent: Agent,
    endpoints: Vec<Box<str>>,
    /// Index of the endpoint that responded last.
    current: usize,
}

/// The errors of all endpoints that were tried.
#[derive(Debug, Error)]
#[error("{}", .failures.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub(super) struct NoResponse {
    failures: Vec<Failure>,
}

/// The error of an endpoint.
#[derive(Debug, Error)]
#[error("{endpoint}: {cause}")]
struct Failure {
    endpoint: Box<str>,
    cause: Cause,
}

#[derive(Debug, Error)]
enum Cause {
    #[error("{0}")]
    Http(ureq::Error),
    #[error("{message} (HTTP status {status})")]
    Rejected {
        message: String,
        status: u16,
        code: Option<u32>,
    },
    #[error("not a response of etcd")]
    Invalid,
}

/// Whether a request may be sent to another endpoint after an error.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Repeat {
    /// Always: the request does not change anything.
    Always,
    /// Only if the request was not sent: it must be applied at most once.
    IfNotSent,
}

impl Client {
    pub(super) fn new(cluster: &EtcdCluster) -> Result<Self, InvalidValue> {
        let trim = |text: &str| text.trim_end_matches('/').into();
        Ok(Self {
            agent: cluster.agent()?,
            endpoints: cluster.endpoints.iter().map(|text| trim(text)).collect(),
            current: 0,
        })
    }

    /// Sends a request to the endpoints in turn until one responds.
    pub(super) fn ask<T>(
        &mut self,
        path: &str,
        body: &str,
        repeat: Repeat,
        read: impl Fn(&[u8]) -> Option<T>,
    ) -> Result<T, NoResponse> {
        let mut failures = Vec::new();
        for _ in 0..self.endpoints.len() {
            let endpoint = self
                .endpoints
                .get(self.current)
                .cloned()
                .unwrap_or_default();
            let answer = self.post(&format!("{endpoint}{path}"), body);
            let cause = match answer.map(|answer| read(&answer)) {
                Ok(Some(answer)) => return Ok(answer),
                Ok(None) => Cause::Invalid,
                Err(cause) => cause,
            };
            self.current = (self.current + 1) % self.endpoints.len();
            let is_over = repeat == Repeat::IfNotSent && !cause.is_not_sent();
            failures.push(Failure { endpoint, cause });
            if is_over {
                break;
            }
        }
        Err(NoResponse { failures })
    }

    fn post(&self, address: &str, body: &str) -> Result<Vec<u8>, Cause> {
        let request = self.agent.post(address).content_type("application/json");
        let mut response = request.send(body).map_err(Cause::Http)?;
        let status = response.status();
        let answer = response
            .body_mut()
            .with_config()
            .limit(MAX_RESPONSE_SIZE)
            .read_to_vec();
        let answer = answer.map_err(Cause::Http)?;
        if status.is_success() {
            return Ok(answer);
        }
        let (message, code) = message::error(&answer);
        Err(Cause::Rejected {
            message,
            status: status.as_u16(),
            code,
        })
    }
}

impl NoResponse {
    /// Returns whether the request was certainly not applied.
    pub(super) fn is_not_applied(&self) -> bool {
        self.failures
            .iter()
            .all(|failure| failure.cause.is_not_sent() || failure.cause.is_rejection())
    }
}

impl Cause {
    /// Returns whether the request was certainly not sent.
    fn is_not_sent(&self) -> bool {
        match self {
            Self::Http(error) => match error {
                ureq::Error::ConnectionFailed
                | ureq::Error::HostNotFound
                | ureq::Error::Timeout(Timeout::Connect | Timeout::Resolve) => true,
                ureq::Error::Io(error) => cannot_connect(error),
                _ => false,
            },
            Self::Rejected { .. } | Self::Invalid => false,
        }
    }

    /// Returns whether etcd or a proxy rejected the request.
    fn is_rejection(&self) -> bool {
        match self {
            Self::Rejected {
                code: Some(code), ..
            } => REJECTIONS.contains(code),
            Self::Rejected { status, .. } => [400, 401, 403, 404, 405, 413].contains(status),
            Self::Http(_) | Self::Invalid => false,
        }
    }
}

/// Returns whether the error occurred while connecting or during the TLS handshake,
/// before the first byte of a request.
fn cannot_connect(error: &io::Error) -> bool {
    let of_certificate = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(
        error.kind(),
        ErrorKind::ConnectionRefused
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
            | ErrorKind::AddrNotAvailable
    ) || matches!(of_certificate, Some(rustls::Error::InvalidCertificate(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rejected(status: u16, code: Option<u32>) -> NoResponse {
        let cause = Cause::Rejected {
            message: "etcdserver: no".into(),
            status,
            code,
        };
        of(cause)
    }

    fn of(cause: Cause) -> NoResponse {
        let endpoint = "http://a".into();
        NoResponse {
            failures: vec![Failure { endpoint, cause }],
        }
    }

    #[test]
    fn rejected_requests_are_not_applied_and_other_errors_are_unknown() {
        for (status, code) in [(404, None), (400, Some(3)), (503, Some(8)), (403, Some(7))] {
            assert!(rejected(status, code).is_not_applied(), "{status} {code:?}");
        }
        // No leader, a timeout, a proxy that lost the connection to the member.
        for (status, code) in [(503, Some(14)), (504, Some(4)), (502, None), (200, None)] {
            assert!(
                !rejected(status, code).is_not_applied(),
                "{status} {code:?}"
            );
        }
        let text = rejected(503, Some(14)).to_string();
        assert_eq!(text, "http://a: etcdserver: no (HTTP status 503)");
    }

    #[test]
    fn requests_that_could_not_be_sent_are_not_applied() {
        let io = |kind: ErrorKind| of(Cause::Http(ureq::Error::Io(kind.into())));
        assert!(io(ErrorKind::ConnectionRefused).is_not_applied());
        assert!(!io(ErrorKind::ConnectionReset).is_not_applied());
        assert!(!io(ErrorKind::UnexpectedEof).is_not_applied());
        let timeout = |which| of(Cause::Http(ureq::Error::Timeout(which)));
        assert!(timeout(Timeout::Connect).is_not_applied());
        assert!(!timeout(Timeout::Global).is_not_applied());
        assert!(!of(Cause::Invalid).is_not_applied());
    }
}
