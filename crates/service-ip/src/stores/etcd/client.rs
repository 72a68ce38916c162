//! Requests to a cluster of etcd, by its JSON gateway.

use std::io::{self, ErrorKind};

use thiserror::Error;
use ureq::{Agent, Timeout};

use super::message;
use super::setup::{EtcdCluster, EtcdSetupError};

/// How many bytes an answer may have: twice what etcd takes in a request.
const MOST: u64 = 4 << 20;

/// Numbers of gRPC with which etcd says that it did nothing: what was asked is
/// not valid, is not there, is not allowed, is too much, does not fit its
/// state, is not known, or it is not known who asks.
const REFUSALS: [u32; 7] = [3, 5, 7, 8, 9, 12, 16];

/// Speaks to the members of a cluster.
#[derive(Debug)]
pub(super) struct Client {
    agent: Agent,
    endpoints: Vec<Box<str>>,
    /// The member that answered last.
    current: usize,
}

/// Why there is no answer from any member that was asked.
#[derive(Debug, Error)]
#[error("{}", .failures.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub(super) struct NoAnswer {
    failures: Vec<Failure>,
}

/// Why there is no answer from a member.
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
    #[error("{words} (HTTP status {status})")]
    Refused {
        words: String,
        status: u16,
        code: Option<u32>,
    },
    #[error("it is no answer of etcd")]
    Odd,
}

/// What may be asked twice.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Repeat {
    /// What changes nothing.
    Always,
    /// What must be done once at most.
    IfNotSent,
}

impl Client {
    pub(super) fn new(cluster: &EtcdCluster) -> Result<Self, EtcdSetupError> {
        let trim = |text: &str| text.trim_end_matches('/').into();
        Ok(Self {
            agent: cluster.agent()?,
            endpoints: cluster.endpoints.iter().map(|text| trim(text)).collect(),
            current: 0,
        })
    }

    /// Asks the members one by one, until one of them has answered.
    pub(super) fn ask<T>(
        &mut self,
        path: &str,
        body: &str,
        repeat: Repeat,
        read: impl Fn(&[u8]) -> Option<T>,
    ) -> Result<T, NoAnswer> {
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
                Ok(None) => Cause::Odd,
                Err(cause) => cause,
            };
            self.current = (self.current + 1) % self.endpoints.len();
            let is_over = repeat == Repeat::IfNotSent && !cause.is_not_sent();
            failures.push(Failure { endpoint, cause });
            if is_over {
                break;
            }
        }
        Err(NoAnswer { failures })
    }

    fn post(&self, address: &str, body: &str) -> Result<Vec<u8>, Cause> {
        let request = self.agent.post(address).content_type("application/json");
        let mut response = request.send(body).map_err(Cause::Http)?;
        let status = response.status();
        let answer = response.body_mut().with_config().limit(MOST).read_to_vec();
        let answer = answer.map_err(Cause::Http)?;
        if status.is_success() {
            return Ok(answer);
        }
        let (words, code) = message::refusal(&answer);
        Err(Cause::Refused {
            words,
            status: status.as_u16(),
            code,
        })
    }
}

impl NoAnswer {
    /// Tells whether nothing has been done, for sure.
    pub(super) fn is_nothing_done(&self) -> bool {
        self.failures
            .iter()
            .all(|failure| failure.cause.is_not_sent() || failure.cause.is_refusal())
    }
}

impl Cause {
    /// Tells whether nobody has been asked, for sure.
    fn is_not_sent(&self) -> bool {
        match self {
            Self::Http(error) => match error {
                ureq::Error::ConnectionFailed
                | ureq::Error::HostNotFound
                | ureq::Error::Timeout(Timeout::Connect | Timeout::Resolve) => true,
                ureq::Error::Io(error) => cannot_connect(error),
                _ => false,
            },
            Self::Refused { .. } | Self::Odd => false,
        }
    }

    /// Tells whether etcd, or what is there in its place, refuses to do it.
    fn is_refusal(&self) -> bool {
        match self {
            Self::Refused {
                code: Some(code), ..
            } => REFUSALS.contains(code),
            Self::Refused { status, .. } => [400, 401, 403, 404, 405, 413].contains(status),
            Self::Http(_) | Self::Odd => false,
        }
    }
}

/// Tells whether an error is one that only connecting has, or one of the
/// handshake before the first byte of a request.
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

    fn refused(status: u16, code: Option<u32>) -> NoAnswer {
        let cause = Cause::Refused {
            words: "etcdserver: no".into(),
            status,
            code,
        };
        of(cause)
    }

    fn of(cause: Cause) -> NoAnswer {
        let endpoint = "http://a".into();
        NoAnswer {
            failures: vec![Failure { endpoint, cause }],
        }
    }

    #[test]
    fn what_was_refused_was_not_done_and_all_else_may_have_been() {
        for (status, code) in [(404, None), (400, Some(3)), (503, Some(8)), (403, Some(7))] {
            assert!(refused(status, code).is_nothing_done(), "{status} {code:?}");
        }
        // No leader, a time limit, a proxy that lost the member.
        for (status, code) in [(503, Some(14)), (504, Some(4)), (502, None), (200, None)] {
            assert!(
                !refused(status, code).is_nothing_done(),
                "{status} {code:?}"
            );
        }
        let text = refused(503, Some(14)).to_string();
        assert_eq!(text, "http://a: etcdserver: no (HTTP status 503)");
    }

    #[test]
    fn what_could_not_be_sent_was_not_done() {
        let io = |kind: ErrorKind| of(Cause::Http(ureq::Error::Io(kind.into())));
        assert!(io(ErrorKind::ConnectionRefused).is_nothing_done());
        assert!(!io(ErrorKind::ConnectionReset).is_nothing_done());
        assert!(!io(ErrorKind::UnexpectedEof).is_nothing_done());
        let timeout = |which| of(Cause::Http(ureq::Error::Timeout(which)));
        assert!(timeout(Timeout::Connect).is_nothing_done());
        assert!(!timeout(Timeout::Global).is_nothing_done());
        assert!(!of(Cause::Odd).is_nothing_done());
    }
}
