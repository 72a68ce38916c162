//! Requests to the API server: pages of a list, watches, and creation of
//! objects.

use std::error::Error as StdError;
use std::time::Duration;
use std::{fmt, io, str};

use futures_util::stream::unfold;
use futures_util::{AsyncBufRead, AsyncBufReadExt, Stream};
use kube::Client;
use kube::api::{ListParams, PostParams, WatchParams};
use kube::core::Request;
use serde::Serialize;
use tokio::time::timeout;

use super::access::error_chain;
use super::change::Change;
use super::objects::Object;
use super::status::Status;

/// Maximum time until a watch begins or a page is complete.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum delay that a server may request with `retryAfterSeconds`.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

/// Maximum number of objects in a page. It bounds the memory of a list.
const PAGE_SIZE: u32 = 500;

/// Error of the access to the API server, or of a request to it.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The server returned a status other than success.
    Rejected(Box<Status>),
    /// The server did not respond in time.
    Timeout,
    /// The response cannot be decoded.
    InvalidResponse(String),
    /// The server is unreachable, or the connection broke.
    Unreachable(String),
    /// The credentials cannot be read, and there were none before.
    NoCredentials(String),
    /// The credentials or the address of the API server are missing or invalid. No request
    /// was sent.
    InvalidAccess(String),
}

impl Error {
    /// Returns whether the resource does not exist or must not be read: 404 or
    /// 403.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Rejected(status) if matches!(status.code, 403 | 404))
    }

    /// Returns the delay that the server requests before the next attempt: zero
    /// by default, 60 s at most.
    pub fn retry_after(&self) -> Duration {
        match self {
            Self::Rejected(status) => status.retry_after.min(MAX_RETRY_AFTER),
            _ => Duration::ZERO,
        }
    }

    /// Returns whether the server does not understand the request: 400.
    pub fn is_bad_request(&self) -> bool {
        matches!(self, Self::Rejected(status) if status.code == 400)
    }

    /// Returns whether the server rejects the parameters of the request: 422.
    pub fn is_invalid(&self) -> bool {
        matches!(self, Self::Rejected(status) if status.code == 422)
    }

    /// Returns whether a plain list may succeed where a list within a watch
    /// failed with this error.
    ///
    /// An API server with etcd older than 3.4.25 returns 500.
    pub fn is_failed_watch_list(&self) -> bool {
        let Self::Rejected(status) = self else {
            return false;
        };
        !matches!(status.code, 401 | 403 | 404 | 429) && !self.is_history_lost()
    }

    /// Returns whether the requested resource version is no longer, or not yet,
    /// available.
    pub fn is_history_lost(&self) -> bool {
        let Self::Rejected(status) = self else {
            return false;
        };
        let mut causes = status.causes.iter();
        matches!(status.code, 400 | 410) || causes.any(|reason| reason == "ResourceVersionTooLarge")
    }

    fn from_client(error: kube::Error) -> Self {
        match error {
            // kube reports a response that it cannot decode as an empty Status.
            kube::Error::Api(status) if status.code == 0 && status.status.is_none() => {
                Self::InvalidResponse("it is neither the requested object nor a Status".to_owned())
            }
            kube::Error::Api(status) => Self::Rejected(Box::new(Status::new(*status))),
            kube::Error::SerdeError(error) => error.into(),
            // kube names these errors after its own layers.
            kube::Error::Service(error) => Self::Unreachable(connection_error(&*error)),
            kube::Error::HyperError(error) => Self::Unreachable(connection_error(&error)),
            error => Self::Unreachable(error_chain(&error)),
        }
    }
}

/// Describes why a request got no response.
fn connection_error(error: &(dyn StdError + 'static)) -> String {
    let text = error_chain(error);
    // The words of rustls for a first byte that is no TLS.
    match text.contains("InvalidContentType") {
        true => "the server does not speak TLS on this port; use its port for HTTPS, or http:// \
                 in the address if it has none"
            .to_owned(),
        false => text,
    }
}

/// Describes why the body of a response ended. kube wraps these errors in its own, too.
fn body_error(error: &io::Error) -> String {
    let inner = error.get_ref().and_then(|it| it.downcast_ref());
    match inner {
        Some(kube::Error::Service(error)) => connection_error(error.as_ref()),
        _ => error_chain(error),
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rejected(status) => status.fmt(f),
            Self::Timeout => f.write_str("the server did not respond in time"),
            Self::InvalidResponse(error) => write!(f, "invalid response: {error}"),
            Self::Unreachable(reason)
            | Self::NoCredentials(reason)
            | Self::InvalidAccess(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for Error {}

impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Self {
        Self::InvalidResponse(error.to_string())
    }
}

/// Selectors of the objects of a kind.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Selectors {
    /// Label selector, if any.
    pub(crate) labels: Option<String>,
    /// Field selector, if any.
    pub(crate) fields: Option<String>,
}

impl Selectors {
    /// Returns the selectors of the objects that a service proxy uses.
    pub(crate) fn of_proxy<O: Object>() -> Self {
        Self {
            labels: O::LABELS.map(Into::into),
            fields: O::FIELDS.map(Into::into),
        }
    }
}

/// Required freshness of a list.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Freshness {
    /// The state of the server's watch cache (`resourceVersion=0`). Causes no
    /// read from etcd.
    Cached,
    /// The newest state, by a consistent read (no `resourceVersion`).
    Newest,
}

/// Starting point of a watch.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Start<'a> {
    /// After this resource version.
    After(&'a str),
    /// With the current objects, then changes (`sendInitialEvents=true`). A
    /// bookmark ends the initial list.
    List,
}

/// Requests a page of a list: the first page, or the page of token `next`.
///
/// # Errors
///
/// Returns [`Error`] if the server rejects the request or does not respond in
/// time.
pub(crate) async fn page<O: Object>(
    client: &Client,
    selectors: &Selectors,
    freshness: Freshness,
    next: Option<String>,
) -> Result<String, Error> {
    // The server rejects a resource version together with a continue token.
    let is_cached = freshness == Freshness::Cached && next.is_none();
    let params = ListParams {
        label_selector: selectors.labels.clone(),
        field_selector: selectors.fields.clone(),
        // A list from the watch cache has no pages.
        limit: (!is_cached).then_some(PAGE_SIZE),
        continue_token: next,
        resource_version: is_cached.then(|| "0".to_owned()),
        ..ListParams::default()
    };
    let request = Request::new(O::PATH).list(&params);
    let request = request.map_err(invalid_request)?;
    within_timeout(client.request_text(request)).await
}

/// Starts a watch that the server ends after `seconds`.
///
/// # Errors
///
/// Returns [`Error`] if the server rejects the request or does not respond in
/// time.
pub(crate) async fn watch<O: Object>(
    client: &Client,
    selectors: &Selectors,
    start: Start<'_>,
    seconds: u32,
) -> Result<impl Stream<Item = Result<Change<O>, Error>> + Send + use<O>, Error> {
    let (version, send_initial_events) = match start {
        Start::After(version) => (version, false),
        Start::List => ("", true),
    };
    let params = WatchParams {
        label_selector: selectors.labels.clone(),
        field_selector: selectors.fields.clone(),
        timeout: Some(seconds),
        send_initial_events,
        ..WatchParams::default()
    };
    let request = Request::new(O::PATH).watch(&params, version);
    let request = request.map_err(invalid_request)?;
    let lines = Box::pin(within_timeout(client.request_stream(request)).await?);
    Ok(unfold((lines, Vec::new()), |(mut lines, mut line)| async {
        let change = next_change(&mut lines, &mut line).await.transpose()?;
        Some((change, (lines, line)))
    }))
}

/// Reads the next line of a watch. Returns `None` at the end.
async fn next_change<O: Object>(
    lines: &mut (impl AsyncBufRead + Unpin),
    line: &mut Vec<u8>,
) -> Result<Option<Change<O>>, Error> {
    line.clear();
    match lines.read_until(b'\n', line).await {
        // The connection broke within a line.
        Ok(_) if line.last() != Some(&b'\n') => Ok(None),
        Ok(_) => {
            let text = str::from_utf8(line);
            let text = text.map_err(|error| Error::InvalidResponse(error.to_string()))?;
            Change::parse(text).map(Some)
        }
        Err(error) => Err(Error::Unreachable(body_error(&error))),
    }
}

/// Creates an object.
///
/// # Errors
///
/// Returns [`Error`] if the server rejects the object or does not respond in
/// time. After a timeout the object may exist.
pub(crate) async fn create(
    client: &Client,
    path: &str,
    object: &impl Serialize,
) -> Result<(), Error> {
    let text = serde_json::to_vec(object)?;
    let request = Request::new(path).create(&PostParams::default(), text);
    let request = request.map_err(invalid_request)?;
    within_timeout(client.request_text(request)).await.map(drop)
}

/// Waits for a response, for up to [`REQUEST_TIMEOUT`].
async fn within_timeout<T>(response: impl Future<Output = kube::Result<T>>) -> Result<T, Error> {
    let response = timeout(REQUEST_TIMEOUT, response).await;
    let response = response.map_err(|_| Error::Timeout)?;
    response.map_err(Error::from_client)
}

fn invalid_request(error: kube::core::request::Error) -> Error {
    Error::from_client(kube::Error::BuildRequest(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> Error {
        Error::Rejected(Box::new(Status::parse(text).unwrap()))
    }

    #[test]
    fn only_a_lost_history_causes_another_list() {
        let gone = refused(r#"{"code": 410, "reason": "Expired", "message": "too old"}"#);
        assert!(gone.is_history_lost());
        assert_eq!(gone.to_string(), "too old (code 410)");
        let ahead = refused(
            r#"{"code": 504, "reason": "Timeout", "message": "Too large resource version: 9",
            "details": {"causes": [{"reason": "ResourceVersionTooLarge", "message": "x"}]}}"#,
        );
        assert!(ahead.is_history_lost());
        assert!(!refused(r#"{"code": 504, "reason": "Timeout"}"#).is_history_lost());
        assert!(!Error::Timeout.is_history_lost());
    }

    #[test]
    fn an_error_that_is_no_status_is_an_invalid_response() {
        let error = Error::from_client(kube::Error::Api(Box::default()));
        assert!(matches!(error, Error::InvalidResponse(_)), "{error}");
        let status = kube::core::Status::failure("busy", "Timeout").with_code(504);
        let error = Error::from_client(kube::Error::Api(Box::new(status)));
        assert_eq!(error.to_string(), "busy (code 504)");
    }

    #[test]
    fn a_server_delays_the_next_request_with_retry_after() {
        let busy = refused(r#"{"code": 429, "details": {"retryAfterSeconds": 7}}"#);
        assert_eq!(busy.retry_after(), Duration::from_secs(7));
        let long = refused(r#"{"code": 429, "details": {"retryAfterSeconds": 7000}}"#);
        assert_eq!(long.retry_after(), MAX_RETRY_AFTER);
        assert_eq!(Error::Timeout.retry_after(), Duration::ZERO);
    }

    #[test]
    fn an_absent_resource_differs_from_an_unreachable_server() {
        assert!(refused(r#"{"code": 404}"#).is_absent());
        assert!(refused(r#"{"code": 403}"#).is_absent());
        assert!(!refused(r#"{"code": 500}"#).is_absent());
        let nameless = refused(r#"{"code": 500, "reason": "InternalError"}"#);
        assert_eq!(nameless.to_string(), "rejected with code 500 InternalError");
        assert!(!Error::Unreachable("x".into()).is_absent());
    }
}
