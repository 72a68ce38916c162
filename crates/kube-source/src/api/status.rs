//! Status responses of the API server.

use std::fmt;
use std::time::Duration;

use kube::core;

/// A status other than success that the API server returned (`metav1.Status`).
///
/// Displays as the message and the code.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Status {
    /// HTTP status code, such as 404.
    pub code: u16,
    /// Reason for programs, such as `Expired`. May be empty.
    pub reason: String,
    /// Description of the error. May be empty.
    pub message: String,
    /// Delay that the server requests before the next attempt (`retryAfterSeconds`). Zero
    /// if the server requests none.
    pub retry_after: Duration,
    /// Reasons of the causes, such as `ResourceVersionTooLarge`.
    pub causes: Vec<String>,
}

impl Status {
    /// Converts a status of the HTTP client. Not an implementation of `From`, which would
    /// make the types of the client a part of the public API.
    pub(super) fn new(status: core::Status) -> Self {
        let (seconds, causes) = status.details.map_or((0, Vec::new()), |details| {
            (details.retry_after_seconds, details.causes)
        });
        Self {
            code: status.code,
            reason: status.reason,
            message: status.message,
            retry_after: Duration::from_secs(seconds.into()),
            causes: causes.into_iter().map(|cause| cause.reason).collect(),
        }
    }

    /// Parses a Status. Returns `None` for other objects, which have no code.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let status: core::Status = serde_json::from_str(text).ok()?;
        (status.code != 0).then(|| Self::new(status))
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, reason, .. } = self;
        match &*self.message {
            "" => write!(f, "rejected with code {code} {reason}"),
            message => write!(f, "{} (code {code})", message.trim_end()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_has_the_parts_of_the_response() {
        let text = r#"{"kind": "Status", "status": "Failure", "code": 504, "reason": "Timeout",
            "message": "Too large resource version: 9\n", "details": {"retryAfterSeconds": 1,
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "x"}]}}"#;
        let expected = Status {
            code: 504,
            reason: "Timeout".into(),
            message: "Too large resource version: 9\n".into(),
            retry_after: Duration::from_secs(1),
            causes: vec!["ResourceVersionTooLarge".into()],
        };
        let parsed = Status::parse(text).unwrap();
        assert_eq!(parsed, expected);
        let shown = "Too large resource version: 9 (code 504)";
        assert_eq!(parsed.to_string(), shown);
        assert_eq!(Status::parse(r#"{"kind": "Service"}"#), None);
    }
}
