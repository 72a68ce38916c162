//! One question to the API server: a page of a list, or a watch.

use std::time::Duration;
use std::{fmt, str};

use futures_util::stream::unfold;
use futures_util::{AsyncBufRead, AsyncBufReadExt, Stream};
use kube::Client;
use kube::api::{ListParams, PostParams, WatchParams};
use kube::core::{Request, Status};
use serde::Serialize;
use tokio::time::timeout;

use super::access::words;
use super::change::Change;
use super::objects::Object;

/// How long an answer may take to begin, or a page to be complete.
const ANSWER: Duration = Duration::from_secs(60);

/// How long a server may ask to be left alone.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// How many objects a page has: few enough for little memory.
const PAGE: u32 = 500;

/// Why a question has no answer.
#[derive(Debug)]
pub enum Error {
    /// The server refuses.
    Refused(Box<Status>),
    /// It takes too long.
    Silent,
    /// What is sent cannot be read.
    Unreadable(String),
    /// The server is out of reach, or went away in the middle.
    Unreachable(String),
}

impl Error {
    /// Tells whether the server does not have what was asked for, or not for us.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Refused(status) if matches!(status.code, 403 | 404))
    }

    /// Returns how long the server asks to be left alone.
    pub fn asked_wait(&self) -> Duration {
        let Self::Refused(status) = self else {
            return Duration::ZERO;
        };
        let details = status.details.as_ref();
        let seconds = details.map_or(0, |details| details.retry_after_seconds);
        Duration::from_secs(seconds.into()).min(LONGEST_WAIT)
    }

    /// Tells whether the server does not understand the question.
    pub fn is_misunderstood(&self) -> bool {
        matches!(self, Self::Refused(status) if status.code == 400)
    }

    /// Returns whether the server rejects parameters that it knows.
    pub fn is_invalid(&self) -> bool {
        matches!(self, Self::Refused(status) if status.code == 422)
    }

    /// Returns whether a list on its own may succeed where a list within a
    /// watch failed with this error.
    ///
    /// An API server with an etcd older than 3.4.25 answers 500.
    pub fn is_failed_watch_list(&self) -> bool {
        let Self::Refused(status) = self else {
            return false;
        };
        !matches!(status.code, 401 | 403 | 404 | 429) && !self.is_history_lost()
    }

    /// Tells whether the server does not know any more, or not yet, what came
    /// after the point in its history that was asked for.
    pub fn is_history_lost(&self) -> bool {
        let Self::Refused(status) = self else {
            return false;
        };
        let causes = status.details.iter().flat_map(|details| &details.causes);
        let mut causes = causes.map(|cause| &*cause.reason);
        matches!(status.code, 400 | 410) || causes.any(|reason| reason == "ResourceVersionTooLarge")
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(status) => match &*status.message {
                "" => write!(f, "refused with code {} {}", status.code, status.reason),
                message => write!(f, "{} (code {})", message.trim_end(), status.code),
            },
            Self::Silent => f.write_str("no answer in time"),
            Self::Unreadable(error) => write!(f, "an answer that cannot be read: {error}"),
            Self::Unreachable(reason) => f.write_str(reason),
        }
    }
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        match error {
            // The client takes whatever it cannot read for a refusal without words.
            kube::Error::Api(status) if status.code == 0 && status.status.is_none() => {
                Self::Unreadable("an object of another shape".to_owned())
            }
            kube::Error::Api(status) => Self::Refused(status),
            kube::Error::SerdeError(error) => error.into(),
            error => Self::Unreachable(words(&error)),
        }
    }
}

impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Self {
        Self::Unreadable(error.to_string())
    }
}

impl From<Box<Status>> for Error {
    fn from(status: Box<Status>) -> Self {
        Self::Refused(status)
    }
}

/// How recent a list must be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Freshness {
    /// As the server's cache has it: `resourceVersion=0`. It costs etcd nothing.
    Cached,
    /// Not older than the request.
    Newest,
}

/// Where a watch begins.
#[derive(Clone, Copy, Debug)]
pub enum Start<'a> {
    /// After this version.
    After(&'a str),
    /// With all objects that exist, as of the request: `sendInitialEvents=true`.
    /// A bookmark ends them.
    List,
}

/// Asks for a page of a list: the first one, or the next one.
///
/// # Errors
///
/// The server refuses, or does not answer in time.
pub async fn page<O: Object>(
    client: &Client,
    fields: Option<&str>,
    freshness: Freshness,
    next: Option<String>,
) -> Result<String, Error> {
    // A server forbids a version beside the token of a page.
    let is_cached = freshness == Freshness::Cached && next.is_none();
    let question = ListParams {
        label_selector: O::LABELS.map(Into::into),
        field_selector: fields.map(Into::into),
        // A cache has no pages.
        limit: (!is_cached).then_some(PAGE),
        continue_token: next,
        resource_version: is_cached.then(|| "0".to_owned()),
        ..ListParams::default()
    };
    let request = Request::new(O::PATH).list(&question);
    let request = request.map_err(kube::Error::BuildRequest)?;
    let asked = timeout(ANSWER, client.request_text(request)).await;
    Ok(asked.map_err(|_| Error::Silent)??)
}

/// Starts a watch from a point in the server's history on, for so many seconds.
///
/// # Errors
///
/// The server refuses, or does not answer in time.
pub async fn watch<O: Object>(
    client: &Client,
    fields: Option<&str>,
    start: Start<'_>,
    seconds: u32,
) -> Result<impl Stream<Item = Result<Change<O>, Error>> + Send + use<O>, Error> {
    let (version, send_initial_events) = match start {
        Start::After(version) => (version, false),
        Start::List => ("", true),
    };
    let question = WatchParams {
        label_selector: O::LABELS.map(Into::into),
        field_selector: fields.map(Into::into),
        timeout: Some(seconds),
        send_initial_events,
        ..WatchParams::default()
    };
    let request = Request::new(O::PATH).watch(&question, version);
    let request = request.map_err(kube::Error::BuildRequest)?;
    let asked = timeout(ANSWER, client.request_stream(request)).await;
    let lines = Box::pin(asked.map_err(|_| Error::Silent)??);
    Ok(unfold((lines, Vec::new()), |(mut lines, mut line)| async {
        let change = next_change(&mut lines, &mut line).await.transpose()?;
        Some((change, (lines, line)))
    }))
}

/// Reads the next line of a watch; `None` at its end.
async fn next_change<O: Object>(
    lines: &mut (impl AsyncBufRead + Unpin),
    line: &mut Vec<u8>,
) -> Result<Option<Change<O>>, Error> {
    line.clear();
    match lines.read_until(b'\n', line).await {
        // The connection ended within a line.
        Ok(_) if line.last() != Some(&b'\n') => Ok(None),
        Ok(_) => {
            let text = str::from_utf8(line);
            let text = text.map_err(|error| Error::Unreadable(error.to_string()))?;
            Change::parse(text).map(Some)
        }
        Err(error) => Err(Error::Unreachable(words(&error))),
    }
}

/// Makes an object.
///
/// # Errors
///
/// The server does not take it, or it cannot be told whether it did.
pub async fn create(client: &Client, path: &str, object: &impl Serialize) -> Result<(), Error> {
    let text = serde_json::to_vec(object)?;
    let request = Request::new(path).create(&PostParams::default(), text);
    let request = request.map_err(kube::Error::BuildRequest)?;
    let asked = timeout(ANSWER, client.request_text(request)).await;
    asked.map_err(|_| Error::Silent)??;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> Error {
        Error::Refused(serde_json::from_str(text).unwrap())
    }

    #[test]
    fn only_lost_history_asks_for_another_list() {
        let gone = refused(r#"{"code": 410, "reason": "Expired", "message": "too old"}"#);
        assert!(gone.is_history_lost());
        assert_eq!(gone.to_string(), "too old (code 410)");
        let ahead = refused(
            r#"{"code": 504, "reason": "Timeout", "message": "Too large resource version: 9",
            "details": {"causes": [{"reason": "ResourceVersionTooLarge", "message": "x"}]}}"#,
        );
        assert!(ahead.is_history_lost());
        assert!(!refused(r#"{"code": 504, "reason": "Timeout"}"#).is_history_lost());
        assert!(!Error::Silent.is_history_lost());
    }

    #[test]
    fn a_server_may_ask_to_be_left_alone_for_a_while() {
        let busy = refused(r#"{"code": 429, "details": {"retryAfterSeconds": 7}}"#);
        assert_eq!(busy.asked_wait(), Duration::from_secs(7));
        let shy = refused(r#"{"code": 429, "details": {"retryAfterSeconds": 7000}}"#);
        assert_eq!(shy.asked_wait(), LONGEST_WAIT);
        assert_eq!(Error::Silent.asked_wait(), Duration::ZERO);
    }

    #[test]
    fn what_is_not_there_is_told_from_what_is_out_of_reach() {
        assert!(refused(r#"{"code": 404}"#).is_absent());
        assert!(refused(r#"{"code": 403}"#).is_absent());
        assert!(!refused(r#"{"code": 500}"#).is_absent());
        let nameless = refused(r#"{"code": 500, "reason": "InternalError"}"#);
        assert_eq!(nameless.to_string(), "refused with code 500 InternalError");
        assert!(!Error::Unreachable("x".into()).is_absent());
    }
}
