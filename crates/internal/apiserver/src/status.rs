//! Errors as Kubernetes Status objects.

use axum::body::Body;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::response::Response;
use serde_json::{Value, json};

use crate::kind::Kind;

/// An error response of the API.
#[derive(Clone, Debug)]
pub(crate) struct StatusError {
    pub(crate) code: u16,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) details: Value,
    /// Token to continue a list inconsistently, at the newest version.
    pub(crate) resume: Option<String>,
    /// `Retry-After`, in seconds.
    pub(crate) retry_after: Option<u32>,
}

impl StatusError {
    pub(crate) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: Value::Null,
            resume: None,
            retry_after: None,
        }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub(crate) fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    pub(crate) fn forbidden(kind: Kind, verb: &str) -> Self {
        let (plural, group) = (kind.plural(), kind.group());
        let message = format!(
            "{plural} is forbidden: User \"system:kube-proxy\" cannot {verb} resource \"{plural}\" in API group \"{group}\""
        );
        Self::new(403, "Forbidden", message).about(kind, None)
    }

    pub(crate) fn not_found(kind: Kind, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", kind.plural());
        Self::new(404, "NotFound", message).about(kind, Some(name))
    }

    pub(crate) fn not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message)
    }

    pub(crate) fn conflict(kind: Kind, name: &str, reason: &'static str, why: &str) -> Self {
        let message = format!("{} \"{name}\" {why}", kind.plural());
        Self::new(409, reason, message).about(kind, Some(name))
    }

    pub(crate) fn gone(asked: u64, oldest: u64) -> Self {
        let message = format!("too old resource version: {asked} ({oldest})");
        Self::new(410, "Expired", message)
    }

    pub(crate) fn invalid(kind: Kind, name: &str, field: &str, why: &str) -> Self {
        let message = format!("{} \"{name}\" is invalid: {field}: {why}", kind.name());
        let mut error = Self::new(422, "Invalid", message).about(kind, Some(name));
        error.details["causes"] =
            json!([{ "reason": "FieldValueInvalid", "message": why, "field": field }]);
        error
    }

    pub(crate) fn too_new(asked: u64, newest: u64) -> Self {
        let message = format!("Too large resource version: {asked}, current: {newest}");
        let mut error = Self::new(504, "Timeout", message);
        error.details = json!({
            "causes": [{ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" }],
            "retryAfterSeconds": 1,
        });
        error.retry_after = Some(1);
        error
    }

    /// Returns the Status object.
    pub(crate) fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        });
        if !self.details.is_null() {
            status["details"] = self.details.clone();
        }
        if let Some(resume) = &self.resume {
            status["metadata"]["continue"] = resume.as_str().into();
        }
        if let Some(seconds) = self.retry_after {
            status["details"]["retryAfterSeconds"] = seconds.into();
        }
        status
    }

    /// Returns the HTTP response.
    pub(crate) fn response(&self) -> Response {
        let mut response = json(
            StatusCode::from_u16(self.code).expect("codes have three digits"),
            self.status().to_string().into_bytes(),
        );
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
        response
    }

    fn about(mut self, kind: Kind, name: Option<&str>) -> Self {
        self.details = json!({ "group": kind.group(), "kind": kind.plural() });
        if let Some(name) = name {
            self.details["name"] = name.into();
        }
        self
    }
}

/// Returns a response with a JSON body.
pub(crate) fn json(status: StatusCode, text: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    let kind = "application/json".parse().expect("the media type is ASCII");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
